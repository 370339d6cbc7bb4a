"""Statistics from record batches: TFDV's own, exact or of a sample, in an artifact as TFX's components read it."""

import functools
import json
import pathlib
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.types.standard_artifacts import ExampleAnomalies, Examples, ExampleStatistics, Schema

from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.components import log_transform
from ctrpipe.pipeline.components.log_statistics_gen import RATES, LogStatisticsGen, train_statistics
from ctrpipe.pipeline.components.log_validator import Executor
from ctrpipe.pipeline.monitoring.statistics import (
    COLUMNS,
    SUSPECTS,
    generate_statistics,
    summarise_statistics,
    write_statistics,
)
from ctrpipe.pipeline.monitoring.validation import tfdv
from ctrpipe.transforms.log import payload
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.schema import raw_schema
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import Split

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "price", "site"], "labels": {"ctr": "click"}},
        "features": [{"kind": "numeric", "columns": ["price"]}, {"kind": "categorical", "columns": ["site"]}],
    }
)
ONE = Workers(processes=1)
BEAM = Workers(beam_args=("--runner=DirectRunner",))
ROWS = 5000


def columns(rows: int = ROWS) -> dict[str, np.ndarray]:
    """`price` is the row's number, every fifth is missing; `site` has 7 values, every third is missing."""
    numbers = np.arange(rows)
    price = np.where(numbers % 5 == 0, np.nan, numbers).astype(np.float32)
    site = np.array([None if n % 3 == 0 else f"sité{n % 7}" for n in numbers], object)
    return {"price": price, "site": site, "click": (numbers % 4 == 0).astype(np.float32)}


@pytest.fixture
def split(tmp_path, monkeypatch) -> list[pathlib.Path]:
    """ROWS rows in parts of 1,500 rows and row groups of 500."""
    monkeypatch.setattr(payload, "ROW_GROUP_ROWS", 500)
    monkeypatch.setattr(payload, "PART_ROWS", 1500)
    return write(tmp_path / "Split-train", columns())


def write(folder: pathlib.Path, values: dict[str, np.ndarray]) -> list[pathlib.Path]:
    folder.mkdir(parents=True)
    schema = payload_schema(SPEC)
    arrays = [
        pa.array(values[field.name], pa.string() if pa.types.is_binary(field.type) else field.type, from_pandas=True)
        for field in schema
    ]
    arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
    with PayloadWriter(folder, "part", schema) as writer:
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return payload_files(folder)


def by_column(statistics) -> dict:
    return {feature.path.step[0]: feature for feature in statistics.datasets[0].features}


def test_statistics_of_all_rows_are_exact(split):
    (found,) = generate_statistics({"train": split}, ROWS, 0, ONE).values()
    assert found.rate == 1 and found.statistics.datasets[0].num_examples == ROWS
    features, values = by_column(found.statistics), columns()
    price, site = features["price"].num_stats, features["site"].string_stats
    present = values["price"][~np.isnan(values["price"])]
    assert (price.common_stats.num_missing, price.common_stats.num_non_missing) == (1000, 4000)
    assert np.isclose(price.mean, present.mean()) and np.isclose(price.std_dev, present.std())
    assert (price.min, price.max) == (1, 4999)
    texts, counts = np.unique([value for value in values["site"] if value], return_counts=True)
    assert site.unique == 7 and site.common_stats.num_non_missing == counts.sum()
    assert {top.value: top.frequency for top in site.top_values} == dict(zip(texts, counts, strict=True))
    assert features["click"].num_stats.mean == 0.25


def test_they_are_those_of_tfdv_on_the_same_rows(split):
    (found,) = generate_statistics({"train": split}, ROWS, 0, ONE).values()
    theirs = by_column(tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns())))
    for name, ours in by_column(found.statistics).items():
        kind = ours.WhichOneof("stats")
        mine, their = getattr(ours, kind), getattr(theirs[name], kind)
        assert ours.type == theirs[name].type
        assert mine.common_stats.num_non_missing == their.common_stats.num_non_missing
        if kind == "string_stats":
            assert mine.top_values == their.top_values and mine.avg_length == their.avg_length
        else:
            assert (mine.min, mine.max, mine.num_zeros) == (their.min, their.max, their.num_zeros)
            counts = [[bucket.sample_count for bucket in stats.histograms[0].buckets] for stats in (mine, their)]
            assert np.allclose(*counts, atol=ROWS / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [ONE, BEAM])
