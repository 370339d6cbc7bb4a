"""Measures the reading speed of packed files against gzip TFRecords of tf.Examples: `python -m benchmarks.reader`.

KERAS_BACKEND selects the backend that trains. With `--packed-alone` and JAX, TensorFlow is not needed.
"""

import dataclasses
import importlib
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import chosen_names, device_option, on_cores
from benchmarks.harness.devices import load_backend_on
from benchmarks.harness.result_table import Cell, if_any, met, result_table
from benchmarks.harness.settings import MODELS, Shape, our_options
from benchmarks.harness.turns import alternate, ratios, spread, timed
from benchmarks.peers.drawn_ids import draw_ids
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.models.base.feature_map import RESERVED_IDS, FeatureMap
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.transforms.features.packed_files import SHUFFLE_ROWS, Batch, PackedWriter

TARGET = 500_000  # rows/s of the packed-file readers
FIELD_IDS, ZIPF = 5000, 1.2
PART_ROWS = 1 << 18
PACKED = "packed"
SEED = 1


@dataclasses.dataclass(frozen=True)
class Speed:
    """Seconds, by round, of one way to read all rows or to train on them.

    Args:
        name: Its name in the table.
        rows: Rows of a round.
        target: Minimum rows/s; None: no target.
        seconds: Wall time of each round.
        cpu_seconds: CPU time of all threads, of each round.
    """

    name: str
    rows: int
    target: int | None
    seconds: Sequence[float]
    cpu_seconds: Sequence[float] = ()

    def as_json(self) -> dict[str, Any]:
        """Returns the rounds, the spread of rows per second and per CPU second, and whether the target is met."""
        wall = spread([self.rows / seconds for seconds in self.seconds])
        cpu = spread([self.rows / seconds for seconds in self.cpu_seconds])
        met = None if self.target is None else wall["median"] >= self.target
        return dataclasses.asdict(self) | {"rows_per_s": wall, "rows_per_cpu_s": cpu, "met": met}


def speeds(works: Mapping[str, Callable[[], Any]], rows: int, targets: Mapping[str, int], rounds: int) -> list[Speed]:
    """Measures every way in alternating rounds.

    Args:
        works: By name, what reads all rows, or trains on them.
        rows: Rows of a round.
        targets: Minimum rows/s of some ways.
        rounds: Number of rounds.
    """

    def tell(number: int, times: Mapping[str, tuple[float, float]]) -> None:
        for name, (seconds, _) in times.items():
            announce(f"round {number} of {rounds}: {name}: {rows / seconds:,.0f} rows/s")

    times = alternate({name: lambda work=work: timed(work) for name, work in works.items()}, rounds, tell)
    return [Speed(name, rows, targets.get(name), *zip(*of_way, strict=True)) for name, of_way in times.items()]


def make_rows(rows: int, fields: int) -> tuple[FeatureMap, np.ndarray, np.ndarray]:
    """Returns the feature map, ids int32 (rows, fields) by Zipf's law, and labels float32 (rows, 1)."""
    feature_map = FeatureMap.from_sizes(
        [(f"f{index}", "categorical", FIELD_IDS, 1, "feature") for index in range(fields)]
    )
    random = np.random.default_rng(SEED)
    first = np.array([field.offset + RESERVED_IDS for field in feature_map.fields], np.int32)
    ids = draw_ids(random, (FIELD_IDS,) * fields, rows, ZIPF) + first
    return feature_map, ids, (random.random((rows, 1)) < 0.25).astype(np.float32)


def write_packed(folder: pathlib.Path, ids: np.ndarray, labels: np.ndarray) -> None:
    for first in range(0, len(ids), PART_ROWS):
        part = slice(first, first + PART_ROWS)
        with PackedWriter(folder / f"part-{first // PART_ROWS:05d}.parquet") as writer:
            writer.write({"ids": ids[part], "label": labels[part]})


def write_examples(path: pathlib.Path, ids: np.ndarray, labels: np.ndarray) -> None:
    """Writes the rows as TFX's Transform does."""
    import tensorflow as tf  # 3.7 s of CPU time, which --help and option errors should not pay

    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions("GZIP", compression_level=1)) as writer:
        for row, label in zip(ids.tolist(), labels[:, 0].tolist(), strict=True):
            example = tf.train.Example()
            example.features.feature["ids"].int64_list.value.extend(row)
            example.features.feature["label"].float_list.value.append(label)
            writer.write(example.SerializeToString())


