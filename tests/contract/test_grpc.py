"""PredictionService and ModelService (G1-G12)."""

import contextlib
import json
import shutil
import subprocess
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client import GrpcClient
from ctrpipe.serving.server import parse_flags, running_server
from ctrpipe.serving.server.grpc_arrivals import Arrivals
from tests.contract import servers
from tests.contract.rpc import Rpc, examples, refusal, request

X = np.float32([1, 5])


@pytest.fixture(scope="module")
def rpc(addresses):
    if addresses.grpc is None:
        pytest.skip("no gRPC address was given")
    with Rpc(addresses.grpc) as rpc:
        yield rpc


def predict_refusal(rpc, **fields):
    return refusal(rpc.prediction.Predict, request(**fields), timeout=30)


def test_G2_predict(rpc):
    outputs, spec = rpc.predict({"x": X})
    np.testing.assert_array_equal(outputs["y"], np.float32([2.5, 4.5]))
    assert (spec.name, spec.version.value) == ("m", 123)


def test_G2_tensors_of_every_type_come_back_as_they_went(rpc):
    kinds = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64, np.float32, np.float64]
    for size in (1, 3, 500):  # few values and many take other ways through the server
        sent = {np.dtype(kind).name: _values(kind, size) for kind in kinds}
        outputs, _ = rpc.predict(sent, signature="numbers")
        assert set(outputs) == set(sent)
        for name, value in sent.items():
            assert outputs[name].dtype == value.dtype
            np.testing.assert_array_equal(outputs[name], value)


def _values(kind, size):
    if np.dtype(kind).kind == "f":
        return np.resize(np.array([0, -1.5, np.inf, np.finfo(kind).max], kind), size)
    return np.resize(np.array([np.iinfo(kind).min, np.iinfo(kind).max, 7], kind), size)


def test_G2_values_in_their_own_field_and_as_content_are_the_same(rpc):
    values = np.linspace(-3, 3, 1000, dtype=np.float32)
    as_values = request({}, signature="half_plus_two")
    tensor = as_values.inputs["x"]
    tensor.dtype = tf.float32.as_datatype_enum
    tensor.tensor_shape.dim.add(size=len(values))
    tensor.float_val.extend(values.tolist())
    as_content = request({"x": values}, signature="half_plus_two")
    assert as_content.inputs["x"].tensor_content
    answers = [tf.make_ndarray(rpc.prediction.Predict(r).outputs["y"]) for r in (as_values, as_content)]
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], values / 2 + 2)


def test_G2_one_value_fills_a_shape(rpc):
    filled = request({}, signature="any_shape")
    tensor = filled.inputs["x"]
    tensor.dtype = tf.float32.as_datatype_enum
    for size in (2, 3):
        tensor.tensor_shape.dim.add(size=size)
    tensor.float_val.append(1.5)
    answer = tf.make_ndarray(rpc.prediction.Predict(filled).outputs["y"])
    np.testing.assert_array_equal(answer, np.full([2, 3], 1.5, np.float32))


def test_G2_strings_and_booleans(rpc):
    sent = {"f": np.float32([1]), "i": np.int32([2]), "s": np.array([b"\xff\x00"], object), "b": np.array([True])}
    outputs, _ = rpc.predict(sent, signature="mixed")
    assert outputs["s_bytes"].tolist() == [b"\xff\x00"] and outputs["flag"].tolist() == [True]
    assert outputs["sum"].tolist() == [3.0]


@pytest.mark.parametrize("shape", [[], [0], [2, 0], [2, 3, 1]])
def test_G2_shapes_are_kept(rpc, shape):
    sent = np.zeros(shape, np.float32)
    outputs, _ = rpc.predict({"x": sent}, signature="any_shape")
    assert outputs["y"].shape == sent.shape


def test_G2_classify(rpc):
    sent = classification_pb2.ClassificationRequest(input=examples({"x": 0.25}, {"x": 1.0}))
    sent.model_spec.name, sent.model_spec.signature_name = "m", "classify_scores"
    answer = rpc.prediction.Classify(sent, timeout=30)
    found = [[(one.label, one.score) for one in row.classes] for row in answer.result.classifications]
    assert found == [[("", 0.25)], [("", 1.0)]]
    assert (answer.model_spec.version.value, answer.model_spec.signature_name) == (123, "classify_scores")