def test_a_sample_is_uniform_and_follows_the_seed(split, workers):
    def prices(seed: int):
        (found,) = generate_statistics({"train": split}, 1000, seed, workers).values()
        assert found.rate == 0.2
        return found.statistics.datasets[0].num_examples, by_column(found.statistics)["price"].num_stats

    rows, price = prices(0)
    assert abs(rows - 1000) < 100  # 3.5 standard deviations
    assert abs(price.mean - 2500) < 150 and price.min < 50 and price.max > 4950
    assert (rows, price) == prices(0) and price != prices(1)[1]


def test_the_sample_does_not_depend_on_how_the_rows_lie_in_files(split, tmp_path, monkeypatch):
    monkeypatch.setattr(payload, "PART_ROWS", 10_000)
    whole = write(tmp_path / "whole", columns())
    assert len(whole) == 1 and len(split) == 4
    found = generate_statistics({"parts": split, "whole": whole}, 1000, 0, ONE)
    parts, one = (by_column(found[name].statistics) for name in ("parts", "whole"))
    assert parts["site"].string_stats.top_values == one["site"].string_stats.top_values
    assert np.isclose(parts["price"].num_stats.mean, one["price"].num_stats.mean)


def test_the_statistics_do_not_depend_on_where_they_are_made(split):
    here, there = (generate_statistics({"train": split}, ROWS, 0, workers)["train"] for workers in (ONE, BEAM))
    assert here == there


def artifact(kind: type, folder: pathlib.Path, splits: list[str] | None = None):
    made = kind()
    made.uri = str(folder)
    if splits:
        made.split_names = json.dumps(splits)
    return made


def test_the_processes_of_the_transform_end_before_a_training_run(tmp_path, monkeypatch):
    """They hold memory that the training run needs."""
    calls: list[str] = []
    for name in ("analyze", "transform", "end_forked_workers"):
        note = functools.partial(calls.append, name)
        monkeypatch.setattr(
            log_transform, name, lambda *_, note=note, **__: note() or types.SimpleNamespace(clipped={})
        )
    run = log_transform.LogTransform.EXECUTOR_SPEC.executor_class._FUNCTION
    examples, packed, graph = artifact(Examples, tmp_path), artifact(Examples, tmp_path), artifact(Examples, tmp_path)
    examples.split_names = "[]"
    settings = log_transform.TransformSettings(spec=SPEC, seed=0, former=None).model_dump_json()
    outputs = {"transform_graph": graph, "transformed_examples": packed}
    run(examples=examples, **outputs, settings=settings, workers=ONE.to_json(), code_version="")
    assert calls == ["analyze", "transform", "end_forked_workers"]


def test_the_component_writes_what_example_validator_reads(split, tmp_path):
    assert split and write(tmp_path / "Split-test", columns(100))
    examples = artifact(Examples, tmp_path, ["train", "test"])
    statistics = artifact(ExampleStatistics, tmp_path / "statistics")
    generate = LogStatisticsGen.EXECUTOR_SPEC.executor_class._FUNCTION
    settings = {"max_rows": 1000, "seed": 0, "workers": ONE.to_json(), "code_version": ""}
    generate(examples=examples, statistics=statistics, spec=SPEC.model_dump_json(), **settings)
    assert statistics.split_names == examples.split_names
    assert json.loads(statistics.get_string_custom_property(RATES)) == {"train": 0.2, "test": 1.0}
    train_rows, rows = train_statistics(statistics)
    assert train_rows.rate == 0.2 and rows == ROWS
    schema = raw_schema(SPEC)
    next(feature for feature in schema.feature if feature.name == "price").float_domain.max = 4900
    (tmp_path / "schema").mkdir()
    tfdv.write_schema_text(schema, str(tmp_path / "schema" / "schema.pbtxt"))
    anomalies = artifact(ExampleAnomalies, tmp_path / "anomalies")
    inputs = {"statistics": [statistics], "schema": [artifact(Schema, tmp_path / "schema")]}
    Executor().Do(inputs, {"anomalies": [anomalies]}, {})
    files = [tmp_path / "anomalies" / f"Split-{name}" / "SchemaDiff.pb" for name in ("train", "test")]
    train, test = (anomalies_pb2.Anomalies.FromString(file.read_bytes()) for file in files)
    assert list(train.anomaly_info) == ["price"] and not test.anomaly_info
    counts = {
        "rows": {"train": ROWS, "test": 100},
        "positives": {"train": 1250, "test": 25},
        "rejected": 1,
        "reasons": {},
    }
    rates = json.loads(statistics.get_string_custom_property(RATES))
    shown = summarise_statistics(tmp_path / "statistics", tmp_path / "anomalies", counts, SPEC, rates, {}, {})
    assert shown["splits"]["train"] == {"rows": ROWS, "positives": 1250, "rate": 0.2, "span": []}
    assert [anomaly["column"] for anomaly in shown["anomalies"]] == ["price", "all columns"]  # its rows repeat
    assert [column["name"] for column in shown["columns"]] == ["click", "price", "site"]
    assert 1000 <= shown["counted_rows"] <= ROWS  # a sample, whose values are counted exactly
    assert abs(shown["columns"][2]["missing_rate"] - 1 / 3) < 0.05 and shown["columns"][2]["unique"] == 7


