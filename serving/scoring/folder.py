"""The output folder of a scoring: what is planned, what is done, and whether it is the same scoring that goes on."""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

from common.errors import InputError
from common.files import write_text
from serving.layout import model_files
from transforms.log.readers import Range

# Readers of a folder of Parquet files pass over names that begin with an underscore.
DEAD_LETTER = "_dead_letter"
UNFINISHED = "_unfinished"
SUMMARY = "_summary.json"
SAMPLE = "sample"
_PLAN, _LOCK = "plan.json", "lock"
_RESERVED = ("file", "line", "ctr", "model_version")


@dataclasses.dataclass(frozen=True)
class Part:
    """A range of the log that is scored by itself, and the number of its result."""

    range: Range
    number: int
    of: int

    @property
    def name(self) -> str:
        return f"part-{self.number:05d}-of-{self.of:05d}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a scoring is of, and how it is cut.

    Attributes:
        version: The model version's folder.
        files: The inputs.
        states: By path of an input or of the model's files, its size in bytes and its time of change in ns.
        options: What else the result depends on.
        parts: In the input's order.
    """

    version: str
    files: list[str]
    states: dict[str, tuple[int, int]]
    options: dict[str, int]
    parts: list[Part]

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        values = json.loads(text)
        ranges = [Range(**{**found, "columns": tuple(found["columns"])}) for found in values["ranges"]]
        parts = [Part(found, number, len(ranges)) for number, found in enumerate(ranges)]
        states = {path: (size, changed) for path, (size, changed) in values["states"].items()}
        return cls(values["version"], values["files"], states, values["options"], parts)

    def to_json(self) -> str:
        values = {"version": self.version, "files": self.files, "states": self.states, "options": self.options}
        return json.dumps(values | {"ranges": [dataclasses.asdict(part.range) for part in self.parts]}, indent=1)


def score_columns(tasks: list[str]) -> dict[str, str]:
    """By task its column: `ctr` for the first, the others' names, unless a column of another meaning has that."""
    return {
        task: "ctr" if not index else f"{task}_score" if task in _RESERVED else task for index, task in enumerate(tasks)
    }


def states(files: list[str], version: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of the inputs and of the model's own files.

    Raises:
        InputError: a file cannot be seen.
    """
    found = {}
    for path in [*files, *map(str, model_files(version))]:
        try:
            status = os.stat(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        found[path] = (status.st_size, status.st_mtime_ns)
    return found


class Folder:
    """The output folder while it is worked on.

    Args:
        output: The folder; its files are `part-*.parquet`, `_dead_letter/part-*.jsonl` and `_summary.json` in the end.
    """

    def __init__(self, output: pathlib.Path):
        self.output = output
        self.unfinished = output / UNFINISHED

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Makes the folder, and keeps a second scoring out of it.

        Raises:
            InputError: it cannot be made, holds a finished scoring, or another process works in it.
        """
        try:
            if not self._begun() and any(self.output.glob("part-*.parquet")):
                raise InputError(
                    f"{self.output}: holds the result of a finished scoring; choose another --output or remove it"
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
                    f"{self.output}: another scoring is at work here; wait for it or choose another --output"
                ) from error
            try:
                yield
            finally:
                if not self._begun():  # nothing is done, or all is
                    shutil.rmtree(self.unfinished, ignore_errors=True)
                    _remove_where_empty(self.output / DEAD_LETTER, self.output)

    def planned(
        self, version: pathlib.Path, files: list[str], options: dict[str, int], cut: Callable[[], list[Range]]
    ) -> Plan:
        """The plan that was begun here, or a new one.

        Raises:
            InputError: what was begun here is another scoring.
        """
        now = states(files, version)
        begun = self._begun()
        if begun:
            for left in self.unfinished.glob(".part-*"):  # by what was killed
                shutil.rmtree(left)
            self._check_same(begun, Plan(str(version), files, now, options, begun.parts))
            return begun
        self._clear()
        ranges = cut()
        parts = [Part(found, number, len(ranges)) for number, found in enumerate(ranges)]
        plan = Plan(str(version), files, now, options, parts)
        write_text(self.unfinished / _PLAN, plan.to_json())
        return plan

    def _begun(self) -> Plan | None:
        """The plan of which there is a part that need not be scored again."""
        path = self.unfinished / _PLAN
        if not path.exists():
            return None
        try:
            plan = Plan.from_json(path.read_text())
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: cannot be read; remove {self.unfinished} and score again") from error
        return plan if any(map(self.is_done, plan.parts)) else None

    def _clear(self) -> None:
        """Removes what belongs to parts that did not end."""
        for left in self.unfinished.iterdir():
            if left.name != _LOCK:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        (self.unfinished / SAMPLE).mkdir()

    def _check_same(self, begun: Plan, now: Plan) -> None:
        changed = [
            path for path in sorted({*begun.states, *now.states}) if begun.states.get(path) != now.states.get(path)
        ]
        if begun.version != now.version:
            change = f"with model version {begun.version}, and now it would be {now.version}"
        elif begun.files != now.files:
            change = f"of {_some(begun.files)}, and now it would be of {_some(now.files)}"
        elif changed:
            change = f"before {_some(changed)} changed"
        elif begun.options != now.options:
            change = f"with other options, {begun.options}, and now it would be with {now.options}"
        else:
            return
        raise InputError(
            f"{self.output}: an unfinished scoring was begun here {change}; give it what it was begun with, remove "
            f"{self.unfinished} to begin anew, or choose another --output"
        )

    def is_done(self, part: Part) -> bool:
        """Whether all of a part's files are there: its scores come last, and may have their place already."""
        name = f"{part.name}.parquet"
        return (self.unfinished / name).exists() or (self.output / name).exists()

    def scores(self, part: Part) -> pathlib.Path:
        path = self.output / f"{part.name}.parquet"
        return path if path.exists() else self.unfinished / path.name

    def samples(self) -> list[pathlib.Path]:
        return sorted((self.unfinished / SAMPLE).glob("*.parquet"))

    def finish(self, plan: Plan, summary: str) -> None:
        """Moves what is done to its place."""
        for part in plan.parts:
            for source, target in (
                (self.unfinished / f"{part.name}.jsonl", self.output / DEAD_LETTER),
                (self.unfinished / f"{part.name}.parquet", self.output),
            ):
                if source.exists():
                    source.replace(target / source.name)
        write_text(self.output / SUMMARY, summary)
        (self.unfinished / _PLAN).unlink()


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _remove_where_empty(*folders: pathlib.Path) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
