"""The summary of the training rows gives what TensorFlow Transform's own analyzers give, column by column."""

import collections
import gzip
import pathlib

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.options.pipeline_options import PipelineOptions

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.kinds.kind import MISSING, UNKNOWN
from ctrpipe.transforms.features.learned import Learned
from ctrpipe.transforms.features.preprocessing import feature_map, preprocessing_fn
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies, vocabulary_name
from ctrpipe.transforms.log.spec import LogSpec

pytestmark = pytest.mark.slow

Rows = dict[str, list]
ODD = ["é", "ÿ", "☃", "e\u0301", "a b", " a", "a ", "-1", "\x01", '"q"', "NULL", "\\n", "x" * 500]
SPEC = LogSpec.model_validate(
    {
        "data": {
            "columns": ["click", "plain", "tied", "rare", "odd/é", "few", "lines", "tags", "price"],
            "labels": {"ctr": "click"},
        },
        "features": [
            {"kind": "categorical", "columns": ["plain", "odd/é", "lines"]},
            {"kind": "categorical", "columns": ["tied"], "top_k": 7},
            {"kind": "categorical", "columns": ["rare"], "min_count": 3},
            {"kind": "categorical", "columns": ["few"], "top_k": 4, "min_count": 60},
            {"kind": "multivalent", "columns": ["tags"], "separator": "::", "max_length": 3, "top_k": 9},
            {"kind": "numeric", "columns": ["price"], "transform": "standardize"},
        ],
    }
)


