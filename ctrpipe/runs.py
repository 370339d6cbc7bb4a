"""A run: read, check, transform, train, evaluate, gate, push."""

import dataclasses
import functools
import json
import pathlib
from typing import TYPE_CHECKING, Any

from ctrpipe.data import FOLDER, Data, PathLike, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result, evaluations
from ctrpipe.settings import Config, data_of, output_folder, overrides, source_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

METRICS = ("auc", "log_loss", "rig", "calibration")


@dataclasses.dataclass(frozen=True, repr=False)
class Run(Result):
    """A finished run. Its table has the test rows' metrics; `to_pandas` has a row for the model, its baseline and each
    slice of the test rows.

    Attributes:
        output: The run's folder.
        model: The folder of the model's versions, for `ctrpipe.load` and TF Serving.
        metrics: The contents of metrics.json.
    """

    output: pathlib.Path
    model: pathlib.Path
    metrics: dict[str, Any]

    @property
    def blessed(self) -> bool:
        """Whether all gates let the model pass, so that it was pushed."""
        return bool(self.metrics["blessed"])

    @property
    def report(self) -> pathlib.Path:
        """The report's file, report.html."""
        return self.output / "report.html"

    @functools.cached_property
    def history(self) -> "pd.DataFrame":
        """The training's evaluations, in order: losses and validation metrics; `best` marks the one that was kept."""
        return evaluations([({}, self._history)])

    @property
    def _history(self) -> dict[str, Any]:
        history: dict[str, Any] = json.loads((self.output / "report_data" / "history.json").read_text())
        return history

    def _records(self) -> list[dict[str, Any]]:
        whole = {"rows": "all", "model": "model"}
        rows = [{**whole, **_numbers(self.metrics)}]
        if baseline := self.metrics.get("baseline"):
            rows.append({**whole, "model": "baseline", **_numbers(baseline)})
        for column, by_value in self.metrics.get("slices", {}).items():
            for value, of_slice in by_value.items():
                rows.append({"rows": f"{column} = {value}", "model": "model", **_numbers(of_slice)})
        return rows

    def _table(self) -> Table:
        rows = [[key, self.metrics[key]] for key in (*METRICS, "blessed", "model_version")]
        return Table([str(self.output), ""], rows)

    @in_one_line
    def plot(self) -> "Figure":
        """Returns the report's charts: losses and AUC by examples, ROC, precision and recall, calibration, scores."""
        from ctrpipe.figures import chart_figure  # matplotlib: 0.4 s that a run does without
        from ctrpipe.pipeline.report.plots import charts

        predictions = (self.output / "report_data" / "predictions.parquet").read_bytes()
        return chart_figure(list(charts(predictions, self._history).values()))


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if key in ("examples", *METRICS)}


@in_one_line
def run(
    config: Config,
    data: Data | None = None,
    output: PathLike | None = None,
    *,
    warm_start: "PathLike | Run | None" = None,
    **settings: Any,
) -> Run:
    """Runs the pipeline (read, check, transform, train, evaluate, gate, push), as `ctrpipe run` does.

    The same call again continues an interrupted run, and takes everything unchanged from the cache, also where the data
    are a DataFrame.

    Args:
        config: A YAML file or the name of one that comes with ctrpipe, its values as a dict, or what `init` returned.
        data: The log: files or globs, a DataFrame or a pyarrow Table; None for the configuration's own.
        output: The run's folder; None for runs/<name of the configuration>.
        warm_start: The run or version whose weights the training begins with, or "latest".
        settings: Keys of the configuration to override, with `__` for the dot: `training__epochs=2`.

    Raises:
        InputError: the configuration, the data or the folder cannot be used.

    Example:
        >>> run = ctrpipe.run("criteo/deepfm.yaml", "train.tsv", "runs/mine", training__epochs=2)
        >>> run.metrics["auc"], run.history["validation_auc"].max()
        (0.74, 0.75)
    """
    # numpy, pyarrow and pydantic: 0.4 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.config import load_config, with_parent
    from ctrpipe.pipeline.run.prepared import joined
    from ctrpipe.pipeline.run.run import run as run_pipeline

    loaded = load_config(source_of(config), overrides(settings))
    if warm_start is not None:
        loaded = with_parent(loaded, str(folder_of(warm_start)))
    folder = output_folder(output, loaded.name)
    files = files_of(data_of(config, data), folder / FOLDER)
    metrics = run_pipeline(loaded, joined(files or loaded.data.paths, loaded, folder), folder)
    return Run(folder, folder / "models" / loaded.serving.model_name, metrics)


def folder_of(model: PathLike | Run) -> pathlib.Path:
    """Returns the folder of a model: a run's own, or the one that was named."""
    return model.output if isinstance(model, Run) else pathlib.Path(model)


def versions_of(model: PathLike | Run) -> pathlib.Path:
    """Returns the folder of a model's versions: those that a run has pushed, or the one that was named."""
    return model.model if isinstance(model, Run) else pathlib.Path(model)
