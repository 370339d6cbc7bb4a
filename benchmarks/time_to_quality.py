"""Measures the whole time from a raw log to a model of a given quality, compared with LightGBM and FuxiCTR.

    python -m benchmarks.time_to_quality [--rows 1000000] [--model dcn_v2] [--sides ctrpipe,drafted,lightgbm,fuxictr]
        [--seeds 1] [--target AUC] [--within 0.002] [--folder FOLDER] [--output FILE]

The log is generated, in Criteo's layout, so the best possible AUC is known. Each side consists of one or more processes
and starts from the raw log. Its wall time, CPU seconds and the peak memory of all its processes are measured.

- ctrpipe: `ctrpipe run configs/criteo/MODEL.yaml`, from reading to the export and its check, then the start of a server
  on the pushed version and its answer for one row.
- drafted: the same with the configuration that `ctrpipe init` writes; the time of `init` counts.
- lightgbm: reads the log, encodes it, trains to early stopping and predicts; it serves nothing.
- fuxictr: FuxiCTR's preprocessing with its recipe for Criteo, and the training of the same model by its own classes,
  with the schedule of its published settings. Its training reads prepared ids, and it serves nothing; both flatter it.
  Without its environment (`make peers`) the side is left out, and a line says so.

A side reaches the quality if its mean test AUC is at least the target: FuxiCTR's mean AUC minus --within, without
FuxiCTR the best side's AUC, or --target. The result of each side and seed is kept in --folder: the command resumes.
"""

import dataclasses
import json
import pathlib
import shutil
import statistics
import sys
from collections.abc import Mapping
from typing import Any

import click
import numpy as np
import pyarrow.parquet
from rich.console import Group, RenderableType

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import chosen_names, cores, folder_option
from benchmarks.harness.measured import Usage, run, run_plain
from benchmarks.harness.preprocess_logs import COLUMNS, TEST, VALIDATION, raw_log
from benchmarks.harness.preprocess_sides import fuxictr as preprocess_of_fuxictr
from benchmarks.harness.result_table import Cell, if_any, result_table
from benchmarks.peers.client import ENVIRONMENTS, Peer
from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.compare.sources import read_sources

SIDES = ("ctrpipe", "drafted", "lightgbm", "fuxictr")
MODELS = ("lr", "fm", "deepfm", "dcn_v2", "xdeepfm", "mlp", "wide_deep")  # that FuxiCTR's package has layers for
# The schedule of FuxiCTR's published settings on Criteo_x1: BARS, ranking/ctr/DCNv2/DCNv2_criteo_x1.
PUBLISHED: dict[str, Any] = {"batch_size": 4096, "learning_rate": 1e-3, "epochs": 100, "evaluations_per_epoch": 1}
PUBLISHED |= {"patience": 2, "plateau": {"factor": 0.1, "patience": 1, "minimum": 1e-6}, "monitor": "auc"}
PUBLISHED |= {"dim": 10, "hidden": (400, 400, 400), "dropout": 0.1, "l2": 1e-5, "cross": 3, "cin": (16, 16)}


@dataclasses.dataclass(frozen=True)
class Measured:
    """The cost of a side with a seed, and its probabilities for the test rows, the last rows of the log."""

    usage: Usage
    probabilities: np.ndarray
    parts: dict[str, float]


def _added(usages: Mapping[str, Usage]) -> Usage:
    """Returns the usage of processes one after the other."""
    every = usages.values()
    return Usage(
        sum(one.seconds for one in every),
        sum(one.cpu_seconds for one in every),
        max(one.peak_bytes for one in every),
        max(one.processes for one in every),
        next((one.stages for one in every if one.stages), {}),  # of `ctrpipe run` alone
    )


