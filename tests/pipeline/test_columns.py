"""The data page's figures of each column against pandas on the same log."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ctrpipe.pipeline.monitoring.columns import number_text, summarise_columns, time_spans
from ctrpipe.transforms.log.payload import payload_schema
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import from_array

ROWS = 700
SPEC = LogSpec.model_validate(
    {
        "data": {
            "columns": ["click", "mass", "price", "site", "tags", "seen", "at", "hour", "query", "image"],
            "labels": {"ctr": "click"},
            "weight": "mass",
        },
        "features": [
            {"kind": "numeric", "columns": ["price"]},
            {"kind": "categorical", "columns": ["site"]},
            {"kind": "multivalent", "columns": ["tags"], "separator": "|", "weights": ":", "max_length": 3},
            {"kind": "sequence", "columns": ["seen"], "separator": " ", "max_length": 4},
            {"kind": "time", "columns": ["at"], "format": "epoch_seconds"},
            {"kind": "time", "columns": ["hour"]},
            {"kind": "multivalent", "columns": ["query"], "separator": " ", "max_length": 9},
            {"kind": "vector", "columns": ["image"], "length": 3},
        ],
    }
)


def log() -> pd.DataFrame:
    random = np.random.default_rng(3)

    def lists(names: list[str], sign: str, weigh: bool = False) -> list[str | None]:
        made = []
        for count in random.integers(0, 5, ROWS):
            drawn = random.choice(names, count)
            made.append(sign.join(f"{name}:{random.random():.2f}" if weigh else name for name in drawn) or None)
        return made

    return pd.DataFrame(
        {
            "click": (random.random(ROWS) < 0.3).astype(np.float32),
            "mass": random.integers(1, 4, ROWS).astype(np.float32),
            "price": np.where(random.random(ROWS) < 0.1, np.nan, random.integers(0, 40, ROWS) / 10).astype(np.float32),
            "site": np.where(random.random(ROWS) < 0.2, None, random.choice(["a", "b", "sité"], ROWS)),
            "tags": lists(["x", "y", "z:1"], "|", weigh=True),
            "seen": lists(["a", "b", "sité"], " "),
            "at": [str(1_700_000_000 + int(n)) for n in random.integers(0, 900_000, ROWS)],
            "hour": [f"141021{n:02d}" for n in random.integers(0, 24, ROWS)],
            "query": lists(["red", "shoes", "", "cheap"], " "),
        }
    )


def rows(frame: pd.DataFrame) -> pa.Table:
    columns = {}
    for field in payload_schema(SPEC):
        if field.name == "image":
            known = np.arange(len(frame)) % 7 > 0
            columns["image"] = from_array(np.arange(3 * len(frame), dtype=np.float32).reshape(-1, 3), known)
            continue
        values = pa.array(frame[field.name], from_pandas=True)
        columns[field.name] = values.cast(field.type)
    return pa.table(columns)


@pytest.fixture(scope="module")
def found() -> tuple[pd.DataFrame, dict[str, dict]]:
    frame = log()
    return frame, {one["name"]: one for one in summarise_columns(SPEC, rows(frame))}


def test_columns_come_in_the_order_of_the_configuration(found):
    assert list(found[1]) == ["click", "mass", *SPEC.feature_columns]
    kinds = [one["kind"] for one in found[1].values()]
    assert kinds[:4] == ["label", "weight", "numeric", "categorical"]


def test_numbers_are_as_pandas_counts_them(found):
    frame, columns = found
    for name in ("click", "mass", "price"):
        own, values = columns[name], frame[name].astype(np.float64)
        assert own["missing_rate"] == pytest.approx(values.isna().mean())
        assert own["unique"] == values.nunique()
        of_pandas = [values.mean(), values.min(), values.max()]
        assert [own["mean"], own["low"], own["high"]] == pytest.approx(of_pandas, rel=1e-6)
        counts = frame[name].value_counts()
        assert [count for _, count in own["top"]] == counts.head(5).tolist()
        assert {text: count for text, count in own["top"]}.items() <= {f"{v:g}": n for v, n in counts.items()}.items()


def test_categories_are_as_pandas_counts_them(found):
    frame, columns = found
    own = columns["site"]
    assert own["unique"] == 3 and own["missing_rate"] == pytest.approx(frame["site"].isna().mean())
    assert own["top"] == list(frame["site"].value_counts().items()) and own["mean"] is None


@pytest.mark.parametrize(("name", "sign"), [("tags", "|"), ("seen", " "), ("query", " ")])
def test_lists_are_counted_by_their_elements(found, name, sign):
    frame, columns = found
    elements = frame[name].dropna().str.split(sign).explode()
    elements = elements[elements != ""]
    if name == "tags":
        elements = elements.str.rsplit(":", n=1).str[0]
    lengths = elements.groupby(level=0).size()
    own = columns[name]
    assert own["unique"] == elements.nunique() == 3
    assert own["top"] == list(elements.value_counts().items())
    assert own["elements"] == {"mean": pytest.approx(lengths.mean()), "most": lengths.max()}
    assert own["missing_rate"] == pytest.approx(1 - len(lengths) / ROWS)


def test_times_have_a_first_and_a_last_and_are_no_categories(found):
    frame, columns = found
    at = pd.to_datetime(frame["at"].astype(int), unit="s")
    assert columns["at"]["span"] == [f"{end:%Y-%m-%d %H:%M}" for end in (at.min(), at.max())]
    hours = frame["hour"].str[-2:]
    assert columns["hour"]["span"] == [f"2014-10-21 {hours.min()}:00", f"2014-10-21 {hours.max()}:00"]
    assert columns["hour"]["unique"] == 24 and columns["hour"]["top"] == []


def test_vectors_have_the_range_of_their_numbers(found):
    known = np.arange(3 * ROWS).reshape(-1, 3)[np.arange(ROWS) % 7 > 0]
    own = found[1]["image"]
    assert [own["mean"], own["low"], own["high"]] == [known.mean(), known.min(), known.max()]
    assert own["missing_rate"] == pytest.approx(1 / 7) and own["unique"] is None


def test_the_times_of_splits_are_read_alike(found):
    frame, _ = found
    frame = frame.assign(hour=["20140315"] * (ROWS - 1) + ["20140331"])  # the 31st tells that all are dates
    splits = {"train": rows(frame.iloc[:600]), "test": rows(frame.iloc[600:])}
    assert time_spans(SPEC, splits)["hour"] == {
        "train": ["2014-03-15 00:00", "2014-03-15 00:00"],
        "test": ["2014-03-15 00:00", "2014-03-31 00:00"],
    }
    empty = rows(frame.iloc[:600].assign(hour=None))
    assert time_spans(SPEC, {"train": empty, "test": splits["test"]})["hour"] == {
        "test": ["2014-03-15 00:00", "2014-03-31 00:00"]
    }


def test_a_log_without_rows_or_values_has_dashes():
    empty = log().iloc[:0]
    assert {one["missing_rate"] for one in summarise_columns(SPEC, rows(empty))} == {None}
    nothing = log().assign(price=np.nan, site=None, tags=None, at=None)
    columns = {one["name"]: one for one in summarise_columns(SPEC, rows(nothing))}
    for name in ("price", "site", "tags", "at"):
        assert columns[name]["missing_rate"] == 1 and columns[name]["unique"] == 0 and columns[name]["top"] == []
    assert columns["price"]["mean"] is None and columns["tags"]["elements"] is None and columns["at"]["span"] is None


def test_numbers_are_written_as_short_as_they_can_be():
    values = (0.1, 1234567, 16777216, 3, -1, 1e20, 1e-5, float("inf"))
    assert [number_text(np.float32(value)) for value in values] == [
        *("0.1", "1234567", "16777216", "3", "-1", "1e+20", "1e-05", "inf"),
    ]
