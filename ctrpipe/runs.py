"""Run the pipeline: read, check, transform, train, evaluate, gate, push."""

import dataclasses
import functools
import json
import pathlib
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from ctrpipe.bar import with_bar
from ctrpipe.common.errors import InputError
from ctrpipe.data import FOLDER, Logs, PathLike, log_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result, evaluations
from ctrpipe.serving.layout import base_path_of
from ctrpipe.settings import Config, data_of, local_model, output_place, overrides, source_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

METRICS = ("auc", "gauc", "log_loss", "rig", "calibration")  # gauc only with evaluation.group


@dataclasses.dataclass(frozen=True, repr=False)
class Run(Result):
    """A finished run.

    The table has the metrics on the test rows. `to_pandas` has one row for the model, one for the baseline and one per
    slice of the test rows.

    Attributes:
        output: The folder of the run.
        model: The folder of the model's versions, for `ctrpipe.load` and TF Serving.
        metrics: The contents of metrics.json.
    """

    output: pathlib.Path
    model: pathlib.Path
    metrics: dict[str, Any]

    @property
    def blessed(self) -> bool:
        """Whether the model passed all gates and was pushed."""
        return bool(self.metrics["blessed"])

    @property
    def report(self) -> pathlib.Path:
        """The path of the report, report.html."""
        return self.output / "report.html"

    @functools.cached_property
    def seeds(self) -> dict[str, Any] | None:
        """The contents of seeds.json: the runs of model and baseline, and their difference; None for one seed."""
        path = self.output / "seeds.json"
        return dict(json.loads(path.read_text())) if path.exists() else None

    @functools.cached_property
    def history(self) -> "pd.DataFrame":
        """Losses and validation metrics of all evaluations in order. `best` marks the kept weights."""
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
        shown = [key for key in METRICS if key in self.metrics]
        rows = [[key, self.metrics[key]] for key in (*shown, "blessed", "model_version")]
        return Table([str(self.output), ""], rows, "" if self.blessed else f"The model {self._fate}.")

    @property
    def _fate(self) -> str:
        # Lazy: only a blocked run says more.
        from ctrpipe.pipeline.report.verdict import fate

        return fate(self.metrics, json.loads((self.output / "report_data" / "gates.json").read_text()))

    @in_one_line
    def plot(self) -> "Figure":
        """Plots the report's charts: learning curves, ROC, precision-recall, calibration and scores."""
        # Lazy: matplotlib takes 0.4 s.
        from ctrpipe.common.charts import chart_figure
        from ctrpipe.pipeline.report.plots import charts

        predictions = (self.output / "report_data" / "predictions.parquet").read_bytes()
        return chart_figure(list(charts(predictions, self._history).values()))


def _numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    of_hooks: dict[str, Any] = metrics.get("hooks", {})
    return {key: value for key, value in metrics.items() if key in ("examples", *METRICS)} | of_hooks


@in_one_line
@with_bar
def run(
    config: Config,
    data: Logs | None = None,
    output: PathLike | None = None,
    *,
    warm_start: "ModelLike | None" = None,
    seeds: int | None = None,
    **settings: Any,
) -> Run:
    """Runs the pipeline: read, check, transform, train, evaluate, gate, push.

    The same call continues an interrupted run, and takes all unchanged steps from the cache. This also holds for data
    in a DataFrame.

    Args:
        config: The configuration: a YAML file, the name of a packaged one (`criteo/deepfm.yaml`), a dict of its
            values, or the result of `init`.
        data: The log: files or globs, a DataFrame or a pyarrow Table. None uses the configuration's `data.paths`. A
            dict of three logs with the keys train, validation and test replaces the configuration's split.
        output: Folder of the run, or its URL in a store. None uses runs/<name of the configuration>.
        warm_start: The run or version whose weights initialize the model, or "latest".
        seeds: Number of training runs of the model and of the baseline, each with another seed; see `Run.seeds`. None
            uses the configuration's `evaluation.seeds`.
        settings: Configuration keys to override, with `__` instead of dots: `training__epochs=2`.

    Returns:
        A `Run` with metrics, history, report and the folder of the model.

    Raises:
        InputError: the configuration, the data or the output folder cannot be used.

    Example:
        >>> run = ctrpipe.run("criteo/deepfm.yaml", "train.tsv", "runs/mine", training__epochs=2)
        >>> run.metrics["auc"], run.history["validation_auc"].max()
        (0.74, 0.75)
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.common.processes import end_forked_workers
    from ctrpipe.pipeline.config import load_config, with_parent
    from ctrpipe.pipeline.run.prepared import joined
    from ctrpipe.pipeline.run.run import run as run_pipeline
    from ctrpipe.pipeline.run.stored_run import output_of_run

    if seeds is not None:
        settings["evaluation__seeds"] = seeds
    loaded = load_config(source_of(config), overrides(settings))
    if warm_start is not None:
        loaded = with_parent(loaded, str(folder_of(warm_start)))
    with output_of_run(output_place(output, loaded.name), loaded.serving.model_name) as folder:
        loaded, files = log_of(loaded, data_of(config, data), folder / FOLDER)
        try:
            metrics = run_pipeline(loaded, joined(files, loaded, folder), folder)
        finally:
            end_forked_workers()  # a program or a notebook goes on, and needs the memory of idle processes
    return Run(folder, folder / "models" / loaded.serving.model_name, metrics)


@runtime_checkable
class Loaded(Protocol):
    """A model that `ctrpipe.load` returned."""

    @property
    def folder(self) -> pathlib.Path:
        """The folder that it was loaded from."""
        ...


ModelLike: TypeAlias = PathLike | Run | Loaded


def folder_of(model: ModelLike) -> pathlib.Path:
    """Returns the folder of a run or of a loaded model, or the given path. Downloads what a store's URL names.

    Raises:
        InputError: the model is none of them.
    """
    if isinstance(model, Run):
        return model.output
    if isinstance(model, PathLike):
        return local_model(model)
    if isinstance(model, Loaded):
        return model.folder
    kind = type(model).__name__
    raise InputError(f"a model of type {kind}: expected a run or a folder; give the result of ctrpipe.run, or its path")


def versions_of(model: ModelLike) -> pathlib.Path:
    """Returns the folder of the versions that a run, or the run at a path, pushed. Returns other paths unchanged.

    Raises:
        InputError: see `folder_of`; or the run pushed no model.
    """
    if isinstance(model, Run) and model.model.exists():
        return model.model
    return base_path_of(folder_of(model))
