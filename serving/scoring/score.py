"""Scores every line of a raw log in parts. An interrupted scoring can be resumed."""

import dataclasses
import functools
import json
import logging
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.processes import Workers, cores
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.layout import find_version
from ctrpipe.serving.rows import Scorer
from ctrpipe.serving.scoring.folder import DATA, ScoredPart, ScoringFolder, ScoringPlan, check_kept, score_columns
from ctrpipe.serving.scoring.part import BINS, ScoreCounts, score_part
from ctrpipe.transforms.log.column_types import Mixture
from ctrpipe.transforms.log.files import check_still, find_files
from ctrpipe.transforms.log.held_objects import held_objects
from ctrpipe.transforms.log.lines import CHUNK_BYTES
from ctrpipe.transforms.log.queries import written
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec

log = logging.getLogger(__name__)
# Takes the version's folder, the files of a sample of the log, and the numbers of good and malformed rows of the log.
Compare = Callable[[pathlib.Path, list[pathlib.Path], int, int], dict[str, Any] | None]


@dataclasses.dataclass(frozen=True)
class ScoreResult:
    """The result of a batch scoring, also written to `_summary.json`.

    Attributes:
        rows: The number of lines in the log, scored and rejected.
        scored: The number of lines with scores.
        rejected: The number of malformed lines.
        model_version: The version that scored the log.
        output: The output folder, or its URL in a store.
        parts: The number of files of scores.
        parts_before: The number of these files that an interrupted scoring had completed.
        start_seconds: Seconds until the first part started: planning, loading the model.
        seconds: Seconds to score the remaining parts.
        rows_per_s: Rows per second of the remaining parts.
        scores: By column, the `mean`, the number of `not_finite` scores, the `first_not_finite` as `file:line` or None,
            and a `histogram` of bins of equal width from 0 to 1.
        drift: The result of `compare`; None if it was not called.
        mixtures: A line for each column of JSON whose rows contradict each other, so that some scores are of other
            categories or of missing values.
    """

    rows: int
    scored: int
    rejected: int
    model_version: str
    output: pathlib.Path | str
    parts: int
    parts_before: int
    start_seconds: float
    seconds: float
    rows_per_s: float
    scores: dict[str, dict[str, Any]]
    drift: dict[str, Any] | None
    mixtures: list[str] = dataclasses.field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "output": str(self.output)}


def score(
    model: pathlib.Path,
    inputs: list[str],
    output: pathlib.Path,
    beam_args: Sequence[str] = (),
    workers: int | None = None,
    sample_rows: int = 0,
    compare: Compare = lambda version, files, rows, rejected: None,
    kept: Sequence[str] = (),
) -> ScoreResult:
    """Scores every line of a raw log, with or without labels.

    The output appears once it is complete.

    After an interrupt, even by kill -9, the same call resumes. It keeps completed parts, so each line is scored exactly
    once in the output. After the scoring has finished, the same call returns its result again.

    Args:
        model: The folder of a model's versions (the newest is used), or one version.
        inputs: The log's files, globs, queries and tables.
        output: The folder for part-*.parquet (file, line, ctr, further tasks, model_version; one row per line in line
            order, no score for a malformed one), _dead_letter/part-*.jsonl, _summary.json, and the rows of queries and
            tables in _data, which stays on this machine if the folder is the copy of a URL.
        beam_args: Arguments for Beam. If there are any, Beam scores the parts on the runner that they name. Its workers
            must see the same files as this process.
        workers: The number of parts scored concurrently in this process; None: one per core. The result does not
            depend on it.
        sample_rows: The approximate number of good rows to sample for `compare`; 0: `compare` is not called.
        compare: Compares the sample with another log, such as the training rows.
        kept: Columns of the log, features or not, to copy to the Parquet files as text.

    Raises:
        InputError: the model, the input or the output folder cannot be used, or the output folder contains an
            interrupted scoring of other inputs.
    """
    started = time.monotonic()
    version = find_version(model).resolve()
    spec = read_log_spec(version)
    folder = ScoringFolder(output.resolve())
    check_kept(kept, list(spec.data.labels))
    files = find_files(written(inputs, folder.output / DATA))
    options: dict[str, Any] = {"sample_rows": sample_rows, **({"kept": list(kept)} if kept else {})}
    if done := folder.finished(version, files, options):
        return _as_it_was(done, output)
    with held_objects(files), folder.opened():
        ranges = functools.partial(plan, files, spec, labels=False, kept=kept)
        planned = folder.planned(version, files, options, ranges)
        todo = [part for part in planned.parts if not folder.is_done(part)]
        rate = _sample_rate(planned, spec, sample_rows)
        if beam_args:
            first_started = _score_by_beam(planned, todo, folder, rate, beam_args, kept)
        else:
            first_started = _score_here(planned, todo, folder, rate, workers, kept)
        check_still(files)
        seconds = time.monotonic() - first_started
        by_part = [_read_counts(folder, part) for part in planned.parts]
        _check_lines(planned.parts, by_part)
        counts = ScoreCounts.none(list(spec.data.labels), spec.data.number_tasks)
        for more in by_part:
            counts.add(more)
        rows_now = sum(counts.rows for part, counts in zip(planned.parts, by_part, strict=True) if part in todo)
        result = ScoreResult(
            rows=counts.rows,
            scored=counts.scored,
            rejected=counts.rejected,
            model_version=version.name,
            output=output,
            parts=len(planned.parts),
            parts_before=len(planned.parts) - len(todo),
            start_seconds=first_started - started,
            seconds=seconds,
            rows_per_s=rows_now / seconds if todo else 0.0,
            scores={column: _scores(counts, task) for task, column in score_columns(list(counts.tasks)).items()},
            drift=compare(version, folder.samples(), counts.scored, counts.rejected) if sample_rows else None,
            mixtures=[str(error) for error in counts.mixture.found()],
        )
        folder.finish(planned, result.to_dict())
    return result


