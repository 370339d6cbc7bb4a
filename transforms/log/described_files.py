"""Descriptions of a log's files: a hash of the contents, and the state of each file."""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ctrpipe.common.files import write_json
from ctrpipe.common.printable import excerpt
from ctrpipe.common.stores import absolute, in_parallel
from ctrpipe.transforms.log.files import FileState, input_errors, open_stored, state_of, unchanged


def fingerprint_files(data: list[dict[str, Any]]) -> str:
    """Returns a hash of the files' contents in order, given the results of `describe_file`."""
    return hashlib.sha256(json.dumps([file["sha256"] for file in data]).encode()).hexdigest()[:16]


def states_of(data: list[dict[str, Any]]) -> dict[str, FileState]:
    """Returns the states of the files by absolute path. A reader checks that a file still has its state."""
    return {absolute(file["path"]): FileState(file["bytes"], file["stamp"]) for file in data}


def write_states(path: pathlib.Path, states: Mapping[str, FileState]) -> None:
    """Writes states by path to a file, for another process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, states)


def read_states(path: pathlib.Path) -> dict[str, FileState]:
    """Reads a file of `write_states`."""
    return {name: FileState(*state) for name, state in json.loads(path.read_text()).items()}


def describe_file(path: str) -> dict[str, Any]:
    """Reads a file once, and returns its path, its size in bytes, its stamp (see FileState) and its SHA-256.

    Raises:
        InputError: the file cannot be read, or changes while it is read.
    """
    with input_errors(path):
        state = state_of(path)
        with unchanged(path, state), open_stored(path) as file:
            digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
    return {"path": path, "bytes": state.size, "stamp": state.stamp, "sha256": digest.hexdigest()}


def describe_files(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the result of `describe_file` for each file, in order. Raises as it does."""
    return in_parallel(describe_file, paths)


def same_contents(data: list[dict[str, Any]]) -> list[str]:
    """Returns a line for each file that has the same bytes as an earlier one, given the results of `describe_file`."""
    first: dict[str, str] = {}
    lines = []
    for file in data:
        if (before := first.setdefault(file["sha256"], file["path"])) != file["path"]:
            shown = f"{excerpt(file['path'])} has the same bytes as {excerpt(before)}"
            lines.append(f"{shown}: its rows count twice, and may be training and test rows at once")
    return lines
