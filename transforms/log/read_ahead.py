"""Ingests a log in a child process while this process loads TensorFlow and TFX.

A run enters a `ReadAhead` block before it loads its libraries, and waits for the child before it runs the pipeline. The
TFX component that ingests the log calls `take`, which moves the child's result to its final folder. Both derive the
result's folder from the log's description, files and seed. Without a result, the component reads the log itself: on
Kubeflow, in a follower, or if the child has failed. A user's mistake is then reported as usual.

On two busy cores, loading and ingesting a million rows (243 MB) take 58 s instead of 85 s, for 2.4 s more of CPU time.
On two idle cores, the pipeline up to Transform takes 13.8 s instead of 14.0 s, for 1.8 s more.

The child is a command instead of a multiprocessing process, which would run a user's script again.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.processes import Workers, end_with_input, python_command, start_command, stop_command
from ctrpipe.common.progress import announce, share_of
from ctrpipe.common.stores import in_parallel
from ctrpipe.transforms.log.files import FileState, state_of
from ctrpipe.transforms.log.ingest import DEAD_LETTERS, IngestResult, ingest
from ctrpipe.transforms.log.payload import payload_files
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

NICENESS = 10  # of the readers: they get a tenth of a core that they share with a process of niceness 0
ANNOUNCE_SECONDS = 10.0
_PREFIX, _TASK, _RESULT, _PROGRESS = ".read-", "task.json", "result.json", "progress"
_REMOVAL_SECONDS = 5.0


class ReadAhead(contextlib.AbstractContextManager["ReadAhead"]):
    """Ingests a log in a child process. Leaving the block ends the child and removes results that were not taken.

    The child and its workers have a lower priority: they use all cores only while this process waits for them.

    Args:
        spec: The description of the log.
        files: The files of the log, in order.
        seed: See `ingest`.
        near: The folder for `take`, on the file system of the payload; it need not exist.
        processes: Maximum number of workers.

    Raises:
        OSError: a file cannot be read, the folder is not writable, or no process can be started.
    """

    def __init__(self, spec: LogSpec, files: Sequence[str], seed: int, near: pathlib.Path, processes: int):
        states = dict(zip(files, in_parallel(state_of, files), strict=True))
        self._folder = _folder(near, spec, files, seed, states)
        self._made = [folder for folder in (near, *near.parents) if not folder.exists()]
        near.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        task = {"spec": spec.model_dump(mode="json"), "files": list(files), "seed": seed, "processes": processes}
        write_json(self._folder / _TASK, task | {"states": states})
        command = python_command("from ctrpipe.transforms.log import read_ahead; read_ahead.main()", str(self._folder))
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._child = start_command(command, stdin=pipe, stdout=nothing, stderr=nothing)

    def wait(self) -> None:
        """Waits until the child has finished or failed, and announces its progress."""
        while True:
            try:
                self._child.wait(ANNOUNCE_SECONDS)
                return
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):  # nothing is read yet
                    announce(text := (self._folder / _PROGRESS).read_text(), share_of(text))

    def __exit__(self, *error: object) -> None:
        stop_command(self._child, _REMOVAL_SECONDS)
        assert self._child.stdin
        self._child.stdin.close()
        # The child's workers end by themselves, a moment after it, and may still write.
        end = time.monotonic() + _REMOVAL_SECONDS
        while self._folder.exists() and time.monotonic() < end:
            shutil.rmtree(self._folder, ignore_errors=True)
        for folder in self._made:
            with contextlib.suppress(OSError):  # it is in use
                folder.rmdir()


def take(
    near: pathlib.Path,
    spec: LogSpec,
    files: Sequence[str],
    seed: int,
    states: Mapping[str, FileState],
    split_folders: Mapping[str, pathlib.Path],
    dead_letter: pathlib.Path,
) -> IngestResult | None:
    """Moves the result of this process's ReadAhead to its final folders, and removes all other results in `near`.

    Args:
        near, spec, files, seed: See ReadAhead.
        states: The states that the files must have had, by path.
        split_folders, dead_letter: See `ingest`.

    Returns:
        The result; None if there is none for these arguments.
    """
    folder = _folder(near, spec, files, seed, states)
    try:
        result = IngestResult(**json.loads((folder / _RESULT).read_text()))
    except FileNotFoundError:
        return None
    for name in SPLITS:
        for part in payload_files(folder / name):
            part.replace(split_folders[name] / part.name)
    dead_letter.mkdir(parents=True, exist_ok=True)
    shutil.move(folder / DEAD_LETTERS, dead_letter / DEAD_LETTERS)
    for leftover in near.glob(f"{_PREFIX}*"):  # also of processes that were killed with their children
        shutil.rmtree(leftover, ignore_errors=True)
    return result


def _folder(
    near: pathlib.Path, spec: LogSpec, files: Sequence[str], seed: int, states: Mapping[str, FileState]
) -> pathlib.Path:
    """Returns the folder of a result, which belongs to this process."""
    of_files = [(path, states.get(path)) for path in files]
    return near / f"{_PREFIX}{os.getpid()}-{fingerprint(spec, of_files, seed)}"


def main() -> None:
    """Ingests a log into the folder of a ReadAhead. The result is written last."""
    folder = pathlib.Path(sys.argv[1])
    end_with_input(folder)
    os.nice(NICENESS)
    task = json.loads((folder / _TASK).read_text())
    splits = {name: folder / name for name in SPLITS}
    for split in splits.values():
        split.mkdir()
    result = ingest(
        LogSpec.model_validate(task["spec"]),
        task["files"],
        task["seed"],
        splits,
        folder,
        Workers(most=task["processes"]),
        lambda text: write_text(folder / _PROGRESS, text),
        {path: FileState(*state) for path, state in task["states"].items()},
    )
    write_json(folder / _RESULT, dataclasses.asdict(result))
