"""What Kubeflow tells a step, and what the step answers."""

import dataclasses
import json
import pathlib
from typing import Any

from kfp.dsl import Artifact

PREPARE, REPORT, VERDICT = "Prepare", "Report", "Verdict"  # the steps that are no node of the graph


@dataclasses.dataclass
class Task:
    """What Kubeflow says of a step, ExecutorInput in its pipeline_spec.proto, and what the step says of its outputs."""

    executor_input: dict[str, Any]
    parameters: dict[str, str] = dataclasses.field(default_factory=dict)
    metadata: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """Returns the parameters that the step is given."""
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
        """Returns the input artifacts by name, as RuntimeArtifact has them."""
        artifacts = self.executor_input.get("inputs", {}).get("artifacts", {})
        return {name: several["artifacts"][0] for name, several in artifacts.items()}

    def outputs(self) -> dict[str, pathlib.Path]:
        """Returns, by name, where an output artifact belongs on this machine."""
        artifacts = self._outputs.get("artifacts", {})
        return {name: local_path(several["artifacts"][0]) for name, several in artifacts.items()}

    def finish(self) -> None:
        """Writes ExecutorOutput: the parameters, and the artifacts' metadata."""
        artifacts = {
            name: {"artifacts": [{**several["artifacts"][0], "metadata": self.metadata.get(name, {})}]}
            for name, several in self._outputs.get("artifacts", {}).items()
        }
        file = pathlib.Path(self._outputs["outputFile"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"parameterValues": self.parameters, "artifacts": artifacts}), encoding="utf-8")


def local_path(artifact: dict[str, Any]) -> pathlib.Path:
    """Returns the path of an artifact: minio://bucket/key below /minio, gs:// below /gcs, s3:// below /s3."""
    return pathlib.Path(Artifact(uri=artifact["uri"], metadata=artifact.get("metadata", {})).path)
