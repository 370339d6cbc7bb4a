"""The results of a leaderboard: means with intervals over seeds and rows, and the models that differ from the best."""

import dataclasses
import math
import pathlib
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet

from benchmarks.harness.leaderboard_sets import LeaderboardSet
from benchmarks.harness.printed_sections import markdown_table
from ctrpipe.common.errors import InputError
from ctrpipe.common.estimates import Estimate, auc_estimate, gauc_estimate, log_loss_estimate
from ctrpipe.common.metrics import summarise
from ctrpipe.pipeline.compare.corrected import correct
from ctrpipe.pipeline.compare.rows_and_seeds import difference, mean_of
from ctrpipe.pipeline.compare.sides import groups_of_rows, verdict_of
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored
from ctrpipe.serving.latency.machine import BUSY

NAMES = {"auc": "AUC", "log_loss": "log loss", "gauc": "gAUC"}
_MOST = {"auc": 1.0, "gauc": 1.0, "log_loss": math.inf}  # the largest value of each; the least is 0
Estimates = dict[str, list[Estimate]]


@dataclasses.dataclass(frozen=True)
class Trained:
    """The training runs of a model.

    Attributes:
        name: The model's name on the leaderboard.
        runs: The result of each training run, one per seed: see `leaderboard_training`.
    """

    name: str
    runs: Sequence[Mapping[str, Any]]

    def estimates(self) -> Estimates:
        """Returns each metric's estimates on the test rows, one per training; a metric that is not defined is left out.

        The predictions are read each time: those of all models of a large log would not fit into memory.
        """
        per_run = [_estimates(read_scored(pathlib.Path(run["predictions"]))) for run in self.runs]
        return {name: [one[name] for one in per_run] for name in NAMES if all(name in one for one in per_run)}


def _estimates(scored: ScoredRows) -> dict[str, Estimate]:
    task = next(iter(scored.labels))
    known = scored.labelled(task)
    labels, probabilities = known.labels[task], known.probabilities[task]
    groups = groups_of_rows(known)
    estimates = {
        "auc": auc_estimate(labels, probabilities, known.weights),
        "log_loss": log_loss_estimate(labels, probabilities, known.weights),
        "gauc": gauc_estimate(groups.numbers, labels, probabilities, known.weights, groups.weight) if groups else None,
    }
    return {name: one for name, one in estimates.items() if one is not None}


def leaderboard(trained: Sequence[Trained], chosen: LeaderboardSet) -> list[dict[str, Any]]:
    """Returns an entry for each model, the best mean AUC first.

    A model is distinguished from the best if the interval of its distance in AUC does not reach 0. The intervals cover
    seeds and rows, are paired on rows, and have the level 1 - .05 / (models - 1), by Bonferroni. In 95% of logs the
    truly best model is therefore among the models not distinguished from the first, although the test rows choose the
    first: it is left out only if another model is by chance ahead of it by more than its interval.

    Raises:
        InputError: the test rows do not define an AUC.
    """
    entries = {one.name: _entry(one, chosen) for one in trained}
    order = sorted(trained, key=lambda one: -float(entries[one.name]["metrics"]["auc"]["mean"]))
    first, *others = order
    best = first.estimates()
    for one in others:
        own = one.estimates()
        tested = {name: difference(best[name], own[name]) for name in NAMES if name in best and name in own}
        entries[one.name]["behind"] = {
            name: {**dataclasses.asdict(of), "verdict": verdict_of(of.difference, of.p)} for name, of in tested.items()
        }
    for name in NAMES:
        correct([entries[one.name]["behind"][name] for one in others if name in entries[one.name]["behind"]])
        for entry in (entries[one.name] for one in others):
            if distance := entry["behind"].get(name):
                distance["interval"] = _possible(distance["interval"], -_MOST[name], _MOST[name])
    for one in order:
        behind = entries[one.name].get("behind", {}).get("auc")
        low, high = behind["interval"] if behind else (0.0, 0.0)
        entries[one.name]["told_from_best"] = not low <= 0 <= high
    return [entries[one.name] for one in order]


def _possible(interval: Sequence[float], least: float, most: float) -> list[float]:
    """Returns the part of an interval between two bounds: with two seeds that are far apart it reaches beyond them."""
    return [min(max(end, least), most) for end in interval]


def _entry(one: Trained, chosen: LeaderboardSet) -> dict[str, Any]:
    estimates = one.estimates()
    if "auc" not in estimates:
        raise InputError(f"{one.name}: the test rows need two clicks and two rows without; give more rows")
    metrics = {}
    for name, of_seeds in estimates.items():
        mean, values = mean_of(of_seeds), [each.value for each in of_seeds]
        metrics[name] = {
            "mean": mean.difference,
            "deviation": statistics.stdev(values) if len(values) > 1 else None,
            "interval": _possible(mean.interval, 0.0, _MOST[name]),
            "rows_error": mean.rows_error,
            "seeds_error": mean.seeds_error,
            "values": values,
        }
    published = chosen.published.get(one.name)
    return {
        "model": one.name,
        "seeds": len(one.runs),
        "metrics": metrics,
        "published": published.model_dump() if published else None,
        "parameters": one.runs[0]["parameters"],
        "parameters_without_embeddings": one.runs[0]["parameters_without_embeddings"],
        "seconds": statistics.fmean(run["seconds"] for run in one.runs),
        "core_seconds": statistics.fmean(run["core_seconds"] for run in one.runs),
        "examples_trained": statistics.fmean(run["examples_trained"] for run in one.runs),
        "validation": [run["validation"] for run in one.runs],
    }