def test_G2_regress_and_its_context(rpc):
    sent = regression_pb2.RegressionRequest(input=examples({"x": 0.25}, {}, context={"x": 3.0}))
    sent.model_spec.name, sent.model_spec.signature_name = "m", "regress"
    answer = rpc.prediction.Regress(sent, timeout=30)
    assert [one.value for one in answer.result.regressions] == [0.25, 3.0]


def multi_inference(*tasks, name="m"):
    sent = inference_pb2.MultiInferenceRequest(input=examples({"x": 0.25}))
    for signature, method in tasks:
        spec = {"name": name, "signature_name": signature}
        sent.tasks.add(model_spec=spec, method_name=f"tensorflow/serving/{method}")
    return sent


@pytest.mark.parametrize(
    ("sent", "code", "message"),
    [
        (multi_inference(), "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (multi_inference(("regress", "regress"), ("regress", "regress")), "INVALID_ARGUMENT", "Duplicate evaluation"),
        (
            multi_inference(("nope", "regress")),
            "INVALID_ARGUMENT",
            "Requested signature not found in model graph: nope",
        ),
        (multi_inference(("regress", "predict")), "UNIMPLEMENTED", "Unsupported signature method_name"),
        (
            multi_inference(("regress", "regress"), ("regress_examples", "classify")),
            "INVALID_ARGUMENT",
            "No classification inputs found in SignatureDef",
        ),
    ],
)
def test_G2_multi_inference_refuses(rpc, sent, code, message):
    found, text = refusal(rpc.prediction.MultiInference, sent, timeout=30)
    assert found == code and message in text


def test_G2_multi_inference(rpc):
    answer = rpc.prediction.MultiInference(multi_inference(("regress", "regress")), timeout=30)
    [result] = answer.results
    assert result.regression_result.regressions[0].value == 0.25
    assert (result.model_spec.name, result.model_spec.version.value) == ("m", 123)


def test_G2_multi_inference_names_the_default_signature(rpc):
    sent = multi_inference(("", "regress"))
    code, text = refusal(rpc.prediction.MultiInference, sent, timeout=30)
    assert code == "INVALID_ARGUMENT" and text.startswith("No regression inputs found in SignatureDef")


def test_G2_status(rpc):
    assert rpc.states() == {123: "AVAILABLE"}
    sent = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "m", "version": {"value": 9}})
    assert refusal(rpc.model.GetModelStatus, sent) == ("NOT_FOUND", "Could not find version 9 of model m")
    sent = get_model_status_pb2.GetModelStatusRequest()
    assert refusal(rpc.model.GetModelStatus, sent) == ("INVALID_ARGUMENT", "Missing ModelSpec")


def test_G3_the_model_must_be_named(rpc):
    empty = predict_pb2.PredictRequest()
    assert refusal(rpc.prediction.Predict, empty) == ("INVALID_ARGUMENT", "Missing ModelSpec")
    empty.model_spec.signature_name = "x"
    assert refusal(rpc.prediction.Predict, empty) == ("INVALID_ARGUMENT", "ModelSpec has no name specified.")


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"name": "x"}, "NOT_FOUND", "Servable not found for request: Latest(x)"),
        ({"version": 9}, "NOT_FOUND", "Servable not found for request: Specific(m, 9)"),
        ({"label": "x"}, "INVALID_ARGUMENT", "Unrecognized servable version label: x"),
    ],
)
def test_G10_codes_and_texts_of_the_core_are_passed_through(rpc, fields, code, message):
    assert predict_refusal(rpc, inputs={"x": X}, **fields) == (code, message)


def test_G10_errors_of_the_graph_are_passed_through(rpc):
    code, message = predict_refusal(rpc, inputs={"x": -X}, signature="failing")
    assert code == "INVALID_ARGUMENT" and "not positive" in message


@pytest.mark.parametrize(("length", "is_cut"), [(1024, False), (1025, True), (30_000, True)])
def test_G10_a_message_is_cut_after_1024_bytes(rpc, length, is_cut):
    text = 'Serving signature key "{}" not found.'
    name = "x" * (length - len(text) + 2)
    code, message = predict_refusal(rpc, inputs={"x": X}, signature=name)
    whole = text.format(name)
    assert code == "FAILED_PRECONDITION" and message == (whole[:1024] + "...TRUNCATED" if is_cut else whole)


def test_G10_bytes_that_are_no_utf8_are_in_a_message(rpc):
    code, message = predict_refusal(rpc, inputs={"inputs": np.array([b"\xff\xff\xff"], object)}, signature="regress")
    assert code == "INVALID_ARGUMENT" and message.startswith("Could not parse example input, value: '")


