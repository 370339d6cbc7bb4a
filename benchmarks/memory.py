"""Measures the peak memory of training, whole runs, packed-file readers, and scoring: `python -m benchmarks.memory`."""

import dataclasses
import pathlib
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness import measured
from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    cores,
    folder_option,
    on_cores,
    positive_numbers,
    shape_options,
)
from benchmarks.harness.ours import BACKENDS, ROOT, Ours
from benchmarks.harness.preprocess_logs import raw_log
from benchmarks.harness.result_table import Cell, met, result_table
from benchmarks.harness.settings import Shape, peer_options
from benchmarks.peers.client import Peer
from benchmarks.train import peer_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.transforms.features.packed_files import PackedWriter

TARGET = 0.5  # maximum ratio of our memory to the peer's
RUN_TARGET = 4.0  # GiB, of a whole run with an embedding width of 16
GROWTH_TARGET = 0.1  # maximum bytes of memory per additional byte of data
PEER = "fuxictr"
GIB, MIB = 2**30, 2**20
READERS = 2  # processes that read the same packed file
FIELDS = 39
WRITTEN_ROWS = 1 << 16  # rows written at a time
SCORED_MODEL, EXPORT_ROWS = "dcn_v2", 20_000
PARTS = ("cin", "run", "files", "score")


@dataclasses.dataclass(frozen=True)
class Line:
    """A measured number with its bar, the maximum.

    Args:
        name: Description.
        value: The number.
        target: The bar.
        unit: "GiB", or "" for a ratio.
    """

    name: str
    value: float
    target: float
    unit: str = ""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"met": self.value <= self.target}


@dataclasses.dataclass(frozen=True)
class Peak:
    """The peak memory of a command on a log.

    Args:
        rows: Rows of the log.
        log_bytes: Size of the log.
        peak_bytes: Peak memory of all its processes together, shared pages counted once.
        seconds: Wall time.
        stages: The CPU seconds and the peak memory by stage; empty for a command that announces no stages.
    """

    rows: int
    log_bytes: int
    peak_bytes: int
    seconds: float
    stages: Mapping[str, measured.StageUsage] = dataclasses.field(default_factory=dict)


def used(reply: dict[str, int]) -> int:
    """Returns the peak bytes of a process minus the bytes after loading its libraries."""
    return reply["peak_bytes"] - reply["baseline_bytes"]


def used_by(ours: dict[str, int], theirs: dict[str, int]) -> dict[str, Any]:
    """Returns the bytes of both sides and their ratio, ours to theirs."""
    sides = {"ours": ours | {"used_bytes": used(ours)}, "theirs": theirs | {"used_bytes": used(theirs)}}
    return sides | {"ratio": used(ours) / used(theirs)}


def growth(peaks: Sequence[Peak]) -> float:
    """Returns the bytes of memory per additional byte of the log, between the smallest and the largest log."""
    small, large = peaks[0], peaks[-1]
    return (large.peak_bytes - small.peak_bytes) / (large.log_bytes - small.log_bytes)


def cin(backend: str, maps: list[int], shape: Shape, threads: int, python: pathlib.Path | None) -> dict[str, Any]:
    """Returns the memory of training a CIN alone, for ours and FuxiCTR."""
    with on_cores(threads):
        with Ours(backend, threads) as ours:
            about = ours.about()
        announce(f"cin {maps}, batch {shape.batch}: ours ({backend})")
        # No activation between the layers on either side, because FuxiCTR's CIN has none.
        options = {"maps": maps, "embedding_dim": shape.dim}
        mine = Ours(backend, threads).memory("cin", options, shape)
        announce(f"cin {maps}, batch {shape.batch}: {PEER}")
        sizes = {**peer_options(shape), "cin": maps}
        theirs = Peer(PEER, python).memory("cin", shape.batch, threads, **sizes)
    sides = used_by(mine, theirs)
    line = Line(f"training, CIN {maps}, batch {shape.batch}, over {PEER} {peer_version(PEER)}", sides["ratio"], TARGET)
    return {"lines": [line], **sides, **about, "maps": maps, "shape": dataclasses.asdict(shape)}


