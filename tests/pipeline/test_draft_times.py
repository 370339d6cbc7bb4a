"""The times that `ctrpipe init` finds in a column. The whole column decides; a format that stays open is a question."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.draft.columns import guess_column
from ctrpipe.pipeline.draft.other_times import other_times
from ctrpipe.pipeline.draft.page import draft
from ctrpipe.transforms.log.epochs import epoch_seconds
from ctrpipe.transforms.log.kinds.guess import Guess
from ctrpipe.transforms.log.times import EightDigits

DAYS = [datetime.datetime(2026, 5, 1, 9, 30) + datetime.timedelta(hours=7 * step) for step in range(120)]
FIRST_DAYS = [datetime.datetime(2026, 1 + step % 12, 1 + step % 11, 9, 30) for step in range(120)]
CLOCKS = ["", " %H:%M", " %H:%M:%S", " %I:%M:%S %p"]


def guess(values, name: str = "shown") -> Guess:
    return guess_column(name, list(map(str, values)), False)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    "date", ["%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y", "%d/%m/%y", "%d-%m-%Y", "%m-%d-%Y", "%d.%m.%Y", "%Y/%m/%d"]
)
def test_a_day_above_12_tells_the_order_of_day_and_month(date, clock):
    found = guess(day.strftime(date + clock) for day in DAYS)
    assert found.settings == {"kind": "time", "format": date + clock} and not found.unsure


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    ("first", "others"),
    [
        ("%m/%d/%Y", ["%d/%m/%Y"]),
        ("%m-%d-%Y", ["%d-%m-%Y"]),
        ("%m/%d/%y", ["%d/%m/%y", "%y/%m/%d"]),
    ],
)
def test_an_order_that_no_value_tells_is_asked_for(first, others, clock):
    days = [day.replace(year=2001 + day.month) for day in FIRST_DAYS]
    found = guess(day.strftime(first + clock) for day in days)
    assert found.settings == {"kind": "time", "format": first + clock} and found.unsure
    asked = " or ".join(repr(other + clock) for other in others)
    assert found.comment.endswith(f"; or format: {asked}, which fits as well?")


def test_versions_are_no_dates_and_days_by_their_name_are():
    versions = [f"{1 + step % 9}.{step % 12 + 1}.{step % 30}" for step in range(40)] * 3
    assert guess(versions, "version").settings["kind"] == "categorical"
    assert guess((day.strftime("%d-%m-%y") for day in DAYS), "day").settings["format"] == "%d-%m-%y"


@pytest.mark.parametrize(
    "texts",
    [
        [f"{1714435200.25 + 61.5 * step}" for step in range(120)],
        [f"{1714435200 + 61 * step}{'.5' if step % 3 else ''}" for step in range(120)],
        [f"{1714435200123.5 + 61000 * step}" for step in range(120)],
    ],
)
def test_epochs_with_decimals_are_times(texts):
    assert guess(texts).settings == guess(texts, "ts").settings == {"kind": "time"}
    seconds = epoch_seconds(pa.array(texts).cast(pa.binary()), "auto")
    scale = 1000 if len(texts[0].partition(".")[0]) > 10 else 1
    assert seconds.tolist() == [float(text) // scale for text in texts]
    assert guess([f"{10.25 + step}" for step in range(120)], "price").settings["kind"] == "numeric"


def test_epochs_in_a_column_of_another_name_are_asked_about():
    """A telephone number may have the same digits."""
    numbers = [f"{1400000000 + 7919 * (step * 37 % 120)}" for step in range(120)]
    for name in ("number", "shown"):
        found = guess(numbers, name)
        assert found.settings == {"kind": "time"} and found.unsure
        assert found.comment.endswith("; its name is no time's: are they, or ids or amounts?")
    for name in ("ts", "event_time", "unix_seconds", "epoch"):
        assert guess(numbers, name).settings == {"kind": "time"} and not guess(numbers, name).unsure
    for name in ("phone", "caller_phone", "msisdn"):
        assert not guess(numbers, name).settings
    days = guess((f"{day:%Y-%m-%d %H:%M}" for day in DAYS), "shown")
    assert days.settings == {"kind": "time"} and not days.unsure


def test_epochs_with_an_exponent_are_named_and_left_out():
    found = guess(f"{1714435200 + 7000 * step:.6e}" for step in range(120))
    assert not found.settings and found.unsure
    assert found.comment == "times as 1.714435e+09, whose exponent is not read: left out; write 1714435000"
    assert guess((f"{1.5e3 + step:.3e}" for step in range(120)), "price").settings["kind"] == "numeric"


def test_days_before_months_are_no_hours_of_the_20th():
    """15032021 is 21 o'clock on the 20th of March 2015 as YYMMDDHH."""
    days = [f"{datetime.date(2021, 3, 1) + datetime.timedelta(step):%d%m%Y}" for step in range(60)]
    digits = EightDigits.among(days[:9]) | EightDigits.among(days[9:])
    with pytest.raises(InputError, match="as 01032021, can be DDMMYYYY and YYMMDDHH; set the format"):
        digits.are_dates("day")
    found = guess(days, "day")
    assert found.settings == {"kind": "time", "format": "%d%m%Y"} and found.unsure
    hours = [f"141020{hour:02}" for hour in range(24)]  # all of one 20th
    assert EightDigits.among(hours).are_dates("hour") is False
    assert (EightDigits.among(days) | EightDigits.among(["14102100"])).are_dates("hour") is False