def _as_it_was(summary: dict[str, Any], output: pathlib.Path) -> ScoreResult:
    """Returns the result of an already finished scoring from its summary."""
    took = {"start_seconds": 0.0, "seconds": 0.0, "rows_per_s": 0.0}
    return ScoreResult(**summary | took | {"output": output, "parts_before": summary["parts"]})


def _scores(counts: ScoreCounts, task: str) -> dict[str, Any]:
    total = counts.tasks[task]
    finite = counts.scored - total["not_finite"]
    mean = total["sum"] / finite if finite else None
    return {"mean": mean, **{key: total[key] for key in ("not_finite", "first_not_finite", "histogram")}}


def not_finite(result: ScoreResult) -> list[str]:
    """Returns a warning for each column with scores that are not finite."""
    return [
        f"{column}: the score of {scores['not_finite']:,} of {result.scored:,} rows is not a finite number"
        + (f", the first at {first}" if (first := scores.get("first_not_finite")) else "")
        + "; it is null in the files; correct these rows, or score with a model of this release"
        for column, scores in result.scores.items()
        if scores["not_finite"]
    ]


def quantile(scores: dict[str, Any], share: float) -> float:
    """Returns a quantile of a column of ScoreResult.scores, to the precision of one bin."""
    wanted, seen = share * sum(scores["histogram"]), 0
    for index, count in enumerate(scores["histogram"]):
        seen += count
        if seen >= wanted:
            return (index + 1) / BINS
    return 1.0


def _sample_rate(planned: ScoringPlan, spec: LogSpec, sample_rows: int) -> float:
    """Returns the share of rows that gives about `sample_rows`, estimated from the log's first chunk."""
    if not sample_rows:
        return 0.0
    ranges = [part.range for part in planned.parts]
    reader = LogReader(spec, labels=False)
    stated = [reader.row_count(path) for path in {range.path for range in ranges}]
    rows = sum(count for count in stated if count is not None)
    if None in stated:
        first = next(reader.read_range(ranges[0]))
        lines = len(first.lines) + len(first.rejects)
        rows = round(lines * sum(range.size for range in ranges) / min(CHUNK_BYTES, ranges[0].size))
    return float(min(1.0, sample_rows / max(1, rows)))


class _Stopped(Exception):
    """Raised in the other threads if a part fails or the user interrupts the scoring."""


def _score_here(
    planned: ScoringPlan,
    todo: list[ScoredPart],
    folder: ScoringFolder,
    rate: float,
    workers: int | None,
    kept: Sequence[str],
) -> float:
    """Scores in threads of this process, and returns the time when the first part started.

    The threads share the model. They run in parallel, because the model, Arrow and TensorFlow's transform release
    Python's global interpreter lock.
    """
    if not todo:
        return time.monotonic()
    scorer = Scorer(pathlib.Path(planned.version))
    started = time.monotonic()
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise _Stopped

    pool = ThreadPoolExecutor(min(len(todo), workers or cores()), "score")
    try:
        work = [pool.submit(score_part, scorer, part, folder.unfinished, rate, log.info, check, kept) for part in todo]
        for done, future in enumerate(as_completed(work), 1):
            future.result()
            log.info(f"{done + len(planned.parts) - len(todo):,} of {len(planned.parts):,} parts scored")
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        scorer.close()
    return started


def _score_by_beam(
    planned: ScoringPlan,
    todo: list[ScoredPart],
    folder: ScoringFolder,
    rate: float,
    beam_args: Sequence[str],
    kept: Sequence[str],
) -> float:
    started = time.monotonic()
    if todo:
        work = _BeamWork(planned.version, folder.unfinished, rate, tuple(kept))
        Workers(beam_args=tuple(beam_args), scratch=folder.unfinished).map(work, todo, 0)
    return started


@dataclasses.dataclass(frozen=True)
class _BeamWork:
    version: str
    folder: pathlib.Path
    rate: float
    kept: tuple[str, ...]

    def __call__(self, part: ScoredPart) -> None:
        score_part(_load(self.version), part, self.folder, self.rate, kept=self.kept)


@functools.lru_cache(maxsize=1)
def _load(version: str) -> Scorer:
    """Returns the model, loaded once per worker process of Beam."""
    return Scorer(pathlib.Path(version))


def _read_counts(folder: ScoringFolder, part: ScoredPart) -> ScoreCounts:
    """Returns the counts of a completed part.

    Raises RuntimeError if its file has another number of rows.
    """
    found = json.loads((folder.unfinished / f"{part.name}.json").read_text())
    counts = ScoreCounts(**found | {"mixture": Mixture(**found.get("mixture", {}))})
    written = pa.parquet.read_metadata(folder.scores(part)).num_rows
    if written != counts.rows:
        raise RuntimeError(f"{folder.scores(part)}: {counts.rows} lines read, but {written} rows written")
    return counts


def _check_lines(parts: list[ScoredPart], by_part: list[ScoreCounts]) -> None:
    """Raises RuntimeError if two neighbouring parts of a file skip a line or share one."""
    for before, after, counts in zip(parts, parts[1:], by_part, strict=False):
        one, two = before.range, after.range
        if one.path == two.path and one.line + counts.rows != two.line:
            raise RuntimeError(f"{one.path}: {counts.rows} rows of the lines {one.line} to {two.line - 1} written")
