"""Builds the TensorFlow Transform graph from the training rows and packs all rows with it."""

import dataclasses
import functools
import json
import pathlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json
from ctrpipe.common.libraries import load_text_operations
from ctrpipe.common.memory import return_freed_memory
from ctrpipe.common.processes import Workers, cores
from ctrpipe.common.sessions import load_session
from ctrpipe.transforms.features import analyzers
from ctrpipe.transforms.features.derived.values import with_derived
from ctrpipe.transforms.features.former_counts import COUNTS, counted_over, write_counts
from ctrpipe.transforms.features.kept_rows import drop_values, is_sampled, sample_negatives
from ctrpipe.transforms.features.pack_rows import pack_rows
from ctrpipe.transforms.features.packed_files import DTYPES, PackedWriter, Rows
from ctrpipe.transforms.features.start_vectors import START_VECTORS
from ctrpipe.transforms.log.kinds.numeric import Numeric
from ctrpipe.transforms.log.kinds.pretrained import Pretrained
from ctrpipe.transforms.log.payload import payload_files, payload_rows, read_payload
from ctrpipe.transforms.log.pretrained_table import pretrained_tables, read_table
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.schema import raw_schema
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import is_vector, vector_array
from ctrpipe.transforms.log.weighted import weights_of

if TYPE_CHECKING:
    from ctrpipe.transforms.features.learned import Former

GRAPH, METADATA = "transform_fn", "transformed_metadata"  # TFT's names
# In the same folder as NUMBERS: results of these methods of Learned.
LIMITS, AGES = "limits.json", "ages.json"
# Time to count and to transform a row in one process, measured on Criteo's 39 columns.
COUNT_SECONDS, TRANSFORM_SECONDS = 1e-6, 2.5e-6
# Maximum number of summaries to merge; each takes about 10 MB for a log like Criteo's.
SUMMARIES = 16
# Last part of the seed of negative sampling, which must differ from the seed of the rows' order.
NEGATIVES = 1
# Time for a new process to load TensorFlow.
TENSORFLOW_SECONDS = 6.0


def analyze(
    spec: LogSpec,
    files: Sequence[pathlib.Path],
    folder: pathlib.Path,
    workers: Workers,
    progress: Callable[[str], None] = lambda text: None,
    former: "Former | None" = None,
) -> None:
    """Summarises the training rows and writes the transform graph.

    Args:
        spec: The description of the log.
        files: The payload's training parts.
        folder: The output folder. TFT writes `transform_fn/` and `transformed_metadata/`; NUMBERS, LIMITS and AGES are
            written next to them, START_VECTORS if vectors are fine-tuned, and COUNTS if values are counted over several
            training runs.
        workers: Run the counting.
        progress: Called with one line for each column whose counts are not exact.
        former: The state of the previous transform to keep; None for nothing.
    """
    _try_hooks(spec)  # before the rows are counted
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(files) // SUMMARIES)
    groups = [files[start : start + size] for start in range(0, len(files), size)]
    count = _Summarize(spec.model_dump_json())
    # No name holds the summaries of the parts: of a large log they take as much memory as the rest of the step.
    summary = analyzers.merge(workers.map(count, groups, payload_rows(files) * COUNT_SECONDS), workers.most or cores())
    return_freed_memory()
    for column, bound in summary.bounds().items():
        if bound:
            most = spec.data.max_distinct_values
            progress(f"{column}: above {most:,} different values; counts are up to {bound:,} too low")
    if former is not None and former.counts is not None:
        write_counts(folder / COUNTS, summary, former.counts, former.window)
        summary = counted_over(summary, former.counts)
    for column, table in pretrained_tables(spec).items():
        progress(_without_vectors(column, table, spec, summary))
    write_graph(spec, summary, folder, former)


def _try_hooks(spec: LogSpec) -> None:
    """Tries the transforms of installed packages that the log's numbers go through."""
    hooked = [each.transform for each in spec.features if isinstance(each, Numeric) and each.is_hook]
    if hooked:
        from ctrpipe.transforms.features.kinds.numeric import hook_transform  # lazy, see write_graph

        for name in hooked:
            hook_transform(name)


def _without_vectors(column: str, table: Pretrained, spec: LogSpec, summary: analyzers.LogSummary) -> str:
    """Returns how many of a column's values and training rows have no pretrained vector."""
    keys = read_table(table, column in spec.whole_number_columns).keys
    if column not in summary.values:
        return f"{column}: {len(keys):,} pretrained vectors of {table.path}"
    counted = summary.values[column]
    absent = ~np.asarray(pc.is_in(counted.values.cast(pa.binary()), value_set=keys), bool)
    rows, of_rows = int(counted.counts[absent].sum()), max(int(counted.counts.sum()), 1)
    return (
        f"{column}: {int(absent.sum()):,} of {len(absent):,} different values, in {rows / of_rows:.1%} of the training "
        f"rows, have no vector in {table.path}"
    )