def test_times_of_several_forms_are_left_out_with_the_forms():
    forms = ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M", "%m/%d/%y %I:%M %p"]
    found = guess(day.strftime(forms[number % 3]) for number, day in enumerate(DAYS))
    assert found.settings == {} and found.unsure
    assert found.comment.startswith(
        "times of 3 forms, as 2026-05-01 09:30:00, 01.05.2026 16:30, 05/01/26 11:30 PM: left out"
    )


def test_versions_and_codes_are_not_times_of_several_forms():
    versions = [
        f"{1 + step % 9}.{step % 12 + 1}.{step % 30}" if step % 2 else f"1-{step % 9}-{step % 7}" for step in range(200)
    ]
    assert guess(versions, "version").settings["kind"] == "categorical"


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("date", ["%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y"])
def test_dates_with_the_month_by_its_name_are_times(date, clock):
    days = [day + datetime.timedelta(days=45) for day in DAYS]  # May is long and short
    found = guess(day.strftime(date + clock) for day in days)
    assert found.settings == {"kind": "time", "format": date + clock} and not found.unsure


@pytest.mark.parametrize("form", ["%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S +0000 %Y", "%a, %d %b %Y %H:%M:%S GMT"])
def test_times_of_programs_and_mails_are_times(form):
    assert guess(day.strftime(form) for day in DAYS).settings == {"kind": "time", "format": form.replace("+0000", "%z")}


@pytest.mark.parametrize("form", ["%b %d, %Y at %H:%M", "%Y %m %d %H:%M", "%A, %d %B %Y"])
def test_times_of_an_unknown_form_are_named_and_left_out(form):
    found = guess(day.strftime(form) for day in DAYS)
    assert not found.settings and found.unsure and "whose form is not known: left out" in found.comment