def generated_rows(count: int = 500) -> Rows:
    random = np.random.default_rng(2)
    return {
        "plain": [f"v{n}" if n < 300 else "" for n in random.zipf(1.3, count)],
        "tied": [f"{['c', 'C', 'é'][n % 3]}{n % 20}" for n in range(count)],  # the cut is inside a tie
        "rare": [f"r{n}" for n in random.integers(0, count // 3, count)],
        "odd/é": [ODD[n] for n in random.integers(0, len(ODD), count)],
        "few": [f"f{n}" for n in random.zipf(1.5, count)],
        "lines": [["a\nb", "c\rd", "e", ""][n % 4] for n in range(count)],
        "tags": ["::".join(["", "t0", f"t{k % 25}"][k % 3] for k in random.zipf(1.2, n % 7)) for n in range(count)],
        "price": [float(n) if n > 2 else float("nan") for n in random.normal(10, 5, count).astype(np.float32)],
        "click": [0.0] * count,
    }


def learned(spec: LogSpec, rows: Rows, folder: pathlib.Path) -> Learned:
    counter = LogCounter.of_log(spec)
    for start in range(0, len(rows["click"]), 100):
        counter.add({name: array(rows[name][start : start + 100]) for name in counter.columns})
    (folder / "learned").mkdir()
    return Learned(spec, counter.summary(), folder / "learned")


def array(values: list) -> pa.Array:
    if isinstance(values[0], float):
        return pa.array(values, pa.float32())
    return pa.array([value.encode() or None for value in values], pa.binary())


def ours_beside_stock(spec: LogSpec, rows: Rows, folder: pathlib.Path):
    """The results of our function and of TFT's own analyzers on the rows, in one transform graph."""
    known = learned(spec, rows, folder)
    types = {name: tf.float32 if isinstance(values[0], float) else tf.string for name, values in rows.items()}

    def preprocess(inputs):
        outputs = preprocessing_fn(inputs, known)
        for column in spec.vocabulary_columns:
            feature = spec.feature_by_column[column]
            values = inputs[column]
            if feature.kind == "multivalent":
                values = tf.strings.split(values, feature.separator).to_tensor("", shape=[None, 12])
            name, threshold = f"stock_{vocabulary_name(column)}", feature.min_count if feature.min_count > 1 else None
            outputs[f"stock {column}"] = tft.compute_and_apply_vocabulary(
                values, top_k=feature.top_k, frequency_threshold=threshold, vocab_filename=name, name=name
            )
        for column in spec.measured_columns:
            present = tf.boolean_mask(inputs[column], tf.math.is_finite(inputs[column]))
            outputs[f"stock {column}"] = (inputs[column] - tft.mean(present)) / tf.sqrt(tft.var(present))
        return outputs

    instances = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
    metadata = tft.DatasetMetadata.from_feature_spec({n: tf.io.FixedLenFeature([], t) for n, t in types.items()})
    with tft_beam.Context(temp_dir=str(folder / "scratch"), desired_batch_size=128):
        with beam.Pipeline(options=PipelineOptions(["--direct_running_mode=in_memory"])) as pipeline:
            dataset = (pipeline | beam.Create(instances), metadata)
            graph = dataset | tft_beam.AnalyzeDataset(preprocess)
            _ = graph | tft_beam.WriteTransformFn(str(folder))
    output = tft.TFTransformOutput(str(folder))
    columns = {name: tf.constant(values, types[name]) for name, values in rows.items()}
    return output, {name: value.numpy() for name, value in output.transform_features_layer()(columns).items()}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    rows = generated_rows()
    return rows, *ours_beside_stock(SPEC, rows, tmp_path_factory.mktemp("fused"))


def assert_same_vocabularies_and_ids(spec: LogSpec, rows: Rows, output: tft.TFTransformOutput, found) -> None:
    fields = {field.name: field for field in feature_map(spec, output).fields}
    slot = 0
    for column in spec.vocabulary_columns:
        name, field = vocabulary_name(column), fields[column]
        if column == "lines":  # TFT leaves out values with a line break
            slot += field.slots
            continue
        vocabulary = output.vocabulary_by_name(name)
        assert vocabulary == output.vocabulary_by_name(f"stock_{name}"), column
        assert field.size == RESERVED_IDS + len(vocabulary) == RESERVED_IDS + output.vocabulary_size_by_name(name)
        if field.kind == "categorical":
            stock = found[f"stock {column}"]
            missing = np.array([value == "" for value in rows[column]])
            expected = np.where(missing, MISSING, np.where(stock < 0, UNKNOWN, stock + RESERVED_IDS)) + field.offset
            np.testing.assert_array_equal(found["ids"][:, slot], expected, column)
        slot += field.slots


def test_vocabularies_and_ids_are_those_of_tft(done):
    assert_same_vocabularies_and_ids(SPEC, *done)


def test_the_cases_that_matter_are_there(done):
    rows, output, found = done
    of_tft = [column for column in SPEC.vocabulary_columns if column != "lines"]
    size = {column: output.vocabulary_size_by_name(vocabulary_name(column)) for column in of_tft}
    assert size["tied"] == 7 and size["tags"] == 9 and 0 < size["few"] < 4 and size["odd/é"] == len(ODD)
    assert 0 < size["rare"] < len(set(rows["rare"]))


def test_values_with_line_breaks_are_in_the_vocabulary_in_the_order_of_tft(done):
    rows, output, found = done
    assets = pathlib.Path(output.transform_savedmodel_dir) / "assets"
    counts = collections.Counter(value.encode() for value in rows["lines"] if value)
    order = sorted(counts, key=lambda value: (counts[value], value), reverse=True)
    assert read_vocabularies(assets, SPEC)["lines"].to_pylist() == order and len(order) == 3
    fields = feature_map(SPEC, output).fields
    slot = sum(field.slots for field in fields[: [field.name for field in fields].index("lines")])
    local = [order.index(value.encode()) + RESERVED_IDS if value else MISSING for value in rows["lines"]]
    offset = {field.name: field.offset for field in fields}["lines"]
    assert (found["ids"][:, slot] - offset).tolist() == local


def test_multivalent_ids_are_tfts_of_the_first_tokens(done):
    rows, output, found = done
    *_, tags = feature_map(SPEC, output).fields
    for text, ids, stock in zip(rows["tags"], found["ids"][:, -3:], found["stock tags"], strict=True):
        tokens = [n for token, n in zip(text.split("::"), stock, strict=False) if token]
        local = [UNKNOWN if n < 0 else n + RESERVED_IDS for n in tokens[:3]] or [MISSING]
        assert ids.tolist() == [n + tags.offset for n in local] + [0] * (3 - len(local)), text


def test_mean_and_deviation_are_those_of_tft(done):
    _, _, found = done
    expected = np.nan_to_num(found["stock price"])
    np.testing.assert_allclose(found["dense"][:, 0], expected, rtol=1e-4, atol=1e-5)
    assert (expected == 0).any() and expected.std() > 0.5


@pytest.mark.large(like="tests/transforms/test_vocabularies.py::test_an_empty_vocabulary_among_many_names_the_column")
def test_an_empty_vocabulary_is_a_file_that_loads_and_an_error_that_names_the_column(tmp_path):
    rows = {"site": [""] * 5 + ["a"], "empty": [""] * 6, "click": [0.0] * 6}
    features = [{"kind": "categorical", "columns": [name], "min_count": n} for name, n in (("site", 1), ("empty", 1))]
    data = {"columns": list(rows), "labels": {"ctr": "click"}}
    spec = LogSpec.model_validate({"data": data, "features": features})
    output, found = ours_beside_stock(spec, rows, tmp_path)
    assert output.vocabulary_by_name("vocabulary_empty") == output.vocabulary_by_name("stock_vocabulary_empty")
    assert found["ids"][:, 0].tolist() == [1 + MISSING] * 5 + [1 + RESERVED_IDS]
    assert len(set(found["ids"][:, 1])) == 1
    with pytest.raises(InputError, match="the vocabulary of empty has no entry"):
        feature_map(spec, output)


@pytest.mark.large(like="tests/transforms/test_fused_analyzers.py::test_vocabularies_and_ids_are_those_of_tft")
def test_real_rows_give_tfts_vocabularies(real_data, tmp_path):
    names = ["click", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
    chosen = ["C1", "C3", "C9", "C12", "C26"]
    with gzip.open(real_data / "criteo_60k.tsv.gz", "rt") as lines:
        table = [dict(zip(names, next(lines).rstrip("\n").split("\t"), strict=True)) for _ in range(10_000)]
    rows: Rows = {name: [row[name] for row in table] for name in chosen}
    rows["click"] = [float(row["click"]) for row in table]
    features = [
        {"kind": "categorical", "columns": ["C1", "C9"]},
        {"kind": "categorical", "columns": ["C3"], "top_k": 500},
        {"kind": "categorical", "columns": ["C12"], "min_count": 4},
        {"kind": "categorical", "columns": ["C26"], "top_k": 300, "min_count": 2},
    ]
    data = {"columns": ["click", *chosen], "labels": {"ctr": "click"}}
    spec = LogSpec.model_validate({"data": data, "features": features})
    output, found = ours_beside_stock(spec, rows, tmp_path)
    assert_same_vocabularies_and_ids(spec, rows, output, found)
    assert output.vocabulary_size_by_name("vocabulary_C3") == 500