SLOW = 1.5  # seconds


def slow_calls(rpc, count):
    sent = request({"seconds": np.float32([SLOW])}, signature="slow")
    return [rpc.prediction.Predict.future(sent, timeout=60) for _ in range(count)]


@pytest.fixture
def three_run(model_folder):
    """serve(*flags) starts a server of four threads, with three calls that run."""

    @contextlib.contextmanager
    def serve(*flags):
        flags = [f"--model_base_path={model_folder}", "--model_name=m", "--grpc_max_threads=4", *flags]
        with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
            rpc.predict({"seconds": np.float32([0])}, signature="slow")  # its graph is made
            running = slow_calls(rpc, 3)
            time.sleep(SLOW / 3)
            yield rpc, running

    return serve


@pytest.mark.slow
def test_G12_a_call_that_finds_no_thread_is_refused(three_run):
    with three_run() as (rpc, running):
        for _ in range(20):
            assert rpc.answering() == ("RESOURCE_EXHAUSTED", "Server Threadpool Exhausted")
        status = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "m"})
        assert refusal(rpc.model.GetModelStatus, status) == ("RESOURCE_EXHAUSTED", "Server Threadpool Exhausted")
        assert [call.code().name for call in running] == ["OK"] * 3
        assert rpc.answering() == 123


@pytest.mark.slow
@servers.ours_alone("no call waits in TensorFlow Serving")
def test_G12_so_many_calls_wait_as_the_flag_says(three_run):
    with three_run("--grpc_max_queued_calls=2") as (rpc, running):
        waiting = slow_calls(rpc, 2)
        time.sleep(SLOW / 3)
        assert rpc.answering() == ("RESOURCE_EXHAUSTED", "Server Threadpool Exhausted")
        assert [call.code().name for call in (*running, *waiting)] == ["OK"] * 5


def test_G4_unknown_signature(rpc):
    found = predict_refusal(rpc, inputs={"x": X}, signature="nope")
    assert found == ("FAILED_PRECONDITION", 'Serving signature key "nope" not found.')


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        (
            "half_plus_two",
            {"x": X, "z": X},
            "input size does not match signature: 2!=1 len({x,z}) != len({x}). Sent extra: {z}. "
            "Missing but required: {}.",
        ),
        (
            "total",
            {"x": X},
            "input size does not match signature: 1!=2 len({x}) != len({x,z}). Sent extra: {}. "
            "Missing but required: {z}.",
        ),
        ("half_plus_two", {"z": X}, "not found in request and no default value provided. Inputs expected to be in "),
        ("with_default", {"scale": X}, "Signature input alias: x(feed name: "),
        ("with_default", {"x": X, "z": X}, "Inputs contains invalid name. Used request inputs: x, request input: x,z"),
    ],
)
def test_G5_inputs_are_those_of_the_signature(rpc, signature, inputs, message):
    code, found = predict_refusal(rpc, inputs=inputs, signature=signature)
    assert code == "INVALID_ARGUMENT" and message in found


def test_G5_an_input_with_a_default_may_be_left_out(rpc):
    outputs, _ = rpc.predict({"x": X}, signature="with_default")
    np.testing.assert_array_equal(outputs["y"], X * 2)
    outputs, _ = rpc.predict({"x": X, "scale": np.float32([3])}, signature="with_default")
    np.testing.assert_array_equal(outputs["y"], X * 3)


def broken(**changes):
    sent = request({"x": X})
    tensor = sent.inputs["x"]
    for name, value in changes.items():
        if name == "sizes":
            del tensor.tensor_shape.dim[:]
            for size in value:
                tensor.tensor_shape.dim.add(size=size)
        elif name == "unknown_rank":
            tensor.tensor_shape.unknown_rank = value
        else:
            setattr(tensor, name, value)
    return sent


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": [3]},
        {"sizes": [-1]},
        {"sizes": [2**40, 2**40]},
        {"tensor_content": b"123"},
        {"dtype": 0},
    ],
)
def test_G5_a_tensor_that_contradicts_itself(rpc, changes):
    assert refusal(rpc.prediction.Predict, broken(**changes)) == ("INVALID_ARGUMENT", "tensor parsing error: x")


