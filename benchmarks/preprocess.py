"""Measures preprocessing compared with stock TFX and FuxiCTR: `python -m benchmarks.preprocess`."""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
import numpy as np
from rich.console import Group
from rich.table import Table

from benchmarks.harness import measured
from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    chosen_names,
    folder_option,
    positive_numbers,
)
from benchmarks.harness.preprocess_logs import TEST, VALIDATION, VALUES, bad_log, raw_log, values_of
from benchmarks.harness.preprocess_sides import OFTEN, PEERS, TOP, Rule, Run, config, ours
from benchmarks.harness.result_table import Cell, met, result_table
from benchmarks.train import peer_version
from ctrpipe.common.progress import announce
from ctrpipe.models.base.feature_map import RESERVED_IDS, FeatureMap
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.transforms.features.packed_files import PackedReader, packed_files
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies

TARGETS = {"stock": {1_000_000: 20.0}, "fuxictr": {200_000: 3.0, 1_000_000: 5.0}}  # rows/s over theirs, from rows on
GROWTH_TARGET = 1.2  # maximum ratio of the time per row on a larger log to that on a smaller one, excluding the start
SPEED_UP_TARGETS = {2: 1.6, 4: 2.5}  # by number of workers, over one worker, excluding the start
LOSS_TARGET = 0.2  # maximum share of rows/s lost to malformed rows
ROWS_COMPARED = 10_000
# An uncounted run of this many rows loads all libraries into the page cache. Without it the same run took 11 s or 44 s.
LIBRARY_ROWS = 1000
MIB = 2**20


# Figures computed from the measurements -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Measured:
    """A measured run, ours or a peer's.

    Args:
        run: The run with the median time of all rounds.
        workers: Our number of worker processes; None: the pipeline chooses.
        bad_rate: Share of malformed rows.
    """

    run: Run
    workers: int | None = None
    bad_rate: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return self.run.as_json() | {"workers": self.workers, "bad_rate": self.bad_rate}


def ratio(mine: Run, theirs: Run) -> dict[str, Any]:
    """Returns the ratios of our rows/s and rows per CPU s to a peer's; its log may be smaller, see `seconds_for`."""
    target = next((least for rows, least in reversed(TARGETS[theirs.side].items()) if mine.rows >= rows), None)
    seconds = seconds_for(theirs, mine.rows)
    speed = seconds / mine.usage.seconds
    cpu = theirs.usage.cpu_seconds * seconds / theirs.usage.seconds / mine.usage.cpu_seconds
    values = {"peer": theirs.side, "rule": mine.rule, "rows": mine.rows, "peer_rows": theirs.rows}
    values |= {"peer_seconds": seconds}
    met = None if target is None else speed >= target
    return values | {"ratio": speed, "cpu_ratio": cpu, "target": target, "met": met}


def seconds_for(run: Run, rows: int) -> float:
    """Returns a run's estimated seconds for `rows` rows: a constant start, and stages that grow linearly.

    Raises:
        ValueError: The run has another number of rows and does not report its stages.
    """
    if rows == run.rows:
        return run.usage.seconds
    if "start" not in run.stages:
        raise ValueError(f"{run.side} tells no stages: measure it at {rows:,} rows")
    start = run.stages["start"]
    return start + (run.usage.seconds - start) * rows / run.rows


def marginal(small: Run, large: Run) -> float | None:
    """Returns marginal rows/s between two logs; None if the variation of the start-up time hides it."""
    return measured.marginal((small.rows, small.usage), (large.rows, large.usage))


def growth(runs: list[Run]) -> list[dict[str, Any]]:
    """Returns, for each pair of successive sizes, marginal rows/s, and the time per row over the previous pair's."""
    steps: list[dict[str, Any]] = []
    for small, large in itertools.pairwise(runs):
        speed, before = marginal(small, large), steps[-1]["marginal_rows_per_s"] if steps else None
        step: dict[str, Any] = {"rows": [small.rows, large.rows], "marginal_rows_per_s": speed}
        if speed and before:
            longer = before / speed
            step |= {"time_per_row": longer, "target": GROWTH_TARGET, "met": longer <= GROWTH_TARGET}
        steps.append(step)
    return steps


