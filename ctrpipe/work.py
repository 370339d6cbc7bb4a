"""Trains, tunes, scores and compares, as the commands of the same names do; the functions return objects."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from ctrpipe.common.extras import require
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.table import as_html, as_text

PathLike: TypeAlias = pathlib.Path | str
METRICS = ("auc", "log_loss", "rig", "calibration")


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """A finished run.

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

    def _rows(self) -> list[list[Any]]:
        return [[key, self.metrics[key]] for key in (*METRICS, "blessed", "model_version")]

    def __repr__(self) -> str:
        return as_text([str(self.output), ""], self._rows())

    def _repr_html_(self) -> str:
        return as_html([str(self.output), ""], self._rows())


@dataclasses.dataclass(frozen=True, repr=False)
class Tuning:
    """A finished study.

    Attributes:
        output: The study's folder.
        best: The best configuration's file, for `run`.
        report: The contents of tune.json.
    """

    output: pathlib.Path
    best: pathlib.Path
    report: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """The best trial's settings, by key of the configuration."""
        return dict(self.report["best"]["settings"])

    @property
    def page(self) -> pathlib.Path:
        """The page's file, tune.html."""
        return self.output / "tune.html"

    def _rows(self) -> list[list[Any]]:
        best = self.report["best"]
        rows = [[self.report["objective"], best["value"]], ["trials", len(self.report["trials"])]]
        return [*rows, *map(list, self.settings.items())]

    def __repr__(self) -> str:
        return as_text([str(self.output), ""], self._rows())

    def _repr_html_(self) -> str:
        return as_html([str(self.output), ""], self._rows())


@dataclasses.dataclass(frozen=True, repr=False)
class Scoring:
    """A scored log.

    Attributes:
        output: The folder of its Parquet files.
        rows: Lines of the log.
        scored: Lines with a score.
        rejected: Malformed lines.
        model_version: The version that scored them.
    """

    output: pathlib.Path
    rows: int
    scored: int
    rejected: int
    model_version: str

    def _rows(self) -> list[list[Any]]:
        return [[field.name, getattr(self, field.name)] for field in dataclasses.fields(self)[1:]]

    def __repr__(self) -> str:
        return as_text([str(self.output), ""], self._rows())

    def _repr_html_(self) -> str:
        return as_html([str(self.output), ""], self._rows())


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison:
    """Models on the same test rows.

    Attributes:
        models: The models' names; differences are to the first.
        task: The label by which they are compared.
        slices: Each slice with its `rows`, and `metrics` and `differences` by model, as `ctrpipe compare --output`
            writes them.
    """

    models: tuple[str, ...]
    task: str
    slices: tuple[dict[str, Any], ...]

    HEADER = ("slice", "model", "auc", "log_loss", "auc difference", "95%", "p")

    def _rows(self) -> list[list[Any]]:
        from ctrpipe.pipeline.compare.show import interval_text  # 0.07 s that loading a model does without

        rows: list[list[Any]] = []
        for part in self.slices:
            for name, metrics in part["metrics"].items():
                auc = part["differences"].get(name, {}).get("auc", {})
                known = [metrics["auc"], metrics["log_loss"], auc.get("difference")]
                rows.append([part["slice"], name, *known, interval_text(auc.get("interval")), auc.get("p")])
        return rows

    def __repr__(self) -> str:
        return as_text(self.HEADER, self._rows())

    def _repr_html_(self) -> str:
        return as_html(self.HEADER, self._rows())


def run(
    config: PathLike, data: PathLike | Sequence[PathLike] = (), output: PathLike | None = None, **settings: Any
) -> Run:
    """Runs the pipeline (read, check, transform, train, evaluate, gate, push), and returns its result.

    Args:
        config: The YAML file.
        data: The log's files or globs; by default those of the configuration.
        output: The run's folder; by default runs/<name of the configuration>.
        settings: Keys of the configuration to override, with `__` for the dot: `training__epochs=2`.

    Raises:
        InputError: the configuration, the data or the folder cannot be used.

    Example:
        >>> ctrpipe.run("configs/demo.yaml", "train.tsv", "runs/mine", training__epochs=2).metrics["auc"]
        0.74
    """
    require("pipeline", "ctrpipe.run")
    # numpy, pyarrow and pydantic: 0.4 s of a core that `import ctrpipe` does without.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.prepared import joined
    from ctrpipe.pipeline.run import run as run_pipeline

    loaded = load_config(pathlib.Path(config), _overrides(settings))
    folder = pathlib.Path(output) if output else pathlib.Path("runs") / loaded.name
    metrics = run_pipeline(loaded, joined(_texts(data) or loaded.data.paths, loaded, folder), folder)
    return Run(folder, folder / "models" / loaded.serving.model_name, metrics)


