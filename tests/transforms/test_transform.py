"""The stage that analyses and packs a payload; the transforms themselves are tested in test_preprocessing.py."""

import collections
import math
import pathlib
import weakref

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_transform as tft

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features import transform as steps
from ctrpipe.transforms.features.kinds.kind import MISSING, UNKNOWN
from ctrpipe.transforms.features.packed_files import PackedReader, packed_files
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.log import payload
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "price", "age", "site"], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "numeric", "columns": ["price"]},
            {"kind": "numeric", "columns": ["age"], "transform": "standardize"},
            {"kind": "categorical", "columns": ["site"], "top_k": 3},
        ],
    }
)
ROWS = {"train": 250, "validation": 30, "test": 40}


def raw_rows(count: int, seed: int, extra: str) -> dict[str, list]:
    """Rows as Python values; `extra` is a site that only this split has, and often."""
    random = np.random.default_rng(seed)
    sites = [None, "a", "ä", "b", "c", extra]
    return {
        "price": [None if random.random() < 0.2 else float(random.integers(-2, 1000)) for _ in range(count)],
        "age": [None if random.random() < 0.2 else float(random.normal(40, 9)) for _ in range(count)],
        "site": [sites[i] for i in random.choice(6, count, p=[0.1, 0.1, 0.15, 0.2, 0.05, 0.4])],
        "click": [float(random.random() < 0.3) for _ in range(count)],
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> tuple[pathlib.Path, dict[str, dict[str, list]]]:
    """The payload's folder and its rows by split; the training rows lie in several parts."""
    folder = tmp_path_factory.mktemp("payload")
    rows = {name: raw_rows(count, index, f"only-{name}") for index, (name, count) in enumerate(ROWS.items())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload, "ROW_GROUP_ROWS", 50)
        patch.setattr(payload, "PART_ROWS", 100)
        for name, columns in rows.items():
            arrays = {key: pa.array(columns[key], pa.float32()) for key in ("price", "age", "click")}
            site = [None if value is None else value.encode() for value in columns["site"]]
            (folder / f"Split-{name}").mkdir()
            with PayloadWriter(folder / f"Split-{name}", "part", payload_schema(SPEC)) as writer:
                writer.write(pa.RecordBatch.from_pydict({**arrays, "site": pa.array(site, pa.binary())}))
    return folder, rows


def run(source: pathlib.Path, target: pathlib.Path, workers: Workers) -> dict[str, dict[str, np.ndarray]]:
    """The packed rows of each split."""
    analyze(SPEC, payload_files(source / "Split-train"), target / "graph", workers)
    splits = {name: (source / f"Split-{name}", target / name) for name in ROWS}
    assert transform(SPEC, target / "graph", splits, 7, workers).rows == ROWS
    return {name: read(target / name) for name in ROWS}


def read(folder: pathlib.Path) -> dict[str, np.ndarray]:
    ((inputs, label),) = list(PackedReader(packed_files(folder), 10_000))
    return {**inputs, "label": label}


@pytest.fixture(scope="module")
def packed(log, tmp_path_factory) -> tuple[pathlib.Path, dict[str, dict[str, np.ndarray]]]:
    target = tmp_path_factory.mktemp("packed")
    return target, run(log[0], target, Workers(processes=1))


def expected(rows: dict[str, list], train: dict[str, list]) -> list[tuple]:
    """Each row's (price id, site id, age, label), by the rules written out."""
    counts = collections.Counter(site for site in train["site"] if site is not None)
    ranked = sorted(counts, key=lambda site: (counts[site], site.encode()), reverse=True)[:3]
    ages = [np.float32(age) for age in train["age"] if age is not None]
    mean, deviation = np.mean(ages, dtype=np.float64), np.std(ages, dtype=np.float64)
    found = []
    for price, age, site, click in zip(*(rows[name] for name in ("price", "age", "site", "click")), strict=True):
        bucket = MISSING
        if price is not None:
            bucket = RESERVED_IDS + (0 if price < 0 else 1 if price < 1 else 2 + math.floor(math.log(price)))
        local = MISSING if site is None else RESERVED_IDS + ranked.index(site) if site in ranked else UNKNOWN
        found.append((bucket, local, 0.0 if age is None else (age - mean) / deviation, click))
    return found


def by_row(packed: dict[str, np.ndarray], offsets: list[int]) -> list[tuple]:
    ids = packed["ids"] - offsets
    return list(zip(ids[:, 0], ids[:, 1], packed["dense"][:, 0], packed["label"][:, 0], strict=True))


@pytest.fixture(scope="module")
def offsets(packed) -> list[int]:
    import tensorflow_transform as tft

    return [field.offset for field in feature_map(SPEC, tft.TFTransformOutput(str(packed[0] / "graph"))).fields]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_rows_are_packed_by_the_rules_in_the_order_of_the_log(log, packed, offsets, split):
    found = by_row(packed[1][split], offsets)
    np.testing.assert_allclose(found, expected(log[1][split], log[1]["train"]), rtol=1e-4, atol=1e-5)


def test_training_rows_are_the_same_but_shuffled_within_their_part(log, packed, offsets):
    found = np.array(by_row(packed[1]["train"], offsets))
    wanted = np.array(expected(log[1]["train"], log[1]["train"]))
    assert not np.allclose(found, wanted)
    for part in (slice(0, 100), slice(100, 200), slice(200, 250)):
        # By rounded values, so that float32 does not decide the order; whole rows, so that no value changes its row.
        rows, same = (values[part][np.lexsort(values[part].round(3).T)] for values in (found, wanted))
        np.testing.assert_allclose(rows, same, rtol=1e-4, atol=1e-5)


def test_ids_are_int32_and_the_rest_float32(packed):
    for rows in packed[1].values():
        assert {name: values.dtype for name, values in rows.items()} == {
            "ids": np.int32,
            "dense": np.float32,
            "label": np.float32,
        }


@pytest.mark.slow
def test_two_processes_give_what_one_gives(log, packed, tmp_path):
    found = run(log[0], tmp_path, Workers(processes=2))
    for split, rows in packed[1].items():
        for name, values in rows.items():
            np.testing.assert_array_equal(found[split][name], values)


def test_the_counts_of_the_parts_are_gone_before_the_graph_is_written(log, tmp_path, monkeypatch):
    parts, held = [], []
    merge = steps.analyzers.merge

    def merged(summaries, threads):
        parts.extend(map(weakref.ref, summaries))
        return merge(summaries, threads)

    monkeypatch.setattr(steps.analyzers, "merge", merged)
    monkeypatch.setattr(steps, "write_graph", lambda *given: held.extend(part() for part in parts))
    analyze(SPEC, payload_files(log[0] / "Split-train"), tmp_path, Workers(processes=1))
    assert held and not any(held)


def test_counting_that_is_not_exact_is_said_to_be_so(log, tmp_path):
    data = SPEC.data.model_copy(update={"max_distinct_values": 1})
    said: list[str] = []
    files = payload_files(log[0] / "Split-train")
    analyze(SPEC.model_copy(update={"data": data}), files, tmp_path, Workers(processes=1), said.append)
    assert len(said) == 1 and said[0].startswith("site: above 1 different values; counts are up to ")


def sampled_spec(share: float) -> LogSpec:
    return SPEC.model_copy(update={"data": SPEC.data.model_copy(update={"negative_sampling": share})})


def pack_sampled(share: float, seed: int, log, packed, target: pathlib.Path, processes: int = 1):
    """The numbers of packed rows, and the packed rows of each split; the order of `packed`'s graph is the log's."""
    splits = {name: (log[0] / f"Split-{name}", target / name) for name in ROWS}
    counts = transform(sampled_spec(share), packed[0] / "graph", splits, seed, Workers(processes=processes)).rows
    return counts, {name: read(target / name) for name in ROWS}


def sorted_rows(rows: dict[str, np.ndarray], label: int) -> list[tuple]:
    own = rows["label"][:, 0] == label
    return sorted(map(tuple, np.concatenate([rows["ids"][own], rows["dense"][own]], axis=1).tolist()))


def test_all_positives_and_a_share_of_the_negatives_are_packed_but_all_test_rows(log, packed, tmp_path):
    counts, found = pack_sampled(0.4, 7, log, packed, tmp_path)
    for name in ("train", "validation"):
        everything = packed[1][name]
        assert sorted_rows(found[name], 1) == sorted_rows(everything, 1)
        kept, negatives = sorted_rows(found[name], 0), sorted_rows(everything, 0)
        assert abs(len(kept) - 0.4 * len(negatives)) < 4 * math.sqrt(0.24 * len(negatives))
        assert not collections.Counter(kept) - collections.Counter(negatives)
        assert counts[name] == len(found[name]["label"]) == len(kept) + int(everything["label"].sum())
    for tensor, values in packed[1]["test"].items():
        np.testing.assert_array_equal(found["test"][tensor], values)


@pytest.mark.large(like="tests/transforms/test_transform.py::test_two_processes_give_what_one_gives")
@pytest.mark.slow
def test_the_seed_draws_the_negatives_whatever_the_workers(log, packed, tmp_path):
    one, other, more = (
        pack_sampled(share, seed, log, packed, tmp_path / f"{share}-{seed}-{processes}", processes)[1]["train"]
        for share, seed, processes in ((0.4, 7, 1), (0.4, 7, 2), (0.7, 7, 1))
    )
    another = pack_sampled(0.4, 8, log, packed, tmp_path / "another")[1]["train"]
    np.testing.assert_array_equal(one["ids"], other["ids"])
    assert sorted_rows(one, 0) != sorted_rows(another, 0)
    assert not collections.Counter(sorted_rows(one, 0)) - collections.Counter(sorted_rows(more, 0))


def test_a_share_that_leaves_no_negative_is_one_line(log, packed, tmp_path):
    with pytest.raises(InputError, match="no negative of the train rows is left at 1e-09; raise it"):
        pack_sampled(1e-9, 7, log, packed, tmp_path)


def test_the_share_reaches_the_feature_map(packed):
    graph = tft.TFTransformOutput(str(packed[0] / "graph"))
    assert feature_map(sampled_spec(0.25), graph).negative_sampling == 0.25
