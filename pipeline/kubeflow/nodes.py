"""The steps on Kubeflow: Prepare, one step for each node of the graph, Report and Verdict."""

import dataclasses
import json
import pathlib
import tempfile
from typing import Any

from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.types import standard_artifacts

from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.graph import create_pipeline
from ctrpipe.pipeline.run.inputs import RunInputs

# The outputs that the report reads, if the graph has these nodes.
REPORTED = (
    ("LogExampleGen", "examples"),
    ("LogStatisticsGen", "statistics"),
    ("ImportSchemaGen", "schema"),
    ("ExampleValidator", "anomalies"),
    ("DriftCheck", "drift"),
    ("LogTransform", "transform_graph"),
    ("LogTransform", "transformed_examples"),
    ("Trainer", "model"),
    ("SeedTrainings", "seeds"),
    ("GatedEvaluator", "evaluation"),
    ("GatedEvaluator", "blessing"),
    ("AtomicPusher", "pushed_model"),
)
_KINDS = {
    standard_artifacts.Examples: "Dataset",
    standard_artifacts.Model: "Model",
    standard_artifacts.PushedModel: "Model",
}
_TRAINS = "LogTrainer_Executor"  # the class of the executors that write event files of TensorBoard
_READS = "LogExampleGen_Executor"  # of the one that reads the log


@dataclasses.dataclass(frozen=True)
class Node:
    """A node of the graph.

    Args:
        name: TFX's id.
        executor: The dotted name of the executor's class.
        inputs: For each input, the node and the name of the output that it reads.
        outputs: For each output, its TFX class.
    """

    name: str
    executor: str
    inputs: dict[str, tuple[str, str]]
    outputs: dict[str, type]


def key(*names: str) -> str:
    """Returns Kubeflow's name of a parameter or an artifact: `Trainer.baseline`, `model` -> trainer_baseline_model."""
    return "_".join(names).replace(".", "_").lower()


def kind(artifact: type) -> str:
    """Returns Kubeflow's type of a TFX artifact class."""
    return _KINDS.get(artifact, "Artifact")


def trains(node: Node) -> bool:
    """Returns whether a node trains one model, and writes TensorBoard's event files."""
    return node.executor.endswith(f".{_TRAINS}")


def reads_log(executor: str) -> bool:
    """Returns whether the executor with this dotted name reads the log."""
    return executor.endswith(f".{_READS}")


def graph_nodes(config: RunConfig) -> list[Node]:
    """Returns the nodes of a configuration's graph in topological order."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = RunInputs((), "", {}, pathlib.Path(folder), "", monitoring=config.monitoring)
        pipeline = create_pipeline(config, inputs)
    return [
        Node(
            node.id,
            node.executor_spec.class_path,
            {name: (channel.producer_component_id, channel.output_key) for name, channel in node.inputs.items()},
            {name: channel.type for name, channel in node.outputs.items()},
        )
        for node in pipeline.components
    ]


def arguments(config: RunConfig, inputs: RunInputs) -> dict[str, str]:
    """Returns each node's executor arguments other than artifacts, as JSON. They are part of Kubeflow's cache key.

    Writes the schema into `inputs.place`, where ImportSchemaGen reads it. A node's arguments name the run's own folder
    only if its work depends on it. Other nodes thus hit the cache of a run in another folder. A node that runs Beam
    also gets `shared`, a folder in the volume, because Beam's workers cannot see the files that Kubeflow's launcher
    fetches.
    """
    pipeline = create_pipeline(config, inputs)
    properties_of: dict[str, dict[str, Any]] = {}
    for node in pipeline.components:
        properties_of[node.id] = {name: value for name, value in node.exec_properties.items() if value is not None}
    beam = {node.id for node in pipeline.components if isinstance(node.executor_spec, BeamExecutorSpec)}
    given: dict[str, dict[str, Any]] = {}
    for name, properties in properties_of.items():
        given[name] = {"exec_properties": properties, "beam_args": pipeline.beam_pipeline_args if name in beam else []}
        if config.beam_args and (name in beam or "workers" in properties):
            given[name]["shared"] = str(inputs.place / "tfx")
    return {name: json.dumps(values) for name, values in given.items()}
