"""Measures the quality of our models and other libraries' on the same rows and split, with the same budget of trials.

    python -m benchmarks.quality --data LOG [--config configs/criteo/lr.yaml] [--trials 8] [--finalists 3] [--seeds 5]
        [--sides ours,ours_averaged,baseline,deepctr_torch,recbole,lightgbm,scikit-learn]
        [--models lr,fm,deepfm,dcn_v2,xdeepfm,autoint]
        [--fuxictr FOLDER] [--patience 6] [--folder FOLDER] [--output FILE]

A run's pipeline reads, splits and transforms the log; every side gets the same ids of the same rows. Each side trains
each of its models with the same number of settings: its own defaults first, then random ones, the same for all sides,
from the search space in harness/quality_sides.py. All networks train with the same batch size and number of
evaluations. The validation log loss controls the learning rate, early stopping, and the choice of weights. The settings
with the lowest validation log loss (the finalists) are trained with every seed; their mean selects the settings that
are tested on the test rows. Models are not retrained on training and validation rows together. `ours_averaged` is ours
with weights averaged over about AVERAGED evaluations, a feature of our trainer that the others lack. `baseline` is the
lr that a run trains for comparison (`evaluation.baseline`): L-BFGS finds the optimum of its loss, and it has no
settings to try.

Sides may differ because the validation rows select different settings, or because a library adds a linear part that
the paper's model lacks. Therefore ours is also trained with the settings selected for each peer, if they are random
ones, and with the peer's linear part. The remaining difference is due to the libraries.

Each training run is stored as a file in --folder: the same command resumes after an interrupt. Writes the report as
JSON to --output, and the table as Markdown next to it.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import (
    chosen_names,
    cores,
    folder_option,
    zoo_option,
)
from benchmarks.harness.printed_sections import markdown_table
from benchmarks.harness.quality_sides import (
    MODELS,
    SPLITS,
    STOP,
    Baseline,
    OneHot,
    Ours,
    PeerSide,
    Rows,
    Settings,
    Side,
    Trees,
    trials,
)
from benchmarks.peers.client import Peer
from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.common.estimates import auc_estimate
from ctrpipe.common.files import atomic_path, write_json, write_text
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.compare.rows_and_seeds import difference
from ctrpipe.pipeline.config import RunConfig, load_config

OURS = ("ours", "ours_averaged")
BASELINE = "baseline"
NAMES = (*OURS, BASELINE, "deepctr_torch", "recbole", "lightgbm", "scikit-learn")
MARGIN = 0.0005  # of AUC: how far ours may be below a peer's mean
ROWS_ALONE = "* over rows alone: one training on a side"
AVERAGED = 4  # evaluations over which `ours_averaged` averages its weights


@dataclasses.dataclass(frozen=True)
class Result:
    """The training runs of a side's model with the same settings.

    Attributes:
        side, model: The side and the model.
        settings: The settings.
        runs: By seed: AUC and log loss on the test rows, log loss on the validation rows, and seconds.
        probabilities: By seed, predictions for the test rows.
        trial: Index of the settings in the search; 0: the side's own defaults.
        ours_alike: Ours with a peer's settings, and with a linear part if the peer's model has one.
    """

    side: str
    model: str
    settings: Settings
    runs: list[dict[str, float]]
    probabilities: list[np.ndarray]
    trial: int = 0
    ours_alike: "Result | None" = None

    @property
    def auc(self) -> float:
        """The mean AUC on the test rows."""
        return statistics.fmean(run["auc"] for run in self.runs)

    @property
    def validation_log_loss(self) -> float:
        """The mean log loss on the validation rows."""
        return statistics.fmean(run["validation_log_loss"] for run in self.runs)


def make_rows(config: RunConfig, data: str, folder: pathlib.Path) -> Rows:
    """Returns the transformed log, and writes its ids to a file for the peers.

    Raises:
        InputError: The log cannot be used, or has features that some sides do not support.
    """
    load_tensorflow()
    from ctrpipe.pipeline.run.run import transform  # imports TensorFlow
    from ctrpipe.pipeline.training.data import packed_reader

    log = transform(config, [data], folder)
    feature_map = log.feature_map
    if feature_map.dense or feature_map.text or any(field.slots > 1 for field in feature_map.fields):
        raise InputError("--config: give one without dense, multivalent and text features, which not all sides take")
    offsets = np.array([field.offset for field in feature_map.fields], np.int32)
    files = {"train": log.train, "validation": log.validation, "test": log.test}
    arrays = {"sizes": np.array([field.size for field in feature_map.fields])}
    for name, patterns in files.items():
        batches = list(packed_reader(patterns, feature_map, 8192))
        arrays[f"{name}_ids"] = np.concatenate([inputs["ids"] for inputs, _ in batches]) - offsets
        arrays[f"{name}_labels"] = np.concatenate([labels[:, 0] for _, labels in batches])
    with atomic_path(folder / "rows.npz") as unfinished, open(unfinished, "wb") as file:
        np.savez(file, **arrays)
    return Rows(folder / "rows.npz", feature_map, files)


class Trainings:
    """Training runs stored in a folder.

    Args:
        rows: The rows.
        folder: Folder for the results.
    """

    def __init__(self, rows: Rows, folder: pathlib.Path) -> None:
        self.rows, self.folder = rows, folder
        self.identity = hashlib.sha256(rows.path.read_bytes()).hexdigest()
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, side: Side, model: str, settings: Settings, seed: int) -> tuple[dict[str, float], np.ndarray]:
        """Returns a training run's metrics and test predictions; trains if there is no stored result."""
        what = json.dumps([self.identity, side.name, model, settings, side.schedule, seed], sort_keys=True)
        path = self.folder / f"{side.name}-{model}-{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=self.folder) as own:  # another command may train in this folder
                trained = side.train(model, settings, seed, self.rows, pathlib.Path(own) / "work")
            labels = self.rows.split("test")[1]
            numbers = {"log_loss": metrics.log_loss(labels, trained.probabilities), "seconds": trained.seconds}
            numbers |= {"auc": metrics.auc(labels, trained.probabilities), "validation_log_loss": trained.log_loss}
            np.save(path.with_suffix(".npy"), trained.probabilities)
            write_json(path, {"settings": settings, "seed": seed, **numbers})
        return json.loads(path.read_text()), np.load(path.with_suffix(".npy"))

    def best(self, side: Side, model: str, count: int, finalists: int, seeds: int) -> Result:
        """Searches a side's settings for a model, and trains the finalists with every seed.

        The validation log loss of one training run depends as much on its seed as on its settings: the lowest of many
        has a lucky seed. Therefore the mean over the seeds selects among the finalists.
        """
        losses = []
        searched = list(trials(side, model, count))
        for index, settings in enumerate(searched, 1):
            numbers, _ = self.get(side, model, settings, 1)
            losses.append(numbers["validation_log_loss"])
            announce(f"{side.name}, {model}: trial {index} of {count}, validation log loss {losses[-1]:.4f}")
        order = np.argsort(losses, kind="stable")[:finalists]
        results = [self.with_seeds(side, model, searched[place], seeds, int(place)) for place in order]
        result = min(results, key=lambda one: one.validation_log_loss)
        announce(f"{side.name}, {model}: test AUC {result.auc:.4f} with {json.dumps(result.settings)}")
        return result

    def with_seeds(self, side: Side, model: str, settings: Settings, seeds: int, trial: int) -> Result:
        """Trains a side's model with the settings of a trial and every seed."""
        each = [self.get(side, model, settings, seed) for seed in range(1, (seeds if side.is_random else 1) + 1)]
        numbers, values = [numbers for numbers, _ in each], [values for _, values in each]
        result = Result(side.name, model, settings, numbers, values, trial)
        announce(
            f"{side.name}, {model}: trial {trial + 1} with {len(each)} seeds, "
            f"mean validation log loss {result.validation_log_loss:.4f}"
        )
        return result


