"""Classify, Regress and MultiInference of many small examples: their turn, their memory and their answers."""

import gzip
import json
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from tensorflow.core.example import example_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from ctrpipe.serving.server import grpc_answers
from ctrpipe.serving.server.admission import Admission
from ctrpipe.serving.server.budget import Budget, OverBudget
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.examples import CLASSIFY, REGRESS
from ctrpipe.serving.server.grpc_server import GrpcServer
from ctrpipe.serving.server.http_request import Request
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.server.rest import RestApi
from ctrpipe.serving.server.served import ServedVersion

FEW, MANY = 1000, 60_000  # examples; the bodies of both are below 256 KiB


class Core:
    """Models that are not there; notes whether a request that asks for one has the only turn of large bodies."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr("os.cpu_count", lambda: 1)
        self.budget = Budget(8 << 30, resident=lambda: 0)
        self.admission = Admission(self.budget)
        self.metrics = Metrics()
        self.has_turn = None

    def use(self, *_):
        try:
            with self.admission.reading(1 << 20, 0.0):
                self.has_turn = False
        except ServingError:
            self.has_turn = True
        raise ServingError("NOT_FOUND", "not there")


def request(kind, count):
    made = kind()
    if kind is inference_pb2.MultiInferenceRequest:
        for name in ("classify", "regress"):
            task = made.tasks.add(method_name=f"tensorflow/serving/{name}")
            task.model_spec.name, task.model_spec.signature_name = "m", name
    else:
        made.model_spec.name = "m"
    made.input.example_list.examples.extend([example_pb2.Example()] * count)
    return made


@pytest.mark.parametrize(("count", "has_turn"), [(FEW, False), (MANY, True)])
def test_many_examples_in_a_short_body_take_their_turn(monkeypatch, tmp_path, count, has_turn):
    """100,000 empty examples, 263 bytes of gzip, kept eight clients' threads for 4 seconds."""
    core, options = Core(monkeypatch), ServerOptions(model_base_path=tmp_path)
    server = GrpcServer(core, options, 0)
    server.start()
    with grpc.insecure_channel(server.address) as channel:
        stub = PredictionServiceStub(channel)
        for ask, kind in (
            (stub.Classify, classification_pb2.ClassificationRequest),
            (stub.Regress, regression_pb2.RegressionRequest),
            (stub.MultiInference, inference_pb2.MultiInferenceRequest),
        ):
            core.has_turn = None
            assert ask.future(request(kind, count), timeout=20).code() == grpc.StatusCode.NOT_FOUND
            assert core.has_turn is has_turn
    server.stop(0)
    packed = gzip.compress(json.dumps({"examples": [{}] * count}).encode())
    core.has_turn = None
    asked = Request("POST", "/v1/models/m:classify", {b"content-encoding": b"gzip"}, packed)
    assert RestApi(core, options, core.metrics).answer(asked).status == 404 and core.has_turn is has_turn
    asked.release()
    with core.admission.reading(1 << 20, 0.0):
        pass  # every turn was given back


def multi_version(budget, held):
    """Answers `classify` and `regress` with zeros; notes what is held meanwhile."""

    def definition(*outputs):
        found = meta_graph_pb2.SignatureDef()
        found.inputs["inputs"].dtype = 7
        for name in outputs:
            found.outputs[name].dtype = 1
        return found

    class Version(ServedVersion):
        def run_together(self, outputs, values, timeout_seconds=None):
            held.append(budget.held_bytes)
            rows = len(values)
            return {
                "classify": {"scores": np.zeros((rows, 2), np.float32)},
                "regress": {"outputs": np.ones(rows, np.float32)},
            }

    signatures = {"classify": definition("scores"), "regress": definition("outputs")}
    return Version("m", 1, SimpleNamespace(signatures=signatures, input_types={}), Admission(budget))


def test_multi_inference_holds_its_examples():
    budget, held = Budget(1 << 30, resident=lambda: 0), []
    version, asked = multi_version(budget, held), request(inference_pb2.MultiInferenceRequest, 0)
    example = asked.input.example_list.examples.add()
    example.features.feature["a"].bytes_list.value.append(b"c" * 100_000)
    answer = grpc_answers.multi_inference(version, asked)
    assert [len(answer.results[0].classification_result.classifications[0].classes)] == [2]
    assert [one.value for one in answer.results[1].regression_result.regressions] == [1.0]
    assert held == [2 * example.ByteSize()] and budget.held_bytes == 0
    with pytest.raises(OverBudget), budget.hold(budget.most_bytes - 150_000):
        grpc_answers.multi_inference(version, asked)
    assert {task.method_name for task in asked.tasks} == {CLASSIFY, REGRESS}


def as_objects(classes, scores):
    """Returns the result with an object of protobuf for each class."""
    result = classification_pb2.ClassificationResult()
    for row in range(len(classes if classes is not None else scores)):
        added = result.classifications.add()
        for place in range((classes if classes is not None else scores).shape[1]):
            label = "" if classes is None else classes[row, place]
            added.classes.add(label=label, score=0.0 if scores is None else scores[row, place])
    return result


@pytest.mark.parametrize(("rows", "width"), [(0, 2), (1, 0), (1, 1), (999, 2), (1000, 3), (2001, 2)])
def test_answers_that_are_written_as_bytes_are_those_of_protobuf(rows, width):
    chance = np.random.default_rng(rows)
    scores = chance.choice(np.float32([0.0, -0.0, 1.5, np.nan, np.inf]), (rows, width))
    labels = ["", "no", "a" * 126, "b" * 127, "c" * 200, "\u00e4\u4e2d"]
    classes = np.array([label.encode() for label in labels], object)[chance.integers(0, 6, (rows, width))]
    version = SimpleNamespace(name="m", number=3)
    for given in ((classes, scores), (classes, None), (None, scores)):
        response = grpc_answers.classification_response(version, "s", *given)
        assert response.result.SerializeToString() == as_objects(*given).SerializeToString()
        assert response.model_spec.signature_name == "s"
    expected = regression_pb2.RegressionResult()
    for value in scores.reshape(-1):
        expected.regressions.add(value=value)
    response = grpc_answers.regression_response(version, "s", scores.reshape(-1))
    assert response.result.SerializeToString() == expected.SerializeToString()


def test_a_label_that_is_not_utf8_is_an_error():
    version, classes = SimpleNamespace(name="m", number=3), np.array([[b"\xff"]], object)
    with pytest.raises(ServingError, match=r"The label b'\\xff' is not UTF-8"):
        grpc_answers.classification_response(version, "s", classes, None)