@dataclasses.dataclass(frozen=True)
class _Summarize:
    spec: str

    def __call__(self, files: Sequence[pathlib.Path]) -> analyzers.LogSummary:
        return analyzers.summarize(files, LogSpec.model_validate_json(self.spec))


def write_graph(
    spec: LogSpec, summary: analyzers.LogSummary, folder: pathlib.Path, former: "Former | None" = None
) -> None:
    """Writes the transform graph: TFT traces the preprocessing function, which has no analyzers."""
    # Lazy: TensorFlow takes 4.5 CPU seconds to import, this module 0.35 s. Processes that only count values do
    # not need TensorFlow.
    import tensorflow as tf
    from tensorflow_transform.impl_helper import analyze_in_place
    from tensorflow_transform.tf_metadata.schema_utils import schema_as_feature_spec

    from ctrpipe.transforms.features.learned import NUMBERS, Former, Learned, write_numbers
    from ctrpipe.transforms.features.preprocessing import preprocessing_fn

    features = schema_as_feature_spec(raw_schema(spec)).feature_spec
    features.pop(spec.data.weight, None)  # requests do not have it
    types = {name: tf.TensorSpec([None, *feature.shape], feature.dtype) for name, feature in features.items()}
    for part in (GRAPH, METADATA):
        shutil.rmtree(folder / part, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        learned = Learned(spec, summary, pathlib.Path(scratch), former or Former())
        preprocess = functools.partial(preprocessing_fn, learned=learned)
        analyze_in_place(preprocess, False, features, types, str(folder))
        write_numbers(folder / NUMBERS, learned.numbers())
        write_numbers(folder / LIMITS, learned.limits())
        write_json(folder / AGES, learned.ages())
        learned.write_start_vectors(folder / START_VECTORS)


@functools.cache
def load_graph(folder: pathlib.Path) -> Callable[[dict[str, np.ndarray]], Rows]:
    """Returns the graph as a function from the arrays of `raw_arrays`, labels included, to packed rows.

    A process loads each graph once. For a graph with a text, call load_text_operations before.
    """
    import tensorflow as tf  # lazy, see write_graph

    # No GPU: its memory is reserved for training.
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    # Grappler takes 0.2 CPU seconds in each process and does not speed up a graph of look-ups.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    session, signatures = load_session(folder / GRAPH, config)
    signature = signatures["serving_default"]
    feeds = [signature.inputs[name].name for name in _arguments(folder / GRAPH)]
    names = [name for name in DTYPES if name in signature.outputs]
    run = session.make_callable([signature.outputs[name].name for name in names], feeds)

    def call(columns: dict[str, np.ndarray]) -> Rows:
        packed = run(*[columns[name] for name in sorted(columns)])
        return {name: values.astype(DTYPES[name], copy=False) for name, values in zip(names, packed, strict=True)}

    return call


def _arguments(saved_model: pathlib.Path) -> list[str]:
    """Returns the signature's input names for the columns, in the order of the sorted column names."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel  # lazy, see write_graph

    objects = SavedModel.FromString((saved_model / "saved_model.pb").read_bytes()).meta_graphs[0].object_graph_def
    function = next(child for child in objects.nodes[0].children if child.local_name == "transform_fn")
    return list(objects.nodes[function.node_id].bare_concrete_function.argument_keywords)


@dataclasses.dataclass(frozen=True)
class _PartToPack:
    """A part of the payload to pack.

    Attributes:
        split: The name of its split.
        source: The part.
        target: The file for its packed rows.
        seed: Seed of the rows' order, of dropped values and of the sampled negatives.
    """

    split: str
    source: pathlib.Path
    target: pathlib.Path
    seed: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class _PackedPart:
    """The number of a part's rows in the payload, of its packed rows, and of the positives among the packed rows.

    `clipped` is the number of rows with a number beyond the limits, by column.
    """

    read: int
    packed: int
    positives: int
    clipped: Counter[str]


@dataclasses.dataclass(frozen=True)
class PackedLog:
    """The counts of `transform`.

    Attributes:
        rows: Number of packed rows by split.
        clipped: By split and column, the number of rows whose number is clipped to LIMITS; columns without any are
            omitted.
    """

    rows: dict[str, int]
    clipped: dict[str, dict[str, int]]


def transform(
    spec: LogSpec,
    graph: pathlib.Path,
    splits: dict[str, tuple[pathlib.Path, pathlib.Path]],
    seed: int,
    workers: Workers,
    progress: Callable[[str], None] = lambda text: None,
) -> PackedLog:
    """Packs the payload, part by part.

    Args:
        spec: The description of the log.
        graph: The folder that `analyze` wrote.
        splits: Maps each split to the folder of its payload and the folder of its packed files. Rows of `train` are
            shuffled within their part and lose values at their column's `missing_rate`; other splits keep the log's
            order. Of the negatives of `train` and `validation`, the share `data.negative_sampling` is packed.
        seed: Seed of the order and the dropped values of `train`, and of the negative sampling.
        workers: Run the work.
        progress: Called with one line for each transformed part.

    Raises:
        InputError: no negative of a sampled split is left.
    """
    parts: list[_PartToPack] = []
    rows: dict[str, int] = {}
    for name, (source, target) in splits.items():
        target.mkdir(parents=True, exist_ok=True)
        files = payload_files(source)
        rows[name] = payload_rows(files)
        for index, file in enumerate(files):
            part = target / f"packed-{index:05d}-of-{len(files):05d}.parquet"
            parts.append(_PartToPack(name, file, part, (seed, index)))
    done = workers.map(
        _TransformPart(spec.model_dump_json(), graph),
        parts,
        sum(rows.values()) * TRANSFORM_SECONDS,
        TENSORFLOW_SECONDS,
        lambda count: progress(f"{count} of {len(parts)} parts transformed"),
    )
    read = sum(part.read for part in done)
    if read != sum(rows.values()):
        raise RuntimeError(f"{sum(rows.values())} rows in the payload, but {read} transformed")
    clipped = {name: Counter[str]() for name in splits}
    for to_pack, packed in zip(parts, done, strict=True):
        clipped[to_pack.split] += packed.clipped
    return PackedLog(
        {name: _packed_rows(name, spec, parts, done) for name in splits},
        {name: dict(counts) for name, counts in clipped.items()},
    )


def _packed_rows(name: str, spec: LogSpec, parts: Sequence[_PartToPack], done: Sequence[_PackedPart]) -> int:
    """Returns the number of a split's packed rows; raises InputError if a sampled split has no negatives left."""
    own = [packed for part, packed in zip(parts, done, strict=True) if part.split == name]
    rows = sum(part.packed for part in own)
    if is_sampled(spec, name) and rows == sum(part.positives for part in own):
        raise InputError(
            f"data.negative_sampling: no negative of the {name} rows is left at "
            f"{spec.data.negative_sampling:g}; raise it"
        )
    return rows


@dataclasses.dataclass(frozen=True)
class _TransformPart:
    spec: str
    graph: pathlib.Path

    def __call__(self, part: _PartToPack) -> _PackedPart:
        spec = LogSpec.model_validate_json(self.spec)
        if spec.text:
            load_text_operations()
        run = load_graph(self.graph)
        random = np.random.default_rng(part.seed) if part.split == "train" else None
        limits = json.loads((self.graph / LIMITS).read_text())
        clipped = Counter[str]()
        kept = []
        read = 0
        draws = np.random.default_rng((*part.seed, NEGATIVES))
        for rows in read_payload([part.source], as_dictionaries=True):
            read += rows.num_rows
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            clipped += _beyond(with_derived(columns, list(limits), spec), limits, spec)
            if is_sampled(spec, part.split):
                rows = sample_negatives(rows, spec, draws)
            if random is not None:
                rows = drop_values(rows, spec, random)
            if rows.num_rows:
                kept.append(rows)
        if not kept:
            return _PackedPart(read, 0, 0, clipped)
        packed = pack_rows(pa.Table.from_batches(kept), spec, run)
        if random is not None:
            order = random.permutation(len(packed["label"]))
            packed = {name: np.take(values, order, axis=0) for name, values in packed.items()}
        with PackedWriter(part.target) as writer:
            writer.write(packed)
        labels = packed["label"][:, 0]
        return _PackedPart(read, len(labels), int(np.nansum(labels)), clipped)


def _beyond(rows: Mapping[str, pa.Array], limits: Mapping[str, Sequence[float]], spec: LogSpec) -> Counter[str]:
    """Counts, by column, the rows with a number or an element's weight beyond the limits. Omits columns without any."""
    counts = {}
    for name, (low, high) in limits.items():
        feature = spec.feature_by_column[name]
        if feature.weight_separator:
            weights, places = weights_of(rows[name], feature.list_separator or "", feature.weight_separator)
            counts[name] = len(np.unique(places[(weights < low) | (weights > high)]))
            continue
        numbers = vector_array(rows[name]) if is_vector(rows[name].type) else number_array(rows[name])[:, None]
        counts[name] = int(((numbers < low) | (numbers > high)).any(axis=1).sum())
    return Counter({name: count for name, count in counts.items() if count})