def speed_ups(runs: dict[int, list[Run]]) -> list[dict[str, Any]]:
    """Returns the ratios of marginal rows/s of several workers to one worker, between the two largest logs."""
    if 1 not in runs or len(runs[1]) < 2:
        return []
    one = marginal(*runs[1][-2:])
    values = []
    for workers, worker_runs in sorted(runs.items()):
        several = marginal(*worker_runs[-2:]) if workers > 1 and len(worker_runs) > 1 else None
        if one and several:
            target, speed_up = SPEED_UP_TARGETS.get(workers), several / one
            met = None if target is None else speed_up >= target
            values.append({"workers": workers, "speed_up": speed_up, "target": target, "met": met})
    return values


def loss(good: Run, bad: Run, rate: float) -> dict[str, Any]:
    """Returns the shares of rows/s lost to malformed rows, in total and in reading, and accounts for all rows."""
    share = 1 - bad.rows_per_s / good.rows_per_s
    reading = 1 - good.stages["LogExampleGen"] / bad.stages["LogExampleGen"]
    counts = json.loads((pathlib.Path(bad.answer["examples"]) / "counts.json").read_text())
    kept, rejected = sum(counts["rows"].values()), counts["rejected"]
    packed = sum(PackedReader(files, 1).rows for files in packed_splits(bad).values())
    nothing_lost = kept + rejected == bad.rows and packed == kept
    rows = {"in": bad.rows, "out": packed, "dead_letters": rejected, "none_lost": nothing_lost}
    met = share <= LOSS_TARGET and nothing_lost
    values = {"rate": rate, "loss": share, "loss_of_reading": reading, "target": LOSS_TARGET, "met": met}
    return values | {"rows": rows}


def packed_splits(run: Run) -> dict[str, list[pathlib.Path]]:
    folder = pathlib.Path(run.answer["packed"])
    return {name: packed_files(folder / f"Split-{name}") for name in ("train", "validation", "test")}


# Comparison of the ids -----------------------------------------------------------------------------------------------


def our_vocabularies(run: Run) -> dict[str, list[bytes]]:
    """Returns the vocabulary of each categorical column in our transform graph."""
    spec = RunConfig.model_validate(config(OFTEN, None)).log_spec  # the columns are the same for all rules
    vocabularies = read_vocabularies(pathlib.Path(run.answer["transform_graph"]) / "transform_fn" / "assets", spec)
    return {name: vocabularies[name].to_pylist() for name in VALUES}


def stock_vocabularies(run: Run) -> dict[str, list[bytes]]:
    """Returns the vocabulary of each categorical column in stock TFX's transform graph."""
    assets = pathlib.Path(run.answer["transform_graph"]) / "transform_fn" / "assets"
    return {name: (assets / name).read_bytes().splitlines() for name in VALUES}


def same_ids(mine: Run, theirs: Run, log: pathlib.Path) -> dict[str, Any]:
    """Compares our vocabularies with stock TFX's line by line, and our ids of validation rows with theirs.

    The expected id is the field's offset (unknown), offset + 1 (missing), or offset + RESERVED_IDS + the value's line
    in their vocabulary.
    """
    ours, stock = our_vocabularies(mine), stock_vocabularies(theirs)
    different = [name for name in VALUES if ours[name] != stock[name]]
    feature_map = FeatureMap.from_json(mine.answer["feature_map"])
    slots = {field.name: (slot, field.offset) for slot, field in enumerate(feature_map.fields)}
    files = packed_splits(mine)["validation"]
    inputs, _ = next(iter(PackedReader(files, min(ROWS_COMPARED, PackedReader(files, 1).rows))))
    rows = values_of(log, round((1 - VALIDATION - TEST) * mine.rows), len(inputs["ids"]))
    wrong = 0
    for column, name in enumerate(VALUES):
        slot, offset = slots[name]
        number = {value: offset + RESERVED_IDS + line for line, value in enumerate(stock[name])} | {b"": offset + 1}
        expected = np.array([number.get(row[column], offset) for row in rows])
        wrong += int((inputs["ids"][:, slot] != expected).sum())
    lines = sum(map(len, stock.values()))
    values = {"peer": theirs.side, "rows": mine.rows, "lines": lines, "different_vocabularies": different}
    return values | {"ids": len(rows) * len(VALUES), "different_ids": wrong, "met": not different and not wrong}


