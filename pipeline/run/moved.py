"""Keeps the cache and the artifacts of a run's folder valid when the folder is moved or copied.

TFX records absolute paths, and includes them in its cache keys. The database of a moved folder is therefore rewritten
once, and the cache keys leave out the paths of the folder and of the log.
"""

import contextlib
import copy
import json
import pathlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx import types
from tfx.orchestration import metadata
from tfx.orchestration.portable import cache_utils

from ctrpipe.common.output_folder import METADATA, place_of
from ctrpipe.common.stores import name_of

OUTPUT = "<output>"  # stands for the folder in the keys of the cache
_KEY = cache_utils.get_cache_context


def record_new_place(output: pathlib.Path) -> None:
    """Replaces the folder's former paths in its database by the current path.

    Nothing else in a record changes, because every field is part of the cache keys.

    Args:
        output: The folder, as an absolute path. The caller holds its lock.
    """
    if not (output / METADATA).exists():
        return
    with contextlib.closing(sqlite3.connect(output / METADATA)) as connection, connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'Artifact'").fetchone():
            return  # killed before its first node
        uris = [uri for (uri,) in connection.execute("SELECT uri FROM Artifact") if uri]
        places = {place for uri in uris if (place := place_of(pathlib.Path(uri)))} - {output}
        for former in places:
            for table, column in (("Artifact", "uri"), ("ArtifactProperty", "string_value")):
                for row, text in connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                    if (now := _replaced(text or "", former, str(output))) != (text or ""):
                        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (now, row))


def key_without_places(
    *,
    metadata_handle: metadata.Metadata,
    input_artifacts: Mapping[str, Sequence[types.Artifact]] | None = None,
    parameters: Mapping[str, Any] | None = None,
    **others: Any,
) -> mlmd.Context:
    """Returns the context of TFX's `get_cache_context`, with a key that does not contain the paths of folder and log.

    The key contains a hash of the log's contents.
    """
    database = pathlib.Path(metadata_handle.connection_config.sqlite.filename_uri)
    output = database.parent.parent
    inputs = {key: [_placeless(each, output) for each in given] for key, given in (input_artifacts or {}).items()}
    values = {
        name: _replaced(_without_folders(value), output, OUTPUT) if isinstance(value, str) else value
        for name, value in (parameters or {}).items()
    }
    return _KEY(metadata_handle=metadata_handle, input_artifacts=inputs, parameters=values, **others)


@contextlib.contextmanager
def keys_without_places() -> Iterator[None]:
    """Makes TFX's launcher call `key_without_places` inside the block. The launcher has no argument for this."""
    cache_utils.get_cache_context = key_without_places
    try:
        yield
    finally:
        cache_utils.get_cache_context = _KEY


def _placeless(artifact: types.Artifact, output: pathlib.Path) -> types.Artifact:
    placeless = copy.deepcopy(artifact)
    placeless.uri = _replaced(artifact.uri, output, OUTPUT)
    for value in placeless.mlmd_artifact.custom_properties.values():
        if value.HasField("string_value"):
            value.string_value = _replaced(value.string_value, output, OUTPUT)
    return placeless


def _replaced(text: str, folder: pathlib.Path, other: str) -> str:
    """Replaces a folder by `other` in the paths of a text, which may be JSON."""
    for written in {str(folder), json.dumps(str(folder))[1:-1]}:
        # A path follows a quote, white space or nothing. The folder's name ends there too, or before a slash.
        text = re.sub(rf'(?<![^"\s]){re.escape(written)}(?=[/"\s]|$)', lambda _: other, text)
    return text


def _without_folders(parameter: str) -> str:
    """Removes the folders of the log's files from the settings of a node that reads the log.

    The folders stay if a column is read from their names.
    """
    try:
        settings = json.loads(parameter)
        files, data = settings["files"], settings["spec"]["data"]
    except (ValueError, LookupError, TypeError):
        return parameter
    if data.get("partitions"):  # absent where it has its default
        return parameter
    return json.dumps({**settings, "files": [name_of(file) for file in files]})
