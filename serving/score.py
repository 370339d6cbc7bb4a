"""Batch scoring of a raw log, as a Beam job: the same rows out as in."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from serving.layout import newest_version
from transforms.errors import InputError
from transforms.readers import LogBatch, LogReader, find_files
from transforms.spec import LogSpec

CHUNK_ROWS = 4096
# Readers of a folder of Parquet files pass over names that begin with an underscore.
DEAD_LETTER = "_dead_letter"
SCHEMA = pa.schema([("file", pa.string()), ("row", pa.int64()), ("ctr", pa.float32()), ("model_version", pa.string())])
_NAMESPACE = "score"


@dataclasses.dataclass(frozen=True)
class ScoreResult:
    """Counts of one job: rows = scored + rejected, and as many were written."""

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
        self._written = Metrics.counter(_NAMESPACE, "written")

    def setup(self) -> None:
        from serving.loader import Servable

        self._servable = Servable(pathlib.Path(self._version))
        self._spec = LogSpec.model_validate_json(self._spec_json)
        self._task = next(iter(self._spec.data.labels))

    def teardown(self) -> None:
        self._servable.close()

    def process(self, file: _File) -> Iterator[int]:
        name = f"part-{file.shard:05d}-of-{file.shards:05d}"
        output = pathlib.Path(self._output)
        fresh = output / f".{name}.parquet.{os.getpid()}"
        letters = output / DEAD_LETTER / f"{name}.jsonl"
        written = 0
        try:
            with pa.parquet.ParquetWriter(fresh, SCHEMA) as writer, open(f"{letters}.new", "w") as rejects:
                for batch in LogReader(self._spec, labels=False).read(file.path):
                    table = self._score(batch)
                    writer.write_table(table)
                    written += table.num_rows
                    self._scored.inc(len(batch.lines))
                    self._rejected.inc(len(batch.rejects))
                    for reject in batch.rejects:
                        letter = {"file": file.path, "row": reject.line, "reason": reject.reason, "text": reject.text}
                        rejects.write(json.dumps(letter) + "\n")
            os.replace(f"{letters}.new", letters)
            os.replace(fresh, output / f"{name}.parquet")
        finally:
            fresh.unlink(missing_ok=True)
            pathlib.Path(f"{letters}.new").unlink(missing_ok=True)
        self._written.inc(written)
        yield written

    def _score(self, batch: LogBatch) -> pa.Table:
        from serving.export import raw_arrays

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
    progress: Callable[[int], None] | None = None,
) -> ScoreResult:
    """Scores every line of a raw log, labelled or not.

    Args:
        model: The folder of a model's versions (the newest is used), or one version.
        inputs: Files and globs.
        output: Folder for part-*.parquet (file, row, ctr, model_version; one row per line in line order, ctr null for
            a malformed one) and _dead_letter/part-*.jsonl.
        beam_args: Arguments for Beam.
        progress: Called with the number of rows at the end.

    Raises:
        InputError: the model, the input or the output folder cannot be used.
    """
    version = _find_version(model)
    spec = (version / "assets.extra" / "log_spec.json").read_text()
    files = find_files(inputs)
    _prepare(output)
    pipeline = beam.Pipeline(
        options=PipelineOptions(["--direct_running_mode=in_memory", "--direct_num_workers=1", *(beam_args or [])])
    )
    work = [_File(path, index, len(files)) for index, path in enumerate(files)]
    do = _ScoreFile(str(version.resolve()), spec, str(output.resolve()))
    # Reshuffle: files are shared out over the runner's workers.
    _ = pipeline | beam.Create(work) | beam.Reshuffle() | beam.ParDo(do)
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:
        raise _unwrapped(error) from error
    counters = result.metrics().query(MetricsFilter().with_namespace(_NAMESPACE))["counters"]
    counts = {counter.key.metric.name: counter.committed for counter in counters}
    scored, rejected, written = (counts.get(name, 0) for name in ("scored", "rejected", "written"))
    if scored + rejected != written:
        raise RuntimeError(f"{scored} scored and {rejected} malformed rows, but {written} written")
    if progress:
        progress(written)
    return ScoreResult(written, scored, rejected, version.name, output)


def _find_version(model: pathlib.Path) -> pathlib.Path:
    version = model if (model / "saved_model.pb").exists() else newest_version(model)
    if version is None:
        raise InputError(f"{model}: no model version here; give DIR/models/<name> of a finished run")
    if not (version / "assets.extra" / "log_spec.json").exists():
        raise InputError(f"{version}: assets.extra/log_spec.json is absent; only models exported by ctrpipe can score")
    return version


def _prepare(output: pathlib.Path) -> None:
    try:
        (output / DEAD_LETTER).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{output}: a file is in the way of the output folder; choose another --output") from error
    if any(output.glob("part-*.parquet")):
        raise InputError(f"{output}: holds the result of another scoring; choose another --output or remove it")


def _unwrapped(error: BaseException) -> BaseException:
    """Beam wraps what a DoFn raises, and keeps its text: `InputError: message [while running ...]`."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, InputError):
            return InputError(str(seen).split(" [while running")[0])
        seen = seen.__cause__ or seen.__context__
    return error