def tune(
    config: PathLike,
    data: PathLike | Sequence[PathLike] = (),
    output: PathLike | None = None,
    *,
    trials: int | None = None,
    budget: str | None = None,
    workers: int = 1,
    p99_ms: float | None = None,
    objective: Literal["log_loss", "auc"] | None = None,
    **settings: Any,
) -> Tuning:
    """Searches for a model's best settings within a budget, by validation rows alone; the same call goes on.

    Args:
        config: The YAML file.
        data: The log's files or globs; by default those of the configuration.
        output: The study's folder; by default runs/<name of the configuration>-tune.
        trials: Trials in all, those of earlier calls included; this, `budget` or both are given.
        budget: Time of all trials, as "2h" or "90m".
        workers: Trials at the same time, each in a process of its own.
        p99_ms: The milliseconds that one row may take to be served, at the 99th percentile.
        objective: The validation metric; by default training.monitor.
        settings: Keys of the configuration to override, as `run` takes them.

    Raises:
        InputError: the configuration, its search space, the data, the budget or the folder cannot be used.
    """
    require("tune", "ctrpipe.tune")
    # Optuna, numpy and pydantic: 0.8 s of a core that `import ctrpipe` does without.
    from ctrpipe.pipeline.tune.plan import make_plan, read_budget

    limits = read_budget(budget, None if trials is None else str(trials))
    load_tensorflow()
    plan = make_plan(pathlib.Path(config), _overrides(settings), limits, objective, workers, p99_ms)
    from ctrpipe.pipeline.prepared import joined
    from ctrpipe.pipeline.tune.results import BEST
    from ctrpipe.pipeline.tune.run import run_tune

    folder = pathlib.Path(output) if output else pathlib.Path("runs") / f"{plan.name}-tune"
    base = plan.space.base
    summary = run_tune(plan, joined(_texts(data) or base.data.paths, base, folder), folder)
    return Tuning(folder, folder / BEST, summary.report)


def score(model: PathLike, data: PathLike | Sequence[PathLike], output: PathLike) -> Scoring:
    """Scores every line of a raw log, labelled or not, and writes Parquet files; an interrupted scoring is resumed.

    Args:
        model: The folder of a model's versions (the newest is used), or one version.
        data: The log's files or globs.
        output: The output folder.

    Raises:
        InputError: the model, the log or the folder cannot be used.
    """
    load_tensorflow()
    from ctrpipe.serving.scoring.score import (
        score as score_log,
    )  # TensorFlow: 4 s of a core that `run` and `compare` do without

    result = score_log(pathlib.Path(model), _texts(data), pathlib.Path(output))
    return Scoring(result.output, result.rows, result.scored, result.rejected, result.model_version)


def compare(*models: PathLike | Sequence[PathLike], task: str | None = None) -> Comparison:
    """Compares finished runs on the same test rows: is the second better than the first by more than chance?

    Args:
        models: Two models or more: the folder of a run, those of several runs that differ by their seeds as a list, or
            a sweep's folder, which stands for all its points.
        task: The label to judge by; None takes the first.

    Raises:
        InputError: a folder holds no finished run, or the runs are not on the same test rows.
    """
    # numpy and pyarrow: 0.2 s of a core that `import ctrpipe` does without.
    from ctrpipe.pipeline.compare.models import compare as compare_models
    from ctrpipe.pipeline.compare.sources import read_sources

    scored = read_sources([[pathlib.Path(path) for path in _texts(trainings)] for trainings in models], None)
    comparison = compare_models(scored, task)
    return Comparison(tuple(comparison["models"]), comparison["task"], tuple(comparison["slices"]))


def _overrides(settings: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in settings.items())


def _texts(paths: PathLike | Sequence[PathLike]) -> list[str]:
    return [str(paths)] if isinstance(paths, PathLike) else [str(path) for path in paths]
