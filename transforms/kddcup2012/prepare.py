"""Joins the files of KDD Cup 2012 track 2 into one log, which the pipeline reads like any other log.

Every step processes independent parts, in local worker processes or as a Beam job, and writes its results to files. An
interrupted run resumes after the last finished part.
"""

import dataclasses
import itertools
import json
import pathlib
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.processes import Workers
from ctrpipe.common.results import result_from_json, result_to_json
from ctrpipe.transforms.kddcup2012.history import TABLES, CountLines, MergeCounts, Total, parts_of
from ctrpipe.transforms.kddcup2012.join import Join, Joined, move_parts
from ctrpipe.transforms.kddcup2012.layout import PARTS, PUBLIC_TEST, TOKEN_TABLES, Files, Table, find_tables
from ctrpipe.transforms.kddcup2012.lines import PUBLIC, TRAIN, Counted, ReadLines
from ctrpipe.transforms.kddcup2012.read import TablePart, Tally, ranges_of
from ctrpipe.transforms.kddcup2012.tables import bits_for
from ctrpipe.transforms.kddcup2012.tokens import (
    Bucket,
    MergeUsers,
    ReadTable,
    make_folders,
    merge_token_counts,
    merge_tokens,
    weigh_tokens,
)
from ctrpipe.transforms.log.files import state_of, text_size
from ctrpipe.transforms.log.ingest import DEAD_LETTERS_KEPT

SCRATCH = ".unfinished"
LOG = "log"
SUMMARY = "summary.json"
DEAD_LETTER = "dead_letter"
_BYTES_PER_SECOND = 5.7e6  # throughput of one process on the training file, all steps together
# Share of each step in that time.
_SHARES = {
    "tables": 0.04,
    "lines": 0.14,
    "count": 0.13,
    "tokens": 0.02,
    "weights": 0.03,
    "join": 0.62,
}
_SHARE = 0.01  # the share of any other step
_BUCKET_BYTES = 128 << 20  # of text
_PUBLISHING = "publishing"
_LAST_STEPS = ("join", "join-public")
_ONE_PROCESS = Workers(processes=1)
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of the joined log.

    Args:
        seed: Seed of the split and of the folds.
        test: Share of lines in the test part (paper: 1/11).
        validation: Share of the other lines in the validation part.
        prior_impressions: Weight of the prior in a click-through rate (see History).
        folds: Number of folds (see History).
        most_lines: Maximum number of lines of the training file to read; None for all.
        max_bad_row_rate: Maximum share of malformed lines in a file.
    """

    seed: int = 1
    test: float = 1 / 11
    validation: float = 0.05
    prior_impressions: float = 20.0
    folds: int = 5
    most_lines: int | None = None
    max_bad_row_rate: float = 0.01

    def __post_init__(self) -> None:
        for name in ("test", "validation"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} should lie between 0 and 1. Received: {getattr(self, name)}")
        if not 2 <= self.folds <= 100:
            raise InputError(f"folds should be 2 to 100. Received: {self.folds}")
        if self.prior_impressions <= 0:
            raise InputError(f"prior_impressions should be positive. Received: {self.prior_impressions}")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The result of `prepare`.

    Attributes:
        lines: Number of lines read from the training file, including malformed ones.
        rejected: Number of malformed lines by file. At most DEAD_LETTERS_KEPT are in `dead_letter/rejects.jsonl`.
        reasons: Number of malformed lines by reason.
        rows: Number of rows of the log, including those of the public test file.
        split, clicks, impressions: Number of well-formed lines, clicks and impressions by part.
        without_partner: Number of lines with an id that the table lacks, by table. The values of that table are
            missing.
        log: Glob of the log files.
        public_test: Glob of the files with the rows of the public test file; None without that file.
    """

    lines: int
    rejected: dict[str, int]
    reasons: dict[str, int]
    rows: int
    split: dict[str, int]
    clicks: dict[str, int]
    impressions: dict[str, int]
    without_partner: dict[str, int]
    log: str
    public_test: str | None


def prepare(
    folder: pathlib.Path,
    output: pathlib.Path,
    options: Options = Options(),  # noqa: B008
    workers: Workers = _ONE_PROCESS,
    progress: Callable[[str], None] = lambda text: None,
) -> Prepared:
    """Joins the files of a folder into a log. The result does not depend on the number of workers.

    Args:
        folder: Folder of the files (see layout).
        output: Folder for `log/*.parquet`, `dead_letter/rejects.jsonl` and `summary.json`. An existing log of the same
            files and options is reused; an interrupted run is resumed.
        options: Settings of the log.
        workers: The workers; all must have access to both folders.
        progress: Called with a progress line after each finished part.

    Raises:
        InputError: a file is missing or unreadable, too many of its lines are malformed, or a part would be empty.
    """
    files = find_tables(folder)
    fingerprint = _fingerprint(files, options)
    summary = output / SUMMARY
    if summary.is_file():
        previous = json.loads(summary.read_text())
        if previous.pop("input") == fingerprint:
            progress("The log of these files is already there")
            return Prepared(**previous)
    try:
        steps = _Steps(files, output, options, workers, progress, fingerprint)
        prepared = _publish(steps)
        write_json(summary, {**dataclasses.asdict(prepared), "input": fingerprint})
        shutil.rmtree(steps.scratch)
    except OSError as error:
        raise InputError(f"{output}: cannot be written or read ({error.strerror or error})") from error
    return prepared