def same_values(mine: Run, theirs: Run, _log: pathlib.Path) -> dict[str, Any]:
    """Compares the values that our vocabularies keep with FuxiCTR's, which numbers them in another order."""
    ours = our_vocabularies(mine)
    fuxictr = json.loads(pathlib.Path(theirs.answer["vocabularies"]).read_text())
    kept = {name: {value.encode() for value in fuxictr[name]} - {b"__PAD__", b"__OOV__"} for name in VALUES}
    different = [name for name in VALUES if set(ours[name]) != kept[name]]
    lines = sum(map(len, kept.values()))
    values = {"peer": theirs.side, "rows": mine.rows, "lines": lines, "different_vocabularies": different}
    return values | {"met": not different}


SAME: dict[str, Callable[[Run, Run, pathlib.Path], dict[str, Any]]] = {"stock": same_ids, "fuxictr": same_values}


# Measuring -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Measurements:
    """Measures one side after the other.

    Args:
        folder: The folder of the logs and of the sides' outputs.
        rounds: Measurements of each side; the round with the median time counts.
    """

    folder: pathlib.Path
    rounds: int
    done: list[Measured] = dataclasses.field(default_factory=list)
    ratios: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    same: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    bad: dict[str, Any] | None = None

    @property
    def logs(self) -> pathlib.Path:
        return self.folder / "logs"

    def mine(self, rows: int, rule: Rule, workers: int | None = None, bad_rate: float = 0.0) -> Run:
        for known in self.done:
            if (known.run.side, known.run.rule, known.run.rows) == ("ours", rule.name, rows):
                if (known.workers, known.bad_rate) == (workers, bad_rate):
                    return known.run
        folder = self.folder / f"ours-{rows}-{'-'.join(rule.vocabulary)}-{workers or 'auto'}-{bad_rate}"

        def once(size: int) -> Run:
            log = bad_log(self.logs, size, bad_rate) if bad_rate else raw_log(self.logs, size)
            return ours(log, size, rule, folder, workers)

        return self._measure(once, rows, workers, bad_rate)

    def theirs(self, peer: str, rows: int) -> Run:
        _, preprocess = PEERS[peer]

        def once(size: int) -> Run:
            raw_log(self.logs, size)
            return preprocess(self.logs, size, self.folder / f"{peer}-{rows}")

        return self._measure(once, rows)

    def _measure(self, once: Callable[[int], Run], rows: int, workers: int | None = None, bad_rate: float = 0.0) -> Run:
        once(LIBRARY_ROWS)
        runs = []
        for _ in range(self.rounds):
            runs.append(once(rows))
            run, usage = runs[-1], runs[-1].usage
            announce(f"{run.side}, {run.rows:,} rows: {usage.seconds:.1f} s, {usage.cpu_seconds:.1f} s of CPU")
        runs.sort(key=lambda run: run.usage.seconds)
        median = runs[(len(runs) - 1) // 2]
        self.done.append(Measured(median, workers, bad_rate))
        return median

    def compare(self, peer: str, sizes: list[int], most: int | None) -> None:
        """Measures both sides at each size, the peer with at most `most` rows, and compares their ids or values."""
        rule, _ = PEERS[peer]
        for rows in sorted({min(size, most or size) for size in sizes}):
            theirs, mine = self.theirs(peer, rows), self.mine(rows, rule)
            self.same.append(SAME[peer](mine, theirs, raw_log(self.logs, rows)))
            larger = [size for size in sizes if size == rows or (most == rows and size > rows)]
            for size in larger:
                self.ratios.append(ratio(self.mine(size, rule), theirs))

    def as_json(self) -> dict[str, Any]:
        plain = [each for each in self.done if not each.bad_rate and each.run.side == "ours"]
        by_workers: dict[int | None, list[Run]] = {}
        for each in plain:
            if each.run.rule == TOP.name:
                by_workers.setdefault(each.workers, []).append(each.run)
        for runs in by_workers.values():
            runs.sort(key=lambda run: run.rows)
        grown = {str(workers or "auto"): growth(runs) for workers, runs in by_workers.items()}
        counted = {workers: runs for workers, runs in by_workers.items() if workers}
        values: dict[str, Any] = {"results": [each.as_json() for each in self.done], "ratios": self.ratios}
        values |= {"growth": grown, "speed_ups": speed_ups(counted), "same": self.same}
        return values | {"bad_rows": self.bad}


def measure(
    measurements: Measurements,
    sizes: list[int],
    workers: list[int | None],
    peers: list[str],
    most: dict[str, int | None],
    bad_rate: float,
) -> Iterator[None]:
    """Runs all measurements; yields after each, to let the caller write the results so far."""
    for count in workers:
        for rows in sizes:
            measurements.mine(rows, TOP, count)
            yield
    if bad_rate:
        bad = measurements.mine(sizes[-1], TOP, workers[0], bad_rate)
        measurements.bad = loss(measurements.mine(sizes[-1], TOP, workers[0]), bad, bad_rate)
        yield
    for peer in peers:
        measurements.compare(peer, sizes, most.get(peer))
        yield


# Tables --------------------------------------------------------------------------------------------------------------


def tables(report: Mapping[str, Any]) -> Group:
    return Group(table(report), stage_table(report), claims(report))


def table(report: Mapping[str, Any]) -> Table:
    columns: dict[str, Cell] = {
        "side": side_of,
        "rule": "{rule}",
        "rows": "{rows:,}",
        "workers": workers_of,
        "seconds": "{seconds:.1f}",
        "rows/s": "{rows_per_s:,.0f}",
        "CPU s": "{cpu_seconds:.1f}",
        "peak MiB": lambda result: f"{result['peak_bytes'] / MIB:,.0f}",
    }
    return result_table(f"From raw log to packed files, {report['machine']['cpu']}", columns, report["results"])


def side_of(result: Mapping[str, Any]) -> str:
    return f"{result['side']}, {result['bad_rate']:.0%} malformed" if result["bad_rate"] else result["side"]


def workers_of(result: Mapping[str, Any]) -> str:
    return str(result["workers"] or "auto") if result["side"] == "ours" else ""


def stage_table(report: Mapping[str, Any]) -> Table:
    """Returns the table of seconds by stage, in the order of `table`."""
    columns: dict[str, Cell] = {
        "side": side_of,
        "rows": "{rows:,}",
        "workers": workers_of,
        "stages": lambda result: ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in result["stages"].items()),
    }
    return result_table("Seconds by stage", columns, [result for result in report["results"] if result["stages"]])


