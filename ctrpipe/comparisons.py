"""Compare models on the same test rows, with confidence intervals and p-values."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ctrpipe.bar import with_bar
from ctrpipe.common.errors import InputError
from ctrpipe.common.significance import p_text
from ctrpipe.common.store_folders import written_file
from ctrpipe.common.stores import name_of
from ctrpipe.data import PathLike, place_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.pipeline.compare.folders import compare_folders
from ctrpipe.pipeline.compare.plots import comparison_figure
from ctrpipe.pipeline.compare.show import write_comparison
from ctrpipe.pipeline.config import load_config
from ctrpipe.result import Result
from ctrpipe.runs import Run
from ctrpipe.scorings import Scoring
from ctrpipe.settings import Config, local_model, source_of
from ctrpipe.sweeps import Sweep
from ctrpipe.table import Table, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Compared: TypeAlias = PathLike | Run | Sweep | Scoring


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Metrics of several models on the same test rows.

    The table and `to_pandas` have one row per slice and model.

    Attributes:
        report: The contents of the JSON file that `ctrpipe compare` writes.
    """

    report: dict[str, Any]

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models. Differences are relative to the first."""
        return tuple(self.report["models"])

    @property
    def task(self) -> str:
        """The label on which the models are compared."""
        return str(self.report["task"])

    @property
    def slices(self) -> tuple[dict[str, Any], ...]:
        """The slices. Each has `slice`, `rows`, and `metrics` and `differences` by model."""
        return tuple(self.report["slices"])

    def _records(self) -> list[dict[str, Any]]:
        records = []
        for part in self.slices:
            for name, metrics in part["metrics"].items():
                record = {"slice": part["slice"], "rows": part["rows"], "model": name, **metrics}
                for metric, compared in part["differences"].get(name, {}).items():
                    low, high = compared["interval"] or (None, None)
                    tested = {"difference": compared["difference"], "low": low, "high": high}
                    tested |= {"p": compared["p"], "verdict": compared["verdict"]}
                    record |= {f"{metric}_{key}": value for key, value in tested.items()}
                records.append(record)
        return records

    def _table(self) -> Table:
        is_number = "rmse" in self.slices[0]["metrics"][self.models[0]]
        first, second = ("rmse", "mae") if is_number else ("auc", "log_loss")
        header = ("slice", "model", first, second, f"{first} difference", "95%", "p")
        rows = []
        for part in self.slices:
            for name, metrics in part["metrics"].items():
                tested = part["differences"].get(name, {}).get(first, {})
                known = [metrics[first], metrics[second], tested.get("difference")]
                rows.append([part["slice"], name, *known, interval(tested.get("interval")), p_text(tested.get("p"))])
        return Table(header, rows)

    @in_one_line
    def plot(self) -> "Figure":
        """Plots the differences per model and slice, with 95% confidence intervals: in AUC and RIG, or RMSE and MAE."""
        return comparison_figure(self.report)


@in_one_line
@with_bar
def compare(
    *models: Compared | Sequence[Compared],
    task: str | None = None,
    shards: int = 20,
    config: Config | None = None,
    output: PathLike | None = None,
) -> Comparison:
    """Tests whether models differ on the same test rows by more than chance.

    Args:
        models: At least two models. Each is a run, a list of runs of one model with different seeds, a sweep (each of
            its points is a model), or a scoring of a labelled log. Give the result of a function or its folder.
        task: The label to compare on, alone. None takes the first; `report["further_tasks"]` then has the others.
        shards: Number of shards of the test rows, for the t values.
        config: The configuration of the log. Required for scorings: it names the label columns.
        output: JSON file to write, or its URL in a store, with a plot and a page next to it. None writes no file.

    Returns:
        A `Comparison` with metrics per slice, and differences to the first model with 95% confidence intervals.

    Raises:
        InputError: a folder contains no finished run and no scoring, or the models have different test rows.

    Example:
        >>> ctrpipe.compare([a1, a2, a3], [b1, b2, b3]).to_pandas()[["slice", "model", "auc_difference"]]
    """
    log = None
    if config is not None:
        log = load_config(source_of(config))
    report = compare_folders([_folders(trainings) for trainings in models], task, shards, log)
    if output is not None:
        with written_file(file := place_of(output)) as place:
            write_comparison(report, place.folder / name_of(file))
    return Comparison(report)


def _folders(trainings: Compared | Sequence[Compared]) -> list[pathlib.Path]:
    if isinstance(trainings, PathLike):
        return [local_model(trainings)]
    if isinstance(trainings, Run | Sweep | Scoring):
        return [trainings.output]
    if not isinstance(trainings, Sequence):
        kind = type(trainings).__name__
        raise InputError(f"a model of type {kind}: expected runs, sweeps, scorings or their folders; give one of them")
    return [folder for each in trainings for folder in _folders(each)]
