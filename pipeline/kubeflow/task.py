"""A step's inputs and outputs, in the JSON format of Kubeflow's launcher."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable
from typing import Any

from kfp.dsl import Artifact

PREPARE, REPORT, VERDICT = "Prepare", "Report", "Verdict"  # the steps that are not nodes of the graph
PLAN_SWEEP, TRAIN_POINT, SUMMARISE_SWEEP = "PlanSweep", "TrainPoint", "SummariseSweep"  # the steps of a sweep
# The steps of a study of hyperparameters.
PLAN_STUDY, PROPOSE_TRIALS, TRAIN_TRIAL, CONFIRM_STUDY = "PlanStudy", "ProposeTrials", "TrainTrial", "ConfirmStudy"
SEARCH_STEPS = (PLAN_SWEEP, TRAIN_POINT, SUMMARISE_SWEEP, PLAN_STUDY, PROPOSE_TRIALS, TRAIN_TRIAL, CONFIRM_STUDY)
CLASSIFICATION = "classification"  # the output of Report with the ROC curve and the confusion matrix
# The line of a compiled file with the steps' service account: Kubeflow's format has no place for it, only a run has.
ACCOUNT = "# Service account: "
TENSORBOARD = "tensorboard"  # the output of a training run with its event files
# The output in which Kubeflow's page of a step looks for viewers, among them TensorBoard.
VIEWERS = "mlpipeline_ui_metadata"
MAX_ARGUMENTS = 100_000  # bytes, as they are sent; Linux limits one argument of a process to 128 KiB
BRACES = "{{"  # begins a variable of Argo's, wherever a workflow has it
SECTIONS = ("model", "training", "gates")  # sections of the configuration that are parameters, as YAML


@dataclasses.dataclass
class Task:
    """A step of a Kubeflow run.

    Args:
        executor_input: ExecutorInput of Kubeflow's pipeline_spec.proto, as JSON.
        parameters: The output parameters, texts or lists of texts. The step sets them.
        metadata: The metadata of the output artifacts by name. The step sets it for those that it has made.
    """

    executor_input: dict[str, Any]
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    metadata: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """The input parameters by name."""
        values: dict[str, Any] = self.executor_input.get("inputs", {}).get("parameterValues", {})
        return values

    @property
    def output_parameters(self) -> set[str]:
        return set(self._outputs.get("parameters", {}))

    @property
    def _outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = self.executor_input["outputs"]
        return outputs

    def inputs(self) -> dict[str, dict[str, Any]]:
        """Returns the input artifacts by name, each as the JSON of pipeline_spec.proto's RuntimeArtifact."""
        artifacts = self.executor_input.get("inputs", {}).get("artifacts", {})
        return {name: several["artifacts"][0] for name, several in artifacts.items()}

    def outputs(self) -> dict[str, pathlib.Path]:
        """Returns the local paths of the output artifacts by name.

        They are more than the component declares: Kubeflow adds `executor-logs`, a file that its launcher writes while
        the step runs. A step touches only those that it knows.
        """
        artifacts = self._outputs.get("artifacts", {})
        return {name: local_path(several["artifacts"][0]) for name, several in artifacts.items()}

    def uri(self, name: str) -> str:
        """Returns the URI of an output artifact."""
        return str(self._outputs["artifacts"][name]["artifacts"][0]["uri"])

    def finish(self) -> None:
        """Writes ExecutorOutput of pipeline_spec.proto: the output parameters and the artifacts' metadata."""
        given = self._outputs.get("artifacts", {})
        artifacts = {
            name: {"artifacts": [{**given[name]["artifacts"][0], "metadata": metadata}]}
            for name, metadata in self.metadata.items()
        }
        file = pathlib.Path(self._outputs["outputFile"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"parameterValues": self.parameters, "artifacts": artifacts}), encoding="utf-8")


def sent_bytes(arguments: str) -> int:
    """Returns the size in bytes of a step's arguments in the launcher's JSON document."""
    return len(json.dumps(arguments))


def text_with_braces(values: object, key: str = "") -> tuple[str, str] | None:
    """Returns the key and the first text, names included, in which Argo would replace something; None if there is
    none.
    """
    if isinstance(values, str):
        return (key, values) if BRACES in values else None
    below: Iterable[tuple[str, Any]] = ()
    if isinstance(values, list):
        below = ((key, value) for value in values)
    elif isinstance(values, dict):
        places = ((f"{key}.{name}".lstrip("."), str(name), value) for name, value in values.items())
        below = ((place, each) for place, name, value in places for each in (name, value))
    return next((braced for place, value in below if (braced := text_with_braces(value, place))), None)


def local_path(artifact: dict[str, Any]) -> pathlib.Path:
    """Returns an artifact's local path: minio://bucket/key is below /minio, gs:// below /gcs, s3:// below /s3."""
    return pathlib.Path(Artifact(uri=artifact["uri"], metadata=artifact.get("metadata", {})).path)
