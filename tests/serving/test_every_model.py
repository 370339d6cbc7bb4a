"""Every signature of every exported model: loader, REST, gRPC and batch scoring answer as Keras does."""

import base64
import json
from typing import Any

import httpx
import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    input_pb2,
    model_management_pb2,
    regression_pb2,
)

from ctrpipe.common.processes import Workers
from ctrpipe.models import create
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.models.base.registry import is_boosted, model_class
from ctrpipe.serving.assets import GoldenRows, read_log_spec
from ctrpipe.serving.explained import BASELINE_LOGIT, LOGIT, SIGNATURE, attributions
from ctrpipe.serving.export.export import ITEM_VECTORS, USER_VECTORS, candidates_of, export
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.scoring.score import score
from ctrpipe.serving.server import parse_flags, running_server
from ctrpipe.serving.xla import xla_node
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.spec import LogSpec
from tests.contract.rpc import Rpc, model_config, refusal
from tests.models.small_models import SMALL, WITH_TASKS, WITH_TEXT, cases_of
from tests.serving import packed_servable, text_servable

pytestmark = pytest.mark.slow

# Candidates, histories and plain columns. Several labels are in test_both_protocols.py, test_pieces.py and
# test_calibration.py, texts in tests/e2e.
IN_EVERY_RUN = ("din",)
NAMES = cases_of(IN_EVERY_RUN)
DATA = packed_servable.SPEC.data.model_dump()
SEEN = {"kind": "sequence", "columns": ["seen"], "max_length": 4, "shared_with": "c1", "pooling": "attention"}
OF_ITEM = (["n2"], ["tags"])  # beside c1, which `seen` shares its vocabulary with
FEATURES = [
    {**feature, "role": "item"} if feature["columns"] in OF_ITEM else feature
    for feature in packed_servable.SPEC.model_dump()["features"]
]
TWO_TASKS = LogSpec.model_validate(
    {"data": {**DATA, "columns": [*DATA["columns"], "seen"]}, "features": [*FEATURES, SEEN]}
)
FIRST = {"ctr": TWO_TASKS.data.labels["ctr"]}
ONE_TASK = TWO_TASKS.model_copy(update={"data": TWO_TASKS.data.model_copy(update={"labels": FIRST})})
PREDICTED = {"serving_default", "serving_raw", "serving_packed", "serving_candidates", "serving_candidates_packed"}
TASKS = ("ctr", "cvr")
FIELDS = {"f1": "c2", "f3": "c3", "m": "tags"}  # of small_models' data -> of the log
INIT = "__saved_model_init_op"  # TensorFlow's own, which the loader runs
OTHERS = {"regress", "transform_features", "transform_raw", "log_spec", SIGNATURE, USER_VECTORS, ITEM_VECTORS}


