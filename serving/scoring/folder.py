"""The output folder of a batch scoring: its plan, its completed parts, how to resume it, and its copy in a store."""

import contextlib
import dataclasses
import fcntl
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ctrpipe.common import stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.output_folder import is_locked
from ctrpipe.common.store_folders import MANIFEST, one_writer, upload, work_folder
from ctrpipe.common.stores import StoreError, in_parallel
from ctrpipe.serving.layout import model_files
from ctrpipe.transforms.log.files import FileState, Range, state_of

# Readers of a folder of Parquet files skip names that start with an underscore.
DEAD_LETTER = "_dead_letter"
DATA = "_data"  # the rows of queries and in-memory tables
UNFINISHED = "_unfinished"
SUMMARY = "_summary.json"
SAMPLE = "sample"
_PLAN, _LOCK = "plan.json", "lock"
RESERVED = ("file", "line", "ctr", "model_version")  # columns of the scores


@dataclasses.dataclass(frozen=True)
class ScoredPart:
    """A range of the log that is scored as one part: part `number` `of` all parts."""

    range: Range
    number: int
    of: int

    @property
    def name(self) -> str:
        return f"part-{self.number:05d}-of-{self.of:05d}"


@dataclasses.dataclass(frozen=True)
class ScoringPlan:
    """The inputs of a scoring and their division into parts.

    Attributes:
        version: The version's folder.
        files: The log's files.
        states: The state of each log file and model file, by path.
        options: The options that affect the result.
        parts: The parts, in the order of the log.
    """

    version: str
    files: list[str]
    states: dict[str, FileState]
    options: Mapping[str, Any]
    parts: list[ScoredPart]

    @classmethod
    def from_json(cls, text: str) -> "ScoringPlan":
        values = json.loads(text)
        ranges = [
            Range(**{**fields, "columns": tuple(fields["columns"]), "state": FileState(*fields["state"])})
            for fields in values["ranges"]
        ]
        parts = _numbered(ranges)
        states = {path: FileState(*state) for path, state in values["states"].items()}
        return cls(values["version"], values["files"], states, values["options"], parts)

    def to_json(self) -> str:
        ranges = [dataclasses.asdict(part.range) for part in self.parts]
        return json.dumps(self.inputs() | {"ranges": ranges}, indent=1)

    def inputs(self) -> dict[str, Any]:
        """Returns the inputs of a scoring, for JSON. Equal inputs give equal results."""
        states = {path: list(state) for path, state in self.states.items()}
        return {"version": self.version, "files": self.files, "states": states, "options": self.options}


def _numbered(ranges: list[Range]) -> list[ScoredPart]:
    return [ScoredPart(range, number, len(ranges)) for number, range in enumerate(ranges)]


def score_columns(tasks: list[str]) -> dict[str, str]:
    """Returns the column of each task: `ctr` for the first, TASK for others, or TASK_score if TASK is reserved."""
    return {
        task: "ctr" if not index else f"{task}_score" if task in RESERVED else task for index, task in enumerate(tasks)
    }


def check_kept(kept: Sequence[str], tasks: list[str]) -> None:
    """Raises InputError if a column to copy is named twice, or named like a column of the scores."""
    for name in kept:
        if name in (*RESERVED, *score_columns(tasks).values()):
            raise InputError(f"--keep {name}: the scores have a column of this name; rename it in the log")
        if kept.count(name) > 1:
            raise InputError(f"--keep {name}: named twice; name it once")


def file_states(files: list[str], version: pathlib.Path) -> dict[str, FileState]:
    """Returns the state of each log file and model file, by path.

    Raises:
        InputError: a file cannot be read.
    """
    paths = [*files, *map(str, model_files(version))]
    return dict(zip(paths, in_parallel(_state, paths), strict=True))