def claims(report: Mapping[str, Any]) -> Table:
    """Returns the table of claims: the measured value, its target, and whether it is met."""
    lines: list[dict[str, Any]] = []

    def add(claim: str, value: str, target: str, is_met: bool | None) -> None:
        lines.append({"claim": claim, "value": value, "target": target, "met": is_met})

    for each in report["ratios"]:
        scaled = "" if each["peer_rows"] == each["rows"] else f", theirs measured at {each['peer_rows']:,} and scaled"
        claim = f"rows/s over those of {each['peer']}, {each['rows']:,} rows{scaled}"
        add(claim, f"{each['ratio']:.1f}", f">= {each['target']:.0f}" if each["target"] else "", each["met"])
        add(f"  the same by CPU time ({each['rule']})", f"{each['cpu_ratio']:.1f}", "", None)
    for workers, steps in report["growth"].items():
        for step in steps:
            between = f"between {step['rows'][0]:,} and {step['rows'][1]:,} rows, workers: {workers}"
            speed = step["marginal_rows_per_s"]
            add(f"marginal rows/s {between}", f"{speed:,.0f}" if speed else "within the start's noise", "", None)
            if "time_per_row" in step:
                claim = f"  marginal time a row over that of the step before, workers: {workers}"
                add(claim, f"{step['time_per_row']:.2f}", f"<= {step['target']}", step["met"])
    for each in report["speed_ups"]:
        target = f">= {each['target']}" if each["target"] else ""
        add(f"marginal speed of {each['workers']} workers over one", f"{each['speed_up']:.2f}", target, each["met"])
    for each in report["same"]:
        kind = "the same ids" if "ids" in each else "the same values kept"
        text = "all" if each["met"] else f"not {', '.join(each['different_vocabularies']) or each['different_ids']}"
        add(f"{kind} as {each['peer']}, {each['rows']:,} rows, {each['lines']:,} values", text, "all", each["met"])
    if bad := report["bad_rows"]:
        rows = bad["rows"]
        add(
            f"rows/s lost to {bad['rate']:.0%} malformed rows",
            f"{bad['loss']:.1%}",
            f"<= {bad['target']:.0%}",
            bad["met"],
        )
        account = f"{rows['in']:,} = {rows['out']:,} + {rows['dead_letters']:,}"
        add("  rows in = rows packed + dead letters", account, "", rows["none_lost"])
    return result_table("Claims", {"claim": "{claim}", "measured": "{value}", "target": "{target}", "": met}, lines)


