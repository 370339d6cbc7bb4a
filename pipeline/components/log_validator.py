"""TFX's ExampleValidator for logs with many columns (see ctrpipe.pipeline.monitoring.faster_tfdv)."""

import os
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.components import ExampleValidator
from tfx.components.example_validator import executor, labels
from tfx.components.util import value_utils
from tfx.dsl.components.base.executor_spec import ExecutorClassSpec
from tfx.types.standard_component_specs import SCHEMA_KEY, STATISTICS_KEY
from tfx.utils import writer_utils

from ctrpipe.pipeline.monitoring.faster_tfdv import validate_statistics


class Executor(executor.Executor):
    """TFX's executor with another function to validate one split."""

    def _Validate(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> anomalies_pb2.Anomalies:
        statistics, schema = (value_utils.GetSoleValue(inputs, key) for key in (STATISTICS_KEY, SCHEMA_KEY))
        anomalies = validate_statistics(statistics, schema)
        folder = value_utils.GetSoleValue(outputs, labels.SCHEMA_DIFF_PATH)
        writer_utils.write_anomalies(os.path.join(folder, executor.DEFAULT_FILE_NAME), anomalies)
        return anomalies


class LogValidator(ExampleValidator):
    """Compares the statistics of each split with the schema, and writes the differences."""

    EXECUTOR_SPEC = ExecutorClassSpec(Executor)
