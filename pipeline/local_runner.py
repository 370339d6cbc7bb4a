"""Runs a TFX pipeline on this machine, and announces each node as it starts or is found in the cache.

TFX's LocalDagRunner says neither: its launcher decides about the cache and hands nothing out. What the launcher does
take is the class that runs an executor, which it calls where the cache has no result, and nowhere else.
"""

import datetime
from typing import Any

from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import (
    beam_executor_operator,
    launcher,
    python_executor_operator,
    runtime_parameter_utils,
    tfx_runner,
)
from tfx.proto.orchestration import executable_spec_pb2, pipeline_pb2

from common.progress import announce


def run_pipeline(pipeline: Pipeline) -> None:
    """Runs the nodes one after another, each after those whose outputs it reads.

    Raises:
        Exception: whatever a node raised; the nodes after it do not run.
    """
    _AnnouncingRunner().run(pipeline)


class _AnnouncingRunner(tfx_runner.IrBasedRunner):
    """As TFX's LocalDagRunner, for the executors that this project has: Python's and Beam's."""

    def run_with_ir(self, pipeline: pipeline_pb2.Pipeline, run_options: pipeline_pb2.RunOptions | None = None) -> None:
        run_id = {constants.PIPELINE_RUN_ID_PARAMETER_NAME: datetime.datetime.now().isoformat()}
        runtime_parameter_utils.substitute_runtime_parameter(pipeline, run_id)
        deployment = runner_utils.extract_local_deployment_config(pipeline)
        connection = deployment.metadata_connection_config
        database = metadata.Metadata(getattr(connection, connection.WhichOneof("connection_config")))
        for node in pipeline.nodes:
            name = node.pipeline_node.node_info.id
            started: list[str] = []
            launcher.Launcher(
                pipeline_node=node.pipeline_node,
                mlmd_connection=database,
                pipeline_info=pipeline.pipeline_info,
                pipeline_runtime_spec=pipeline.runtime_spec,
                executor_spec=runner_utils.extract_executor_spec(deployment, name),
                custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, name),
                custom_executor_operators=_announcing(started),
            ).launch()
            if not started:
                announce(f"{name}: from cache")


def _announcing(started: list[str]) -> dict[type, type]:
    """Returns TFX's executor operators by what they run, which announce a node before it runs, and note its name."""

    def start(execution_info: Any) -> None:
        name = execution_info.pipeline_node.node_info.id
        announce(f"{name} ...")
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
