"""Measures batch scoring against TFX's BulkInferrer and the model alone: `python -m benchmarks.score`."""

import dataclasses
import pathlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness import measured
from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    cores,
    folder_option,
    positive_numbers,
)
from benchmarks.harness.preprocess_logs import raw_log
from benchmarks.harness.result_table import Cell, if_any, met, result_table
from benchmarks.harness.turns import spread
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_folder
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.run.sample_export import make_export
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.readers import LogReader

MODEL, EXPORT_ROWS = "dcn_v2", 200_000
TARGETS = {"bulk_inferrer": 10.0, "model": 0.8}
PEERS = ("bulk_inferrer", "none")
MEAN_TOLERANCE = 1e-5  # maximum difference between the sides' mean scores of the same rows
ANNOUNCED = {"ours": "ctrpipe score", "bulk_inferrer": "BulkInferrer", "model": "the model alone"}


@dataclasses.dataclass(frozen=True)
class Run:
    """One process that scored a log.

    Args:
        rows: Number of scored rows.
        usage: The process's time and memory, including imports and loading.
        answer: The JSON object that the process printed.
    """

    rows: int
    usage: measured.Usage
    answer: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {"rows": self.rows, **dataclasses.asdict(self.usage)}


@dataclasses.dataclass(frozen=True)
class Pair:
    """Runs of one side on two logs; their difference excludes the start-up time."""

    small: Run
    large: Run

    @property
    def rows_per_s(self) -> float | None:
        """Marginal rows/s; None if the variation of the start-up time hides it."""
        return measured.marginal((self.small.rows, self.small.usage), (self.large.rows, self.large.usage))

    @property
    def cpu_us_per_row(self) -> float:
        return (self.large.usage.cpu_seconds - self.small.usage.cpu_seconds) / self._more_rows * 1e6

    @property
    def start_seconds(self) -> float | None:
        return self.small.usage.seconds - self.small.rows / self.rows_per_s if self.rows_per_s else None

    @property
    def _more_rows(self) -> int:
        return self.large.rows - self.small.rows

    def as_json(self) -> dict[str, Any]:
        values = {"rows_per_s": self.rows_per_s, "cpu_us_per_row": self.cpu_us_per_row}
        return values | {"start_seconds": self.start_seconds, "runs": [self.small.as_json(), self.large.as_json()]}


