"""Leaks that no column shows by its values alone, and labels that have not arrived, in rows that are made here."""

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.transforms.log.late_ends import rows_without_clicks
from ctrpipe.transforms.log.own_items import held_items
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.suspects import gives_away, late_ends, suspects

ROWS = 4000
RANDOM = np.random.default_rng(3)
ITEM = RANDOM.integers(0, 60, ROWS)
RATES = np.clip(RANDOM.beta(2, 8, 60), 0.02, 0.98)
CLICK = (RANDOM.random(ROWS) < RATES[ITEM]).astype(np.float64)
OWN = "its values are the click rates of their own rows"


def mean_by_item(rows: slice) -> np.ndarray:
    means = np.bincount(ITEM[rows], CLICK[rows], minlength=60) / np.bincount(ITEM[rows], minlength=60)
    return means[ITEM]


def as_column(numbers: np.ndarray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(np.asarray(numbers, np.float64))])


def test_a_mean_of_the_label_over_the_rows_themselves_is_named() -> None:
    encoded = mean_by_item(slice(None))
    assert gives_away(as_column(encoded), CLICK).startswith(OWN)
    assert gives_away(as_column(encoded.round(4)), CLICK).startswith(OWN)
    most = slice(0, ROWS * 4 // 5)  # the training rows of a column that was made of all rows
    assert gives_away(as_column(encoded[most]), CLICK[most]).startswith(OWN)


def test_a_rate_of_earlier_rows_or_of_the_truth_is_not_named() -> None:
    half = ROWS // 2
    earlier = mean_by_item(slice(0, half))
    assert gives_away(as_column(earlier[half:]), CLICK[half:]) == ""
    assert gives_away(as_column(RATES[ITEM]), CLICK) == ""
    for seed in range(40):  # of other clicks by the same rates
        click = (np.random.default_rng(seed).random(ROWS) < RATES[ITEM]).astype(np.float64)
        assert gives_away(as_column(RATES[ITEM]), click) == ""


# Columns beside a key ------------------------------------------------------------------------------------------------

USERS = 300
USER = RANDOM.integers(0, USERS, ROWS)
BY_USER = LogSpec.model_validate(
    {
        "data": {"format": "parquet", "labels": {"ctr": "click"}},
        "features": [{"kind": "categorical", "columns": ["user"]}, {"kind": "numeric", "columns": ["x"]}],
    }
)


def counted_by_user() -> dict[str, np.ndarray]:
    """Columns of click counts and rates by user: of the whole log, with the own row, without it, and of rows before."""
    click = (RANDOM.random(ROWS) < RANDOM.beta(2, 8, USERS)[USER]).astype(np.float64)
    clicks, rows = np.bincount(USER, click, USERS), np.bincount(USER, minlength=USERS)
    until = np.zeros(ROWS)
    so_far = np.zeros(USERS)
    for row, (user, clicked) in enumerate(zip(USER, click, strict=True)):
        so_far[user] += clicked
        until[row] = so_far[user]
    return {
        "click": click,
        "whole log": clicks[USER],
        "smoothed": ((clicks + 2) / (rows + 10))[USER],
        "percent": (100 * (clicks + 2) / (rows + 10))[USER].round(2),
        "log-odds": np.log((clicks + 2) / (rows - clicks + 8))[USER],
        "until": until,
        "others": ((clicks[USER] - click + 1) / (rows[USER] + 4)),
        "before": until - click,
        "rows": rows[USER].astype(np.float64),
    }


COUNTED = counted_by_user()


def told_of(values: np.ndarray, click: np.ndarray, user: np.ndarray = USER) -> list[str]:
    names = [f"u{each}".encode() for each in user]
    columns = {"user": pa.array(names, pa.binary()), "x": pa.array(values, pa.float32())}
    rows = pa.table({**columns, "click": pa.array(click, pa.float32())})
    return [found.text for found in suspects(BY_USER, rows) if found.column == "x"]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("whole log", "its values are the clicks of each user in the whole log, those of the rows themselves"),
        ("smoothed", OWN),
        ("percent", OWN),
        ("log-odds", OWN),
        ("until", "from one row of a user to the next it rises by the click of the row itself"),
        ("others", "among the rows of one user it is lower in those with a click (AUC 1.0000)"),
    ],
)
def test_what_counts_the_clicks_of_the_rows_themselves_by_a_key_is_named(column: str, text: str) -> None:
    most = slice(0, ROWS * 4 // 5)  # the training rows of a column that was made of all rows
    for rows in (slice(None), most):
        [told] = told_of(COUNTED[column][rows], COUNTED["click"][rows], USER[rows])
        assert told.startswith(text) and told.endswith("; is it known before the click?")


def test_running_counts_are_named_in_a_log_with_the_newest_row_first_too() -> None:
    [told] = told_of(COUNTED["until"][::-1], COUNTED["click"][::-1], USER[::-1])
    assert "it counts its own row" in told


def test_counts_of_the_rows_before_and_of_other_clicks_are_not_named() -> None:
    for column in ("before", "rows"):
        assert told_of(COUNTED[column], COUNTED["click"]) == []
    half = ROWS // 2
    rates = RANDOM.beta(1, 30, USERS)  # few clicks: a rate of earlier rows is mostly of none or one
    click = (RANDOM.random(ROWS) < rates[USER]).astype(np.float64)
    clicks, rows = (np.bincount(USER[:half], weights, USERS) for weights in (click[:half], None))
    for values in (clicks, (clicks + 1) / (rows + 2), rates):
        assert told_of(values[USER][half:], click[half:], USER[half:]) == []


# Histories -----------------------------------------------------------------------------------------------------------

HISTORIES = [[f"i{item}" for item in RANDOM.integers(0, 60, size)] for size in RANDOM.integers(0, 6, ROWS)]


def lines(place: str) -> list[str]:
    """Returns the findings about histories that have the item of their own row at a place if it was clicked."""
    own = [[f"i{item}"] if click else [] for item, click in zip(ITEM, CLICK, strict=True)]
    made = {
        "no": HISTORIES,
        "last element": [[*others, *mine] for others, mine in zip(HISTORIES, own, strict=True)],
        "first element": [[*mine, *others] for others, mine in zip(HISTORIES, own, strict=True)],
        "always": [[*others, f"i{item}"] for others, item in zip(HISTORIES, ITEM, strict=True)],
    }
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [
                {"kind": "categorical", "columns": ["item"]},
                {"kind": "sequence", "columns": ["seen"], "max_length": 5, "shared_with": "item"},
            ],
        }
    )
    table = {
        "click": pa.array(CLICK.astype(np.float32)),
        "item": pa.array([f"i{item}".encode() for item in ITEM]),
        "seen": pa.array(["|".join(items).encode() or None for items in made[place]], pa.binary()),
    }
    return [f"{each.column}: {each.text}" for each in suspects(spec, pa.table(table))]


