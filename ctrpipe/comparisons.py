"""Models on the same test rows: is one better than another by more than chance?"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ctrpipe.data import PathLike
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result
from ctrpipe.runs import Run
from ctrpipe.scorings import Scoring
from ctrpipe.settings import Config, source_of
from ctrpipe.sweeps import Sweep
from ctrpipe.table import Table, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Compared: TypeAlias = PathLike | Run | Sweep | Scoring


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Models on the same test rows. Its table, and `to_pandas`, have a row for each slice of the rows and each model.

    Attributes:
        report: The contents of the JSON file of `ctrpipe compare`.
    """

    report: dict[str, Any]

    @property
    def models(self) -> tuple[str, ...]:
        """The models' names; differences are to the first."""
        return tuple(self.report["models"])

    @property
    def task(self) -> str:
        """The label by which they are compared."""
        return str(self.report["task"])

    @property
    def slices(self) -> tuple[dict[str, Any], ...]:
        """Each slice with its `rows`, and `metrics` and `differences` by model."""
        return tuple(self.report["slices"])

    def _records(self) -> list[dict[str, Any]]:
        records = []
        for part in self.slices:
            for name, metrics in part["metrics"].items():
                record = {"slice": part["slice"], "rows": part["rows"], "model": name, **metrics}
                for metric, compared in part["differences"].get(name, {}).items():
                    low, high = compared["interval"] or (None, None)
                    found = {"difference": compared["difference"], "low": low, "high": high}
                    found |= {"p": compared["p"], "verdict": compared["verdict"]}
                    record |= {f"{metric}_{key}": value for key, value in found.items()}
                records.append(record)
        return records

    def _table(self) -> Table:
        header = ("slice", "model", "auc", "log_loss", "auc difference", "95%", "p")
        rows = []
        for part in self.slices:
            for name, metrics in part["metrics"].items():
                auc = part["differences"].get(name, {}).get("auc", {})
                known = [metrics["auc"], metrics["log_loss"], auc.get("difference")]
                rows.append([part["slice"], name, *known, interval(auc.get("interval")), auc.get("p")])
        return Table(header, rows)

    @in_one_line
    def plot(self) -> "Figure":
        """Returns each model's differences in AUC and RIG on each slice, with their 95% intervals."""
        from ctrpipe.figures import shown  # matplotlib: 0.4 s
        from ctrpipe.pipeline.compare.show import comparison_figure

        return shown(comparison_figure(self.report))


@in_one_line
def compare(
    *models: Compared | Sequence[Compared],
    task: str | None = None,
    shards: int = 20,
    config: Config | None = None,
    output: PathLike | None = None,
) -> Comparison:
    """Compares models on the same test rows: is the second better than the first by more than chance?

    Args:
        models: Two models or more: a run, several runs that differ by their seeds as a list, a sweep, which stands for
            all its points, or a scoring of a labelled log; each as its folder or as what a function returned.
        task: The label to judge by; None takes the first.
        shards: Of the test rows, for t values.
        config: The log's configuration, which a scoring needs: it says which columns are labels.
        output: A file for JSON, beside which a picture is written; None for none.

    Raises:
        InputError: a folder holds no finished run and no scoring, or they are not on the same test rows.

    Example:
        >>> ctrpipe.compare([a1, a2, a3], [b1, b2, b3]).to_pandas()[["slice", "model", "auc_difference"]]
    """
    # numpy and pyarrow: 0.2 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.compare.folders import compare_folders
    from ctrpipe.pipeline.compare.show import write_comparison

    log = None
    if config is not None:
        from ctrpipe.pipeline.config import load_config  # 0.2 s, which comparing runs does without

        log = load_config(source_of(config))
    report = compare_folders([_folders(trainings) for trainings in models], task, shards, log)
    if output is not None:
        write_comparison(report, pathlib.Path(output))
    return Comparison(report)


def _folders(trainings: Compared | Sequence[Compared]) -> list[pathlib.Path]:
    if isinstance(trainings, PathLike):
        return [pathlib.Path(trainings)]
    if isinstance(trainings, Run | Sweep | Scoring):
        return [trainings.output]
    return [folder for each in trainings for folder in _folders(each)]
