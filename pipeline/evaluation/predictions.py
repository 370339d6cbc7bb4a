"""Predicts a payload with exported models, as TF Serving does: C++ loader, signature `serving_raw`."""

import dataclasses
import functools
import pathlib
import types
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common.processes import Workers
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.rows import RAW, raw_batches, run_batches
from ctrpipe.transforms.log.payload import PART_ROWS, decoded, payload_rows, read_payload

# Rows per call of a model.
CHUNK_ROWS = 1 << 13
# Seconds per row in one process, measured with DeepFM on Criteo's 39 columns, and seconds before the first row of a new
# process.
PREDICT_SECONDS, LOAD_SECONDS = 1.2e-5, 8.0
# TensorFlow keeps two cores busy in this process. On two cores, two models predict 800,000 rows in .73 times the time
# of two workers and .90 times their CPU time, since each worker loads TensorFlow and the models; the evaluation of a
# million-row run takes 290 MiB less.
CORES_ALONE = 2


def prediction_column(model: str, task: str) -> str:
    return f"{model}.{task}"


def predict(
    models: Mapping[str, pathlib.Path],
    files: Sequence[pathlib.Path],
    columns: Sequence[str],
    folder: pathlib.Path,
    workers: Workers,
    progress: Callable[[str], None] = lambda text: None,
    signatures: Mapping[str, str] = types.MappingProxyType({}),
) -> list[pathlib.Path]:
    """Writes one file of predictions per payload file, with the rows in the same order.

    Args:
        models: SavedModel folders by model name (see `prediction_column`). If the payload lacks a column that a model
            reads, its values are missing in all rows.
        files: The payload files.
        columns: Columns of the payload to copy.
        folder: The output folder for `<part>.parquet`.
        workers: The processes that predict.
        progress: Called with a line about the number of files done.
        signatures: By model name, the signature to call instead of `serving_raw`. It takes the same inputs.

    Returns:
        The written files, in the order of the payload files. Each has `columns`, and a float32 column per model and
        task.

    Raises:
        InputError: a model cannot be loaded, or takes a column as text that is a number in the payload, or vice versa.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked = tuple((name, path, signatures.get(name, RAW)) for name, path in models.items())
    work = _PredictPart(asked, tuple(columns), folder)
    seconds = payload_rows(files) * PREDICT_SECONDS * len(models)
    try:
        return workers.map(
            work,
            list(files),
            seconds,
            LOAD_SECONDS,
            lambda done: progress(f"{done} of {len(files)} parts predicted"),
            cores_alone=CORES_ALONE,
        )
    finally:
        _load.cache_clear()


@dataclasses.dataclass(frozen=True)
class _PredictPart:
    models: tuple[tuple[str, pathlib.Path, str], ...]  # name, folder and signature
    columns: tuple[str, ...]
    folder: pathlib.Path

    def __call__(self, part: pathlib.Path) -> pathlib.Path:
        batches = [self._predict(rows) for rows in read_payload([part], as_dictionaries=True)]
        path = self.folder / f"{part.stem}.parquet"
        pa.parquet.write_table(pa.Table.from_batches(batches), path, row_group_size=PART_ROWS)
        return path

    def _predict(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: decoded(rows[name]) for name in self.columns}
        for name, path, signature in self.models:
            servable = _load(path)
            batches = raw_batches(servable, rows, CHUNK_ROWS)
            tasks = sorted(servable.signatures[signature].outputs)
            for task, probability in run_batches(servable, signature, batches, tasks).items():
                columns[prediction_column(name, task)] = pa.array(probability, pa.float32())
        return pa.RecordBatch.from_pydict(columns)


@functools.cache
def _load(path: pathlib.Path) -> Servable:
    """Loads a model once per process instead of once per file."""
    return Servable(path)
