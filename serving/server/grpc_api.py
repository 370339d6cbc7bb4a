"""PredictionService and ModelService: takes a request proto, returns a response proto.

Errors are raised as ServingError.
"""

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf.message import Message
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from ctrpipe.serving.server import grpc_answers
from ctrpipe.serving.server.core import ServerCore
from ctrpipe.serving.server.errors import ServingError, bad_request, number_of
from ctrpipe.serving.server.examples import DEFAULT_SIGNATURE
from ctrpipe.serving.server.grpc_parsing import Contents, with_contents
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.server.reload_guard import ReloadGuard
from ctrpipe.serving.server.request_log import message_record
from ctrpipe.serving.server.served import ServedVersion

log = logging.getLogger(__name__)

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"
# Answers a request, given its large contents and the seconds until its deadline.
Answer = Callable[[Any, Contents, float | None], Message]
_RECORDS = {
    "Predict": "predict_log",
    "Classify": "classify_log",
    "Regress": "regress_log",
    "MultiInference": "multi_inference_log",
}


class GrpcApi:
    """The methods of both services.

    Attributes:
        methods: Service -> method -> (request class, answer(request, large contents, timeout in seconds or None)).
    """

    def __init__(self, core: ServerCore, options: ServerOptions):
        self._core = core
        self._reload_guard = ReloadGuard(options)
        self._as_content = options.enable_serialization_as_tensor_content
        self._check_method = options.enable_signature_method_name_check
        self.methods: dict[str, dict[str, tuple[type, Answer]]] = {
            PREDICTION_SERVICE: {
                "Predict": (predict_pb2.PredictRequest, self._predict),
                "Classify": (classification_pb2.ClassificationRequest, self._classify),
                "Regress": (regression_pb2.RegressionRequest, self._regress),
                "MultiInference": (inference_pb2.MultiInferenceRequest, self._multi_inference),
                "GetModelMetadata": (get_model_metadata_pb2.GetModelMetadataRequest, self._metadata),
            },
            MODEL_SERVICE: {
                "GetModelStatus": (get_model_status_pb2.GetModelStatusRequest, self._status),
                "HandleReloadConfigRequest": (model_management_pb2.ReloadConfigRequest, self._reload),
            },
        }

    def _predict(self, request: predict_pb2.PredictRequest, contents: Contents, timeout: float | None) -> Message:
        def answer(version: ServedVersion) -> Message:
            response = grpc_answers.predict(version, request, timeout, self._as_content, self._check_method, contents)
            if self._core.shadow and self._core.shadow.picks():
                size = _size(request, contents) + response.ByteSize()
                ask = functools.partial(_outputs, request, contents)
                signature = response.model_spec.signature_name
                self._core.shadow.add(version, signature, size, grpc_answers.arrays(response), ask)
            return response

        return self._infer("Predict", request, answer, contents)

    def _classify(
        self, request: classification_pb2.ClassificationRequest, _: Contents, timeout: float | None
    ) -> Message:
        def answer(version: ServedVersion) -> Message:
            return grpc_answers.classify(version, request, timeout, self._check_method)

        return self._infer("Classify", request, answer)

    def _regress(self, request: regression_pb2.RegressionRequest, _: Contents, timeout: float | None) -> Message:
        def answer(version: ServedVersion) -> Message:
            return grpc_answers.regress(version, request, timeout, self._check_method)

        return self._infer("Regress", request, answer)

    def _multi_inference(
        self, request: inference_pb2.MultiInferenceRequest, _: Contents, timeout: float | None
    ) -> Message:
        spec = request.tasks[0].model_spec if request.tasks else model_pb2.ModelSpec()
        with self._core.use(*_target(spec)) as version:
            response = grpc_answers.multi_inference(version, request, timeout, self._check_method)
            self._log(version, "MultiInference", request, response, {})
        self._core.metrics.record_examples(spec.name, grpc_answers.count(request.input))
        return response

    def _infer(
        self, api: str, request: Any, answer: Callable[[ServedVersion], Message], contents: Contents | None = None
    ) -> Message:
        """Answers a request and counts it. TF Serving counts no other methods (X3)."""
        began, status = time.perf_counter(), "OK"
        spec = request.model_spec
        try:
            with self._core.use(*_target(_spec(request))) as version:
                response = answer(version)
                self._core.metrics.record_runtime(spec.name, api, version.runtime_seconds)
                self._log(version, api, request, response, contents or {})
                return response
        except ServingError as error:
            status = error.code
            raise
        except Exception:
            status = "INTERNAL"
            raise
        finally:
            seconds = time.perf_counter() - began
            self._core.metrics.record_request(spec.name, api, "GRPC", status, seconds)

    def _log(self, version: ServedVersion, api: str, request: Any, response: Message, contents: Contents) -> None:
        """Logs the request if --request_log samples it."""
        if self._core.request_log and self._core.request_log.picks():
            spec = request.tasks[0].model_spec if api == "MultiInference" else request.model_spec
            make = functools.partial(_record, api, request, contents, response)
            size = _size(request, contents) + response.ByteSize()
            self._core.request_log.add(version, spec.signature_name or DEFAULT_SIGNATURE, size, make)

    def _metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, _: Contents, timeout: float | None
    ) -> Message:
        spec = _spec(request)
        grpc_answers.check_metadata(request)
        with self._core.use(*_target(spec)) as version:
            return grpc_answers.metadata(version)

    def _status(
        self, request: get_model_status_pb2.GetModelStatusRequest, _: Contents, timeout: float | None
    ) -> Message:
        spec = _spec(request)
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in self._core.status(spec.name, spec.version.value if spec.HasField("version") else None):
            state = get_model_status_pb2.ModelVersionStatus.State.Value(version.state)
            row = response.model_version_status.add(version=version.number, state=state)
            row.status.error_code = number_of(version.error_code)
            row.status.error_message = version.error_message
        return response

    def _reload(self, request: model_management_pb2.ReloadConfigRequest, _: Contents, timeout: float | None) -> Message:
        if request.config.WhichOneof("config") != "model_config_list":
            raise bad_request(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is currently "
                "supported"
            )
        self._reload_guard.check(request.config, self._core.base_paths())
        metrics = self._core.metrics
        before = metrics.first_values(request.metric_names)
        self._core.reload(request.config, timeout, folders_exist=True)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.error_code = 0
        after = metrics.first_values(before)
        for name, value in before.items():
            response.metric.add(name=name, int64_value_increase=after[name] - value)
        return response


def _spec(request: Any) -> model_pb2.ModelSpec:
    if not request.HasField("model_spec"):
        raise bad_request("Missing ModelSpec")
    return request.model_spec


def _target(spec: model_pb2.ModelSpec) -> tuple[str, int | None, str | None]:
    """Returns name, version number and label, as arguments of `ServerCore.use`."""
    if not spec.name:
        raise bad_request("ModelSpec has no name specified.")
    choice = spec.WhichOneof("version_choice")
    number = spec.version.value if choice == "version" else None
    return spec.name, number, spec.version_label if choice == "version_label" else None


def _outputs(request: predict_pb2.PredictRequest, contents: Contents, version: ServedVersion) -> dict[str, np.ndarray]:
    return grpc_answers.arrays(grpc_answers.predict(version, request, contents=contents))


def _size(request: Message, contents: Contents) -> int:
    return int(request.ByteSize()) + sum(content.nbytes for content in contents.values())


def _record(api: str, request: Any, contents: Contents, response: Message) -> PredictionLog:
    return message_record(_RECORDS[api], with_contents(request, contents), response)
