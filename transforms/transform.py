"""The payload's parts -> a TensorFlow Transform graph, and packed files that it makes of them."""

import dataclasses
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms import analyzers
from transforms.missing import drop_values
from transforms.packed import PackedWriter
from transforms.parallel import Workers
from transforms.payload import payload_files, payload_rows, read_payload
from transforms.raw import raw_arrays
from transforms.schema import raw_schema
from transforms.spec import LogSpec

SUMMARY = "summary"
# What a row takes in one process, measured on Criteo's 39 columns: to count its values, to transform it.
COUNT_SECONDS, TRANSFORM_SECONDS = 1e-6, 4e-6
# At most so many summaries, of 10 MB each for a log like Criteo's, are held to be merged.
SUMMARIES = 64
# What a new process takes to load TensorFlow.
TENSORFLOW_SECONDS = 6.0
# Rows that go through the graph at once.
BATCH_ROWS = 1 << 14


def analyze(
    spec: LogSpec,
    files: Sequence[pathlib.Path],
    folder: pathlib.Path,
    workers: Workers,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Counts and measures the training rows, and writes the transform graph that follows from them.

    Args:
        spec: The description of the log.
        files: The payload's training parts.
        folder: Where `transform_fn/`, `transformed_metadata/` (as TFT writes them) and the summary go.
        workers: Who counts.
        progress: Told which columns have more different values than are counted exactly.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(files) // SUMMARIES)
    groups = [files[start : start + size] for start in range(0, len(files), size)]
    count = _Summarize(spec.model_dump_json())
    summary = analyzers.merge(workers.map(count, groups, payload_rows(files) * COUNT_SECONDS))
    for column, bound in summary.bounds().items():
        if bound:
            most = spec.data.max_distinct_values
            progress(f"{column}: above {most:,} different values; counts are up to {bound:,} too low")
    summary.save(folder / SUMMARY)
    _write_graph(spec, folder)


@dataclasses.dataclass(frozen=True)
class _Summarize:
    spec: str

    def __call__(self, files: Sequence[pathlib.Path]) -> analyzers.LogSummary:
        return analyzers.summarize(files, LogSpec.model_validate_json(self.spec))


def _write_graph(spec: LogSpec, folder: pathlib.Path) -> None:
    """TFT traces the preprocessing function; its analyzers read the summary, so that no row passes here."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from transforms.preprocessing import preprocessing_fn

    settings = {"spec": spec.model_dump_json(), "summary": str(folder / SUMMARY)}
    preprocess = functools.partial(preprocessing_fn, custom_config=settings)
    # In this process whatever runner counts: there is nothing to compute but the graph.
    options = PipelineOptions(["--direct_running_mode=in_memory"])
    for part in ("transform_fn", "transformed_metadata"):
        shutil.rmtree(folder / part, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch, tft_beam.Context(temp_dir=scratch):
        with beam.Pipeline(options=options) as pipeline:
            rows = _one_row(spec)
            dataset = (pipeline | beam.Create([rows]), _adapter_config(spec, rows.schema))
            graph = dataset | tft_beam.AnalyzeDataset(preprocess)
            _ = graph | tft_beam.WriteTransformFn(str(folder))


def _one_row(spec: LogSpec) -> pa.RecordBatch:
    """TFT wants data; here one row in which every value is missing."""
    columns = {name: pa.array([None], pa.large_list(pa.float32())) for name in spec.numeric_columns}
    columns |= {name: pa.array([None], pa.large_list(pa.binary())) for name in spec.text_columns}
    columns |= {name: pa.array([[0.0]], pa.large_list(pa.float32())) for name in spec.label_columns}
    return pa.RecordBatch.from_pydict(columns)


def _adapter_config(spec: LogSpec, schema: pa.Schema) -> Any:
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    return TensorAdapterConfig(schema, dict(raw_schema(spec).tensor_representation_group[""].tensor_representation))


@functools.cache
def load_graph(folder: pathlib.Path) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """The graph as a function of what `raw_arrays` gives, labels included; it gives `ids` int32, `dense` and `label`.

    Loaded once in a process.
    """
    import tensorflow as tf
    import tensorflow_transform as tft

    layer = tft.TFTransformOutput(str(folder)).transform_features_layer()

    @tf.function(reduce_retracing=True)
    def transform(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        packed = layer(columns)
        if "ids" in packed:
            packed["ids"] = tf.cast(packed["ids"], tf.int32)
        return packed

    def call(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        packed = transform({name: tf.constant(values) for name, values in columns.items()})
        return {name: packed[name].numpy() for name in ("ids", "dense", "label") if name in packed}

    return call


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of the payload, where its packed rows go, and the seed of their order (None: that of the log)."""

    source: pathlib.Path
    target: pathlib.Path
    seed: tuple[int, int] | None


def transform(
    spec: LogSpec,
    graph: pathlib.Path,
    splits: dict[str, tuple[pathlib.Path, pathlib.Path]],
    seed: int,
    workers: Workers,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, int]:
    """Packs the payload, part by part.

    Args:
        spec: The description of the log.
        graph: The folder that `analyze` wrote.
        splits: By name, the folder of the payload and the folder of the packed files. The rows of `train` are shuffled
            within their part, and lose values as `missing_rate` says; the others keep the order of the log.
        seed: Of what is drawn for `train`.
        workers: Who transforms.
        progress: Told how far it is.

    Returns:
        Rows by split.
    """
    parts: list[_Part] = []
    rows: dict[str, int] = {}
    for name, (source, target) in splits.items():
        target.mkdir(parents=True, exist_ok=True)
        files = payload_files(source)
        rows[name] = payload_rows(files)
        for index, file in enumerate(files):
            part = target / f"packed-{index:05d}-of-{len(files):05d}.parquet"
            parts.append(_Part(file, part, (seed, index) if name == "train" else None))
    done = workers.map(
        _TransformPart(spec.model_dump_json(), graph),
        parts,
        sum(rows.values()) * TRANSFORM_SECONDS,
        TENSORFLOW_SECONDS,
        lambda count: progress(f"{count} of {len(parts)} parts transformed"),
    )
    if sum(done) != sum(rows.values()):
        raise RuntimeError(f"{sum(rows.values())} rows in the payload, but {sum(done)} packed")
    return rows


@dataclasses.dataclass(frozen=True)
class _TransformPart:
    spec: str
    graph: pathlib.Path

    def __call__(self, part: _Part) -> int:
        spec = LogSpec.model_validate_json(self.spec)
        run = load_graph(self.graph)
        random = None if part.seed is None else np.random.default_rng(part.seed)
        batches = []
        for rows in read_payload([part.source], as_dictionaries=True):
            if random is not None:
                rows = drop_values(rows, spec, random)
            columns = raw_arrays(rows, spec, labels=True)
            for start in range(0, rows.num_rows, BATCH_ROWS):
                batches.append(run({name: values[start : start + BATCH_ROWS] for name, values in columns.items()}))
        packed = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        if random is not None:
            order = random.permutation(len(packed["label"]))
            packed = {name: values[order] for name, values in packed.items()}
        with PackedWriter(part.target) as writer:
            writer.write(packed)
        return len(packed["label"])