def measure(
    sides: Sequence[Side], names: Sequence[str], trainings: Trainings, count: int, finalists: int, seeds: int
) -> Iterator[Result]:
    """Yields each side's result with each of its models; a peer's result also contains ours with the same settings."""
    ours = next((side for side in sides if isinstance(side, Ours) and side.name == OURS[0]), None)
    for name in (*names, "trees"):
        for side in sides:
            if name in side.models:
                tried = 1 if side.name == BASELINE else count
                result = trainings.best(side, name, tried, finalists, seeds)
                if ours is not None and side.name not in (*OURS, BASELINE) and name in ours.models and result.trial:
                    *_, drawn = trials(ours, name, result.trial + 1)
                    alike = trainings.with_seeds(ours, name, ours.alike(drawn, name, side), seeds, result.trial)
                    result = dataclasses.replace(result, ours_alike=alike)
                yield result


def compared(results: Sequence[Result], labels: np.ndarray) -> list[dict[str, Any]]:
    """Returns the results with the differences of ours to each: of the same model, or of our best model for trees.

    Also returns the differences of ours with the same settings to each peer.
    """
    values = []
    for result in results:
        runs = {key: [run[key] for run in result.runs] for key in ("auc", "log_loss", "seconds")}
        numbers: dict[str, Any] = {"side": result.side, "model": result.model, "settings": result.settings, **runs}
        beside = {} if result.side == "ours" else {name: _beside(results, name, result.model) for name in OURS}
        if result.side not in OURS:
            own = (each for each in results if (each.side, each.model) == (BASELINE, result.model))
            beside[BASELINE] = next(own, None)
        for name, ours in beside.items():
            if ours is not None and name != result.side:
                numbers.setdefault("ahead", {})[name] = _difference(labels, result, ours)
        if result.ours_alike:
            numbers["alike"] = _difference(labels, result, result.ours_alike)
        values.append(numbers)
    return values