@pytest.mark.parametrize(
    "value", [np.float32([1, 5]), np.float32(3), np.array([["a"], ["b"]], object), np.zeros((0, 2), np.float32)]
)
def test_G5_a_rank_that_is_said_to_be_unknown_is_that_of_the_sizes(rpc, value):
    alias, signature = ("s", "strings") if value.dtype == object else ("x", "any_shape")
    sent = request({alias: value}, signature=signature)
    sent.inputs[alias].tensor_shape.unknown_rank = True
    [answer] = rpc.prediction.Predict(sent).outputs.values()
    expected = value.astype(bytes).astype(object) if value.dtype == object else value
    np.testing.assert_array_equal(tf.make_ndarray(answer), expected)


@pytest.mark.parametrize("content", [b"\0", bytes(8), bytes(1 << 17)], ids=len)
@pytest.mark.parametrize(("alias", "signature", "dtype"), [("x", "any_shape", np.float32), ("s", "strings", object)])
def test_G5_the_content_of_a_tensor_without_elements_is_not_read(rpc, alias, signature, dtype, content):
    sent = request({alias: np.zeros((2, 0), dtype)}, signature=signature)
    sent.inputs[alias].tensor_content = content
    [answer] = rpc.prediction.Predict(sent).outputs.values()
    assert tf.make_ndarray(answer).shape == (2, 0)


def test_G5_a_tensor_of_another_type_is_not_cast(rpc):
    code, message = predict_refusal(rpc, inputs={"x": np.int64([1])})
    assert (code, message) == ("INVALID_ARGUMENT", "Expects arg[0] to be float but int64 is provided")
    mixed = {"f": X, "i": np.int32([1, 2]), "s": np.array([b"a"] * 2, object), "b": X}
    code, message = predict_refusal(rpc, inputs=mixed, signature="mixed")
    assert (code, message) == ("INVALID_ARGUMENT", "Expects arg[0] to be bool but float is provided")


def test_G6_output_filter(rpc):
    outputs, _ = rpc.predict({"x": X}, signature="scalar", outputs=["y"])
    assert list(outputs) == ["y"]
    unknown = predict_refusal(rpc, inputs={"x": X}, signature="scalar", outputs=["y", "q"])
    expected = "output tensor alias not found in signature: q Outputs expected to be in the set {scalar,y}."
    assert unknown == ("INVALID_ARGUMENT", expected)
    twice = predict_refusal(rpc, inputs={"x": X}, signature="scalar", outputs=["y", "y"])
    assert twice == ("INVALID_ARGUMENT", "duplicate output tensor alias: y")


def test_G7_the_response_names_what_answered(rpc):
    answer = rpc.prediction.Predict(request({"x": X}))
    spec = answer.model_spec
    assert (spec.name, spec.signature_name, spec.version.value) == ("m", "serving_default", 123)
    assert list(answer.outputs["y"].float_val) == [2.5, 4.5] and not answer.outputs["y"].tensor_content


@servers.ours_alone("it knows which answers are not read, see tests/serving/test_unread.py")
def test_an_answer_counts_with_its_size_until_it_is_read(rpc, monkeypatch):
    counted = []
    monkeypatch.setattr(Arrivals, "answered", lambda arrivals, context, size: counted.append(size))
    answer = rpc.prediction.Predict(request({"x": X}))
    assert counted == [answer.ByteSize()]


def test_G7_tensor_content_where_asked_for(model_folder):
    flags = [f"--model_base_path={model_folder}", "--model_name=m", "--enable_serialization_as_tensor_content=true"]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        answer = rpc.prediction.Predict(request({"x": X})).outputs["y"]
        text = rpc.prediction.Predict(request({"s": np.array([b"ab", b""], object)}, signature="strings"))
        with GrpcClient(addresses.grpc, "m") as client:
            echoed = client.predict({"s": ["ab", ""]}, signature_name="strings")["s_bytes"]
    assert text.outputs["s_bytes"].tensor_content == b"\2\0ab" and not text.outputs["s_bytes"].string_val
    assert echoed.tolist() == [b"ab", b""]
    assert np.frombuffer(answer.tensor_content, np.float32).tolist() == [2.5, 4.5] and not answer.float_val


def test_G8_a_deadline_ends_the_request_and_not_the_server(rpc):
    sent = request({"seconds": np.float32([1.0])}, signature="slow")
    assert refusal(rpc.prediction.Predict, sent, timeout=0.2)[0] == "DEADLINE_EXCEEDED"
    outputs, _ = rpc.predict({"x": X})
    assert outputs["y"].tolist() == [2.5, 4.5]


def metadata(*fields, **spec):
    return get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields, model_spec=spec)


