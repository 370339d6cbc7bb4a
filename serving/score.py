"""Batch scoring of a raw log, as a Beam job: the same rows out as in."""

import dataclasses
import json
import logging
import os
import pathlib
import shutil
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from serving.layout import find_version, read_log_spec
from transforms.errors import InputError, causes
from transforms.raw import raw_arrays
from transforms.readers import LogBatch, LogReader, find_files
from transforms.spec import LogSpec

log = logging.getLogger(__name__)
CHUNK_ROWS = 4096
# Readers of a folder of Parquet files pass over names that begin with an underscore.
DEAD_LETTER = "_dead_letter"
UNFINISHED = "_unfinished"
SCHEMA = pa.schema([("file", pa.string()), ("row", pa.int64()), ("ctr", pa.float32()), ("model_version", pa.string())])
_NAMESPACE = "score"


@dataclasses.dataclass(frozen=True)
class ScoreResult:
    """Counts of one job: rows = scored + rejected, as many as the files written hold."""

    rows: int
    scored: int
    rejected: int
    model_version: str
    output: pathlib.Path


@dataclasses.dataclass(frozen=True)
class _File:
    path: str
    shard: int
    shards: int


class _ScoreFile(beam.DoFn):
    """Scores one file into one shard. The file is the unit of work: lines are numbered from its beginning."""

    def __init__(self, version: str, spec: str, output: str):
        self._version = version
        self._spec_json = spec
        self._output = output
        self._scored = Metrics.counter(_NAMESPACE, "scored")
        self._rejected = Metrics.counter(_NAMESPACE, "rejected")

    def setup(self) -> None:
        from serving.loader import Servable

        try:
            self._servable = Servable(pathlib.Path(self._version))
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"{self._version}: the model cannot be loaded: {reason}") from error
        self._spec = LogSpec.model_validate_json(self._spec_json)
        self._task = next(iter(self._spec.data.labels))

    def teardown(self) -> None:
        self._servable.close()

    def process(self, file: _File) -> Iterator[int]:
        name = f"part-{file.shard:05d}-of-{file.shards:05d}"
        part = pathlib.Path(self._output) / UNFINISHED / f"{name}.parquet"
        letters = part.with_suffix(".jsonl")
        fresh = [path.with_name(f".{path.name}.{os.getpid()}") for path in (part, letters)]  # Beam may try twice
        written = 0
        with pa.parquet.ParquetWriter(fresh[0], SCHEMA) as writer, open(fresh[1], "w") as rejects:
            for batch in LogReader(self._spec, labels=False).read(file.path):
                table = self._score(batch)
                writer.write_table(table)
                written += table.num_rows
                self._scored.inc(len(batch.lines))
                self._rejected.inc(len(batch.rejects))
                for reject in batch.rejects:
                    letter = {"file": file.path, "row": reject.line, "reason": reject.reason, "text": reject.text}
                    rejects.write(json.dumps(letter) + "\n")
                log.info("%s: %s rows scored", file.path, f"{written:,}")
        os.replace(fresh[1], letters)
        os.replace(fresh[0], part)
        yield written

    def _score(self, batch: LogBatch) -> pa.Table:
        arrays = raw_arrays(batch.rows, self._spec)
        parts = [np.empty(0, np.float32)]
        for start in range(0, len(batch.lines), CHUNK_ROWS):
            chunk = {name: value[start : start + CHUNK_ROWS] for name, value in arrays.items()}
            parts.append(self._servable.run("serving_raw", chunk)[self._task])
        lines = np.concatenate([batch.lines, np.array([reject.line for reject in batch.rejects], np.int64)])
        scores = np.concatenate([*parts, np.full(len(batch.rejects), np.nan, np.float32)])
        scored = np.arange(len(lines)) < len(batch.lines)
        order = np.argsort(lines, kind="stable")
        columns = [
            pa.array([batch.path] * len(lines), pa.string()),
            pa.array(lines[order], pa.int64()),
            pa.array(scores[order], pa.float32(), mask=~scored[order]),
            pa.array([pathlib.Path(self._version).name] * len(lines), pa.string()),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


def score(
    model: pathlib.Path,
    inputs: list[str],
    output: pathlib.Path,
    beam_args: list[str] | None = None,
) -> ScoreResult:
    """Scores every line of a raw log, labelled or not. The result appears when all of it is written.

    Args:
        model: The folder of a model's versions (the newest is used), or one version.
        inputs: Files and globs.
        output: Folder for part-*.parquet (file, row, ctr, model_version; one row per line in line order, ctr null for
            a malformed one) and _dead_letter/part-*.jsonl.
        beam_args: Arguments for Beam.

    Raises:
        InputError: the model, the input or the output folder cannot be used.
    """
    version = find_version(model)
    spec = read_log_spec(version).model_dump_json()
    files = find_files(inputs)
    _prepare(output)
    try:
        counts = _run(version, spec, files, output, beam_args or [])
        rows = _finish(output, len(files), counts["scored"] + counts["rejected"])
    except BaseException:
        _discard(output)
        raise
    return ScoreResult(rows, counts["scored"], counts["rejected"], version.name, output)


def _run(
    version: pathlib.Path, spec: str, files: list[str], output: pathlib.Path, beam_args: list[str]
) -> dict[str, int]:
    """Scores into the folder of unfinished work; how many lines were `scored` and `rejected`."""
    pipeline = beam.Pipeline(
        options=PipelineOptions(["--direct_running_mode=in_memory", "--direct_num_workers=1", *beam_args])
    )
    work = [_File(path, index, len(files)) for index, path in enumerate(files)]
    do = _ScoreFile(str(version.resolve()), spec, str(output.resolve()))
    # Reshuffle: files are shared out over the runner's workers.
    _ = pipeline | beam.Create(work) | beam.Reshuffle() | beam.ParDo(do)
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:
        if mistake := _mistake(error):
            raise mistake from error
        raise
    counters = result.metrics().query(MetricsFilter().with_namespace(_NAMESPACE))["counters"]
    found = {counter.key.metric.name: counter.committed for counter in counters}
    return {name: found.get(name, 0) for name in ("scored", "rejected")}


def _prepare(output: pathlib.Path) -> None:
    try:
        if (output / UNFINISHED).is_dir():  # a scoring was killed here
            _discard(output)
        if any(output.glob("part-*.parquet")):
            raise InputError(f"{output}: holds the result of another scoring; choose another --output or remove it")
        (output / UNFINISHED).mkdir(parents=True)
        (output / DEAD_LETTER).mkdir(exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{output}: a file is in the way of the output folder; choose another --output") from error
    except OSError as error:
        raise InputError(f"{output}: cannot make the output folder ({error.strerror})") from error


def _discard(output: pathlib.Path) -> None:
    """Removes what a scoring that did not end has written; it may have been moving its parts to their place."""
    for part in [*output.glob("part-*.parquet"), *(output / DEAD_LETTER).glob("part-*.jsonl")]:
        part.unlink()
    shutil.rmtree(output / UNFINISHED)


def _finish(output: pathlib.Path, files: int, rows: int) -> int:
    """Moves the parts to their place when they hold what was counted; returns their rows."""
    parts = sorted((output / UNFINISHED).glob("part-*.parquet"))
    written = sum(pa.parquet.read_metadata(part).num_rows for part in parts)
    if len(parts) != files or written != rows:
        raise RuntimeError(f"{rows} rows of {files} files read, but {written} written in {len(parts)} files")
    for part in parts:
        letters = part.with_suffix(".jsonl")
        letters.replace(output / DEAD_LETTER / letters.name)
        part.replace(output / part.name)
    (output / UNFINISHED).rmdir()
    return written


def _mistake(error: Exception) -> InputError | None:
    """The user's mistake that stopped the job; Beam adds to its text: `message [while running ...]`."""
    for cause in causes(error):
        text = str(cause).split(" [while running")[0]
        if isinstance(cause, InputError):
            return InputError(text)
        if isinstance(cause, OSError):
            return InputError(f"The result cannot be written: {text}")
    return None