class Sides:
    """Runs the sides, each run in its own process with an empty output folder.

    Args:
        folder: Folder for the logs and the model, which are kept and reused.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        load_tensorflow()
        self.version = make_export(MODEL, folder / "exports", EXPORT_ROWS)

    def log(self, rows: int) -> pathlib.Path:
        return raw_log(self._folder / "logs", rows)

    def ours(self, rows: int) -> Run:
        return self._run("ours", rows, self.version, self.log(rows), self._fresh())

    def bulk_inferrer(self, rows: int, workers: int) -> Run:
        examples = self._examples(rows)
        return self._run("bulk_inferrer", rows, self.version, examples, self._fresh(), "--workers", workers)

    def model(self, rows: int) -> dict[str, Any]:
        return self._run("model", rows, self.version, self.log(EXPORT_ROWS), rows).answer

    def _run(self, side: str, rows: int, *arguments: Any) -> Run:
        command = [sys.executable, "-m", "benchmarks.harness.score_sides", side.replace("_", "-"), *map(str, arguments)]
        answer, usage = measured.run(f"{ANNOUNCED[side]}, {rows:,} rows", command)
        announce(f"{ANNOUNCED[side]}: {rows:,} rows in {usage.seconds:.1f} s, {usage.cpu_seconds:.1f} s of CPU")
        if answer["rows"] != rows:
            raise RuntimeError(f"{ANNOUNCED[side]} answered {answer['rows']:,} of {rows:,} rows")
        return Run(rows, usage, answer)

    def _fresh(self) -> pathlib.Path:
        shutil.rmtree(self._folder / "output", ignore_errors=True)
        return self._folder / "output"

    def _examples(self, rows: int) -> pathlib.Path:
        """Returns the folder of the log as tf.Examples, one file per core; writing them is not measured."""
        folder = self._folder / "examples" / str(rows)
        split = folder / "Split-all"
        if not split.exists():
            with atomic_folder(split) as unfinished:
                _write_examples(self.log(rows), self.version, unfinished, cores())
        return folder


def _write_examples(log: pathlib.Path, version: pathlib.Path, folder: pathlib.Path, files: int) -> None:
    import tensorflow as tf  # 3.7 s of CPU time, which --help and option errors should not pay

    options = tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)
    names = [f"data_tfrecord-{index:05d}-of-{files:05d}.gz" for index in range(files)]
    writers = [tf.io.TFRecordWriter(str(folder / name), options) for name in names]
    for batch in LogReader(read_log_spec(version), labels=False).read(str(log)):
        for index, example in enumerate(to_examples(batch.rows)):
            writers[index % files].write(example)
    for writer in writers:
        writer.close()


# Figures computed from the measurements -----------------------------------------------------------------------------


def claim(
    name: str, pairs: list[Pair], theirs: Sequence[float | None], cpu_ratios: list[float], target: float | None
) -> dict[str, Any]:
    """Returns the spread over the rounds of the ratios of our marginal rows/s and rows per CPU s to another side's.

    Rounds in which the variation of the start-up time hides a rate are left out; if none is left, the ratio is None.

    Args:
        name: Name of the other side.
        pairs: Our runs, by round.
        theirs: The other side's rows/s, by round.
        cpu_ratios: The other side's CPU time per row over ours, by round.
        target: Minimum ratio; None for none.
    """
    rates = [(mine.rows_per_s, other) for mine, other in zip(pairs, theirs, strict=True)]
    ratios = [mine / other for mine, other in rates if mine and other]
    ratio = spread(ratios) if ratios else None
    met = None if target is None or ratio is None else ratio["median"] >= target
    return {"against": name, "ratio": ratio, "cpu_ratio": spread(cpu_ratios), "target": target, "met": met}


def report_of(
    pairs: list[Pair], alone: list[dict[str, Any]], bulk: dict[int, Pair], mean_difference: float | None
) -> dict[str, Any]:
    """Returns all numbers.

    Args:
        pairs: Our runs, by round.
        alone: Results of the model alone, by round.
        bulk: BulkInferrer's runs, by number of workers; empty without BulkInferrer.
        mean_difference: The difference between our mean score and BulkInferrer's on the same rows.
    """
    rates = [each["best"]["rows_per_s"] for each in alone]
    cpu = [rates["best"]["cpu_us_per_row"] / mine.cpu_us_per_row for mine, rates in zip(pairs, alone, strict=True)]
    claims = [claim("model", pairs, rates, cpu, TARGETS["model"]) | {"workers": None}]
    for workers, theirs in bulk.items():
        cpu = [theirs.cpu_us_per_row / mine.cpu_us_per_row for mine in pairs]
        # TFX starts one process by default; Beam's options can change this.
        target = TARGETS["bulk_inferrer"] if workers == 1 else None
        claims.append(
            claim("bulk_inferrer", pairs, [theirs.rows_per_s] * len(pairs), cpu, target) | {"workers": workers}
        )
    return {
        "ours": [pair.as_json() for pair in pairs],
        "model": alone,
        "bulk_inferrer": {str(workers): pair.as_json() for workers, pair in bulk.items()},
        "mean_difference": mean_difference,
        "claims": claims,
    }


def table(report: Mapping[str, Any]) -> Table:
    rows = [_pair_row(f"score, round {number}", pair) for number, pair in enumerate(report["ours"], 1)]
    for number, alone in enumerate(report["model"], 1):
        best = alone["best"]
        side = f"model, round {number}: {best['callers']} callers of {best['batch']:,}"
        rates = {"speed": f"{best['rows_per_s']:,.0f}", "cpu": f"{best['cpu_us_per_row']:.1f}"}
        rows.append({"side": side, "rows": f"{alone['rows']:,}", **rates})
    for workers, pair in report["bulk_inferrer"].items():
        rows.append(_pair_row(f"BulkInferrer, {workers} processes", pair))
    for each in report["claims"]:
        processes = f", {each['workers']} processes" if each["workers"] else ""
        target = f">= {each['target']:g}" if each["target"] else ""
        ratio = f"{each['ratio']['median']:.2f} {met(each)}".rstrip() if each["ratio"] else "-"
        rates = {"speed": ratio, "cpu": f"{each['cpu_ratio']['median']:.2f}"}
        rows.append({"side": f"over {ANNOUNCED[each['against']]}{processes}", "rows": target, **rates})
    columns: dict[str, Cell] = {
        "side": "{side}",
        "rows": "{rows}",
        "marginal rows/s": "{speed}",
        "CPU us a row": "{cpu}",
        "start, s": if_any("start", "{start}"),
        "CPU s": if_any("cpu_seconds", "{cpu_seconds:.1f}"),
        "peak MiB": if_any("peak", "{peak:,.0f}"),
    }
    return result_table(f"{report['model_name']}, {report['machine']['cpu']}", columns, rows)


def _pair_row(side: str, pair: Mapping[str, Any]) -> dict[str, Any]:
    small, large = pair["runs"]
    speed = pair["rows_per_s"]
    return {
        "side": side,
        "rows": f"{small['rows']:,} and {large['rows']:,}",
        "speed": f"{speed:,.0f}" if speed else "-",
        "cpu": f"{pair['cpu_us_per_row']:.1f}",
        "start": f"{pair['start_seconds']:.1f}" if speed else "-",
        "cpu_seconds": large["cpu_seconds"],
        "peak": large["peak_bytes"] / 2**20,
    }


@Benchmark("benchmarks.score", table)
@click.option("--rows", default="200000,1000000", help="Two sizes of the log.")
@click.option("--against", type=click.Choice(PEERS), default="bulk_inferrer", help="Peer to compare with.")
@click.option("--rows-bulk", default="50000,250000", help="Two sizes of the log for BulkInferrer.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Rounds in which ours and the model alternate.")
@folder_option("score")
def main(report: Report, rows: str, against: str, rows_bulk: str, rounds: int, folder: pathlib.Path) -> None:
    """Measure rows/s of `ctrpipe score`, from a raw TSV log to Parquet, on a DCN-v2 (39 fields, width 16, MLP 400-400).

    Ours is compared with the model alone, on packed batches in memory, with its fastest batch size and number of
    callers, alternating with ours. It is also compared with TFX's BulkInferrer on the same SavedModel and rows, as
    tf.Examples, with one process of Beam's direct runner, TFX's default, and with one per core. Rates are marginal,
    between two sizes of the log, to exclude the start, which has its own column. BulkInferrer gets fewer rows because
    it takes much longer. Prints a table, writes JSON, and prints the JSON on the last line.
    """
    sizes, bulk_sizes = _two("--rows", rows), _two("--rows-bulk", rows_bulk)
    report.add_load()
    report["model_name"] = MODEL
    sides = Sides(folder)
    for size in sizes:
        sides.log(size)
    pairs: list[Pair] = []
    alone: list[dict[str, Any]] = []
    bulk: dict[int, Pair] = {}
    difference = None
    for _ in range(rounds):
        alone.append(sides.model(sizes[0]))
        pairs.append(Pair(*map(sides.ours, sizes)))
        report |= report_of(pairs, alone, bulk, difference)
        report.write()
    if against == "bulk_inferrer":
        for workers in sorted({1, cores()}):
            bulk[workers] = Pair(*(sides.bulk_inferrer(size, workers) for size in bulk_sizes))
        mine = sides.ours(bulk_sizes[1]).answer["mean"]
        difference = max(abs(pair.large.answer["mean"] - mine) for pair in bulk.values())
        if difference > MEAN_TOLERANCE:
            raise RuntimeError(f"the mean scores of the same rows differ by {difference:.1e}")
    report |= report_of(pairs, alone, bulk, difference)


def _two(option: str, text: str) -> list[int]:
    sizes = sorted(set(positive_numbers(option, text)))
    if len(sizes) != 2:
        raise InputError(f"{option}: expected two sizes as in 200000,1000000. Received: {text!r}")
    return sizes


if __name__ == "__main__":
    main()