def best_possible(truth: pathlib.Path, scored: ScoredRows) -> dict[str, Any] | None:
    """Returns the metrics of the true probabilities on the test rows, which are the log's last; None without them."""
    if not truth.exists():
        return None
    labels = next(iter(scored.labels.values()))
    probabilities = pyarrow.parquet.read_table(truth, columns=["probability"])["probability"].to_numpy()
    numbers = summarise(labels, np.asarray(probabilities[-len(labels) :], np.float64))
    return {name: numbers[name] for name in ("auc", "log_loss")}


# What is shown -------------------------------------------------------------------------------------------------------


def cells(report: Mapping[str, Any]) -> list[list[str]]:
    """Returns the header of the leaderboard, and a row for each model."""
    entries = report["models"]
    has = {name for name in NAMES if any(name in entry["metrics"] for entry in entries)}
    published = any(entry["published"] for entry in entries)
    of_groups = any((entry["published"] or {}).get("gauc") is not None for entry in entries)
    head = ["model", "seeds"]
    for name in (name for name in NAMES if name in has):
        head += [f"{NAMES[name]} (dev.)", f"{NAMES[name]}, 95%"]
    head += ["behind the best, AUC", "told from it"]
    head += ["published AUC", "log loss, published"] if published else []
    head += ["gAUC, published"] if of_groups else []
    head += ["parameters", "outside tables", "s", "core s"]
    lines = [head]
    for entry in entries:
        line = [entry["model"], str(entry["seeds"])]
        for name in (name for name in NAMES if name in has):
            line += _metric(entry["metrics"].get(name))
        behind = entry.get("behind", {}).get("auc")
        line.append("{:+.4f} ({:+.4f} to {:+.4f})".format(behind["difference"], *behind["interval"]) if behind else "")
        line.append("" if behind is None else "yes" if entry["told_from_best"] else "no")
        if published:
            of = entry["published"]
            line += [f"{of['auc']:.4f}", f"{of['log_loss']:.4f}"] if of else ["", ""]
        if of_groups:
            gauc = (entry["published"] or {}).get("gauc")
            line.append("" if gauc is None else f"{gauc:.4f}")
        line += [f"{entry['parameters']:,}", f"{entry['parameters_without_embeddings']:,}"]
        lines.append([*line, f"{entry['seconds']:.0f}", f"{entry['core_seconds']:.0f}"])
    if possible := report.get("best_possible"):
        line = ["best possible", "", f"{possible['auc']:.4f}", "", f"{possible['log_loss']:.4f}"]
        lines.append(line + [""] * (len(head) - len(line)))
    return lines


def _metric(of: Mapping[str, Any] | None) -> list[str]:
    if of is None:
        return ["", ""]
    deviation = "" if of["deviation"] is None else f" ({of['deviation']:.4f})"
    return [f"{of['mean']:.4f}{deviation}", "{:.4f} to {:.4f}".format(*of["interval"])]


def page(report: Mapping[str, Any]) -> str:
    """Returns the leaderboard as Markdown."""
    rows = report["rows"]
    lines = [f"# {report['set']}", ""]
    lines += [f"{rows['train']:,} training rows, {rows['validation']:,} to choose by, {rows['test']:,} to test."]
    lines += [f"Source: {report['source']}."] if report["source"] else []
    lines += ["", "```sh", command_of(report), "```"]
    if caption := load_caption(report["busy"]):
        lines += ["", caption]
    lines += ["", *markdown_table(cells(report)), "", *notes(report)]
    return "\n".join(lines) + "\n"


def load_caption(share: float) -> str | None:
    """Returns a warning if other programs used much of the machine; None otherwise."""
    return f"Other work took {share:.0%} of the machine's cores: the seconds compare nothing." if share > BUSY else None


def command_of(report: Mapping[str, Any]) -> str:
    """Returns the command that makes the leaderboard, without the folders of the machine."""
    parts = ["python -m benchmarks.leaderboard --set", report["named"]]
    parts += [] if report["is_generated"] else ["--data FOLDER"]
    for option, value in (("--rows", report["rows_of_each_file"]), ("--trials", report["trials"])):
        parts += [f"{option} {value}"] if value else []
    parts += [f"--with {shlex.quote(key)}" for key in report["with"]]
    trained = [entry["model"] for entry in report["models"]] + list(report["failed"])
    if set(trained) != set(report["models_of_set"]):
        parts.append("--models " + ",".join(one for one in report["models_of_set"] if one in trained))
    return " ".join([*parts, f"--seeds {report['seeds']}"])


def notes(report: Mapping[str, Any]) -> list[str]:
    """Returns the notes on the figures, one per line."""
    entries = report["models"]
    first, *others = entries
    equal = [entry["model"] for entry in others if not entry["told_from_best"]]
    lines = []
    if others:
        lines.append(
            f"- Not told from {first['model']}: {', '.join(equal) or 'none'} (distances in AUC, paired, over rows and "
            f"seeds, corrected by Bonferroni for their number of {len(others)})."
        )
    if any("gauc" in entry["metrics"] for entry in entries):
        lines.append("- gAUC's errors are over groups.")
    if report.get("chooses_by_test"):
        lines.append(
            "- The rows to choose by are the test rows, as in the published runs: each figure is of the evaluation "
            "that is best on these very rows, and rows that chose nothing would have a lower one."
        )
    if any(entry["seeds"] == 1 for entry in entries):
        lines.append("- One training of a model: its intervals are over rows alone.")
    if report["published_source"] and any(entry["published"] for entry in entries):
        why = "" if report["is_published_split"] else ", on all rows: these are others, so the two are not comparable"
        lines.append(f"- Published: {report['published_source']}{why}.")
    lines += [f"- Not trained: {name}: {reason}" for name, reason in report["failed"].items()]
    return lines