@pytest.mark.parametrize("place", ["last element", "first element"])
def test_a_history_that_holds_the_clicked_item_of_its_row_is_named(place: str) -> None:
    [line] = lines(place)
    assert line.startswith(f"seen: item of the same row is its {place} in the rows with a click, which gives the label")


@pytest.mark.parametrize("place", ["no", "always"])
def test_an_honest_history_is_not_named(place: str) -> None:
    assert lines(place) == []


def test_where_an_item_is_in_its_history() -> None:
    histories = pa.array([b"a;b", b"b;c;a", None, b"a", b"", b"c;a;c"], pa.binary())
    items = pa.array([b"a", b"a", b"a", None, b"a", b"a"], pa.binary())
    held = {place: rows.tolist() for place, rows in held_items(histories, items, ";").items()}
    assert held == {
        "first element": [True, False, False, False, False, False],
        "last element": [False, True, False, False, False, False],
        "one of its elements": [True, True, False, False, False, True],
    }


# Labels that have not arrived ----------------------------------------------------------------------------------------


def test_an_end_without_clicks_is_counted() -> None:
    late = np.r_[CLICK, np.zeros(500)]
    end = len(late) - 1 - np.flatnonzero(late)[-1]
    assert rows_without_clicks(late) == end >= 500
    assert rows_without_clicks(np.r_[late, np.full(9, np.nan)]) == end
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [{"kind": "categorical", "columns": ["item"]}],
        }
    )
    rows = {"train": pa.table({"click": CLICK}), "test": pa.table({"click": late})}
    [found] = late_ends(spec, rows)
    assert (found.column, found.split) == ("click", "test")
    assert found.text.startswith(f"0 in the last {end:,} of 4,500 rows, which is not chance")


def test_an_end_without_clicks_that_says_nothing_is_not_counted() -> None:
    random = np.random.default_rng(7)
    assert rows_without_clicks(np.sort(CLICK)) == rows_without_clicks(np.sort(CLICK)[::-1]) == 0  # by the label
    assert rows_without_clicks(np.r_[np.ones(20), np.zeros(5000)]) == 0  # few clicks
    by_user = np.concatenate([random.random(80) < rate for rate in random.choice([0, 0, 0.3], 60)] + [np.zeros(160)])
    assert rows_without_clicks(by_user.astype(float)) == 0  # users who never click, and one of them comes last
    assert not any(rows_without_clicks((random.random(3000) < 0.05).astype(float)) for _ in range(200))
