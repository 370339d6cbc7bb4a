"""Units that change within a log, and times that are not the rows' own, in rows that are made here."""

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.transforms.log.changed_values import changed_values
from ctrpipe.transforms.log.shared_labels import shared_labels
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.strange_times import strange_times
from ctrpipe.transforms.log.units import changed_units, find_change

ROWS = 2000
RANDOM = np.random.default_rng(5)
PRICE = RANDOM.lognormal(3, 1, ROWS)
START = np.datetime64("2026-05-01T00:00", "s")


def spec_of(**split) -> LogSpec:
    features = [{"kind": "numeric", "columns": ["price"]}, {"kind": "time", "columns": ["shown", "other"]}]
    data = {"format": "parquet", "labels": {"ctr": "click"}, "split": {"by": "order", **split}}
    return LogSpec.model_validate({"data": data, "features": features})


def divided(**columns) -> dict[str, pa.Table]:
    """The columns as the rows of three splits, 70%, 10% and 20%."""
    rows = pa.table({**columns, "click": pa.array(np.arange(ROWS) % 5 == 0).cast(pa.float32())})
    ends = [0, ROWS * 7 // 10, ROWS * 8 // 10, ROWS]
    names = ("train", "validation", "test")
    return {name: rows.slice(first, last - first) for name, first, last in zip(names, ends[:-1], ends[1:], strict=True)}


def units(numbers: np.ndarray, **split) -> list[tuple[str, str, str]]:
    rows = divided(price=pa.array(numbers, pa.float32()))
    return [(found.column, found.split, found.text) for found in changed_units(spec_of(**split), rows)]


@pytest.mark.parametrize("share", [0.3, 0.62, 0.7, 0.8])
@pytest.mark.parametrize("times", [100, 0.001])
def test_a_unit_that_changes_half_way_is_named(share: float, times: float) -> None:
    numbers = np.where(np.arange(ROWS) < share * ROWS, PRICE, PRICE * times)
    [(column, split, text)] = units(numbers)
    assert (column, split) == ("price", "all") and f"in the first {share:.0%}" in text
    change = find_change(numbers)
    assert change is not None and change.share == pytest.approx(share, abs=0.01)
    first = numbers[: round(share * ROWS)]
    assert change.before == pytest.approx(np.median(first), rel=0.05)
    assert change.after == pytest.approx(np.median(numbers[len(first) :]), rel=0.05)


def test_of_splits_that_are_not_in_order_the_training_rows_are_looked_at() -> None:
    late, early = (np.where(np.arange(ROWS) < share * ROWS, PRICE, PRICE * 100) for share in (0.75, 0.3))
    assert units(late, by="hash") == []
    [(_, split, _)] = units(early, by="hash")
    assert split == "train"


@pytest.mark.parametrize(
    "numbers",
    [
        PRICE,
        np.arange(ROWS) + 1.0,  # a number that grows
        np.minimum(np.arange(ROWS), 200) * PRICE,  # counts that begin with the log
        np.sort(PRICE),
        np.where(np.arange(ROWS) % 500 < 250, 1, 20) * PRICE,  # day and night
        np.where(np.arange(ROWS) < 1000, 0, PRICE),  # a column that begins later
        RANDOM.integers(0, 3, ROWS).astype(np.float64),
    ],
)
def test_numbers_that_grow_or_go_up_and_down_are_not_named(numbers: np.ndarray) -> None:
    assert units(numbers) == []


# Values --------------------------------------------------------------------------------------------------------------


def changed(values: np.ndarray) -> list[tuple[str, str]]:
    spec = LogSpec.model_validate(
        {
            "data": {"format": "parquet", "labels": {"ctr": "click"}, "split": {"by": "order"}},
            "features": [{"kind": "categorical", "columns": ["shop"]}],
        }
    )
    rows = divided(shop=pa.array([str(value).encode() for value in values], pa.binary()))
    return [(found.split, found.text) for found in changed_values(spec, rows)]


CODES = RANDOM.integers(1, 9, ROWS)
WORDS = np.array([f"shop {code}" for code in CODES])
PLACES = np.arange(ROWS)


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        (CODES.astype(str), WORDS, 0.8),  # codes that become words in the test rows
        (CODES.astype(str), WORDS, 0.75),  # in half of the validation rows and all test rows
        (WORDS, CODES.astype(str), 0.7),
        (WORDS, np.char.upper(WORDS), 0.85),
        (CODES.astype(str), np.char.zfill(CODES.astype(str), 3), 0.8),
        (CODES.astype(str), np.char.add(CODES.astype(str), ".0"), 0.8),
    ],
)
def test_values_that_are_written_in_another_way_later_are_named(before, after, first: float) -> None:
    found = changed(np.where(PLACES < first * ROWS, before, after))
    assert [split for split, _ in found] == (["validation", "test"] if first < 0.8 else ["test"])
    assert "are written unlike those of the training rows" in found[0][1]


