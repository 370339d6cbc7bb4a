"""The values that an export fixes, such as an ad's position, and the exports that are refused."""

import datetime
import keyword
import types

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from ctrpipe.common.errors import InputError, NotFiniteError
from ctrpipe.common.processes import Workers
from ctrpipe.models import create
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.export.export import _Servable, arguments_of, export
from ctrpipe.serving.layout import SAVED_MODEL
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server.check import check_servable
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.slots import column_of_slot
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.schema import raw_schema
from ctrpipe.transforms.log.spec import LogSpec
from tests.serving.packed_servable import SPEC, rows, save, shared_version


def with_positions(*columns: str) -> LogSpec:
    """The log with these columns as positions."""
    features = []
    for feature in SPEC.model_dump()["features"]:
        for column in feature["columns"]:
            role = {"role": "position"} if column in columns else {}
            features.append({**feature, "columns": [column], **role})
    return LogSpec.model_validate({"data": SPEC.data.model_dump(), "features": features})


@pytest.mark.slow
def test_an_answer_that_is_not_finite_is_refused(shared_folder, monkeypatch):
    """A comparison with NaN is false, so NaN must not pass as a small difference."""
    version, run = shared_version(shared_folder), Servable.run
    check_servable(version)

    def broken(servable, signature, *arguments):
        outputs = run(servable, signature, *arguments)
        return {name: np.full_like(values, np.nan) if name == "cvr" else values for name, values in outputs.items()}

    monkeypatch.setattr(Servable, "run", broken)
    with pytest.raises(NotFiniteError, match="serving_raw answers a row of its own log with NaN or infinity"):
        check_servable(version)


@pytest.mark.slow
@pytest.mark.parametrize(
    "position",
    [
        pytest.param({"c2": "é7"}, marks=pytest.mark.large),
        pytest.param({"n1": 3.0}, marks=pytest.mark.large),
        {"c2": "é7", "n1": 3.0, "hour": "25110309"},
    ],
)
def test_a_fixed_position_holds_for_every_request(position, tmp_path):
    version = save(tmp_path, with_positions(*position), position)
    assert check_servable(version) < 1e-6
    spec = read_log_spec(version)
    servable = Servable(version)
    try:
        raw = raw_arrays(rows(50, 7), spec)
        columns = {
            name: np.full(50, value, np.float32)
            if isinstance(value, float)
            else np.array([value.encode()] * 50, object)
            for name, value in position.items()
        }
        found, fixed = servable.run("serving_raw", raw), servable.run("serving_raw", {**raw, **columns})
        packed = servable.run("serving_packed", servable.run("transform_raw", raw))
        for task in ("ctr", "cvr"):
            np.testing.assert_array_equal(found[task], fixed[task])
            np.testing.assert_allclose(packed[task], found[task], atol=1e-6)
            assert np.ptp(found[task]) > 0.01
    finally:
        servable.close()


@pytest.mark.slow
def test_without_one_the_position_counts(tmp_path):
    version = save(tmp_path, with_positions("c2"))
    assert b"keras_model" not in (version / SAVED_MODEL).read_bytes()  # with functions that no signature needs
    servable = Servable(version)
    try:
        raw = raw_arrays(rows(50, 7), with_positions("c2"))
        elsewhere = {**raw, "c2": np.array(["é7".encode()] * 50, object)}
        difference = servable.run("serving_raw", raw)["ctr"] - servable.run("serving_raw", elsewhere)["ctr"]
        assert np.abs(difference).max() > 0.01
        answers = servable.run("log_spec", {"request": np.array([b""] * 100_000, object)})["log_spec"]
        assert LogSpec.model_validate_json(answers[0]) == with_positions("c2")
        assert set(answers[1:]) == {b""} and len(answers) == 100_000
        assert servable.run("log_spec", {"request": np.array([], object)})["log_spec"].tolist() == []
    finally:
        servable.close()


