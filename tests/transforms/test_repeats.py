"""Rows that a log has more than once: copies are found, and rows that are alike by chance are not."""

import pathlib

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log import repeats as module
from ctrpipe.transforms.log.payload import PayloadWriter, payload_schema
from ctrpipe.transforms.log.repeats import hash_payload, hash_rows, repeats
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
        "features": [{"kind": "categorical", "columns": ["site", "user"]}, {"kind": "numeric", "columns": ["price"]}],
    }
)
SCHEMA = payload_schema(SPEC)


def log(rows: int, rate: float, sites: int, users: int, seed: int = 3) -> pa.Table:
    """A log whose click rate depends on the site, strongly."""
    random = np.random.default_rng(seed)
    site, user = random.integers(0, sites, rows), random.integers(0, users, rows)
    odds = rate / (1 - rate) * np.exp(2 * random.normal(size=sites))[site]
    columns = {
        "site": pa.array([f"s{each}".encode() if each else None for each in site]),
        "user": pa.array([f"u{each}".encode() for each in user]),
        "price": pa.array(np.where(user % 3 == 0, np.nan, user % 50).astype(np.float32)),
        "click": pa.array((random.random(rows) < odds / (1 + odds)).astype(np.float32)),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names})


def with_copies(rows: pa.Table, share: float) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, round(share * rows.num_rows))]).combine_chunks()


def said(**splits: pa.Table) -> list[str]:
    return [each.text for each in repeats({name: hash_rows(SPEC, rows.to_batches()) for name, rows in splits.items()})]


@pytest.mark.parametrize("rate", [0.003, 0.05, 0.5])
def test_copies_are_said_and_rows_that_are_alike_by_chance_are_not(rate: float) -> None:
    rows = log(4000, rate, 400, 100_000)
    assert said(train=rows) == []
    [text] = said(train=with_copies(rows, 0.3))
    assert text.startswith("23.1% are copies of another row, label and all: ")
    few_values = log(4000, rate, 20, 5)  # forty rows of each kind, with and without a click
    assert len(few_values.drop_columns(["click"]).group_by(["site", "user", "price"]).aggregate([]).to_pylist()) <= 100
    assert said(train=few_values) == []


def test_a_label_that_differs_makes_rows_alike_but_no_copies() -> None:
    rows = log(3000, 0.2, 400, 100_000)
    again = rows.set_column(rows.schema.get_field_index("click"), "click", pa.array(1 - rows["click"].to_numpy()))
    assert said(train=pa.concat_tables([rows, again])) == []


def test_test_rows_that_are_training_rows_are_counted() -> None:
    rows, others = log(4000, 0.2, 400, 1_000_000), log(500, 0.2, 400, 1_000_000, seed=4)
    [text] = said(train=rows, validation=others, test=pa.concat_tables([rows.slice(0, 250), others.slice(0, 250)]))
    assert "10.0% are copies of another row" in text and "50.0% of the test rows are training rows too" in text


def test_of_a_large_log_rows_are_chosen_with_all_their_copies(tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 2500)
    rows = log(10_000, 0.2, 400, 100_000)
    files = {}
    for split, part in (("train", rows), ("test", rows.slice(0, 5000))):
        (tmp_path / split).mkdir()
        with PayloadWriter(tmp_path / split, "part", SCHEMA) as writer:
            writer.write(part.combine_chunks().to_batches()[0])
        files[split] = sorted((tmp_path / split).iterdir())
    hashed = hash_payload(SPEC, {**files, "validation": []}, Workers(processes=1))
    assert 1200 < len(hashed["train"].whole) < 2100  # one in six
    [found] = repeats(hashed)
    assert found.column == "all columns" and "100.0% of the test rows are training rows too" in found.text
    whole = {split: hash_rows(SPEC, [*table.to_batches()]) for split, table in {"train": rows}.items()}
    assert set(hashed["train"].whole) <= set(whole["train"].whole)  # the same hash, as a dictionary or not
