"""Reads --monitoring_config_file, a text proto (contract X1).

tensorflow-serving-api has no class for it.
"""

import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ctrpipe.serving.server.metrics import METRICS_PATH
from ctrpipe.serving.text_proto import read_text_proto

_PACKAGE = "tensorflow.serving"


def _message_class() -> Any:
    """Returns a class equivalent to TF Serving's MonitoringConfig.

    It defines the names and types of the fields: enough to parse text.
    """
    file = descriptor_pb2.FileDescriptorProto(name="ctrpipe/monitoring_config.proto", package=_PACKAGE)
    field = descriptor_pb2.FieldDescriptorProto
    prometheus = file.message_type.add(name="PrometheusConfig")
    prometheus.field.add(name="enable", number=1, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    prometheus.field.add(name="path", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    config = file.message_type.add(name="MonitoringConfig")
    config.field.add(
        name="prometheus_config",
        number=1,
        type=field.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.PrometheusConfig",
        label=field.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.MonitoringConfig"))


def metrics_path(file: pathlib.Path | None) -> str | None:
    """Returns the path of the Prometheus page; None if the page is off.

    Raises:
        InputError: the file cannot be read, or is not a MonitoringConfig.
    """
    if file is None:
        return None
    prometheus = read_text_proto(file, _message_class()(), "prometheus_config { enable: true }").prometheus_config
    return (prometheus.path or METRICS_PATH) if prometheus.enable else None