def read_examples(path: pathlib.Path, fields: int, batch_size: int, shuffle_seed: int | None) -> Iterable[Batch]:
    """Returns batches from TensorFlow's usual input pipeline: shuffles single records, parses batches in threads."""
    import tensorflow as tf  # see write_examples

    spec = {"ids": tf.io.FixedLenFeature([fields], tf.int64), "label": tf.io.FixedLenFeature([1], tf.float32)}
    records = tf.data.TFRecordDataset([str(path)], compression_type="GZIP", buffer_size=8 << 20)
    if shuffle_seed is not None:
        records = records.shuffle(SHUFFLE_ROWS, seed=shuffle_seed)

    def parse(batch: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = tf.io.parse_example(batch, spec)
        return {"ids": tf.cast(features["ids"], tf.int32)}, features["label"]

    return records.batch(batch_size).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)


def count(batches: Iterable[Batch]) -> int:
    """Reads all batches and returns the number of rows."""
    return sum(label.shape[0] for _, label in batches)


@dataclasses.dataclass(frozen=True)
class StoredRows:
    """Rows on disk, as packed files and as examples.

    Args:
        feature_map: The description of the packed tensors.
        rows: Number of rows.
        batch_size: Rows of a batch.
        packed: Pattern of the packed files.
        examples: The gzip TFRecord file; None without one.
    """

    feature_map: FeatureMap
    rows: int
    batch_size: int
    packed: str
    examples: pathlib.Path | None

    def readers(self) -> dict[str, Callable[[], Iterable[Batch]]]:
        """Returns, by name, the function of each way to read."""
        # TensorFlow: see write_examples.
        from ctrpipe.pipeline.training.data import packed_reader

        by_name: dict[str, Callable[[], Iterable[Batch]]] = {}
        packed = ([self.packed], self.feature_map, self.batch_size)
        for name, seed in (("in order", None), ("shuffled", SEED)):
            by_name[f"{PACKED}, {name}"] = lambda seed=seed: packed_reader(*packed, seed)
            if self.examples:
                examples = (self.examples, len(self.feature_map.fields), self.batch_size)
                by_name[f"gzip TFRecord, {name}"] = lambda given=examples, seed=seed: read_examples(*given, seed)
        return by_name

    def read(self, rounds: int) -> list[Speed]:
        """Measures every way to read, alternating within each round."""
        readers = self.readers()
        works = {name: lambda reader=reader: self._whole(reader()) for name, reader in readers.items()}
        return speeds(works, self.rows, {name: TARGET for name in readers if name.startswith(PACKED)}, rounds)

    def _whole(self, batches: Iterable[Batch]) -> None:
        assert count(batches) == self.rows

    def train(self, model: str, rounds: int, device: str) -> list[Speed]:
        """Measures epochs of a model on packed files, on their batches in memory (of the GPU too), and on examples."""
        # Lazy: Keras takes 2 s, which --help and option errors should not pay.
        import keras

        from ctrpipe.pipeline.training.data import packed_reader
        from ctrpipe.pipeline.training.job import LEARNERS

        training = Training(batch_size=self.batch_size, distribution="one_device")
        backend = importlib.import_module(LEARNERS[keras.backend.backend()])
        settings = Model(name=model, **our_options(model, None, Shape()))
        learner = backend.make_learner(settings, training, self.feature_map, SEED)
        packed = packed_reader([self.packed], self.feature_map, self.batch_size, SEED)
        in_memory = list(packed)
        learner.fit(in_memory)  # compiles the step, also for the size of the last batch
        epochs: dict[str, Iterable[Any]] = {"packed files": packed, "memory": in_memory}
        if device == "gpu":
            to_tensor = keras.ops.convert_to_tensor
            placed = [({key: to_tensor(of[key]) for key in of}, to_tensor(label)) for of, label in in_memory]
            epochs["the GPU's memory"] = placed
        if self.examples:
            epochs["gzip TFRecord"] = read_examples(self.examples, len(self.feature_map.fields), self.batch_size, SEED)
        works = {
            f"{model} epoch, {name}": lambda batches=batches: learner.fit(batches) for name, batches in epochs.items()
        }
        return speeds(works, self.rows, {}, rounds)