def _state(path: str) -> FileState:
    try:
        return state_of(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


class ScoringFolder:
    """The output folder during a scoring.

    Args:
        output: The folder. It finally contains `part-*.parquet`, `_dead_letter/part-*.jsonl` and `_summary.json`.
    """

    def __init__(self, output: pathlib.Path):
        self.output = output
        self.unfinished = output / UNFINISHED

    def finished(self, version: pathlib.Path, files: list[str], options: Mapping[str, object]) -> dict[str, Any] | None:
        """Returns the summary of a finished scoring of the same inputs in this folder, or None.

        A scheduler also repeats a command that was killed after its last write.
        """
        try:
            summary: dict[str, Any] = json.loads((self.output / SUMMARY).read_text())
            now = ScoringPlan(str(version), files, file_states(files, version), options, []).inputs()
            if summary.pop("inputs") != now or len(list(self.output.glob("part-*.parquet"))) != summary["parts"]:
                return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        shutil.rmtree(self.unfinished, ignore_errors=True)  # the command was killed before it did this
        _remove_where_empty(self.output / DEAD_LETTER)
        return summary

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Creates the folder and locks it against other scorings inside the block.

        Raises:
            InputError: the folder cannot be created, contains a finished scoring, or is locked by another process.
        """
        try:
            if not self._unfinished_plan() and any(self.output.glob("part-*.parquet")):
                raise InputError(
                    f"{self.output}: holds the result of another scoring; choose another --output or remove it"
                )
            for folder in (self.unfinished / SAMPLE, self.output / DEAD_LETTER):
                folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.unfinished / _LOCK, "w")
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(
                f"{self.output}: a file is in the way of the output folder; choose another --output"
            ) from error
        except OSError as error:
            raise InputError(f"{self.output}: cannot make the output folder ({error.strerror})") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"{self.output}: another scoring is running here; wait for it or choose another --output"
                ) from error
            try:
                yield
            finally:
                if not self._unfinished_plan():  # no part is done, or all are
                    shutil.rmtree(self.unfinished, ignore_errors=True)
                    _remove_where_empty(self.output / DEAD_LETTER, self.output)

    def planned(
        self, version: pathlib.Path, files: list[str], options: Mapping[str, object], cut: Callable[[], list[Range]]
    ) -> ScoringPlan:
        """Returns the plan of an interrupted scoring in this folder, or a new plan.

        Args:
            version: The version's folder.
            files: The log's files.
            options: The options that affect the result.
            cut: Returns the ranges of a new plan.

        Raises:
            InputError: the interrupted scoring has other inputs.
        """
        states = file_states(files, version)
        interrupted = self._unfinished_plan()
        if interrupted:
            for killed in self.unfinished.glob(".part-*"):
                shutil.rmtree(killed)
            self._check_same(interrupted, ScoringPlan(str(version), files, states, options, interrupted.parts))
            return interrupted
        self._clear()
        plan = ScoringPlan(str(version), files, states, options, _numbered(cut()))
        write_text(self.unfinished / _PLAN, plan.to_json())
        return plan

    def _unfinished_plan(self) -> ScoringPlan | None:
        """Returns the plan of an interrupted scoring with at least one completed part, or None."""
        path = self.unfinished / _PLAN
        if not path.exists():
            return None
        try:
            plan = ScoringPlan.from_json(path.read_text())
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: cannot be read; remove {self.unfinished} and score again") from error
        return plan if any(map(self.is_done, plan.parts)) else None

    def _clear(self) -> None:
        """Removes the files of an interrupted scoring without a completed part."""
        for path in self.unfinished.iterdir():
            if path.name != _LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (self.unfinished / SAMPLE).mkdir()

    def _check_same(self, interrupted: ScoringPlan, now: ScoringPlan) -> None:
        before = interrupted.states
        changed = [path for path in sorted({*before, *now.states}) if before.get(path) != now.states.get(path)]
        if interrupted.version != now.version:
            change = f"with model version {interrupted.version}, and now it would be {now.version}"
        elif interrupted.files != now.files:
            change = f"of {_some(interrupted.files)}, and now it would be of {_some(now.files)}"
        elif changed:
            change = f"before {_some(changed)} changed"
        elif interrupted.options != now.options:
            change = f"with other options, {interrupted.options}, and now it would be with {now.options}"
        else:
            return
        raise InputError(
            f"{self.output}: an unfinished scoring was begun here {change}; give it what it was begun with, remove "
            f"{self.unfinished} to begin anew, or choose another --output"
        )

    def is_done(self, part: ScoredPart) -> bool:
        """Returns whether a part is complete: its scores, the last file, exist before or after `finish`."""
        name = f"{part.name}.parquet"
        return (self.unfinished / name).exists() or (self.output / name).exists()

    def scores(self, part: ScoredPart) -> pathlib.Path:
        path = self.output / f"{part.name}.parquet"
        return path if path.exists() else self.unfinished / path.name

    def samples(self) -> list[pathlib.Path]:
        return sorted((self.unfinished / SAMPLE).glob("*.parquet"))

    def finish(self, plan: ScoringPlan, summary: dict[str, Any]) -> None:
        """Moves the files of all parts to their final places and writes the summary, with the scoring's inputs."""
        for part in plan.parts:
            for source, target in (
                (self.unfinished / f"{part.name}.jsonl", self.output / DEAD_LETTER),
                (self.unfinished / f"{part.name}.parquet", self.output),
            ):
                if source.exists():
                    source.replace(target / source.name)
        write_json(self.output / SUMMARY, summary | {"inputs": plan.inputs()})
        (self.unfinished / _PLAN).unlink(missing_ok=True)


@contextlib.contextmanager
def unread_rows_removed(output: pathlib.Path) -> Iterator[None]:
    """Removes the rows of queries and tables that the block adds to DATA, if it is refused with an InputError.

    Rows of a finished or interrupted scoring remain.

    Args:
        output: The output folder of a scoring. If the block leaves it empty, it is removed too.
    """
    data = output / DATA
    before = set(data.glob("*"))
    try:
        yield
    except InputError:
        if is_locked(output / UNFINISHED / _LOCK):  # by the process of another scoring, which may have made them
            raise
        read = _files_read(output)
        for made in set(data.glob("*")) - before:
            if not any(path.is_relative_to(made.resolve()) for path in read):
                shutil.rmtree(made) if made.is_dir() else made.unlink()
        _remove_where_empty(data, output)
        raise


def _files_read(output: pathlib.Path) -> list[pathlib.Path]:
    """Returns the log files of the finished scoring and of the interrupted one in a folder."""
    files: list[pathlib.Path] = []
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        files += map(pathlib.Path, json.loads((output / SUMMARY).read_text())["inputs"]["files"])
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        files += map(pathlib.Path, json.loads((output / UNFINISHED / _PLAN).read_text())["files"])
    return [path.resolve() for path in files]


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _remove_where_empty(*folders: pathlib.Path) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def stored_scoring(url: str) -> Iterator[pathlib.Path]:
    """Yields a local folder for the scores, and uploads its files to the store when the block succeeds.

    The local folder remains, so an interrupted scoring can be resumed.

    Raises:
        StoreError: another process writes or has written there, or the store refuses a request or does not answer.
    """
    url, folder = url.rstrip("/"), work_folder(url)
    with one_writer(url):
        if stores.is_file(stores.join(url, MANIFEST)) and not (folder / SUMMARY).exists():
            raise StoreError(f"{url}: holds the result of another scoring; choose another --output or remove it")
        yield folder
        paths = [*folder.glob("part-*.parquet"), *folder.glob(f"{DEAD_LETTER}/*"), folder / SUMMARY]
        upload(folder, url, [path.relative_to(folder).as_posix() for path in paths])
