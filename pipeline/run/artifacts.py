"""Finds a run's artifacts in ML Metadata.

The lookup goes by events, because filter queries differ between releases of ML Metadata.
"""

import pathlib

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from ctrpipe.common.output_folder import METADATA, path_in


class Artifacts:
    """The output artifacts of a pipeline's nodes, from the newest finished execution of each node.

    Args:
        database: ML Metadata's SQLite file.
        pipeline_name: The pipeline's name.
    """

    def __init__(self, database: pathlib.Path, pipeline_name: str):
        connection = mlmd.ConnectionConfig()
        connection.sqlite.filename_uri = str(database)
        self._store = metadata_store.MetadataStore(connection)
        in_output = database.parts[-2:] == METADATA.parts
        self._output = database.parent.parent if in_output else None
        self._pipeline_name = pipeline_name

    def folder(self, node: str, output: str) -> pathlib.Path:
        """Returns the folder of a node's output. Raises LookupError if the node has no such output."""
        recorded = pathlib.Path(self._find(node, output).uri)
        return path_in(self._output, recorded) if self._output else recorded

    def property(self, node: str, output: str, name: str) -> str | None:
        """Returns a custom property of a node's output, or None if the output has no such property."""
        value = self._find(node, output).custom_properties.get(name)
        return value.string_value if value else None

    def _find(self, node: str, output: str) -> mlmd.Artifact:
        context = self._store.get_context_by_type_and_name("node", f"{self._pipeline_name}.{node}")
        if context is None:
            raise LookupError(f"the database knows no {node} of {self._pipeline_name}")
        done = (mlmd.Execution.COMPLETE, mlmd.Execution.CACHED)
        executions = [e for e in self._store.get_executions_by_context(context.id) if e.last_known_state in done]
        if not executions:
            raise LookupError(f"{node} has never finished")
        newest = max(executions, key=lambda execution: execution.id)
        outputs = (mlmd.Event.OUTPUT, mlmd.Event.DECLARED_OUTPUT, mlmd.Event.INTERNAL_OUTPUT)
        for event in self._store.get_events_by_execution_ids([newest.id]):
            if event.type in outputs and event.path.steps[0].key == output:
                return self._store.get_artifacts_by_id([event.artifact_id])[0]
        raise LookupError(f"{node} has no output {output}")
