"""`python -m tests.clusters`: a run and a scoring of millions of rows on clusters, compared with this machine alone.

    python -m tests.clusters [--engine flink] [--rows 5000000] [--workers 1,2] [--slots 1] [--lose]

All sides must give the same packed rows, vocabularies, metrics and scores; a difference is named (exit code 1).
With --lose another cluster, as large as the last one, loses a worker while it reads and while it scores, and gets
another 5 s later. `make flink` or `make spark` first. What Flink calls a task manager is a worker here.
"""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.command import (
    busy,
    busy_caption,
    command,
    finish,
    folder_option,
    machine,
    output_option,
    positive_numbers,
)
from ctrpipe.common.errors import InputError
from ctrpipe.common.progress import announce
from tests.clusters.cluster import ROOT, Cluster
from tests.clusters.engines import CLUSTERS
from tests.clusters.results import results, scores
from tests.e2e.small_run import start

# One pass, and no gate: what is compared is what Beam does.
SETTINGS = [
    "--set=training.epochs=1",
    "--set=training.refit=false",
    "--set=training.evaluations_per_epoch=1",
    "--set=gates={rig: null}",
]
ANOTHER_COMES = 5.0  # seconds after a worker was lost


@dataclasses.dataclass
class Side:
    """The times and results of one way of computing.

    Attributes:
        name: "here", or what the cluster is.
        phases: The seconds of each phase of the run.
        score_seconds: Those of the scoring, its start included.
        made: What the run made, see `results`.
        lost: How many workers were lost.
    """

    name: str
    phases: dict[str, float]
    score_seconds: float
    made: dict[str, Any]
    lost: int = 0


def ctrpipe(*arguments: object) -> float:
    """Runs the command, and returns its seconds.

    Raises:
        InputError: it failed.
    """
    begun = time.monotonic()
    if code := start(*arguments, stdout=sys.stderr).wait():
        raise InputError(f"ctrpipe {arguments[0]} ended with exit code {code}; see above")
    return time.monotonic() - begun


@contextlib.contextmanager
def losing(cluster: Cluster) -> Iterator[list[str]]:
    """Ends a worker once a job has worked for some seconds, and starts another; yields a list with its name."""
    lost: list[str] = []
    over = threading.Event()

    def lose() -> None:
        while not over.wait(0.2):
            if cluster.is_working():
                break
        else:
            return
        names = sorted(name for name in cluster.processes if name.startswith("worker_"))
        lost.append(names[0])
        cluster.kill(names[0])
        time.sleep(ANOTHER_COMES)
        cluster.start_worker(int(names[-1].rpartition("_")[2]) + 1)

    thread = threading.Thread(target=lose)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join()
    if not lost:
        raise InputError("--lose: no job ran for 3 s, so that no worker was lost; give more --rows")


def compute(
    name: str, config: pathlib.Path, log: pathlib.Path, folder: pathlib.Path, cluster: Cluster | None, loses: bool
) -> Side:
    """Runs the pipeline, and scores the log with the model of the first side, in a new folder."""
    announce(f"The side {name}")
    shutil.rmtree(folder / name, ignore_errors=True)
    told = [f"--beam-arg={argument}" for argument in cluster.beam_args()] if cluster else []
    run, model = folder / name / "run", folder / "here" / "run" / "models" / "ctr"
    commands = [
        ("run", config, "--data", log, "--output", run, *SETTINGS, *told),
        ("score", "--model", model, "--input", log, "--output", folder / name / "scores", *told),
    ]
    seconds, lost = [], []
    for arguments in commands:
        with losing(cluster) if cluster and loses else contextlib.nullcontext([]) as names:
            seconds.append(ctrpipe(*arguments))
        lost += names
    phases = json.loads((run / "report_data" / "seconds.json").read_text())
    return Side(name, phases, seconds[1], results(run), len(lost))


def differences(sides: Sequence[Side], folder: pathlib.Path) -> list[str]:
    """Returns a line for each result of a side that differs from the first side's."""
    first, *others = sides
    expected = scores(folder / first.name / "scores")
    lines = []
    for side in others:
        lines += [f"{side.name}: other {key}" for key, value in first.made.items() if side.made[key] != value]
        if not scores(folder / side.name / "scores").equals(expected):
            lines.append(f"{side.name}: other scores")
    return lines


def _table(sides: Sequence[Side], rows: int, caption: str | None) -> Table:
    table = Table(title=f"Seconds of {rows:,} rows", caption=caption)
    table.add_column("phase")
    for side in sides:
        table.add_column(side.name, justify="right")
    for phase in sides[0].phases:
        table.add_row(phase, *(f"{side.phases.get(phase, 0.0):.1f}" for side in sides))
    table.add_row("the run", *(f"{sum(side.phases.values()):.1f}" for side in sides), style="bold")
    table.add_row("ctrpipe score", *(f"{side.score_seconds:.1f}" for side in sides), style="bold")
    return table


@command("tests.clusters")
@click.option("--engine", type=click.Choice(list(CLUSTERS)), default="flink", help="What the clusters are of.")
@click.option("--rows", type=click.IntRange(1000), default=5_000_000, help="Rows of the log.")
@click.option("--workers", default="1,2", help="How many each cluster has, separated by commas.")
@click.option("--slots", type=click.IntRange(1), default=1, help="Slots of a worker, with a process each.")
@click.option("--lose", is_flag=True, help="Also lose a worker while a cluster reads, and while it scores.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
    default=ROOT / "configs" / "criteo" / "lr.yaml",
    help="A configuration for a log in Criteo's layout.",
)
@folder_option("clusters")
@output_option("clusters")
@click.pass_context
def main(
    context: click.Context,
    engine: str,
    rows: int,
    workers: str,
    slots: int,
    lose: bool,
    config: pathlib.Path,
    folder: pathlib.Path,
    output: pathlib.Path,
) -> None:
    """Run and score a generated log on clusters on this machine, and compare with the machine alone.

    Prints the seconds of every phase, writes JSON, and prints it as the last line.
    """
    if why := CLUSTERS[engine].missing():
        raise InputError(why)
    counts = positive_numbers("--workers", workers)
    clusters = [(f"{engine}, {count} worker{'s' * (count > 1)}", count, False) for count in counts]
    clusters += [(f"{engine}, {counts[-1]}, one lost", counts[-1], True)] if lose else []
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"log-{rows}.tsv"
    if not log.exists():
        ctrpipe("generate", "--rows", rows, "--seed", 5, "--output", log)
    elsewhere = busy()
    sides = [compute("here", config, log, folder, None, False)]
    for name, count, loses in clusters:
        shutil.rmtree(folder / "cluster", ignore_errors=True)
        cluster = CLUSTERS[engine](folder / "cluster", count, slots)
        try:
            sides.append(compute(name, config, log, folder, cluster, loses))
        finally:
            cluster.stop()
    differing = differences(sides, folder)
    report: dict[str, Any] = {
        "benchmark": "clusters",
        "engine": engine,
        "machine": machine(),
        "busy": elsewhere,
        "rows": rows,
    }
    report |= {"slots": slots, "differences": differing}
    report |= {"sides": [dataclasses.asdict(side) | {"made": side.made["rows"]} for side in sides]}
    finish(report, output, _table(sides, rows, busy_caption(elsewhere)))
    if differing:
        click.echo("\n".join(differing), err=True)
        context.exit(1)


if __name__ == "__main__":
    main()