def _ctrpipe(log: pathlib.Path, model: str, seed: int, folder: pathlib.Path, drafted: bool) -> Measured:
    usages: dict[str, Usage] = {}
    command = [sys.executable, "-m", "ctrpipe"]
    config, data = f"criteo/{model}.yaml", log
    if drafted:
        config = str(folder / "first.yaml")
        data = folder / "log.tsv"  # with a header, as `init` needs names
        if not data.exists():
            data.write_bytes("\t".join(COLUMNS).encode() + b"\n" + log.read_bytes())
        usages["init"] = run_plain("init", [*command, "init", data, "--label", "label", "--output", config])[1]
    split = f"data.split={{by: order, validation: {VALIDATION}, test: {TEST}}}"
    options = [
        "--data",
        data,
        "--output",
        folder / "run",
        "--set",
        f"seed={seed}",
        "--set",
        split,
        "--set",
        "gates={rig: null}",
    ]
    usages["run"] = run_plain("run", [*command, "run", config, *options])[1]
    answered = [sys.executable, "-m", "benchmarks.harness.served_answer", folder / "run", log]
    usages["first answer"] = run("the first answer", answered)[1]
    [[scored]] = read_sources([[folder / "run"]], None).values()
    [probabilities] = scored.probabilities.values()
    return Measured(_added(usages), probabilities, {name: one.seconds for name, one in usages.items()})


def _lightgbm(log: pathlib.Path, seed: int, folder: pathlib.Path) -> Measured:
    out = folder / "probabilities.npy"
    request = {"log": str(log), "validation": VALIDATION, "test": TEST, "seed": seed, "out": str(out)}
    _, usage = run("LightGBM", [sys.executable, "-m", "benchmarks.harness.lightgbm_log", json.dumps(request)])
    return Measured(usage, np.load(out), {"all": usage.seconds})


def _fuxictr(log: pathlib.Path, rows: int, model: str, seed: int, folder: pathlib.Path) -> Measured:
    from benchmarks.quality import make_rows  # imports scikit-learn and TensorFlow's loader, which others do not need
    from ctrpipe.pipeline.config import load_config

    preprocessed = preprocess_of_fuxictr(log.parent, rows, folder / "preprocessed")
    split = f"data.split={{by: order, validation: {VALIDATION}, test: {TEST}}}"
    ids = make_rows(load_config(pathlib.Path("configs/criteo/lr.yaml"), (split,)), str(log), folder / "ids")
    out = folder / "probabilities.npz"
    with Peer("fuxictr") as peer:
        reply = peer.fit(model, ids.path, out, cores(), seed=seed, **PUBLISHED)
    seconds = preprocessed.usage.seconds + reply["seconds"]
    usage = dataclasses.replace(preprocessed.usage, seconds=seconds)
    with np.load(out) as file:
        parts = {"preprocessing": preprocessed.usage.seconds, "training": reply["seconds"]}
        return Measured(usage, file["probabilities"], parts)


def measured_once(
    side: str, log: pathlib.Path, rows: int, model: str, seed: int, folder: pathlib.Path, labels: np.ndarray
) -> dict[str, Any]:
    """Runs a side with a seed, or returns its stored result."""
    kept = folder / f"{side}-{model}-{seed}.json"
    if not kept.exists():
        work = folder / f"{side}-{model}-{seed}"
        shutil.rmtree(work, ignore_errors=True)  # a run that goes on from an interrupted one would take less time
        work.mkdir(parents=True)
        if side in ("ctrpipe", "drafted"):
            outcome = _ctrpipe(log, model, seed, work, side == "drafted")
        elif side == "lightgbm":
            outcome = _lightgbm(log, seed, work)
        else:
            outcome = _fuxictr(log, rows, model, seed, work)
        if len(outcome.probabilities) != len(labels):
            raise InputError(f"{side}: {len(outcome.probabilities):,} test rows, not {len(labels):,}; give --rows anew")
        numbers = {"auc": metrics.auc(labels, outcome.probabilities)}
        numbers |= {"log_loss": metrics.log_loss(labels, outcome.probabilities), **dataclasses.asdict(outcome.usage)}
        write_json(kept, {**numbers, "parts": outcome.parts})
    values: dict[str, Any] = json.loads(kept.read_text())
    return values