def test_columns_that_a_model_should_not_have_are_anomalies_of_the_report(tmp_path, caplog):
    caplog.set_level("INFO")
    values = {"train": columns(400), "test": columns(400)}
    values["train"]["site"] = np.where(values["train"]["click"] > 0, "bought", None).astype(object)
    values["test"]["price"][:] = 3
    values["train"] = {name: np.concatenate([column, column[:100]]) for name, column in values["train"].items()}
    for name, rows in values.items():
        write(tmp_path / f"Split-{name}", rows)
        (tmp_path / "anomalies" / f"Split-{name}").mkdir(parents=True)
        (tmp_path / "anomalies" / f"Split-{name}" / "SchemaDiff.pb").write_bytes(b"")
    (tmp_path / "counts.json").write_text('{"of_column": ["two groups look alike"]}')
    statistics = artifact(ExampleStatistics, tmp_path / "statistics")
    by_site = SPEC.data.model_copy(update={"split": Split(by="group", column="site")})
    settings = {
        "max_rows": 1000,
        "seed": 0,
        "workers": ONE.to_json(),
        "code_version": "",
        "spec": SPEC.model_copy(update={"data": by_site}).model_dump_json(),
    }
    generate = LogStatisticsGen.EXECUTOR_SPEC.executor_class._FUNCTION
    generate(examples=artifact(Examples, tmp_path, ["train", "test"]), statistics=statistics, **settings)
    counts = {"rows": {"train": 500, "test": 400}, "positives": {"train": 1, "test": 1}, "rejected": 0, "reasons": {}}
    rates = {"train": 1.0, "test": 1.0}
    shown = summarise_statistics(tmp_path / "statistics", tmp_path / "anomalies", counts, SPEC, rates, {}, {})
    found = [(each["column"], each["split"], each["text"]) for each in shown["anomalies"] if each["column"] != "click"]
    assert found[-5][:2] == ("site", "train") and found[-5][2].startswith("its values alone give the label away")
    assert found[-4][:2] == ("price", "test") and found[-4][2].startswith("one value in all rows, 3,")
    assert found[-3][:2] == ("site", "test") and "are written unlike those of the training rows" in found[-3][2]
    assert found[-2][:2] == ("all columns", "all") and " are copies of another row, label and all" in found[-2][2]
    assert found[-1] == ("site", "all", "two groups look alike")
    assert "Column: site, train rows: its values alone give the label away" in caplog.text


def test_columns_of_which_nothing_is_understood_are_anomalies(tmp_path):
    values = {"train": columns(90), "test": columns(30)}
    values["train"]["price"][:] = 7
    values["train"]["site"] = np.array(["one"] * 90, object)
    values["test"]["price"][:] = 3  # one value of a few rows says little
    values["test"]["site"][:] = None
    for name, rows in values.items():
        write(tmp_path / f"Split-{name}", rows)
        (tmp_path / "anomalies" / f"Split-{name}").mkdir(parents=True)
        (tmp_path / "anomalies" / f"Split-{name}" / "SchemaDiff.pb").write_bytes(b"")
    rates = write_statistics(tmp_path, tmp_path / "statistics", list(values), ROWS, 0, ONE)
    (tmp_path / "statistics" / COLUMNS).write_text('{"rows": 90, "columns": [], "times": {}}')
    (tmp_path / "statistics" / SUSPECTS).write_text("[]")
    counts = {"rows": {"train": 90, "test": 30}, "positives": {"train": 1, "test": 1}, "rejected": 0, "reasons": {}}
    unknown, clipped = {"test": ["site"], "train": []}, {"train": {}, "test": {"price": 12}}
    folders = tmp_path / "statistics", tmp_path / "anomalies"
    shown = summarise_statistics(*folders, counts, SPEC, rates, unknown, clipped)
    assert [tuple(anomaly.values()) for anomaly in shown["anomalies"]] == [
        ("price", "train", "one value in all rows: 7"),
        ("site", "train", "one value in all rows: one"),
        ("site", "test", "every value is missing"),
        ("site", "test", "every value is unknown: none is in the vocabulary of the training rows"),
        ("price", "test", "clipped in 12 of 30 rows, where the number lies far beyond the range of the training rows"),
    ]
