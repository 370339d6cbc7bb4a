"""Runs a TFX pipeline on this machine, and announces each node when it starts or is a cache hit.

TFX's LocalDagRunner announces neither: its launcher decides about the cache and does not report it. The launcher does
accept a custom class to run executors, and uses it only if the cache has no result.
"""

import datetime
import pathlib
from collections.abc import Iterable
from typing import Any

import tensorflow_transform as tft
from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import (
    beam_executor_operator,
    launcher,
    python_executor_operator,
    runtime_parameter_utils,
    tfx_runner,
)
from tfx.proto.orchestration import executable_spec_pb2, pipeline_pb2

from ctrpipe.common.memory import return_freed_memory
from ctrpipe.common.output_folder import METADATA, await_database
from ctrpipe.common.phases import start_phase
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.artifacts import Artifacts
from ctrpipe.pipeline.run.graph import BASELINE, MODEL, create_data_pipeline, create_pipeline
from ctrpipe.pipeline.run.inputs import RunInputs
from ctrpipe.pipeline.run.moved import keys_without_places, record_new_place
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.transforms.features.preprocessing import feature_map


def run_pipeline(config: RunConfig, inputs: RunInputs) -> Artifacts:
    """Runs the whole graph, and returns its artifacts.

    Raises:
        InputError: a node raised it; the nodes after it do not run.
    """
    _AnnouncingRunner().run(create_pipeline(config, inputs))
    return Artifacts(inputs.output / METADATA, config.name)


def run_data_pipeline(config: RunConfig, inputs: RunInputs) -> TransformedLog:
    """Runs the graph up to Transform, and returns the transformed log.

    Raises:
        InputError: a node raised it; the nodes after it do not run.
    """
    _AnnouncingRunner().run(create_data_pipeline(config, inputs))
    artifacts = Artifacts(inputs.output / METADATA, config.name)
    examples = artifacts.folder("LogTransform", "transformed_examples")
    train, validation, test = ([str(examples / f"Split-{split}" / "*")] for split in ("train", "validation", "test"))
    graph = artifacts.folder("LogTransform", "transform_graph")
    fields = feature_map(config.log_spec, tft.TFTransformOutput(str(graph)))
    payload = artifacts.folder("LogExampleGen", "examples")
    return TransformedLog(train, validation, test, fields, payload, inputs, graph)


class _AnnouncingRunner(tfx_runner.IrBasedRunner):
    """TFX's LocalDagRunner with announcements, for Python and Beam executors only."""

    def run_with_ir(self, pipeline: pipeline_pb2.Pipeline, run_options: pipeline_pb2.RunOptions | None = None) -> None:
        run_id = {constants.PIPELINE_RUN_ID_PARAMETER_NAME: datetime.datetime.now().isoformat()}
        runtime_parameter_utils.substitute_runtime_parameter(pipeline, run_id)
        deployment = runner_utils.extract_local_deployment_config(pipeline)
        connection = deployment.metadata_connection_config
        connection = getattr(connection, connection.WhichOneof("connection_config"))
        database, file = metadata.Metadata(connection), pathlib.Path(connection.sqlite.filename_uri)
        await_database(file)
        record_new_place(file.parent.parent)
        for number, node in enumerate(_in_order(pipeline.nodes)):
            await_database(file)
            name = node.pipeline_node.node_info.id
            start_phase(name)
            started: list[str] = []
            steps = number, len(pipeline.nodes)
            with keys_without_places():
                launcher.Launcher(
                    pipeline_node=node.pipeline_node,
                    mlmd_connection=database,
                    pipeline_info=pipeline.pipeline_info,
                    pipeline_runtime_spec=pipeline.runtime_spec,
                    executor_spec=runner_utils.extract_executor_spec(deployment, name),
                    custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, name),
                    custom_executor_operators=_announcing(started, steps),
                ).launch()
            return_freed_memory()
            if not started:
                announce(f"{name}: from cache", steps=steps)


def _in_order(nodes: Iterable[Any]) -> list[Any]:
    """Returns the nodes in the order to run: the baseline before the model.

    Neither needs the other. TensorFlow keeps the memory that a training run has used. A linear baseline hardly uses
    TensorFlow, and gives its memory back.
    """
    ordered = list(nodes)
    places = {node.pipeline_node.node_info.id: place for place, node in enumerate(ordered)}
    if BASELINE in places:
        ordered.insert(places[MODEL], ordered.pop(places[BASELINE]))
    return ordered


def _announcing(started: list[str], steps: tuple[int, int]) -> dict[type, type]:
    """Returns executor operators, by executable spec, that announce a node and append its name to `started`.

    Args:
        started: The list that receives the names.
        steps: The number of finished nodes, and of all nodes.
    """

    def start(execution_info: Any) -> None:
        name = execution_info.pipeline_node.node_info.id
        announce(f"{name} ...", steps=steps)
        started.append(name)

    class Python(python_executor_operator.PythonExecutorOperator):
        def run_executor(self, execution_info: Any) -> Any:
            start(execution_info)
            return super().run_executor(execution_info)

    class Beam(beam_executor_operator.BeamExecutorOperator):
        def run_executor(self, execution_info: Any) -> Any:
            start(execution_info)
            return super().run_executor(execution_info)

    return {
        executable_spec_pb2.PythonClassExecutableSpec: Python,
        executable_spec_pb2.BeamExecutableSpec: Beam,
    }
