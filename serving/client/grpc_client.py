"""A client of TF Serving's gRPC API: PredictionService and ModelService."""

import functools
import json
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.serving.client.label_split import LabelSplit
from ctrpipe.serving.client.model_client import (
    FIRST_WAIT_SECONDS,
    LONGEST_WAIT_SECONDS,
    RETRIES,
    TIMEOUT_SECONDS,
    Answer,
    ModelClient,
    VersionChoice,
    VersionStatus,
)

_NO_LIMIT = 2**31 - 1
# Read-only methods. A retried reload might undo another reload that came in between.
_RETRIED_METHODS = [
    {"service": "tensorflow.serving.PredictionService"},
    {"service": "tensorflow.serving.ModelService", "method": "GetModelStatus"},
]


class GrpcClient(ModelClient):
    """A client over gRPC. All threads share one connection.

    Retries a call with exponential backoff if the server is busy (RESOURCE_EXHAUSTED), unreachable (UNAVAILABLE) or
    about to end (CANCELLED, for a call that reaches it after SIGTERM), by a retry policy of gRPC (gRFC A6).

    Args:
        address: HOST:PORT, or unix:PATH; ipv4:ADDRESS:PORT,ADDRESS:PORT for failover between servers.
        model: The model's name.
        version: The version for calls that name no version or label.
        label: The label for such calls, instead of `version`.
        split: Divides such calls between labels, instead of `version` and `label`.
        timeout: Seconds for one call, including its retries and the waits between them.
        retries: The largest number of retries of a call, 0 to 4.
        credentials: TLS credentials; None: the connection is not encrypted.

    Raises:
        InputError: the address has another form.
    """

    def __init__(
        self,
        address: str,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        split: LabelSplit | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        credentials: grpc.ChannelCredentials | None = None,
    ):
        if "//" in address or (":" not in address):
            raise InputError(f"{address}: not an address like 127.0.0.1:8500")
        super().__init__(address, VersionChoice(version, label), split)
        self.model = model
        self._timeout = timeout
        options = _channel_options(retries)
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options)
        self._predictions = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def status(self) -> list[VersionStatus]:
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=self._spec(VersionChoice()))
        states = get_model_status_pb2.ModelVersionStatus.State
        return [
            VersionStatus(
                one.version,
                states.Name(one.state),
                error_codes_pb2.Code.Name(one.status.error_code),
                one.status.error_message,
            )
            for one in self._call(self._models.GetModelStatus, request).model_version_status
        ]

    def reload(self, config: model_server_config_pb2.ModelServerConfig) -> None:
        """Replaces the server's model configuration. Not retried.

        Raises:
            InputError: the server refuses the configuration; parts of it may have taken effect.
        """
        request = model_management_pb2.ReloadConfigRequest(config=config)
        status = self._call(self._models.HandleReloadConfigRequest, request).status
        if status.error_code:
            code = error_codes_pb2.Code.Name(status.error_code)
            raise InputError(f"{self.address}: the server answers {code}: {one_line(status.error_message, 300)}")

    def _metadata(self, target: VersionChoice) -> dict[str, Any]:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._spec(target), metadata_field=["signature_def"]
        )
        answer = self._call(self._predictions.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(signatures)
        to_dict = functools.partial(
            json_format.MessageToDict, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        spec = to_dict(answer.model_spec)
        spec.setdefault("version", str(answer.model_spec.version.value))
        return {"model_spec": spec, "metadata": {"signature_def": to_dict(signatures)}}

    def _predict(self, arrays: dict[str, np.ndarray], signature_name: str, target: VersionChoice) -> Answer:
        request = predict_pb2.PredictRequest(model_spec=self._spec(target, signature_name))
        for name, values in arrays.items():
            _fill(request.inputs[name], values)
        answer = self._call(self._predictions.Predict, request)
        outputs = {name: _read(tensor) for name, tensor in answer.outputs.items()}
        version = answer.model_spec.version.value if answer.model_spec.HasField("version") else None
        return Answer(outputs, target.label, version)

    def _spec(self, target: VersionChoice, signature_name: str = "") -> model_pb2.ModelSpec:
        spec = model_pb2.ModelSpec(name=self.model, signature_name=signature_name)
        if target.version is not None:
            spec.version.value = target.version
        elif target.label is not None:
            spec.version_label = target.label
        return spec

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            code, details = error.code(), one_line(error.details(), 300)
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise InputError(f"{self.address}: no answer in {self._timeout:g} s") from error
            hint = "; is the server running, and not too busy?" if code == grpc.StatusCode.UNAVAILABLE else ""
            raise InputError(f"{self.address}: the server answers {code.name}: {details}{hint}") from error
        except ValueError as error:  # the channel is closed, or gRPC cannot parse the address
            raise InputError(f"{self.address}: the request failed ({one_line(error, 300)})") from error


def _channel_options(retries: int) -> list[tuple[str, Any]]:
    policy = {
        "maxAttempts": retries + 1,
        "initialBackoff": f"{FIRST_WAIT_SECONDS}s",
        "maxBackoff": f"{LONGEST_WAIT_SECONDS}s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"],
    }
    service = {"methodConfig": [{"name": _RETRIED_METHODS, "retryPolicy": policy}]} if retries else {}
    return [
        ("grpc.max_receive_message_length", _NO_LIMIT),  # 4 MiB by default, but the server has no limit (G1)
        ("grpc.max_send_message_length", _NO_LIMIT),
        ("grpc.service_config", json.dumps(service)),
        # gRPC does not retry larger requests than this; 256 KiB by default.
        ("grpc.per_rpc_retry_buffer_size", _NO_LIMIT),
        # Lets the retries reach a server that has just started without another second of delay.
        ("grpc.initial_reconnect_backoff_ms", round(1000 * FIRST_WAIT_SECONDS)),
        ("grpc.min_reconnect_backoff_ms", round(1000 * FIRST_WAIT_SECONDS)),
    ]


def _fill(tensor: tensor_pb2.TensorProto, values: np.ndarray) -> None:
    """Writes an array into an empty proto.

    Takes 20 us for 1,000 strings; tf.make_tensor_proto takes 470 us.
    """
    tensor.dtype = tf.as_dtype(values.dtype).as_datatype_enum
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    if values.dtype == object:
        tensor.string_val.extend(values.reshape(-1).tolist())
    else:
        tensor.tensor_content = values.tobytes()


def _read(tensor: tensor_pb2.TensorProto) -> np.ndarray:
    """Returns the tensor as an array.

    Unlike tf.make_ndarray, it reads strings in `tensor_content`.
    """
    if tensor.dtype == types_pb2.DT_STRING and tensor.tensor_content:
        return np.asarray(tf.io.parse_tensor(tensor.SerializeToString(), tf.string).numpy(), object)
    values: np.ndarray = tf.make_ndarray(tensor)
    return values