def waiting(epochs: Sequence[Speed]) -> float:
    """Returns the median ratio of an epoch's times from disk and from memory; 1: training never waits for rows."""
    disk, memory = epochs[:2]
    return ratios(disk.seconds, memory.seconds)["median"]


def table(report: Mapping[str, Any]) -> Table:
    columns: dict[str, Cell] = {
        "reader": "{name}",
        "rows/s": "{rows_per_s[median]:,.0f}",
        "range": "{rows_per_s[min]:,.0f}-{rows_per_s[max]:,.0f}",
        "rows per CPU second": "{rows_per_cpu_s[median]:,.0f}",
        "target": if_any("target", "{target:,}"),
        "": met,
    }
    sizes = "{rows:,} rows of {fields} fields, batch {batch}, {threads} cores".format_map(report)
    return result_table(f"{sizes}, {report['machine']['cpu']}", columns, [*report["readers"], *report["epochs"]])


def prepare(
    folder: pathlib.Path, rows: int, fields: int, batch_size: int, packed_alone: bool
) -> tuple[StoredRows, dict[str, float]]:
    """Writes the rows as packed files and as examples; returns them, and the bytes per row of each."""
    feature_map, ids, labels = make_rows(rows, fields)
    packed, examples = folder / "packed", None if packed_alone else folder / "examples.gz"
    packed.mkdir()
    write_packed(packed, ids, labels)
    sizes = {"packed": sum(file.stat().st_size for file in packed.iterdir())}
    if examples:
        announce(f"{rows:,} rows packed; now as examples")
        write_examples(examples, ids, labels)
        sizes["examples"] = examples.stat().st_size
    stored = StoredRows(feature_map, rows, batch_size, f"{packed}/*", examples)
    return stored, {name: size / rows for name, size in sizes.items()}


@Benchmark("benchmarks.reader", table)
@click.option("--rows", type=click.IntRange(1), default=1_000_000, help="Rows to read.")
@click.option("--models", default="lr", help="Models to train on them.")
@click.option("--threads", type=click.IntRange(1), default=2, help="Cores to use.")
@click.option("--batch", type=click.IntRange(1), default=2048, help="Rows in a batch.")
@click.option("--fields", type=click.IntRange(1), default=39, help="Categorical fields.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Number of alternating rounds.")
@click.option("--packed-alone", is_flag=True, help="Leave out the gzip TFRecords.")
@device_option
def main(
    report: Report,
    rows: int,
    models: str,
    threads: int,
    batch: int,
    fields: int,
    rounds: int,
    packed_alone: bool,
    device: str,
) -> None:
    """Measure rows/s of packed files and of gzip TFRecords of the same rows.

    The ids of a field follow Zipf's law. The last lines are shuffled epochs of --models: equal speed from packed files
    and from memory shows that training does not wait for rows. Prints a table, writes JSON, and prints the JSON on the
    last line.
    """
    names = chosen_names("--models", models, MODELS)
    with tempfile.TemporaryDirectory() as folder, on_cores(threads):
        report.add_load()
        backend = load_backend_on(device)
        if not packed_alone:
            load_tensorflow()
        stored, bytes_per_row = prepare(pathlib.Path(folder), rows, fields, batch, packed_alone)
        readers = stored.read(rounds)
        trained = {name: stored.train(name, rounds, device) for name in names}
    report |= {"rows": rows, "threads": threads, "batch": batch, "fields": fields, "rounds": rounds, "device": device}
    report |= {"backend": backend, "bytes_per_row": bytes_per_row}
    report |= {"epoch_disk_over_memory": {name: waiting(epochs) for name, epochs in trained.items()}}
    report |= {"readers": [speed.as_json() for speed in readers]}
    report |= {"epochs": [speed.as_json() for epochs in trained.values() for speed in epochs]}


if __name__ == "__main__":
    main()