def test_a_graph_that_xla_has_to_compile_is_refused(tmp_path):
    module = tf.Module()
    compiled = tf.function(lambda x: {"y": x * 2}, [tf.TensorSpec([None], tf.float32, name="x")], jit_compile=True)
    tf.saved_model.save(module, str(tmp_path), {"serving_default": compiled})
    with pytest.raises(InputError, match="is compiled by XLA, which TF Serving refuses") as error:
        check_servable(tmp_path)
    assert "\n" not in str(error.value)


def test_keras_on_another_backend_exports_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(InputError, match="KERAS_BACKEND=jax: only the TensorFlow backend exports"):
        export(None, None, SPEC, None, rows(1, 1), tmp_path, {})


def test_examples_are_parsed_as_tensorflow_parses_them_by_the_schema():
    examples = [
        {"c1": [b"a"], "n1": [1.5]},
        {"c2": ["é".encode()]},
        {"n1": [float("nan")], "unknown": [b"x"]},
        {},
    ]
    wanted = tft.tf_metadata.schema_utils.schema_as_feature_spec(raw_schema(SPEC)).feature_spec
    wanted = {name: wanted[name] for name in SPEC.feature_columns}
    serialized = tf.constant([example(columns).SerializeToString() for columns in examples])
    parsed = _Servable.parse(types.SimpleNamespace(_spec=SPEC), serialized)
    expected = tf.io.parse_example(serialized, wanted)
    assert parsed.keys() == expected.keys() >= {"c1", "n1", "c2"}
    for name, values in expected.items():
        np.testing.assert_array_equal(parsed[name].numpy(), values.numpy(), name)


def example(columns: dict[str, list]) -> tf.train.Example:
    made = tf.train.Example()
    for name, values in columns.items():
        is_text = isinstance(values[0], bytes)
        kind = made.features.feature[name]
        (kind.bytes_list if is_text else kind.float_list).value.extend(values)
    return made


@pytest.mark.slow
def test_a_model_understands_the_forms_that_the_reader_understood(tmp_path):
    log = LogSpec.model_validate(
        {
            "data": {**SPEC.data.model_dump(), "missing_values": ["NULL", -1]},
            "features": [
                {**feature.model_dump(), "whole_numbers": True}
                if isinstance(feature, Categorical) and feature.transform == "vocabulary"
                else feature.model_dump()
                for feature in SPEC.features
            ],
        }
    )
    plain = raw_arrays(rows(60, 7), log)
    written = {name: values.copy() for name, values in plain.items()}
    for column in ("c1", "c2", "c3", "tags", "hour"):
        written[column][written[column] == b""] = b"NULL"
    written["n1"] = np.where(np.isnan(plain["n1"]), np.float32(-1), plain["n1"])
    plain["n1"] = np.where(written["n1"] == -1, np.float32("nan"), plain["n1"])
    plain["c1"][:20], written["c1"][:20] = b"12", b"12.0"
    for row, hour in enumerate(plain["hour"]):
        if hour:
            moment = datetime.datetime.strptime(hour.decode(), "%y%m%d%H").replace(tzinfo=datetime.UTC)
            forms = [moment.isoformat(), str(int(moment.timestamp())), moment.strftime("%Y%m%d%H")]
            written["hour"][row] = forms[row % 3].encode()
    servable = Servable(save(tmp_path, log))
    try:
        expected = servable.run("serving_raw", plain)["ctr"]
        np.testing.assert_array_equal(servable.run("serving_raw", written)["ctr"], expected)
        columns = {
            name: pa.array(values, pa.binary() if values.dtype == object else pa.float32())
            for name, values in written.items()
        }
        examples = np.array(to_examples(pa.RecordBatch.from_pydict(columns)), object)
        np.testing.assert_array_equal(servable.run("serving_default", {"examples": examples})["ctr"], expected)
        other = {**written, "hour": np.array([b"25110303"] * 60, object)}
        assert np.abs(servable.run("serving_raw", other)["ctr"] - expected).max() > 0.01
    finally:
        servable.close()


