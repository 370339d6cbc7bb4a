"""TFX's Evaluator, except that a baseline artifact without a model means that there is no baseline."""

import pathlib
from typing import Any

from tfx import types
from tfx.components.evaluator import component, executor
from tfx.dsl.components.base import executor_spec
from tfx.types import standard_component_specs as specs


class Executor(executor.Executor):
    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        baseline = input_dict.get(specs.BASELINE_MODEL_KEY)
        if baseline and not (pathlib.Path(baseline[0].uri) / "Format-Serving").exists():
            input_dict = {key: value for key, value in input_dict.items() if key != specs.BASELINE_MODEL_KEY}
        super().Do(input_dict, output_dict, exec_properties)


class GatedEvaluator(component.Evaluator):
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