def run(sizes: Sequence[int], models: Sequence[str], folder: pathlib.Path) -> dict[str, Any]:
    """Returns the peaks of `ctrpipe run` for each model and log size, with width 16 and one epoch."""
    lines, by_model = [], {}
    for model in models:
        peaks = [_run_peak(model, rows, folder) for rows in sizes]
        by_model[model] = [dataclasses.asdict(peak) for peak in peaks]
        name = f"ctrpipe run, {sizes[-1]:,} rows of Criteo's columns, {model}"
        lines.append(Line(name, peaks[-1].peak_bytes / GIB, RUN_TARGET, "GiB"))
    return {"lines": lines, "models": by_model}


def _run_peak(model: str, rows: int, folder: pathlib.Path) -> Peak:
    config, log, output = ROOT / "configs" / "criteo" / f"{model}.yaml", raw_log(folder / "logs", rows), folder / "run"
    shutil.rmtree(output, ignore_errors=True)
    settings = ["training.epochs=1", "training.evaluations_per_epoch=1", "training.batch_size=8192"]
    settings += ["training.refit=false", "gates={rig: null}", *(["model.embedding_dim=16"] if model != "lr" else [])]
    program = [sys.executable, "-c", "from ctrpipe.pipeline.cli import main; main()", "run", config, "--data", log]
    program += ["--output", output, *(word for setting in settings for word in ("--set", setting))]
    _, usage = measured.run_plain(f"ctrpipe run, {rows:,} rows, {model}", program, PYTHONPATH=str(ROOT))
    shutil.rmtree(output)
    return _peak(f"ctrpipe run, {rows:,} rows, {model}", rows, log, usage)


def files(sizes: Sequence[int], folder: pathlib.Path) -> dict[str, Any]:
    """Returns the peaks of processes that read the same packed file, shuffled as in training."""
    reader = [sys.executable, "-m", "benchmarks.harness.memory_sides", "readers", str(READERS)]
    peaks = []
    for rows in sizes:
        file = _packed_file(folder, rows)
        answer, usage = measured.run(f"{READERS} readers of {rows:,} rows", [*reader, file], PYTHONPATH=str(ROOT))
        assert answer["rows"] == READERS * rows
        peaks.append(_peak(f"{READERS} readers of {rows:,} packed rows", rows, file, usage))
    name = f"{READERS} readers of packed files: bytes in memory of a further byte of the file"
    return {"lines": [Line(name, growth(peaks), GROWTH_TARGET)], "peaks": [dataclasses.asdict(peak) for peak in peaks]}


def _packed_file(folder: pathlib.Path, rows: int) -> pathlib.Path:
    path, random = folder / f"packed_{rows}.parquet", np.random.default_rng(1)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as part, PackedWriter(part) as writer:
            for first in range(0, rows, WRITTEN_ROWS):
                count = min(WRITTEN_ROWS, rows - first)
                ids = random.integers(0, 2**30, (count, FIELDS), dtype=np.int32)  # random bits, which do not compress
                writer.write({"ids": ids, "label": np.zeros((count, 1), np.float32)})
    return path


def score(sizes: Sequence[int], folder: pathlib.Path) -> dict[str, Any]:
    """Returns the peaks of scoring logs of these sizes."""
    from ctrpipe.pipeline.run.sample_export import make_export  # imports TensorFlow, which --help does not need

    load_tensorflow()
    version, peaks = make_export(SCORED_MODEL, folder / "exports", EXPORT_ROWS), []
    for rows in sizes:
        log, output = raw_log(folder / "logs", rows), folder / "scores"
        shutil.rmtree(output, ignore_errors=True)
        side = [sys.executable, "-m", "benchmarks.harness.score_sides", "ours", version, log, output]
        answer, usage = measured.run(f"scoring {rows:,} rows", side, PYTHONPATH=str(ROOT))
        assert answer["rows"] == rows
        peaks.append(_peak(f"ctrpipe score, {rows:,} rows", rows, log, usage))
    name = "ctrpipe score: bytes in memory of a further byte of the log"
    return {"lines": [Line(name, growth(peaks), GROWTH_TARGET)], "peaks": [dataclasses.asdict(peak) for peak in peaks]}