def rows(count: int) -> pa.RecordBatch:
    batch = packed_servable.rows(count, 1)
    random = np.random.default_rng(3)
    seen = ["|".join(f"v{item}" for item in random.zipf(1.5, random.integers(0, 7)) % 500) for _ in range(count)]
    batch = batch.append_column("seen", pa.array([text.encode() or None for text in seen], pa.binary()))
    return batch.select(payload_schema(TWO_TASKS).names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The statistics learned from the log, shared by the models without a text."""
    folder = tmp_path_factory.mktemp("every_model")
    (folder / "payload").mkdir()
    with PayloadWriter(folder / "payload", "train", payload_schema(TWO_TASKS)) as writer:
        writer.write(rows(2000))
    analyze(TWO_TASKS, payload_files(folder / "payload"), folder / "graph", Workers(processes=1))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """serve(model, version's folder): has the one server of this file serve it alone; REST's URL and gRPC's stubs."""
    config = tmp_path_factory.mktemp("config") / "models.config"
    config.write_text("model_config_list {}")
    flags = [f"--model_config_file={config}", "--file_system_poll_wait_seconds=0.1", "--enable_model_warmup=false"]
    with running_server(parse_flags(flags)) as found:
        with Rpc(found.grpc) as rpc, httpx.Client(base_url=found.rest, trust_env=False, timeout=60) as rest:

            def serve(name, version):
                request = model_management_pb2.ReloadConfigRequest()
                text_format.Parse(model_config(**{name: (version.parent,)}), request.config)
                rpc.model.HandleReloadConfigRequest(request, timeout=60)
                return rest, rpc

            yield serve


def fields_of_log(option: Any) -> Any:
    """The option of a model of small_models, where it lists fields with those of this log."""
    return tuple(FIELDS.get(each, each) for each in option) if isinstance(option, tuple) else option


def explains(name):
    return not is_boosted(name)


def exported(name, folder):
    """A version of the model with random weights."""
    if name in WITH_TEXT:
        return text_servable.save(folder / "texts", name, explains=explains(name))
    transform = tft.TFTransformOutput(str(folder / "graph"))
    spec = TWO_TASKS if name in WITH_TASKS else ONE_TASK  # some models have one task
    fields = feature_map(spec, transform)
    keras.utils.set_random_seed(1)
    options = {key: fields_of_log(value) for key, value in SMALL[name].items() if key != "times"}  # it has no times
    model = create(name, fields, **options)
    model(empty_row(fields))
    random = np.random.default_rng(2)
    scale = 0.8 if "key_dim" in SMALL[name] else 0.3  # with small weights the layer norms leave little of the fields
    for weight in model.trainable_variables:
        weight.assign(random.normal(scale=scale, size=weight.shape))
    export(model, transform, spec, fields, rows(5), folder / name / "1", {}, explains=explains(name))
    return folder / name / "1"


def requests_of(name, version, golden):
    """Signature -> inputs by name: the golden rows, as each signature takes them."""
    spec = read_log_spec(version)
    columns = [_nullable(golden.raw[name]) for name in spec.feature_columns]
    batch = pa.RecordBatch.from_arrays(columns, names=list(spec.feature_columns))
    examples = np.array(to_examples(batch), object)
    found = {name: {"examples": examples} for name in ("serving_default", "transform_features")}
    found |= {"regress": {"inputs": examples}, "log_spec": {"request": np.array([b""], object)}}
    found |= {"serving_raw": golden.raw, "transform_raw": golden.raw, "serving_packed": golden.packed}
    found |= {SIGNATURE: golden.raw} if explains(name) else {}
    if model_class(name).needs_items:
        of_item = {name: values for name, values in golden.raw.items() if name in spec.item_columns}
        found |= {ITEM_VECTORS: of_item, USER_VECTORS: {k: v for k, v in golden.raw.items() if k not in of_item}}
    return found | (candidates_of(golden.raw, golden.packed, spec) if golden.candidates is not None else {})


def _nullable(values):
    """A missing number is NaN, a missing string empty."""
    found = [None if value != value or value == b"" else value for value in values.tolist()]
    return pa.array(found, pa.binary() if values.dtype.kind == "O" else pa.float32())


def expected_of(signature, golden):
    if signature.startswith("serving_candidates"):
        return dict(zip(TASKS, golden.candidates.T, strict=False))
    if signature in PREDICTED:
        return dict(zip(TASKS, golden.probabilities.T, strict=False))
    return {"outputs": golden.probabilities[:, 0]} if signature == "regress" else None


def as_json(values):
    if values.dtype.kind == "O":
        return [as_base64(value) for value in values.tolist()]
    return values.tolist()


def as_base64(value):
    return {"b64": base64.b64encode(value).decode()}


def over_rest(rest, name, signature, inputs, outputs):
    body = {"signature_name": signature, "inputs": {key: as_json(value) for key, value in inputs.items()}}
    answer = rest.post(f"/v1/models/{name}:predict", content=json.dumps(body))
    assert answer.status_code == 200, answer.text
    found = answer.json()["outputs"]
    return found if len(outputs) > 1 else {outputs[0]: found}


def example_as_json(example):
    """The features of a serialized tf.Example that have values."""
    features = tf.train.Example.FromString(example).features.feature
    found = {}
    for name, feature in features.items():
        if kind := feature.WhichOneof("kind"):
            values = getattr(feature, kind).value
            found[name] = [as_base64(value) if isinstance(value, bytes) else value for value in values]
    return found


def as_input(examples):
    return input_pb2.Input(example_list={"examples": [tf.train.Example.FromString(one) for one in examples]})


def regressed_over_rest(rest, name, examples):
    body = {"signature_name": "regress", "examples": [example_as_json(example) for example in examples]}
    answer = rest.post(f"/v1/models/{name}:regress", content=json.dumps(body))
    assert answer.status_code == 200, answer.text
    return {"outputs": answer.json()["results"]}


def regressed_over_grpc(rpc, name, examples):
    """Asks by Regress and by MultiInference, which must agree."""
    spec = {"name": name, "signature_name": "regress"}
    alone = rpc.prediction.Regress(regression_pb2.RegressionRequest(model_spec=spec, input=as_input(examples)))
    task = {"model_spec": spec, "method_name": "tensorflow/serving/regress"}
    asked = inference_pb2.MultiInferenceRequest(tasks=[task], input=as_input(examples))
    [joint] = rpc.prediction.MultiInference(asked).results
    assert joint.regression_result == alone.result
    return {"outputs": [one.value for one in alone.result.regressions]}


def assert_is_no_classifier(rest, rpc, name, examples):
    """A pushed model has no classification signature: both protocols say so."""
    body = {"signature_name": "regress", "examples": [example_as_json(example) for example in examples]}
    answer = rest.post(f"/v1/models/{name}:classify", content=json.dumps(body))
    spec = {"name": name, "signature_name": "regress"}
    asked = classification_pb2.ClassificationRequest(model_spec=spec, input=as_input(examples))
    code, message = refusal(rpc.prediction.Classify, asked)
    assert (answer.status_code, code) == (400, "INVALID_ARGUMENT") and answer.json()["error"] == message
    assert "Expected classification signature outputs to contain at least one of" in message


def scored(version, spec, folder):
    """The scores by task that `ctrpipe score` writes for a log of the golden rows."""
    packed_servable.write_log(rows(5), folder / "log.tsv", spec)
    assert score(version.parent, [str(folder / "log.tsv")], folder / "scored").scored == 5
    parts = [pyarrow.parquet.read_table(part) for part in sorted((folder / "scored").glob("part-*"))]
    table = pa.concat_tables(parts).sort_by("line")
    return {task: table[task].to_numpy() for task in TASKS if task in table.column_names}


def equal(found, expected):
    assert set(found) == set(expected)
    for key, values in expected.items():
        values = np.asarray(values)
        if values.dtype.kind == "O":
            assert [
                v if isinstance(v, bytes) else v.encode() for v in np.asarray(found[key], object)
            ] == values.tolist()
        else:
            np.testing.assert_allclose(np.asarray(found[key], values.dtype), values, rtol=0, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_every_signature_answers_the_same_in_the_loader_over_rest_over_grpc_and_in_a_scoring(
    name, folder, server, tmp_path
):
    version = exported(name, folder)
    assert xla_node(version) is None
    golden = GoldenRows.load(asset_path(version, Asset.GOLDEN))
    assert np.ptp(golden.probabilities) > 1e-4  # far above what two answers may differ by
    requests = requests_of(name, version, golden)
    servable = Servable(version)
    rest, rpc = server(name, version)
    try:
        assert {*requests, INIT} == set(servable.signatures) and PREDICTED | OTHERS >= set(requests)
        for signature, inputs in requests.items():
            found = servable.run(signature, inputs)
            equal(found, expected_of(signature, golden) or found)
            equal(over_rest(rest, name, signature, inputs, sorted(found)), found)
            equal(rpc.predict(inputs, name=name, signature=signature)[0], found)
            if signature == SIGNATURE:
                equal({"ctr": found["ctr"]}, {"ctr": golden.probabilities[:, 0]})
                added = sum(attributions(found).values())
                np.testing.assert_allclose(added, found[LOGIT] - found[BASELINE_LOGIT], atol=1e-4)
                assert set(attributions(found)) == set(read_log_spec(version).explained_columns)
                assert len(set(found[BASELINE_LOGIT])) == 1 and np.abs(added).max() > 1e-4
        examples = requests["regress"]["inputs"].tolist()
        expected = expected_of("regress", golden)
        equal(regressed_over_rest(rest, name, examples), expected)
        equal(regressed_over_grpc(rpc, name, examples), expected)
        assert_is_no_classifier(rest, rpc, name, examples)
        if name not in WITH_TEXT:
            equal(scored(version, read_log_spec(version), tmp_path), expected_of("serving_default", golden))
    finally:
        servable.close()