# Names of columns -----------------------------------------------------------------------------------------------------

NAMES = [
    *("userId", "userid", "USERID", "self", "cls", "class", "label", "training", "name", "inputs", "examples", "ids"),
    *("a/b", "a_b", "a b", "a,b", "a.b", "a:0", "1st", "é", "_x", "__init__", "None", "%s", "ctr", "kwargs"),
    *("tensor_of_column_0", "Tensor_Of_Column_1", "price", "Price"),
]
OF_NAMES = LogSpec.model_validate(
    {
        "data": {"header": True, "labels": {"ctr": "Label"}},
        "features": [
            {"kind": "numeric", "columns": ["Price", "weight"], "transform": "standardize"},
            {"kind": "numeric", "columns": ["lambda"]},
            {"kind": "categorical", "columns": [name for name in NAMES if name != "Price"]},
        ],
    }
)


def test_each_column_has_an_argument_of_its_own_that_tensorflow_keeps():
    arguments = arguments_of(OF_NAMES)
    assert list(arguments) == OF_NAMES.feature_columns
    assert len({argument.lower() for argument in arguments.values()}) == len(arguments)
    assert all(argument.isidentifier() and not keyword.iskeyword(argument) for argument in arguments.values())
    assert [name for name in ("label", "training", "weight", "ids") if arguments[name] != name] == []
    assert not {argument for name, argument in arguments.items() if argument != name} & set(arguments)


@pytest.mark.slow
def test_columns_of_every_name_are_served(tmp_path):
    count = 40
    random = np.random.default_rng(2)
    columns = {name: pa.array(random.normal(5, 2, count), pa.float32()) for name in OF_NAMES.numeric_columns}
    columns |= {
        name: pa.array([f"{name}{n % (2 + place % 5)}".encode() for n in range(count)], pa.binary())
        for place, name in enumerate(OF_NAMES.text_columns)
    }
    table = pa.RecordBatch.from_pydict({**columns, "Label": pa.array(np.arange(count) % 2, pa.float32())})
    with PayloadWriter(tmp_path, "part", payload_schema(OF_NAMES)) as writer:
        writer.write(table)
    analyze(OF_NAMES, payload_files(tmp_path), tmp_path / "graph", Workers(processes=1))
    graph = tft.TFTransformOutput(str(tmp_path / "graph"))
    data = feature_map(OF_NAMES, graph)
    model = create("lr", data)
    model(empty_row(data))
    for weight in model.trainable_variables:
        weight.assign(random.normal(size=weight.shape))
    export(model, graph, OF_NAMES, data, table.slice(0, 2), tmp_path / "1", {})
    servable = Servable(tmp_path / "1")
    try:
        raw = raw_arrays(table, OF_NAMES)
        expected = servable.run("serving_raw", raw)["ctr"]
        assert len(np.unique(expected)) > 20
        packed = servable.run("transform_raw", raw)
        np.testing.assert_array_equal(packed["dense"][:, 0] > 0, raw["Price"] > raw["Price"].mean(dtype=np.float64))
        for name in OF_NAMES.text_columns:  # each column's own values, in its own slot
            changed = {**raw, name: np.array([b"new"] * count, object)}
            moved = servable.run("transform_raw", changed)["ids"] != packed["ids"]
            assert moved.all(axis=0).tolist() == [column == name for column in column_of_slot(OF_NAMES)], name
        examples = np.array(to_examples(table.select(OF_NAMES.feature_columns)), object)
        np.testing.assert_array_equal(servable.run("serving_default", {"examples": examples})["ctr"], expected)
        np.testing.assert_array_equal(servable.run("regress", {"inputs": examples})["outputs"], expected)
    finally:
        servable.close()