def test_G9_metadata(rpc):
    answer = rpc.prediction.GetModelMetadata(metadata("signature_def", name="m"))
    found = get_model_metadata_pb2.SignatureDefMap()
    answer.metadata["signature_def"].Unpack(found)
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("m", 123)
    signature = found.signature_def["mixed"]
    assert set(signature.inputs) == {"f", "i", "s", "b"}
    assert signature.inputs["i"].dtype == tf.int32.as_datatype_enum
    assert signature.inputs["i"].tensor_shape.dim[0].size == -1
    assert signature.method_name == "tensorflow/serving/predict"


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"]), "Missing ModelSpec"),
        (metadata(name="m"), "GetModelMetadataRequest must specify at least one metadata_field"),
        (metadata("other", name="m"), "is not supported"),
    ],
)
def test_G9_metadata_refuses(rpc, sent, message):
    code, found = refusal(rpc.prediction.GetModelMetadata, sent)
    assert code == "INVALID_ARGUMENT" and message in found


def test_G1_messages_above_the_usual_4_mb(rpc):
    values = np.zeros(3 << 20, np.float32)
    outputs, _ = rpc.predict({"x": values}, signature="any_shape")
    assert outputs["y"].shape == values.shape


def test_G1_unix_socket(model_folder, tmp_path):
    path = tmp_path / "socket"
    flags = [f"--model_base_path={model_folder}", "--model_name=m", f"--grpc_socket_path={path}"]
    with servers.start(flags), Rpc(f"unix:{path}") as rpc:
        assert rpc.answering() == 123


def test_G1_health(model_folder, rpc):
    health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
    health_pb2_grpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
    sent = health_pb2.HealthCheckRequest()
    assert refusal(health_pb2_grpc.HealthStub(rpc.channel).Check, sent)[0] == "UNIMPLEMENTED"
    flags = [f"--model_base_path={model_folder}", "--model_name=m", "--enable_grpc_healthcheck_service=true"]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as other:
        stub = health_pb2_grpc.HealthStub(other.channel)
        full = ("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService") if servers.IS_OURS else ()
        for service in ("", "ModelService", "PredictionService", *full):
            assert stub.Check(health_pb2.HealthCheckRequest(service=service)).status == 1
        assert refusal(stub.Check, health_pb2.HealthCheckRequest(service="x"))[0] == "NOT_FOUND"


@pytest.fixture
def certificate(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *files, *names]
    subprocess.run(command, check=True, capture_output=True)
    return key.read_text(), certificate.read_text()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize("verify", [False, True])
def test_G1_tls(model_folder, tmp_path, certificate, verify):
    key, chain = certificate
    config = tmp_path / "ssl.config"
    lines = [f"server_key: {json.dumps(key)}", f"server_cert: {json.dumps(chain)}"]
    lines += [f"custom_ca: {json.dumps(chain)}", "client_verify: true"] if verify else []
    config.write_text("\n".join(lines))
    flags = [f"--model_base_path={model_folder}", "--model_name=m", f"--ssl_config_file={config}"]
    known = grpc.ssl_channel_credentials(chain.encode(), key.encode(), chain.encode())
    stranger = grpc.ssl_channel_credentials(chain.encode())
    with servers.start(flags) as addresses:
        address = addresses.grpc.replace("127.0.0.1", "localhost")
        with Rpc(address, known) as rpc:
            assert rpc.answering() == 123
        with Rpc(address, stranger) as rpc:
            assert (rpc.answering() == 123) is not verify
        with Rpc(address) as rpc:
            assert rpc.answering()[0] == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['server_key: "k"', 'server_cert: "c"', "client_verify: true"], "client_verify needs custom_ca"),
        (
            ['server_key: "k"', 'server_cert: "c"', "pem: 1"],
            'Error parsing text-format tensorflow.serving.SSLConfig: line 3:1.*"pem"',
        ),
        (['server_key: "k"'], "server_key and server_cert hold PEM texts; one is empty"),
    ],
)
def test_a_mistake_in_the_tls_configuration_is_one_line(model_folder, tmp_path, lines, message):
    config = tmp_path / "ssl.config"
    config.write_text("\n".join(lines))
    flags = [f"--model_base_path={model_folder}", "--model_name=m", f"--ssl_config_file={config}"]
    with pytest.raises(InputError, match=message) as caught, running_server(parse_flags(flags)):
        pass
    assert str(caught.value).startswith(f"{config}: ") and "\n" not in str(caught.value)
