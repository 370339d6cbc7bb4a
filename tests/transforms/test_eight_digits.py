"""Times of eight digits: YYYYMMDD or YYMMDDHH, by their column as a whole."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.pipeline.draft.columns import guess_column
from ctrpipe.transforms.features.analyzers import LogCounter, merge
from ctrpipe.transforms.features.kinds.kind import MISSING
from ctrpipe.transforms.features.kinds.time import time_ids
from ctrpipe.transforms.features.learned import Learned
from ctrpipe.transforms.labels.late_labels import join_late_labels
from ctrpipe.transforms.log.epochs import epoch_seconds
from ctrpipe.transforms.log.kinds.time import Time
from ctrpipe.transforms.log.spec import LabelDelay, LogSpec
from ctrpipe.transforms.log.times import EightDigits, time_pattern

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["y", "day"], "labels": {"ctr": "y"}},
        "features": [{"kind": "time", "columns": ["day"]}],
    }
)
DAYS = [datetime.date(2012, 3, 1) + datetime.timedelta(days) for days in range(40)]
HOURS = [datetime.datetime(2020, 12, 3) + datetime.timedelta(hours=hours) for hours in range(60)]


def summarized(*parts: list[str]):
    summaries = []
    for part in parts:
        counter = LogCounter.of_log(SPEC)
        counter.add({"day": pa.array([value.encode() or None for value in part], pa.binary()).dictionary_encode()})
        summaries.append(counter.summary())
    return merge(summaries)


def learned(folder, *parts: list[str]) -> float:
    return Learned(SPEC, summarized(*parts), folder).numbers()["day"].tolist()[0]


def test_the_column_as_a_whole_tells_dates_from_hours(tmp_path):
    days, hours = [f"{day:%Y%m%d}" for day in DAYS], [f"{hour:%y%m%d%H}" for hour in HOURS]
    assert learned(tmp_path, days[:20], days[20:]) == 1  # the part with the 24th tells it of the other one
    assert learned(tmp_path, hours[:20], hours[20:]) == 0  # midnight is no day
    assert learned(tmp_path, ["14102100", ""], ["20141021"[2:] + "05"]) == 0
    assert learned(tmp_path, ["1414281600", "2026-11-01", "2014102100", ""]) == 0
    assert learned(tmp_path, ["19990101"], ["20010203"]) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["20120315", "20120310"], "as 20120315, can be YYYYMMDD and YYMMDDHH; set the format"),
        (["20120331", "14102100"], "20120331 can only be YYYYMMDD, 14102100 only YYMMDDHH; write"),
    ],
)
def test_what_the_column_does_not_tell_is_asked_for(values, message, tmp_path):
    with pytest.raises(InputError, match=message):
        learned(tmp_path, values)


FORMS = {
    "%Y%m%d": True,
    "%y%m%d%H": False,
    "%Y%m%d%H": True,
    "%Y%m%d%H%M": False,
    "%Y%m%d%H%M%S": True,
    "%Y-%m-%dT%H:%M": False,
}


@pytest.mark.parametrize(("form", "dates"), FORMS.items())
def test_every_form_is_read_as_the_calendar_does(form, dates):
    moments = [datetime.datetime(2012, 3, 15, 7, 41) + datetime.timedelta(hours=1009 * n) for n in range(40)]
    texts = [moment.strftime(form) for moment in moments]
    ids = time_ids(tf.constant(texts), Time(columns=["day"], kind="time"), dates).numpy()
    hours = [moment.hour + RESERVED_IDS if "%H" in form else MISSING for moment in moments]
    assert ids[:, 0].tolist() == hours
    assert (ids[:, 1] - RESERVED_IDS).tolist() == [moment.weekday() for moment in moments]
    expected = [datetime.datetime.strptime(text, form).replace(tzinfo=datetime.UTC).timestamp() for text in texts]
    expected = [seconds // 60 * 60 for seconds in expected]
    assert epoch_seconds(pa.array(texts), "auto", dates).tolist() == expected
    for text in texts:
        assert pa.compute.match_substring_regex(pa.scalar(text), time_pattern("auto")).as_py()


def test_epochs_are_no_dates():
    texts = ["874724710", "1332000000", "1332000000123", "1976000000"]
    for dates in (False, True):
        assert epoch_seconds(pa.array(texts), "auto", dates).tolist() == [874724710, 1332000000, 1332000000, 1976000000]
    assert np.isnan(epoch_seconds(pa.array(["20120399", "14100101"]), "yyyymmdd")).all()


@pytest.mark.parametrize(
    ("values", "settings", "unsure"),
    [
        ([f"{day:%Y%m%d}" for day in DAYS], {"kind": "time", "format": "yyyymmdd"}, False),
        ([f"{hour:%y%m%d%H}" for hour in HOURS], {"kind": "time", "format": "yymmddhh"}, False),
        (["20120315", "20120310", "20120312"], {"kind": "time", "format": "yyyymmdd"}, True),
        ([f"{hour:%Y%m%d%H}" for hour in HOURS], {"kind": "time"}, False),
        ([f"{hour:%Y%m%d%H%M}" for hour in HOURS], {"kind": "time"}, False),
        ([f"{hour:%Y%m%d%H%M%S}" for hour in HOURS], {"kind": "time"}, False),
        ([str(int(hour.timestamp())) for hour in HOURS], {"kind": "time"}, False),
    ],
)
def test_init_drafts_the_form_of_the_column(values, settings, unsure):
    guess = guess_column("day", values * 3, is_list=False)
    assert (guess.settings, guess.unsure) == (settings, unsure), guess.comment


def test_labels_that_arrive_late_have_dates_too(tmp_path):
    lines = [f"{day:%Y%m%d},{int(n % 3 == 0)}" for n, day in enumerate(DAYS)]
    (tmp_path / "log.csv").write_text("\n".join(["day,click", *lines]) + "\n")
    delay = LabelDelay(time="day", delay="5d")
    found = join_late_labels([str(tmp_path / "log.csv")], delay, tmp_path / "joined")
    assert found.until == "2012-04-09T00:00:00Z" and found.pending == 5 and found.rows == 35
    (tmp_path / "two.csv").write_text("day,click\n20120305,1\n20120306,0\n")
    with pytest.raises(InputError, match="day: its times of eight digits, as 20120305, can be"):
        join_late_labels([str(tmp_path / "two.csv")], delay, tmp_path / "again")


def test_digits_of_other_lengths_do_not_count():
    found = EightDigits.among(["2012-03-15", "2012031", "201203150", "２０１２０３１５"])
    assert found == EightDigits() and found.are_told and not found.are_dates("day")