@pytest.mark.parametrize(
    "values",
    [
        CODES,
        WORDS,
        PLACES // 20,  # sessions: new ones at any time
        np.where(PLACES < 0.8 * ROWS, CODES, PLACES // 20),
        np.where(PLACES < 0.97 * ROWS, CODES.astype(str), WORDS),  # of few rows
        np.where(PLACES % 50, CODES.astype(str), WORDS),  # both at any time
        np.array([f"{row * 7919 % 65536:04x}" for row in PLACES]),
        np.where(PLACES < 0.8 * ROWS, CODES, 99),  # constant, which has a line of its own
    ],
)
def test_new_values_that_are_written_as_before_or_few_are_not_named(values) -> None:
    assert not changed(values)


# Times ---------------------------------------------------------------------------------------------------------------

SHOWN = START + np.sort(RANDOM.integers(0, 20 * 86_400, ROWS)).astype("timedelta64[s]")
DAYS = RANDOM.integers(0, 40 * 365, ROWS)


def texts(moments: np.ndarray) -> pa.Array:
    return pa.array([str(moment).replace("T", " ").encode() for moment in moments], pa.binary())


def last_events() -> np.ndarray:
    """The last time of each of 100 users in the whole log."""
    user = RANDOM.integers(0, 100, ROWS)
    last = np.zeros(100, "datetime64[s]")
    last[user] = SHOWN  # the last one stays
    return last[user]


@pytest.mark.parametrize("split", [{}, {"by": "time", "column": "shown", "last": "2d"}])
@pytest.mark.parametrize(
    ("other", "text"),
    [
        (np.datetime64("1960-01-01") + DAYS.astype("timedelta64[D]"), "dates of 19"),
        (last_events(), "of its times are after shown, the row's own, and none is after the last of the log"),
    ],
)
def test_birthdays_and_last_events_are_named(other: np.ndarray, text: str, split: dict) -> None:
    rows = divided(price=pa.array(PRICE, pa.float32()), shown=texts(SHOWN), other=texts(other))
    [found] = strange_times(spec_of(**split), rows)
    assert found.column == "other" and text in found.text


@pytest.mark.parametrize(
    "other",
    [
        SHOWN - RANDOM.integers(1, 86_400 * 300, ROWS).astype("timedelta64[s]"),  # a registration
        SHOWN + RANDOM.integers(1, 86_400 * 9, ROWS).astype("timedelta64[s]"),  # a departure
        SHOWN[np.maximum(np.arange(ROWS) - RANDOM.integers(1, 300, ROWS), 0)],  # the event before
        np.full(ROWS, "2026-06-30", "datetime64[D]"),  # the end of an offer
    ],
)
def test_times_before_and_planned_times_are_not_named(other: np.ndarray) -> None:
    rows = divided(price=pa.array(PRICE, pa.float32()), shown=texts(SHOWN), other=texts(other))
    assert not list(strange_times(spec_of(), rows))
    swapped = divided(price=pa.array(PRICE, pa.float32()), shown=texts(other), other=texts(SHOWN))
    assert not list(strange_times(spec_of(), swapped))


@pytest.mark.parametrize(
    ("apart", "text"),
    [
        (np.where(PLACES % 5 == 0, RANDOM.integers(2, 40, ROWS), 0), "its values alone give the label away"),
        (np.where(PLACES % 5 == 0, RANDOM.integers(2, 40, ROWS), 1800), "its values alone give the label away"),
        (RANDOM.integers(0, 40, ROWS), ""),
    ],
)
def test_a_time_that_waits_for_the_click_is_named(apart: np.ndarray, text: str) -> None:
    """Every fifth row has a click; without one the time is the row's own, or the end of a session."""
    rows = divided(price=pa.array(PRICE, pa.float32()), shown=texts(SHOWN), other=texts(SHOWN + apart))
    found = list(strange_times(spec_of(), rows))
    assert [(each.column, text in each.text) for each in found] == [("other", True)] * bool(text)


def test_times_with_and_without_a_zone_in_one_column_are_named():
    mixed = [f"{moment}{'+02:00' if row % 4 else ''}".encode() for row, moment in enumerate(SHOWN)]
    columns = {"price": pa.array(PRICE, pa.float32()), "shown": texts(SHOWN)}
    [found] = strange_times(spec_of(), divided(**columns, other=pa.array(mixed, pa.binary())))
    assert (found.column, found.split) == ("other", "all")
    assert found.text.startswith("500 of its times have no zone and 1,500 have one")


@pytest.mark.parametrize(("form", "told"), [("%y%m%d%H%M", True), ("%y%m%d%H%M%S", True), ("%Y%m%d%H%M", False)])
def test_times_of_a_short_year_that_are_read_as_epochs_are_named(form: str, told: bool):
    written = [(moment - np.timedelta64(12 * 365, "D")).item().strftime(form).encode() for moment in SHOWN]
    columns = {"price": pa.array(PRICE, pa.float32()), "shown": texts(SHOWN)}
    found = list(strange_times(spec_of(), divided(**columns, other=pa.array(written, pa.binary()))))
    assert [f"set its format to '{form}'" in each.text for each in found] == [True] * told
    seconds = pa.array([str(1_400_000_000 + 4_000 * row).encode() for row in range(ROWS)], pa.binary())
    assert not list(strange_times(spec_of(), divided(**columns, other=seconds)))


@pytest.mark.parametrize(("agreeing", "told"), [(1.0, True), (0.6, False)])
def test_rows_of_a_session_that_a_split_parts_are_named_where_they_share_their_label(agreeing: float, told: bool):
    """Each session has three rows, which chance puts into the splits."""
    sessions = RANDOM.permutation(np.arange(3 * ROWS) // 3)
    of_session = RANDOM.random(ROWS) < 0.3
    label = np.where(RANDOM.random(3 * ROWS) < agreeing, of_session[sessions], RANDOM.random(3 * ROWS) < 0.3)
    rows = pa.table({"click": pa.array(label, pa.float32()), "session": [str(one).encode() for one in sessions]})
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}, "split": {"by": "hash"}},
            "features": [{"kind": "categorical", "columns": ["session"]}],
        }
    )
    parts = {"train": rows.slice(0, 4 * ROWS // 2), "test": rows.slice(4 * ROWS // 2)}
    found = [each.text for each in shared_labels(spec, parts)]
    assert ["split by: group, column: session" in text for text in found] == [True] * told


@pytest.mark.parametrize(
    ("never", "every", "told"),
    [
        ("9999-12-31", 33, "3.0% of its times, as 9999-12-31, lie decades after all others"),
        ("9999-12-31", -10, "90.0% of its times, as 9999-12-31, lie decades after all others"),  # of nine rows in ten
        ("1970-01-01T00:00:00", 50, "2.0% of its times, as 1970-01-01T00:00:00, lie decades before all others"),
        ("9999-12-31", 1000, ""),  # two rows move nothing
    ],
)
@pytest.mark.parametrize("column", ["shown", "other"])
def test_a_time_that_stands_for_never_is_named(never: str, every: int, told: str, column: str) -> None:
    times = SHOWN.astype(str).astype("S25")
    columns = {"shown": times.copy(), "other": times.copy()}
    columns[column][(PLACES % abs(every) == 7) == (every > 0)] = never.encode()
    rows = divided(**{name: pa.array(values.tolist(), pa.binary()) for name, values in columns.items()})
    found = [each.text for each in strange_times(spec_of(), rows) if each.column == column]
    assert [text.partition(",")[0] for text in found if "never" in text] == ([told.partition(",")[0]] if told else [])
    assert all(text.startswith(told) for text in found)


def test_an_epoch_that_stands_for_never_is_not_to_be_missing_in_all_columns() -> None:
    """data.missing_values: [0] would make each 0 among the numbers missing."""
    features = [{"kind": "time", "columns": ["shown"], "format": "epoch_seconds"}]
    spec = LogSpec.model_validate({"data": spec_of().data.model_dump(), "features": features})
    epochs = np.where(PLACES % 20 == 7, 0, SHOWN.astype("datetime64[s]").astype(np.int64)).astype(str).astype("S")
    [found] = strange_times(spec, divided(shown=pa.array(epochs.tolist(), pa.binary())))
    assert found.text.startswith("5.0% of its times, as 0, lie decades before all others")
    assert found.text.endswith(": write an empty value instead")


def test_days_that_no_month_has_are_named() -> None:
    """2026-02-30 is read as the second of March, by a server too."""
    shown = SHOWN.astype(str).astype("S19")
    wrong = np.where(PLACES % 50 == 7, b"2026-02-30 10:00", shown)
    columns = [
        {"shown": pa.array(shown.tolist(), pa.binary()), "other": pa.array(other.tolist(), pa.binary())}
        for other in (wrong, np.where(PLACES % 50 == 7, b"2028-02-29 10:00", shown))
    ]
    [found], rest = (list(strange_times(spec_of(), divided(**each))) for each in columns)
    assert found.column == "other"
    assert found.text.startswith("1 of its different times, as 2026-02-30 10:00, are on days that their month lacks")
    assert not rest