def summary(runs: Mapping[str, list[dict[str, Any]]], within: float, target: float | None) -> dict[str, Any]:
    """Returns the target and each side's means, whether it reaches the target, and the ratio of its time to ours.

    Args:
        runs: The results of each side, one per seed.
        within: How far the target is below the AUC that it follows.
        target: The AUC to reach; None for FuxiCTR's mean less `within`, or without FuxiCTR the best side's.
    """
    aucs = {side: statistics.fmean(one["auc"] for one in of) for side, of in runs.items()}
    wanted = target if target is not None else aucs.get("fuxictr", max(aucs.values())) - within
    ours = [one["seconds"] for one in runs.get("ctrpipe", [])]
    lines = []
    for side, of in runs.items():
        seconds = statistics.fmean(one["seconds"] for one in of)
        over = seconds / statistics.fmean(ours) if ours and side != "ctrpipe" else None
        lines.append(
            {
                "side": side,
                "auc": aucs[side],
                "log_loss": statistics.fmean(one["log_loss"] for one in of),
                "reached": aucs[side] >= wanted,
                "seconds": seconds,
                "cpu_seconds": statistics.fmean(one["cpu_seconds"] for one in of),
                "peak_bytes": max(one["peak_bytes"] for one in of),
                "parts": {name: statistics.fmean(one["parts"][name] for one in of) for name in of[0]["parts"]},
                "over_ours": over,
            }
        )
    return {"target": wanted, "sides": lines}


def report_tables(report: Mapping[str, Any]) -> RenderableType:
    columns: dict[str, Cell] = {
        "side": "{side}",
        "AUC": "{auc:.4f}",
        "log loss": "{log_loss:.4f}",
        "reaches the target": lambda line: "yes" if line["reached"] else "no",
        "s": "{seconds:.1f}",
        "s of a core": "{cpu_seconds:.1f}",
        "over ctrpipe": if_any("over_ours", "{over_ours:.2f}"),
        "peak MiB": lambda line: f"{line['peak_bytes'] / 2**20:,.0f}",
        "parts": lambda line: ", ".join(f"{name} {seconds:.1f}" for name, seconds in line["parts"].items()),
    }
    possible = report["best_possible"]
    title = f"{report['rows']:,} rows, {report['model']}: at least {report['target']:.4f} of {possible:.4f} possible"
    return Group(result_table(title, columns, report["sides"]), *report["left_out"])


@Benchmark("benchmarks.time_to_quality", report_tables)
@click.option("--rows", type=click.IntRange(1000), default=1_000_000, help="Rows of the generated log.")
@click.option("--model", type=click.Choice(MODELS), default="dcn_v2", help="The model of ctrpipe and of FuxiCTR.")
@click.option("--sides", default=",".join(SIDES), help="Sides to run, separated by commas.")
@click.option("--seeds", type=click.IntRange(1), default=1, help="Trainings of a side.")
@click.option("--target", type=click.FloatRange(0.5, 1), help="AUC to reach. Default: FuxiCTR's less --within.")
@click.option("--within", type=click.FloatRange(0), default=0.002, help="AUC that may be missing to the target.")
@folder_option("time_to_quality")
def main(
    report: Report,
    rows: int,
    model: str,
    sides: str,
    seeds: int,
    target: float | None,
    within: float,
    folder: pathlib.Path,
) -> None:
    """Measure the time from a raw log to a model of a given quality, compared with LightGBM and FuxiCTR."""
    chosen = chosen_names("--sides", sides, SIDES)
    left_out = []
    if "fuxictr" in chosen and not (ENVIRONMENTS / "fuxictr" / "bin" / "python").exists():
        left_out.append("fuxictr: left out, its environment is missing; run `make peers`")
        announce(left_out[0])
        chosen = tuple(side for side in chosen if side != "fuxictr")
    if not chosen:
        raise InputError("--sides: none is left; run `make peers`, or give another side")
    log = raw_log(folder, rows)
    labels = _labels(log)[-round(TEST * rows) :]
    truth = pyarrow.parquet.read_table(f"{log}.truth.parquet", columns=["probability"])["probability"].to_numpy()
    report.add_load()
    report |= {"rows": rows, "model": model, "seeds": seeds, "left_out": left_out}
    report |= {"best_possible": metrics.auc(labels, truth[-len(labels) :])}
    runs: dict[str, list[dict[str, Any]]] = {}
    for seed in range(1, seeds + 1):
        for side in chosen:
            values = measured_once(side, log, rows, model, seed, folder / str(rows), labels)
            runs.setdefault(side, []).append(values)
            announce(f"{side}, seed {seed}: AUC {values['auc']:.4f} after {values['seconds']:.1f} s")
            report |= summary(runs, within, target)
            report.write()


def _labels(log: pathlib.Path) -> np.ndarray:
    with open(log, "rb") as file:
        return np.array([line[:1] == b"1" for line in file], np.float64)


if __name__ == "__main__":
    main()
