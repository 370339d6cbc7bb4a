"""Measures the reading speed of packed files against gzip TFRecords of tf.Examples: `python -m benchmarks.reader`."""

import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.command import busy, busy_caption, command, finish, machine, on_cores, output_option, spread
from benchmarks.harness.ours_server import draw_ids
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.models.base.feature_map import RESERVED_IDS, FeatureMap
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.transforms.features.packed_files import SHUFFLE_ROWS, Batch, PackedWriter

TARGET = 500_000  # rows/s of the packed-file readers
FIELD_IDS, ZIPF = 5000, 1.2
PART_ROWS = 1 << 18
SEED = 1


@dataclasses.dataclass
class Speed:
    """Seconds, by round, of one way to read all rows or to train on them.

    Args:
        name: Its name in the table.
        rows: Rows of a round.
        target: Minimum rows/s; None: no target.
    """

    name: str
    rows: int
    target: int | None = None
    seconds: list[float] = dataclasses.field(default_factory=list)
    cpu_seconds: list[float] = dataclasses.field(default_factory=list)  # of all threads

    def time(self, work: Callable[[], Any]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.cpu_seconds.append(time.process_time() - cpu)
        self.seconds.append(time.perf_counter() - wall)

    def as_json(self) -> dict[str, Any]:
        """Returns the rounds, the spread of rows per second and per CPU second, and whether the target is met."""
        wall = spread([self.rows / seconds for seconds in self.seconds])
        cpu = spread([self.rows / seconds for seconds in self.cpu_seconds])
        met = None if self.target is None else wall["median"] >= self.target
        return dataclasses.asdict(self) | {"rows_per_s": wall, "rows_per_cpu_s": cpu, "met": met}


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
class Benchmark:
    """Rows on disk, as packed files and as examples.

    Args:
        feature_map: The description of the packed tensors.
        rows: Number of rows.
        batch_size: Rows of a batch.
        packed: Pattern of the packed files.
        examples: The gzip TFRecord file.
    """

    feature_map: FeatureMap
    rows: int
    batch_size: int
    packed: str
    examples: pathlib.Path

    def readers(self) -> dict[str, tuple[Callable[[], Iterable[Batch]], int | None]]:
        """Returns, by name, the function and the target of each way to read."""
        # TensorFlow: see write_examples.
        from ctrpipe.pipeline.training.data import packed_reader

        by_name: dict[str, tuple[Callable[[], Iterable[Batch]], int | None]] = {}
        packed = ([self.packed], self.feature_map, self.batch_size)
        examples = (self.examples, len(self.feature_map.fields), self.batch_size)
        for name, seed in (("in order", None), ("shuffled", SEED)):
            by_name[f"packed, {name}"] = (lambda seed=seed: packed_reader(*packed, seed)), TARGET
            by_name[f"gzip TFRecord, {name}"] = (lambda seed=seed: read_examples(*examples, seed)), None
        return by_name

    def read(self, rounds: int) -> list[Speed]:
        """Measures every way to read, alternating within each round."""
        readers = self.readers()
        speeds = {name: Speed(name, self.rows, target) for name, (_, target) in readers.items()}
        for index in range(rounds):
            for name, speed in speeds.items():
                batches = readers[name][0]()
                speed.time(lambda batches=batches: self._whole(batches))
                announce(f"round {index + 1} of {rounds}: {name}: {self.rows / speed.seconds[-1]:,.0f} rows/s")
        return list(speeds.values())

    def _whole(self, batches: Iterable[Batch]) -> None:
        assert count(batches) == self.rows

    def train(self, rounds: int) -> list[Speed]:
        """Measures epochs of LR, the cheapest model, on packed files, on their batches in memory, and on examples."""
        # TensorFlow: see write_examples.
        from ctrpipe.pipeline.training.data import packed_reader
        from ctrpipe.pipeline.training.tensorflow_learner import make_learner

        training = Training(batch_size=self.batch_size, distribution="one_device")
        learner = make_learner(Model(name="lr"), training, self.feature_map, SEED)
        packed = packed_reader([self.packed], self.feature_map, self.batch_size, SEED)
        in_memory = list(packed)
        learner.fit(in_memory)  # compiles the step, also for the size of the last batch
        examples = read_examples(self.examples, len(self.feature_map.fields), self.batch_size, SEED)
        speeds = {"LR epoch, packed files": packed, "LR epoch, memory": in_memory, "LR epoch, gzip TFRecord": examples}
        by_name = {name: Speed(name, self.rows) for name in speeds}
        for index in range(rounds):
            for name, speed in by_name.items():
                speed.time(lambda name=name: learner.fit(speeds[name]))
                announce(f"round {index + 1} of {rounds}: {name}: {self.rows / speed.seconds[-1]:,.0f} rows/s")
        return list(by_name.values())


def waiting(speeds: Sequence[Speed]) -> float:
    """Returns the median ratio of an epoch's time from disk to that from memory; 1: training never waits for rows."""
    disk, memory = speeds[:2]
    return spread([a / b for a, b in zip(disk.seconds, memory.seconds, strict=True)])["median"]


def table(speeds: Sequence[Speed], title: str, share: float) -> Table:
    result_table = Table(title=title, caption=busy_caption(share))
    for name in ("reader", "rows/s", "range", "rows per CPU second", "target", ""):
        result_table.add_column(name, justify="left" if name in ("reader", "") else "right")
    for speed in speeds:
        numbers = speed.as_json()
        wall, cpu = numbers["rows_per_s"], numbers["rows_per_cpu_s"]
        row = [speed.name, f"{wall['median']:,.0f}", f"{wall['min']:,.0f}-{wall['max']:,.0f}", f"{cpu['median']:,.0f}"]
        result_table.add_row(
            *row, *([f"{speed.target:,}", "met" if numbers["met"] else "missed"] if speed.target else ["", ""])
        )
    return result_table


def prepare(folder: pathlib.Path, rows: int, fields: int, batch_size: int) -> tuple[Benchmark, dict[str, float]]:
    """Writes the rows as packed files and as examples; returns the benchmark, and the bytes per row of both."""
    feature_map, ids, labels = make_rows(rows, fields)
    packed, examples = folder / "packed", folder / "examples.gz"
    packed.mkdir()
    write_packed(packed, ids, labels)
    announce(f"{rows:,} rows packed; now as examples")
    write_examples(examples, ids, labels)
    sizes = {"packed": sum(file.stat().st_size for file in packed.iterdir()), "examples": examples.stat().st_size}
    benchmark = Benchmark(feature_map, rows, batch_size, f"{packed}/*", examples)
    return benchmark, {name: size / rows for name, size in sizes.items()}


@command("benchmarks.reader")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, help="Rows to read.")
@click.option("--threads", type=click.IntRange(1), default=2, help="Cores to use.")
@click.option("--batch", type=click.IntRange(1), default=2048, help="Rows in a batch.")
@click.option("--fields", type=click.IntRange(1), default=39, help="Categorical fields.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Number of alternating rounds.")
@output_option("reader")
def main(rows: int, threads: int, batch: int, fields: int, rounds: int, output: pathlib.Path) -> None:
    """Measure rows/s of packed files and of gzip TFRecords of the same rows.

    The ids of a field follow Zipf's law. The last lines are shuffled epochs of LR, the cheapest model: equal speed from
    packed files and from memory shows that training does not wait for rows. Prints a table, writes JSON, and prints the
    JSON on the last line.
    """
    with tempfile.TemporaryDirectory() as folder, on_cores(threads):
        share = busy()
        load_tensorflow()
        benchmark, bytes_per_row = prepare(pathlib.Path(folder), rows, fields, batch)
        readers, epochs = benchmark.read(rounds), benchmark.train(rounds)
    report: dict[str, Any] = {"benchmark": "reader", "machine": machine(), "rows": rows, "threads": threads}
    report |= {"batch": batch, "fields": fields, "rounds": rounds, "busy": share, "bytes_per_row": bytes_per_row}
    report |= {"readers": [speed.as_json() for speed in readers], "epochs": [speed.as_json() for speed in epochs]}
    report |= {"epoch_disk_over_memory": waiting(epochs)}
    title = f"{rows:,} rows of {fields} fields, batch {batch}, {threads} cores, {report['machine']['cpu']}"
    finish(report, output, table([*readers, *epochs], title, share))


if __name__ == "__main__":
    main()
