import datetime
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.kinds.kind import MISSING, UNKNOWN
from ctrpipe.transforms.features.kinds.time import time_ids
from ctrpipe.transforms.log.kinds.time import Time
from ctrpipe.transforms.log.values import check_times

MOMENTS = [
    datetime.datetime(1997, 12, 4, 15, 55, 49),
    datetime.datetime(2024, 2, 29, 23, 59, 59),
    datetime.datetime(2014, 10, 21, 0, 0, 0),
    datetime.datetime(2026, 3, 29, 0, 59, 59),
    datetime.datetime(2026, 3, 29, 1, 0, 0),
    datetime.datetime(2026, 10, 25, 1, 30, 0),
]


def ids(texts, time_format="auto", zone="UTC"):
    feature = Time(columns=["t"], kind="time", format=time_format, timezone=zone)
    return time_ids(tf.constant(texts, tf.string), feature).numpy()


def parts(texts, time_format="auto", zone="UTC"):
    return (ids(texts, time_format, zone) - RESERVED_IDS).tolist()


def expected(moments):
    return [[moment.hour, moment.weekday(), int(moment.weekday() >= 5)] for moment in moments]


def faults(texts, time_format):
    found: dict[int, str] = {}
    check_times(pa.array([text.encode() or None for text in texts], pa.binary()), "t", found, time_format)
    return found


FORMATS = {
    "epoch_seconds": lambda moment: str(int(moment.replace(tzinfo=datetime.UTC).timestamp())),
    "epoch_milliseconds": lambda moment: str(int(moment.replace(tzinfo=datetime.UTC).timestamp() * 1000)),
    "iso8601": lambda moment: moment.isoformat(),
    **{
        pattern: lambda moment, pattern=pattern: moment.strftime(pattern)
        for pattern in (
            "%Y-%m-%d %H:%M:%S",
            "%d/%b/%Y:%H:%M:%S",
            "%B %d, %Y %I:%M %p",
            "%m/%d/%y %H.%M",
            "%a %d %b %H:%M:%S %Y",
            "%F %T.%f",
            "%Y%m%d%H",
        )
    },
}


@pytest.mark.parametrize("time_format", FORMATS)
def test_a_declared_format_gives_the_parts_that_python_gives(time_format):
    texts = [FORMATS[time_format](moment) for moment in MOMENTS]
    assert parts(texts, time_format) == expected(MOMENTS)
    assert not faults(texts, time_format)


@pytest.mark.parametrize("text", ["2026-11-01 23:30:05", "2026-11-01 23:30:05.5", "2026-11-01 23:30:05.123456789"])
def test_a_whole_second_may_lack_its_fraction_as_python_and_parquet_write_it(text):
    moment = datetime.datetime(2026, 11, 1, 23, 30)
    assert parts([text], "%Y-%m-%d %H:%M:%S.%f") == expected([moment])
    assert not faults([text], "%Y-%m-%d %H:%M:%S.%f")
    assert faults([f"{text}."], "%Y-%m-%d %H:%M:%S.%f")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("14102107", (2014, 10, 21, 7)),
        ("2014102107", (2014, 10, 21, 7)),
        ("881250949", (1997, 12, 4, 15)),
        ("1414281600", (2014, 10, 26, 0)),
        ("1414281600123", (2014, 10, 26, 0)),
        ("2026-11-01T23:30:00Z", (2026, 11, 1, 23)),
        ("2026-11-01T23:30:00.123456+02:00", (2026, 11, 1, 21)),
        ("2026-11-01 23:30:00-0530", (2026, 11, 2, 5)),
        ("2026-11-01 23:30", (2026, 11, 1, 23)),
        ("2026-11-01 12:30:00.000000+01", (2026, 11, 1, 11)),
    ],
)
def test_a_time_is_known_by_its_form(text, moment):
    assert parts([text]) == expected([datetime.datetime(*moment)])
    assert not faults([text], "auto")


@pytest.mark.parametrize(
    "arrow", [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC")]
)
def test_the_text_of_a_parquet_timestamp_is_a_time(arrow):
    texts = pa.array(MOMENTS, pa.timestamp("us")).cast(arrow).cast(pa.string()).to_pylist()
    assert parts(texts) == expected(MOMENTS) and not faults(texts, "auto")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Casablanca"])
def test_epochs_and_times_with_a_zone_become_those_of_the_zone(zone):
    random = np.random.default_rng(3)
    moments = [datetime.datetime.fromtimestamp(int(s), datetime.UTC) for s in random.integers(10**9, 2 * 10**9, 300)]
    there = [moment.astimezone(zoneinfo.ZoneInfo(zone)) for moment in moments]
    assert parts([str(int(moment.timestamp())) for moment in moments], zone=zone) == expected(there)
    assert parts([moment.isoformat() for moment in there], zone=zone) == expected(there)
    assert parts([moment.strftime("%Y-%m-%d %H:%M") for moment in there], zone=zone) == expected(there)


def test_the_hour_of_a_date_is_missing():
    day = datetime.datetime(2026, 11, 1)
    assert ids(["2026-11-01"]).tolist() == [[MISSING, *(part + RESERVED_IDS for part in expected([day])[0][1:])]]


BAD = ["hello", "141021", "14139900", "2026-13-01", "2026-11-01T25:00:00", "2026/11/01", "1414281600x", "20261101 "]


def test_what_the_graph_does_not_know_is_what_the_reader_calls_malformed():
    texts = [*BAD, "14102100", ""]
    local = ids(texts)
    assert local[: len(BAD)].tolist() == [[UNKNOWN] * 3] * len(BAD)
    assert local[-1].tolist() == [MISSING] * 3
    assert sorted(faults(texts, "auto")) == list(range(len(BAD)))
    assert faults(["14102100", "soon"], "auto") == {1: "t: 'soon' is not a time of a known format"}
    assert faults(["14102100"], "iso8601") == {0: "t: '14102100' is not a time as iso8601"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"format": "dmy"}, "format 'dmy' is none of auto, yymmddhh"),
        ({"format": "%d.%m"}, "format '%d.%m' does not say the year"),
        ({"format": "%Y-%m-%d %Y"}, "says the year twice"),
        ({"format": "%Y-%j"}, "%j cannot be read"),
        ({"timezone": "Mars/Base"}, "timezone 'Mars/Base' is unknown"),
        ({"timezone": "../etc"}, "is unknown"),
    ],
)
def test_a_format_that_cannot_be_read_is_a_mistake(keys, message):
    with pytest.raises(ValueError, match=message):
        Time(columns=["t"], kind="time", **keys)


@pytest.mark.parametrize("time_format", ["yymmddhh", "epoch_seconds", "epoch_milliseconds", "iso8601", "%d.%m.%Y %z"])
def test_every_format_knows_what_is_no_time_and_what_is_missing(time_format):
    assert ids(["no time", ""], time_format).tolist() == [[UNKNOWN] * 3, [MISSING] * 3]
    assert list(faults(["no time", ""], time_format)) == [0]