def _fingerprint(files: Files, options: Options) -> dict[str, Any]:
    stamps = {str(t.path.resolve()): list(state_of(str(t.path))) for t in files.all}
    return {"files": stamps, "options": dataclasses.asdict(options)}


class _Steps:
    """Runs all steps except `_publish`, and keeps their results in `scratch`."""

    def __init__(
        self,
        files: Files,
        output: pathlib.Path,
        options: Options,
        workers: Workers,
        progress: Callable[[str], None],
        fingerprint: dict[str, Any],
    ):
        self.files = files
        self.output = output
        self.scratch = output / SCRATCH
        self.options = options
        self._workers = workers
        self._progress = progress
        _clear_scratch(self.scratch, fingerprint)
        self.tallies: dict[str, Tally] = {}
        self.letters: list[str] = []
        self._tables()
        self.counted = self._lines()
        self.total = _total(self.counted)
        self._history()
        self._tokens()
        self.joined = self._joined()

    def _map(self, step: str, what: str, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Returns the results of the function for all items; reuses the results of an interrupted run."""
        folder = self.scratch / "done" / step
        folder.mkdir(parents=True, exist_ok=True)
        return self._workers.map(
            _Once(function, folder),
            list(enumerate(items)),
            seconds=_SHARES.get(step, _SHARE) * self._size(self.files.training) / _BYTES_PER_SECOND,
            progress=lambda done: self._progress(f"{what}: {done:,} of {len(items):,} parts"),
        )

    def _parts(self, table: Table, first: int = 0) -> list[TablePart]:
        return ranges_of(table, self._workers, first)

    def _folder(self, *names: str) -> pathlib.Path:
        path = self.scratch.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _size(self, table: Table) -> int:
        return text_size(str(table.path))

    def _bits(self, table: Table) -> int:
        return bits_for(self._size(table), _BUCKET_BYTES)

    def _add(self, table: Table, results: Sequence[tuple[Tally, list[str]]], is_whole: bool = True) -> None:
        tally = self.tallies.setdefault(table.path.name, Tally())
        for result, letters in results:
            tally.add(result)
            self.letters += letters[: DEAD_LETTERS_KEPT - len(self.letters)]
        if is_whole:
            self.write_dead_letters()
            tally.check(table.path, self.options.max_bad_row_rate, self.output / DEAD_LETTER)

    def write_dead_letters(self) -> None:
        """Writes the dead letters of all steps so far."""
        (self.output / DEAD_LETTER).mkdir(exist_ok=True)
        write_text(self.output / DEAD_LETTER / "rejects.jsonl", "".join(self.letters))

    # The steps ------------------------------------------------------------------------------------------------------

    def _tables(self) -> None:
        tables = [self.files.user, *self.files.tokens.values()]
        parts = [part for table in tables for part in self._parts(table)]
        for name in ("user", *TOKEN_TABLES):
            make_folders(self.scratch / name)
        results = self._map("tables", "Tables read", ReadTable(self.scratch), parts)
        for part, result in zip(parts, results, strict=True):
            self._add(part.table, [result], is_whole=False)
        users = self.files.user
        merge = MergeUsers(self.scratch / "user", str(users.path), self._bits(users))
        self._add(users, self._map("users", "Users sorted", merge, range(1 << self._bits(users))))

    def _lines(self) -> list[Counted]:
        options, training, public = self.options, self.files.training, self.files.public_test
        parts = [part for part in self._parts(training) if part.range.line <= (options.most_lines or 1 << 62)]
        users = self.scratch / "user", self._bits(self.files.user)
        shares = options.seed, options.test, options.validation, options.folds
        read = ReadLines(self._folder("lines"), users, *shares, options.most_lines)
        results = self._map("lines", "Lines read", read, parts)
        self._add(training, [(counted.tally, counted.letters) for counted in results])
        self._training_parts = len(parts)
        if public:
            more = self._map("public", "Public test lines read", read, self._parts(public, len(parts)))
            self._add(public, [(counted.tally, counted.letters) for counted in more])
            results += more
        return results

    def _history(self) -> None:
        folder = self._folder("history")
        for name in TABLES:
            parts_of(folder, name).mkdir(parents=True, exist_ok=True)
        count = CountLines(self.scratch / "lines", folder)
        self._map("count", "Lines counted", count, range(self._training_parts))
        bits = self._bits(self.files.training)
        items = list(itertools.product(TABLES, range(1 << bits)))
        self._map("merge-count", "Counts added up", MergeCounts(folder, bits), items)

    def _tokens(self) -> None:
        buckets = []
        for name, table in self.files.tokens.items():
            bits, history = self._bits(table), (self.scratch / "history" / name, self._bits(self.files.training))
            location = self.scratch / name, str(table.path)
            buckets += [Bucket(*location, number, bits, history) for number in range(1 << bits)]
        merged = self._map("tokens", "Token lists sorted", merge_tokens, buckets)
        documents: Counter[pathlib.Path] = Counter()
        for bucket, result in zip(buckets, merged, strict=True):
            documents[bucket.folder] += result.documents
            table = self.files.tokens[bucket.folder.name]
            self._add(table, [(result.tally, result.letters)], is_whole=bucket.number + 1 == 1 << bucket.bits)
        for folder in documents:
            merge_token_counts(folder)
        items = [(bucket, documents[bucket.folder]) for bucket in buckets]
        self._map("weights", "Token lists weighed", weigh_tokens, items)

    def _joined(self) -> list[Joined]:
        options, bits = self.options, self._bits(self.files.training)
        tokens = {name: (self.scratch / name, self._bits(self.files.tokens[name])) for name in TOKEN_TABLES}
        folders = self.scratch / "lines", (self.scratch / "history", bits), tokens, self._folder("joined")
        log = Join(*folders, self.total, options.prior_impressions, "part")
        joined = self._map(_LAST_STEPS[0], "Lines joined", log, range(self._training_parts))
        if self.files.public_test:
            public = dataclasses.replace(log, stem="public")
            numbers_of = range(self._training_parts, len(self.counted))
            joined += self._map(_LAST_STEPS[1], "Public test lines joined", public, numbers_of)
        return joined


@dataclasses.dataclass(frozen=True)
class _Once:
    """Calls the function for an item, unless an interrupted run has stored its result."""

    function: Callable[[Any], Any]
    folder: pathlib.Path

    def __call__(self, numbered: tuple[int, Any]) -> Any:
        number, item = numbered
        done = self.folder / f"{number:06d}.json"
        if done.exists():
            return result_from_json(done.read_text())
        result = self.function(item)
        write_text(done, result_to_json(result))
        return result


def _clear_scratch(scratch: pathlib.Path, fingerprint: dict[str, Any]) -> None:
    """Clears the scratch folder, unless it is from a run with the same files and options."""
    if (scratch / _PUBLISHING).exists():  # some log files may already have been moved
        for step in _LAST_STEPS:
            shutil.rmtree(scratch / "done" / step, ignore_errors=True)
        (scratch / _PUBLISHING).unlink()
    fingerprint_file = scratch / "input.json"
    if not fingerprint_file.is_file() or json.loads(fingerprint_file.read_text()) != fingerprint:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        write_json(fingerprint_file, fingerprint)


def _total(counted: Sequence[Counted]) -> Total:
    """Returns the total counts of the training part.

    Raises:
        InputError: a part has no lines.
    """
    lines = np.sum([result.lines for result in counted], axis=0)
    empty = [name.split("_")[1] for name, count in zip(PARTS, lines, strict=False) if not count]
    if empty:
        raise InputError(
            f"the {' and the '.join(empty)} part of the log would be empty ({lines[:PUBLIC].sum():,} good lines); "
            "give more lines, or larger shares (--test, --validation)"
        )
    clicks = int(sum(result.clicks[TRAIN] for result in counted))
    impressions = int(sum(result.impressions[TRAIN] for result in counted))
    by_fold = [np.sum([getattr(result, name) for result in counted], 0) for name in ("fold_clicks", "fold_impressions")]
    fold_clicks, fold_impressions = (tuple(values.tolist()) for values in by_fold)
    return Total(clicks, impressions, fold_clicks, fold_impressions)


def _publish(steps: _Steps) -> Prepared:
    """Moves the log files to the output folder, checks the counts and returns the result."""
    output = steps.output
    (output / SUMMARY).unlink(missing_ok=True)
    (steps.scratch / _PUBLISHING).touch()
    shutil.rmtree(output / LOG, ignore_errors=True)
    move_parts([path for joined in steps.joined for path in joined.files], output / LOG)
    names = [*PARTS, PUBLIC_TEST][: None if steps.files.public_test else PUBLIC]
    by_part = {
        field: dict(zip(names, np.sum([getattr(result, field) for result in steps.counted], 0).tolist(), strict=False))
        for field in ("lines", "clicks", "impressions")
    }
    rows = sum(joined.rows for joined in steps.joined)
    training = steps.tallies[steps.files.training.path.name]
    if rows != sum(by_part["impressions"].values()):
        raise RuntimeError(f"{rows} rows of {by_part['impressions']} impressions")
    if sum(by_part["lines"][name] for name in PARTS) + training.rejected != training.lines:
        raise RuntimeError(f"{by_part['lines']} and {training.rejected} malformed ones of {training.lines} lines")
    return Prepared(
        training.lines,
        {name: tally.rejected for name, tally in steps.tallies.items()},
        dict(sum((tally.reasons for tally in steps.tallies.values()), Counter[str]())),
        rows,
        by_part["lines"],
        by_part["clicks"],
        by_part["impressions"],
        {name: sum(joined.without_partner[name] for joined in steps.joined) for name in (*TOKEN_TABLES, "user")},
        str(output / LOG / "part-*.parquet"),
        str(output / LOG / "public-*.parquet") if steps.files.public_test else None,
    )