def _peak(name: str, rows: int, log: pathlib.Path, usage: measured.Usage) -> Peak:
    announce(f"{name}: {usage.peak_bytes / MIB:,.0f} MiB, {usage.seconds:.0f} s")
    for stage, used_in in usage.stages.items():
        announce(f"  {stage}: {used_in.peak_bytes / MIB:,.0f} MiB, {used_in.cpu_seconds:.1f} s of a core")
    return Peak(rows, log.stat().st_size, usage.peak_bytes, usage.seconds, usage.stages)


def table(report: Mapping[str, Any]) -> Table:
    def number(key: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda line: f"{line[key]:.2f} {line['unit']}".rstrip()

    columns: dict[str, Cell] = {"": "{name}", "measured": number("value"), "at most": number("target"), " ": met}
    return result_table("Peak memory", columns, report["lines"])


def two_sizes(option: str, text: str) -> tuple[int, ...]:
    """Returns the sizes of an option's logs, in ascending order.

    Raises:
        InputError: There is only one size, or the sizes do not ascend.
    """
    sizes = positive_numbers(option, text)
    if len(sizes) < 2 or list(sizes) != sorted(set(sizes)):
        raise InputError(f"{option}: expected two sizes or more, the smallest first. Received: {text!r}")
    return sizes


@Benchmark("benchmarks.memory", table)
@click.option(
    "--only", "parts", multiple=True, type=click.Choice(PARTS), help="Part to measure. Repeatable. Default: all."
)
@click.option("--backend", type=click.Choice(BACKENDS), default="tensorflow", help="Our backend for the CIN.")
@click.option("--maps", default="200,200,200", help="Feature maps of each layer of the CIN.")
@click.option("--batch", type=click.IntRange(1), default=4096, help="Batch size of the CIN.")
@shape_options
@click.option("--ids", type=click.IntRange(2), default=5000, help="Ids in each field of the CIN.")
@click.option("--peer-python", type=click.Path(path_type=pathlib.Path), help="Interpreter with FuxiCTR installed.")
@click.option("--rows", default="10000000", help="Rows of the logs for `ctrpipe run`.")
@click.option("--models", metavar="A,B", default="fm", help="Models of configs/criteo for `ctrpipe run`, at width 16.")
@click.option("--rows-files", default="4000000,8000000", help="Rows of the packed files, two sizes or more.")
@click.option("--rows-score", default="1000000,4000000", help="Rows of the logs to score, two sizes or more.")
@folder_option("memory")
def main(
    report: Report,
    parts: tuple[str, ...],
    backend: str,
    maps: str,
    batch: int,
    fields: int,
    ids: int,
    dim: int,
    threads: int | None,
    peer_python: pathlib.Path | None,
    rows: str,
    models: str,
    rows_files: str,
    rows_score: str,
    folder: pathlib.Path,
) -> None:
    """Measure peak memory on the CPU, each part separately.

    cin: training a CIN alone, ours and FuxiCTR's (`make peers`), each in a new process that takes two steps of Adam;
    measured is the peak resident memory minus the memory after loading the libraries. run: `ctrpipe run` of a
    generated log, one epoch, all of its processes together. files and score: the growth of memory with the rows when
    several processes read the same packed file, and when a log is scored. Prints a table, writes JSON, and prints the
    JSON on the last line.
    """
    shape, sizes, threads = Shape(fields, ids, dim, batch), positive_numbers("--maps", maps), threads or cores()
    of_run, of_files = positive_numbers("--rows", rows), two_sizes("--rows-files", rows_files)
    of_score, names = two_sizes("--rows-score", rows_score), [name.strip() for name in models.split(",")]
    for name in names:
        if not (ROOT / "configs" / "criteo" / f"{name}.yaml").exists():
            raise InputError(f"--models: configs/criteo has no {name}.yaml")
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "cin": lambda: cin(backend, list(sizes), shape, threads, peer_python),
        "run": lambda: run(of_run, names, folder),
        "files": lambda: files(of_files, folder),
        "score": lambda: score(of_score, folder),
    }
    report |= {"threads": threads, "lines": []}
    for part in parts or PARTS:
        result = measures[part]()
        report["lines"] += [line.as_json() for line in result.pop("lines")]
        report[part] = result
        report.write()


if __name__ == "__main__":
    main()