@pytest.mark.parametrize(
    ("form", "read"),
    [
        ("%y%m%d%H%M", "%y%m%d%H%M"),
        ("%y%m%d%H%M%S", "%y%m%d%H%M%S"),
        ("%d%m%y", "%d%m%y"),
        ("%y%m%d", "%y%m%d"),
        ("%Y%m%dT%H%M", "%Y%m%dT%H%M"),
        ("%Y%m%dT%H%M%S", "%Y%m%dT%H%M%S"),
        ("%Y%m%dT%H%M%SZ", "%Y%m%dT%H%M%S%z"),
        ("%Y%m%dT%H%M%S.250+02:00", "%Y%m%dT%H%M%S.%f%z"),
        ("%Y%m%d %H:%M:%S", "%Y%m%d %H:%M:%S"),
        ("%Y-%m-%d %I:%M:%S %p", "%Y-%m-%d %I:%M:%S %p"),
        ("%Y_%m_%d", "%Y_%m_%d"),
    ],
)
def test_times_without_separators_are_read_as_what_the_column_is(form, read):
    texts = [(day.replace(year=2024) if "%y" in form else day).strftime(form) for day in DAYS]
    found = guess(texts, "shown_at")
    assert found.settings == {"kind": "time", "format": read}
    wanted = [day.strftime("%Y-%m-%dT%H:%M") for day in DAYS]
    if "%y" in form:
        wanted = [day.replace(year=2024).strftime("%Y-%m-%dT%H:%M") for day in DAYS]
    if "%H" not in form and "%I" not in form:
        wanted = [text[:10] + "T00:00" for text in wanted]
    seconds = epoch_seconds(pa.array(texts).cast(pa.binary()), read).astype("datetime64[s]")
    shift = np.timedelta64(2 if "+02" in form else 0, "h")
    assert [str(moment)[:16] for moment in seconds + shift] == wanted


def test_ten_digits_are_epochs_where_one_of_them_is_no_time_of_a_short_year():
    years = [day.replace(year=2014).strftime("%y%m%d%H%M") for day in DAYS]
    found = guess(years, "shown")
    assert found.settings["format"] == "%y%m%d%H%M" and found.unsure and "'epoch_seconds'" in found.comment
    assert guess([f"{1400000000 + 4000 * step}" for step in range(120)], "shown").settings == {"kind": "time"}
    hours = [day.strftime("%Y%m%d%H") for day in DAYS]
    assert guess(hours, "shown").settings == {"kind": "time"}


@pytest.mark.parametrize(
    ("written", "what"),
    [
        (lambda day: f"{day:%G-W%V-%u}", "days of ISO weeks"),
        (lambda day: f"{day:%Y-%j}", "days of a year"),
        (lambda day: f"{day:%Y%j}", "days of a year"),
        (lambda day: f"{day:%d%m%y}".lstrip("0"), "days without their leading zero"),
        (lambda day: f"/Date({int(day.timestamp()) * 1000})/", "milliseconds in words"),
        (lambda day: f"{day.hour} hours ago", "times before an export"),
        (lambda day: f"{day.timestamp() / 86400 + 25569:.5f}", "days of a spreadsheet"),
        (lambda day: f"{day.timestamp() // 86400:.0f}", "days since 1970"),
        (lambda day: f"{day.timestamp() // 3600:.0f}", "hours since 1970"),
        (lambda day: f"{day.timestamp() // 60:.0f}", "minutes since 1970"),
        (lambda day: f"{day.timestamp() / 86400 + 2440587.5:.4f}", "Julian days"),
        (lambda day: f"{day.timestamp() * 1e6:.0f}", "microseconds since 1970"),
        (lambda day: f"{int(day.timestamp()) * 10**9}", "nanoseconds since 1970"),
        (lambda day: f"{(int(day.timestamp()) + 11644473600) * 10**7}", "file times of Windows"),
        (lambda day: f"{(int(day.timestamp()) + 62135596800) * 10**7}", "ticks of .NET"),
    ],
)
def test_times_that_are_not_read_are_left_out_by_their_name(written, what):
    days = [day + datetime.timedelta(days=step) for step, day in enumerate(DAYS)]
    found = guess(map(written, days), "shown_at")
    assert not found.settings and found.unsure
    assert found.comment.startswith(f"times as {written(days[0])}, {what}, which are not read: left out; write ")


@pytest.mark.parametrize(
    ("form", "name"),
    [("%GW%V", "day"), ("%Y-%m", "day"), ("%m/%Y", "day"), ("%Y%m", "month"), ("%y%m", "yymm")]
    + [("%b-%Y", "issue_d"), ("%Y, %B", "cohort")],
)
def test_weeks_and_months_are_categories_that_are_asked_about(form, name):
    found = guess((day.strftime(form) for day in DAYS), name)
    assert found.settings == {"kind": "categorical"} and found.unsure
    assert found.comment.endswith("are categories: do they return in later rows?")