# The command ---------------------------------------------------------------------------------------------------------


def worker_counts(text: str) -> list[int | None]:
    """Returns the numbers of --workers without duplicates, such as [1, 4]; None stands for auto.

    Raises:
        InputError: A part is neither a positive number nor auto.
    """
    parts = [part.strip() for part in text.split(",")]
    counts = [None if part == "auto" else positive_numbers("--workers", part)[0] for part in parts]
    return list(dict.fromkeys(counts))


def chosen_peers(text: str) -> list[str]:
    """Returns the peers of --against, [] for `none`. Raises InputError if a peer does not exist."""
    if text == "none":
        return []
    return list(chosen_names("--against", text, PEERS))


@Benchmark("benchmarks.preprocess", tables)
@click.option("--rows", default="200000", help="Sizes of the log, as in 200000,1000000.")
@click.option("--against", default="stock,fuxictr", help="Peers: stock (TFX), fuxictr; or none.")
@click.option("--rows-stock", type=click.IntRange(1000), default=200_000, help="Maximum rows for stock TFX.")
@click.option("--workers", default="auto", help="Our maximum numbers of processes, as in 1,2,4; auto: all cores.")
@click.option("--bad-rate", type=click.FloatRange(0, 0.5), default=0.0, help="Also measure with malformed rows: share.")
@click.option("--rounds", type=click.IntRange(1), default=1, help="Measurements of each side; the median counts.")
@folder_option("preprocess")
def main(
    report: Report,
    rows: str,
    against: str,
    rows_stock: int,
    workers: str,
    bad_rate: float,
    rounds: int,
    folder: pathlib.Path,
) -> None:
    """Measure the time from a raw log to packed training files: ours, stock TFX's and FuxiCTR's (`make peers`).

    All sides process the same generated rows in Criteo's format, one after the other, each in its own process. Start
    and imports count; the libraries are in the page cache after an uncounted run of 1,000 rows. Ours is the pipeline up
    to Transform: reading and checking, statistics (of a sample above 100,000 rows), transform. Stock is CsvExampleGen,
    StatisticsGen, SchemaGen and Transform with a vocabulary of 5,000 per column. FuxiCTR is its recipe for Criteo,
    which keeps values that occur 10 times. Ours uses the same rule as the peer it is compared with. If stock gets fewer
    rows, its stages are scaled linearly. Preparing the peers' logs (split, with a header, for stock with commas) is not
    counted. Prints tables, writes JSON after every step, and prints the JSON on the last line.
    """
    sizes = sorted(set(positive_numbers("--rows", rows)))
    peers, counts = chosen_peers(against), worker_counts(workers)
    report.add_load()
    report |= {"rounds": rounds, "peers": {"fuxictr": peer_version("fuxictr")} if "fuxictr" in peers else {}}
    measurements = Measurements(folder, rounds)
    most: dict[str, int | None] = {"stock": rows_stock}  # FuxiCTR reports no stages, and gets all rows
    for _ in measure(measurements, sizes, counts, peers, most, bad_rate):
        report |= measurements.as_json()
        report.write()


if __name__ == "__main__":
    main()