def _difference(labels: np.ndarray, theirs: Result, ours: Result) -> dict[str, Any]:
    """Returns our model, and the lead of its AUC with its interval."""
    sides = [[_estimate(labels, each) for each in result.probabilities] for result in (theirs, ours)]
    return {"model": ours.model, **dataclasses.asdict(difference(*sides))}


def _beside(results: Sequence[Result], side: str, model: str) -> Result | None:
    """Returns a side's result with the model, or with the side's best model if it lacks this one."""
    own = {result.model: result for result in results if result.side == side}
    return own.get(model, max(own.values(), key=lambda result: result.auc, default=None))


def _estimate(labels: np.ndarray, probabilities: np.ndarray) -> Any:
    estimate = auc_estimate(labels, probabilities)
    if estimate is None:
        raise InputError("--data: the test rows need two clicks and two rows without; give more rows")
    return estimate


def bars(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the bars for ours: at most MARGIN below a peer's same model, and our best model not below their best."""
    theirs = [value for value in values if value["side"] not in (*OURS, BASELINE)]
    lines = []
    for name in (*OURS, BASELINE):
        for value in theirs:
            ahead = value.get("ahead", {}).get(name)
            if ahead and ahead["model"] == value["model"]:
                line = {"bar": f"{name}, {value['model']} against {value['side']}", "ahead": ahead["difference"]}
                lines.append({**line, "met": line["ahead"] >= -MARGIN})
        best = max((statistics.fmean(value["auc"]) for value in values if value["side"] == name), default=None)
        if name in OURS and best is not None and theirs:
            difference = best - max(statistics.fmean(value["auc"]) for value in theirs)
            line = {"bar": f"{name}, our best against their best", "ahead": difference}
            lines.append({**line, "met": difference >= 0})
    return lines


def table(values: Sequence[dict[str, Any]], title: str) -> Table:
    """Returns a table with a row for each side's model, including the seconds of a training run."""
    result = Table(title=title, caption=ROWS_ALONE if _of_rows_alone(values) else None)
    head, *lines = _cells(values)
    for column in (*head, "seconds"):
        result.add_column(column, justify="left" if column in ("model", "side") else "right")
    for line, value in zip(lines, values, strict=True):
        result.add_row(*line, f"{statistics.median(value['seconds']):.1f}")
    return result


def page(report: dict[str, Any]) -> str:
    """Returns the report as Markdown: a row for each side's model, and the bars met and missed."""
    counts, values = report["rows"], report["results"]
    said = f"{counts['train']:,} training rows, {counts['validation']:,} to choose by, {counts['test']:,} to test"
    lines = [f"{said}; {report['trials']} trials a model.", "", *markdown_table(_cells(values)), ""]
    lines += [ROWS_ALONE, ""] if _of_rows_alone(values) else []
    for is_met, name in ((True, "Met"), (False, "Missed")):
        met = [f"{line['bar']} ({line['ahead']:+.4f})" for line in report["bars"] if line["met"] == is_met]
        lines.append(f"- {name}, {len(met)} of {len(report['bars'])}: {'; '.join(met) or 'none'}.")
    return "\n".join(lines) + "\n"


def _cells(values: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Returns the header of the table, and a row for each side's model."""
    compared_with = [name for name in (*OURS, BASELINE) if any(name in value.get("ahead", {}) for value in values)]
    head = ["model", "side", "seeds", "AUC", "deviation", "log loss"]
    head += [text for name in compared_with for text in (f"{name} ahead, AUC", "95%")]
    lines = [[*head, "ours ahead, same settings", "95%"]]
    for value in values:
        aucs = value["auc"]
        deviation = f"{statistics.stdev(aucs):.4f}" if len(aucs) > 1 else "-"
        cells = [value["model"], value["side"], str(len(aucs)), f"{statistics.fmean(aucs):.4f}", deviation]
        cells.append(f"{statistics.fmean(value['log_loss']):.4f}")
        for name in compared_with:
            cells += _ahead(value.get("ahead", {}).get(name))
        lines.append([*cells, *_ahead(value.get("alike"))])
    return lines


def _of_rows_alone(values: Sequence[dict[str, Any]]) -> bool:
    """Returns whether some interval does not include the variation over seeds."""
    return any(ahead["seeds_error"] is None for value in values for ahead in value.get("ahead", {}).values())


def _ahead(ahead: dict[str, Any] | None) -> tuple[str, str]:
    """Returns a difference and its interval as table cells."""
    if ahead is None:
        return "", ""
    low, high = ahead["interval"]
    return f"{ahead['difference']:+.4f}", f"{low:+.4f} .. {high:+.4f}{' *' if ahead['seeds_error'] is None else ''}"


def _sides(
    names: Sequence[str],
    threads: int,
    schedule: Settings,
    zoo: pathlib.Path | None,
    stack: contextlib.ExitStack,
) -> list[Side]:
    """Returns the sides; the peers' processes end with the stack."""
    sides: list[Side] = []
    for name in names:
        if name in OURS:
            sides.append(Ours(schedule, 1 if name == "ours" else AVERAGED))
        elif name == BASELINE:
            sides.append(Baseline())
        elif name == "lightgbm":
            sides.append(Trees(threads))
        elif name == "scikit-learn":
            sides.append(OneHot())
        else:
            sides.append(PeerSide(stack.enter_context(Peer(name)), threads, schedule))
    if zoo:
        sides.append(PeerSide(stack.enter_context(Peer("fuxictr")), threads, schedule, zoo))
    return sides


def report_table(report: Mapping[str, Any]) -> Table:
    counts = report["rows"]
    title = f"{counts['train']:,} training rows, {counts['test']:,} test rows, {report['trials']} trials a model"
    return table(report["results"], title)


@Benchmark("benchmarks.quality", report_table)
@click.option("--data", required=True, help="The log, or a glob of its files.")
@click.option(
    "--config",
    type=click.Path(path_type=pathlib.Path),
    default="configs/criteo/lr.yaml",
    help="Configuration that describes the log.",
)
@click.option("--models", default=",".join(MODELS), help="Models to train, separated by commas.")
@click.option("--sides", default=",".join(NAMES), help="Sides to train, separated by commas.")
@zoo_option
@click.option("--trials", type=click.IntRange(1), default=8, help="Settings that a side tries per model.")
@click.option("--finalists", type=click.IntRange(1), default=3, help="Best trials, which are trained with every seed.")
@click.option("--seeds", type=click.IntRange(1), default=5, help="Training runs of a finalist.")
@click.option("--batch", type=click.IntRange(1), default=1024, help="Batch size of the networks.")
@click.option("--evaluations", type=click.IntRange(1), default=4, help="Evaluations of a network per epoch.")
@click.option("--patience", type=click.IntRange(1), help="Evaluations without improvement before training stops.")
@click.option("--threads", type=click.IntRange(1), help="Threads of a peer. Default: all cores.")
@folder_option("quality")
def main(
    report: Report,
    data: str,
    config: pathlib.Path,
    models: str,
    sides: str,
    fuxictr: pathlib.Path | None,
    trials: int,
    finalists: int,
    seeds: int,
    batch: int,
    evaluations: int,
    patience: int | None,
    threads: int | None,
    folder: pathlib.Path,
) -> None:
    """Measure the quality of our models and other libraries'.

    All sides get the same rows, split and ids, and the same number of trials; the validation rows select the settings.
    Prints a table, writes JSON after every model, and prints the JSON on the last line. Resumes after an interrupt.
    """
    names, who = chosen_names("--models", models, MODELS), chosen_names("--sides", sides, NAMES)
    rows = make_rows(load_config(config), data, folder)
    counts = {name: len(rows.split(name)[1]) for name in SPLITS}
    report |= {"rows": counts}
    report |= {"trials": trials, "finalists": finalists, "seeds": seeds, "batch": batch, "evaluations": evaluations}
    report |= {"patience": patience or STOP["patience"]}
    results: list[Result] = []
    schedule = {"batch_size": batch, "evaluations_per_epoch": evaluations, **STOP}
    schedule |= {"patience": patience} if patience else {}
    with contextlib.ExitStack() as stack:
        chosen = _sides(who, threads or cores(), schedule, fuxictr, stack)
        kept = Trainings(rows, folder / "trainings")
        for result in measure(chosen, names, kept, trials, finalists, seeds):
            results.append(result)
            report["results"] = compared(results, rows.split("test")[1])
            report["bars"] = bars(report["results"])
            report.write()
    if not results:
        raise InputError("--sides and --models: no side has any of these models")
    for line in report["bars"]:
        announce(f"{'met' if line['met'] else 'MISSED'}: {line['bar']}, {line['ahead']:+.4f}")
    write_text(report.output.with_suffix(".md"), page(report))


if __name__ == "__main__":
    main()
