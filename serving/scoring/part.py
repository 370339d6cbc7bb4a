"""Scores one part of a raw log. Each of its files appears by an atomic rename."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import temporary_folder
from ctrpipe.serving.rows import Scorer
from ctrpipe.serving.scoring.folder import SAMPLE, ScoredPart, score_columns
from ctrpipe.transforms.log.batches import LogBatch
from ctrpipe.transforms.log.column_types import Mixture
from ctrpipe.transforms.log.payload import PayloadWriter, payload_schema
from ctrpipe.transforms.log.readers import LogReader

BLOCK_BYTES = 1 << 26  # of a block of rows that are packed together: about 160,000 rows of Criteo
BINS = 1000  # of equal width, in the histogram of the scores


@dataclasses.dataclass
class ScoreCounts:
    """Counts of the lines and histograms of the scores, for a part or for the whole log.

    Attributes:
        scored: The number of lines with scores.
        rejected: The number of malformed lines.
        tasks: By task, the `sum` of the finite scores, the number of `not_finite` scores, the `first_not_finite` as
            `file:line` or None, and a `histogram` of BINS bins of equal width from 0 to 1; None of a task that predicts
            a number.
        mixture: What some rows of JSON have and others must not have.
    """

    scored: int
    rejected: int
    tasks: dict[str, dict[str, Any]]
    mixture: Mixture = dataclasses.field(default_factory=Mixture)

    @property
    def rows(self) -> int:
        return self.scored + self.rejected

    @classmethod
    def none(cls, tasks: list[str], numbers: Collection[str]) -> "ScoreCounts":
        empty = {"sum": 0.0, "not_finite": 0, "first_not_finite": None}
        return cls(0, 0, {task: {**empty, "histogram": None if task in numbers else [0] * BINS} for task in tasks})

    def add(self, other: "ScoreCounts") -> None:
        self.scored += other.scored
        self.rejected += other.rejected
        self.mixture.add(other.mixture)
        for task, total in self.tasks.items():
            more = other.tasks[task]
            total["sum"] += more["sum"]
            total["not_finite"] += more["not_finite"]
            total["first_not_finite"] = total["first_not_finite"] or more.get("first_not_finite")
            if total["histogram"] is not None:
                total["histogram"] = [a + b for a, b in zip(total["histogram"], more["histogram"], strict=True)]


def _count(
    scores: dict[str, np.ndarray], batches: list[LogBatch], rejected: int, numbers: Collection[str]
) -> ScoreCounts:
    tasks = {}
    for task, values in scores.items():
        is_finite = np.isfinite(values)
        finite = values[is_finite]
        histogram = None if task in numbers else np.histogram(finite, BINS, (0.0, 1.0))[0].tolist()
        tasks[task] = {
            "sum": float(finite.sum(dtype=np.float64)),
            "not_finite": len(values) - len(finite),
            "first_not_finite": None if is_finite.all() else _place(batches, int(np.argmin(is_finite))),
            "histogram": histogram,
        }
    return ScoreCounts(len(next(iter(scores.values()))), rejected, tasks)


def _place(batches: list[LogBatch], row: int) -> str:
    """Returns the file and line of a row of some batches, as `file:line`."""
    return f"{batches[0].path}:{np.concatenate([batch.lines for batch in batches])[row]}"


def score_part(
    scorer: Scorer,
    part: ScoredPart,
    folder: pathlib.Path,
    sample_rate: float = 0.0,
    progress: Callable[[str], None] = lambda text: None,
    check: Callable[[], None] = lambda: None,
    kept: Sequence[str] = (),
) -> None:
    """Scores a part and writes its files.

    The files, in the order of writing, are: `sample/<name>-00000.parquet`, a payload of sampled rows; `<name>.jsonl`,
    the malformed lines, if any; `<name>.json`, the ScoreCounts; `<name>.parquet`, the scores.

    Args:
        scorer: The model.
        part: The part to score.
        folder: The folder of unfinished work.
        sample_rate: The share of the good rows to sample.
        progress: Called with a line of text after each block.
        check: Called before each block and batch; an exception from it ends the work.
        kept: Columns of the log to copy to the scores as text.

    Raises:
        InputError: the log cannot be read, or the result cannot be written.
    """
    try:
        with temporary_folder(folder / f".{part.name}") as fresh:
            _write(scorer, part, fresh, sample_rate, progress, check, kept)
            for sample in fresh.glob("sample-*.parquet"):
                sample.replace(folder / SAMPLE / sample.name.replace("sample", part.name))
            for suffix in ("jsonl", "json", "parquet"):
                if (made := fresh / f"part.{suffix}").exists():
                    made.replace(folder / f"{part.name}.{suffix}")
    except OSError as error:
        raise InputError(
            f"{folder}: the result cannot be written ({error.strerror or error}); free some space, or choose another "
            "--output"
        ) from error


def _write(
    scorer: Scorer,
    part: ScoredPart,
    fresh: pathlib.Path,
    sample_rate: float,
    progress: Callable[[str], None],
    check: Callable[[], None],
    kept: Sequence[str],
) -> None:
    schema = _schema(scorer.tasks, kept)
    random = np.random.default_rng(part.number)
    numbers = scorer.spec.data.number_tasks
    counts = ScoreCounts.none(scorer.tasks, numbers)
    features = payload_schema(scorer.spec)
    features = pa.schema([features.field(name) for name in scorer.spec.feature_columns])
    reader = LogReader(scorer.spec, labels=False, kept=kept, own=scorer.own)
    with (
        # Without Arrow's schema, readers see plain strings instead of dictionaries.
        pa.parquet.ParquetWriter(fresh / "part.parquet", schema, store_schema=False) as writer,
        PayloadWriter(fresh, "sample", features) as sample,
    ):
        for batches in _read_ahead(_blocks(reader.read_range(part.range))):
            check()
            rows = pa.Table.from_batches([batch.rows for batch in batches])
            scores = scorer(rows, check)
            writer.write_table(_table(batches, scores, schema, scorer))
            rejects = [reject for batch in batches for reject in batch.rejects]
            if rejects:
                with open(fresh / "part.jsonl", "a") as letters:
                    for reject in rejects:
                        letter = {"file": part.range.path, "line": reject.line}
                        letters.write(json.dumps(letter | {"reason": reject.reason, "text": reject.text}) + "\n")
            if sample_rate:
                _draw(rows, sample_rate, random, sample)
            counts.add(_count(scores, batches, len(rejects), numbers))
            progress(f"{part.range.path}: {part.range.line - 1 + counts.rows:,} lines scored")
    counts.mixture.add(reader.mixture())
    (fresh / "part.json").write_text(json.dumps(dataclasses.asdict(counts)))


def _blocks(batches: Iterator[LogBatch]) -> Iterator[list[LogBatch]]:
    block: list[LogBatch] = []
    size = 0
    for batch in batches:
        block.append(batch)
        size += batch.rows.nbytes
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _read_ahead(blocks: Iterator[list[LogBatch]]) -> Generator[list[LogBatch], None, None]:
    """Yields the blocks, while a thread reads the next one."""
    with ThreadPoolExecutor(1, "score-reader") as thread:
        waiting = thread.submit(next, blocks, None)
        while (block := waiting.result()) is not None:
            waiting = thread.submit(next, blocks, None)
            yield block


def _schema(tasks: list[str], kept: Sequence[str]) -> pa.Schema:
    text = pa.dictionary(pa.int32(), pa.string())
    scores = [(column, pa.float32()) for column in score_columns(tasks).values()]
    along = [(name, pa.string()) for name in kept]
    return pa.schema([("file", text), ("line", pa.int64()), *along, *scores, ("model_version", text)])


def _table(batches: list[LogBatch], scores: dict[str, np.ndarray], schema: pa.Schema, scorer: Scorer) -> pa.Table:
    """Returns one row per line, in line order. Malformed lines and scores that are not finite are null."""
    lines = np.concatenate([batch.lines for batch in batches])
    rejected = np.array([reject.line for batch in batches for reject in batch.rejects], np.int64)
    order = np.argsort(np.concatenate([lines, rejected]), kind="stable")
    rows = np.concatenate([lines, rejected])[order]
    columns: dict[str, Any] = {"file": _repeated(batches[0].path, len(rows)), "line": pa.array(rows)}
    along = [batch.kept for batch in batches if batch.kept is not None]
    if along:
        places = pa.array(order, mask=order >= len(lines))  # a malformed line has no values to carry along
        columns |= dict(zip(along[0].schema.names, pa.Table.from_batches(along).take(places).columns, strict=True))
    for task, column in score_columns(scorer.tasks).items():
        values = np.concatenate([scores[task], np.zeros(len(rejected), np.float32)])[order]
        columns[column] = pa.array(values, mask=(order >= len(lines)) | ~np.isfinite(values))
    columns["model_version"] = _repeated(scorer.version.name, len(rows))
    return pa.table(columns, schema)


def _repeated(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _draw(rows: pa.Table, rate: float, random: np.random.Generator, sample: PayloadWriter) -> None:
    drawn = rows.filter(pa.array(random.random(rows.num_rows) < rate)).combine_chunks()
    for batch in drawn.to_batches():
        sample.write(batch)