def test_six_digits_of_a_column_named_yymmdd_are_days_and_no_months():
    found = guess((day.replace(year=2024).strftime("%y%m%d") for day in DAYS), "date_yymmdd")
    assert found.settings == {"kind": "time", "format": "%y%m%d"}


@pytest.mark.parametrize("unit", [1, 1000])
def test_epochs_before_1970_are_left_out_and_named(unit):
    numbers = [(step * 31_104_000 - 900_000_000) * unit for step in range(60)]
    found = guess(map(str, numbers), "joined_ts")
    assert not found.settings and found.comment.startswith(f"epochs, as {numbers[0]}, some of which are before 1970")
    differences = guess((str(number // 10_000) for number in numbers), "time_left")
    assert "1970" not in differences.comment


@pytest.mark.parametrize("wrong", ["2026-05-01 24:30", "0000-00-00 00:00", "never"])
def test_a_value_that_is_no_time_is_shown_beside_one_that_is(wrong):
    found = guess(wrong if step % 20 == 7 else f"{day:%Y-%m-%d %H:%M}" for step, day in enumerate(DAYS))
    assert not found.settings and found.unsure
    assert found.comment.startswith(
        f"times as 2026-05-01 09:30, and 5.0% of the values, as {wrong}, are none: left out"
    )


@pytest.mark.parametrize(
    "numbers",
    [
        [f"{45 + step / 7:.2f}" for step in range(120)],
        [f"{100_000 + 37 * step}" for step in range(120)],
        [f"{5_000_000_000 + 7_919_111 * step}" for step in range(120)],
    ],
)
def test_other_numbers_of_a_time_name_are_no_times(numbers):
    found = guess(numbers, "time")
    assert found.settings.get("kind") != "time" and "times" not in found.comment


def test_times_that_are_not_those_of_the_rows_are_left_out():
    """A model would read the weekday of a birthday."""
    columns = {
        "shown_at": [f"{day:%Y-%m-%d %H:%M:%S}" for day in DAYS],
        "birthday": [f"{datetime.date(1950, 1, 1) + datetime.timedelta(step * 137)}" for step in range(len(DAYS))],
        "signup": [f"{datetime.date(2021, 1, 1) + datetime.timedelta(step * 13)}" for step in range(len(DAYS))],
        "seen": [f"{datetime.date(2019, 1, 1) + datetime.timedelta(step * 13)}" for step in range(len(DAYS))],
        "installed": [f"{day - datetime.timedelta(hours=3):%Y-%m-%d %H:%M:%S}" for day in DAYS],
    }
    guesses = {name: guess(values, name) for name, values in columns.items()}
    found = other_times(columns, guesses)
    assert set(found) == {"birthday", "signup", "seen"}
    assert found["birthday"].comment.startswith("dates of 1952 to 1992, which are not the rows' own")
    assert not any(each.settings for each in found.values())
    # Ratings of many years, as MovieLens has them: without another time they are the rows' own.
    assert not other_times({"seen": columns["seen"]}, {"seen": guesses["seen"]})


@pytest.mark.parametrize(
    "written",
    [
        lambda second: f"{second}.5",
        lambda second: "" if second % 30 == 0 else str(second),
        lambda second: "NULL" if second % 30 == 0 else f"{second}000",
        lambda second: f"{datetime.datetime.fromtimestamp(second, datetime.UTC):%y%m%d%H%M}",
        lambda second: f"{datetime.datetime.fromtimestamp(second, datetime.UTC):%Y%m%dT%H%M%SZ}",
        lambda second: f"{datetime.datetime.fromtimestamp(second, datetime.UTC):%Y%m%d%H}",
        lambda second: f"{datetime.datetime.fromtimestamp(second, datetime.UTC):%Y-%m-%dT%H:%M:%S}.123456789012Z",
    ],
)
def test_a_log_that_is_not_in_the_order_of_its_times_is_split_by_them(tmp_path, written):
    seconds = [1_714_435_201 + 3607 * step for step in range(300)]
    clicks = [step % 4 == 0 for step in range(300)]
    by_kind = {}
    for name, order in (("shuffled", np.random.default_rng(2).permutation(300)), ("sorted", range(300))):
        lines = [f"{written(seconds[row])},shop{row % 7},{clicks[row]:d}" for row in order]
        (tmp_path / f"{name}.csv").write_text("\n".join(["shown_at,shop,click", *lines]) + "\n")
        text, _ = draft([str(tmp_path / f"{name}.csv")])
        by_kind[name] = yaml.safe_load(text)["data"]["split"]
    assert by_kind["sorted"] == {"by": "order"}
    assert (by_kind["shuffled"]["by"], by_kind["shuffled"]["column"]) == ("time", "shown_at")


@pytest.mark.parametrize(
    ("name", "apart", "comment"),
    [
        ("click_time", lambda row: 3 + row % 50, "of what follows the click, by its name: left out"),
        ("orderedAt", lambda row: 3 + row % 50, "of what follows the click, by its name: left out"),
        ("seen", lambda row: 5 if row % 4 == 0 else 0, "its values alone give the label away"),
        ("departure", lambda row: 86_400 + row % 9 * 3_600, "are they known when the row is shown?"),
        ("click_time", lambda row: -3_600, ""),  # of the click before
    ],
)
def test_a_time_after_the_row_own_is_left_out_or_asked_about(tmp_path, name, apart, comment):
    start = datetime.datetime(2026, 5, 1)
    lines = [
        f"{start + datetime.timedelta(seconds=97 * row)},{start + datetime.timedelta(seconds=97 * row + apart(row))},"
        f"shop{row % 7},{row % 4 == 0:d}"
        for row in range(300)
    ]
    (tmp_path / "log.csv").write_text("\n".join([f"impression_time,{name},shop,click", *lines]) + "\n")
    text, unsure = draft([str(tmp_path / "log.csv")])
    features = [column for feature in yaml.safe_load(text)["features"] for column in feature["columns"]]
    assert (name not in features) == (comment.endswith("left out") or "alone" in comment)
    told = [line for line in unsure if line.startswith(f"{name}: ")]
    assert [comment in line for line in told] == [True] * bool(comment)
    assert "impression_time" in features


def test_the_time_of_the_row_is_not_asked_about_because_it_is_after_a_birthday(tmp_path):
    random = np.random.default_rng(4)
    births = pd.Timestamp("1950-01-01") + pd.to_timedelta(random.integers(0, 20_000, 300), unit="D")
    shown = pd.date_range("2026-03-01", periods=300, freq="37min")
    rows = {"birth": births.strftime("%Y-%m-%d"), "shown": shown.strftime("%Y-%m-%d %H:%M:%S")}
    path = tmp_path / "log.csv"
    pd.DataFrame(rows | {"site": list("abc") * 100, "click": random.integers(0, 2, 300)}).to_csv(path, index=False)
    _, unsure = draft([str(path)])
    assert [text.split(":")[0] for text in unsure if text.startswith(("birth", "shown"))] == ["birth"]


@pytest.mark.parametrize(
    ("zones", "asked"),
    [
        (["+02:00", "-04:00", "Z"], True),
        (["+02:00", "+0200", "+02"], False),
        (["Z", "+00:00", "-00:00"], False),
        ([""], False),
    ],
)
def test_times_of_several_zones_are_asked_about_because_their_hours_are_those_of_utc(tmp_path, zones, asked):
    moments = pd.date_range("2026-03-01 07:05:09", periods=200, freq="37min").strftime("%Y-%m-%dT%H:%M:%S")
    sent = [f"{moment}{zones[row % len(zones)]}" for row, moment in enumerate(moments)]
    path = tmp_path / "log.csv"
    rows = {"sent_at": sent, "site": list("abcd") * 50, "click": ([1, 0, 0] * 67)[:200]}
    pd.DataFrame(rows).to_csv(path, index=False)
    _, unsure = draft([str(path)])
    told = [text for text in unsure if text.startswith("sent_at: ") and "zones" in text]
    assert ["3 zones, as +02:00 and -04:00" in text for text in told] == [True] * asked
