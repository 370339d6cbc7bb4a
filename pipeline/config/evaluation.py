"""The `evaluation`, `gates` and `statistics` sections of a run's configuration."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import pydantic

from ctrpipe.pipeline.config.model import Model
from ctrpipe.transforms.log.section import Section


class Tail(Section):
    """A slice of the test rows whose combination of column values is rare in the training rows.

    Example:
        evaluation: {tail: {columns: [query, ad], max_count: 2}}
    """

    columns: list[str] = pydantic.Field(min_length=1, examples=[["query", "ad"]])
    """Feature columns whose values are combined."""
    max_count: int = pydantic.Field(2, ge=0)
    """A test row is in the slice if its combination occurs in at most this many training rows."""


class Evaluation(Section):
    """Slices and a baseline model. The report shows their metrics in addition to the metrics of all test rows.

    Example:
        evaluation: {slices: [device], baseline: {name: lr}}
    """

    slices: list[str] = pydantic.Field([], examples=[["device"]])
    """Feature columns. The report shows the metrics for each of their values. A row with several values counts
    for each of them.
    """
    tail: Tail | None = None
    """Slice of rare combinations of values; null: none."""
    baseline: Model | None = pydantic.Field(None, examples=[{"name": "lr"}])
    """A second model to train for comparison, with the same keys as `model`; null: none. `lr` is trained to the optimum
    of its loss (`training.optimizer: lbfgs`), whatever the settings of `training`; other models are trained with these
    settings.
    """
    group: str | None = pydantic.Field(None, examples=["user"])
    """Feature column that groups rows, such as the user. The metrics then include gAUC, the mean AUC within groups,
    with an interval over groups. Groups with one class have no AUC and are left out and counted; so are rows without a
    value. `training.monitor`, `gates` and `ctrpipe tune` can judge by it, and some values of `training.loss` compare
    the rows of a group. null: none.
    """
    group_weight: Literal["impressions", "clicks"] = "impressions"
    """What a group's AUC is weighted by in gAUC: its rows or its clicks."""
    seeds: int = pydantic.Field(1, ge=1, examples=[3])
    """Number of training runs of the model and of the baseline, with the seeds `seed`, `seed` + 1, and so on.
    `--seeds` sets it. The model of the first run is pushed. All runs together show how far the model is ahead of the
    baseline over rows and training runs, and how much noise the gate `max_drop` has to expect. A baseline that L-BFGS
    trains does not depend on the seed and is trained once.
    """


class Bounds(Section):
    """Limits of a metric, inclusive; one of the two may be left out.

    Example:
        gates: {auc: {min: 0.75}, log_loss: {max: 0.46}, calibration: {min: 0.9, max: 1.1}}
    """

    min: float | None = pydantic.Field(None, examples=[0.75])
    """Lowest value that passes; null: no lower limit."""
    max: float | None = pydantic.Field(None, examples=[0.46])
    """Highest value that passes; null: no upper limit."""
    confidence: float | None = pydantic.Field(None, gt=0.5, lt=1, examples=[0.95])
    """Confidence level. The one-sided confidence limit of the metric, instead of its value, must satisfy `min` and
    `max`, to keep chance alone from passing a model. null: compare the metric itself.
    """

    @pydantic.model_validator(mode="after")
    def _some(self) -> "Bounds":
        if self.min is None and self.max is None and not self._limits_slices():
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        if self.min is not None and self.min == self.max:
            raise ValueError(f"min equals max, and no model has exactly {self.min:g}; leave one out, or give a range")
        return self

    def _limits_slices(self) -> bool:
        return False


# The lowest and the highest value of the metrics that have one. A model gets close to some of them only.
_LOWEST = {"auc": 0.0, "gauc": 0.0, "log_loss": 0.0, "calibration": 0.0, "rmse": 0.0, "mae": 0.0}
_HIGHEST = {"auc": 1.0, "gauc": 1.0, "auc_minus_log_loss": 1.0, "rig": 1.0, "r2": 1.0}
_NEVER_REACHED = frozenset({"log_loss", "auc_minus_log_loss", "calibration", "rmse", "mae", "rig", "r2"})
_IDEAL = {"calibration": 1.0}


def _check_bounds(limits: Section, names: Iterable[str]) -> None:
    """Raises ValueError if no model can pass a limit of a metric, or if the limit can block none."""
    for name in names:
        bounds = getattr(limits, name)
        if bounds is not None:
            check_reachable(name, bounds.min, bounds.max)


def check_reachable(name: str, minimum: float | None, maximum: float | None) -> None:
    """Raises ValueError if no model, or no perfect model, can pass the limits of a metric, or if one can block none."""
    least, most = _LOWEST.get(name, -math.inf), _HIGHEST.get(name, math.inf)
    at_most, at_least = ("below", "above") if name in _NEVER_REACHED else ("at most", "at least")
    if minimum is not None and (minimum > most or (minimum == most and name in _NEVER_REACHED)):
        raise ValueError(f"{name}: no model has {minimum:g} or more, as it is {at_most} {most:g}; give a lower min")
    if maximum is not None and (maximum < least or (maximum == least and name in _NEVER_REACHED)):
        raise ValueError(f"{name}: no model has {maximum:g} or less, as it is {at_least} {least:g}; give a higher max")
    if minimum is not None and minimum < least:
        raise ValueError(f"{name}: min: {minimum:g} blocks no model, as it is {at_least} {least:g}; give a higher min")
    if maximum is not None and maximum > most:
        raise ValueError(f"{name}: max: {maximum:g} blocks no model, as it is {at_most} {most:g}; give a lower max")
    if (ideal := _IDEAL.get(name)) is None:
        return
    if minimum is not None and minimum > ideal:
        raise ValueError(f"{name}: min: {minimum:g} blocks a perfect model, which has {ideal:g}; give a lower min")
    if maximum is not None and maximum < ideal:
        raise ValueError(f"{name}: max: {maximum:g} blocks a perfect model, which has {ideal:g}; give a higher max")


def _check_drops(drops: Iterable[tuple[str, float]], noise: Iterable[tuple[str, float]]) -> None:
    """Raises ValueError if no two models can differ by as much as `max_drop`, or vary as much as `training_noise`."""
    for name, drop in drops:
        most = _HIGHEST.get(name, math.inf) - _LOWEST[name]
        if drop >= most:
            raise ValueError(f"max_drop: {name}: {drop:g} blocks no model, as it drops by at most {most:g}; give less")
        if drop <= -most:
            raise ValueError(f"max_drop: {name}: no model rises by {-drop:g}, as it rises by less; give more")
    for name, deviation in noise:
        most = (_HIGHEST.get(name, math.inf) - _LOWEST[name]) / 2  # half of the values at each end
        if deviation > most:
            raise ValueError(
                f"training_noise: {name}: no standard deviation of it is {deviation:g}, as it is at most {most:g}; "
                "give less"
            )


class CalibrationBounds(Bounds):
    """Limits of the calibration, on all test rows and on slices.

    Example:
        evaluation: {slices: [device]}
        gates: {calibration: {min: 0.9, max: 1.1, slices: [device], max_error: 0.05, min_clicks: 50}}
    """

    slices: list[str] = pydantic.Field([], examples=[["device"]])
    """Columns of `evaluation.slices`. The calibration of each of their values is limited by `max_error`. A row with
    several values counts for each of them.
    """
    max_error: float | None = pydantic.Field(None, gt=0, examples=[0.05])
    """Maximum absolute difference of a value's calibration from 1; needs `slices`. A value blocks the model if its
    interval lies outside. The intervals of all values hold together at 95% (Holm), so that chance alone blocks at most
    one model in 20, however many values there are.
    """
    min_clicks: int = pydantic.Field(20, ge=1)
    """Minimum number of clicks of a value: the clicks that the model expects, or the clicks that its test rows would
    have at the click-through rate of all test rows. Values with fewer are not checked.
    """

    @pydantic.model_validator(mode="before")
    @classmethod
    def _rows_are_clicks(cls, values: object) -> Any:
        if not isinstance(values, dict) or "min_rows" not in values:
            return values
        if values.get("slices"):
            raise ValueError("min_rows is now min_clicks, which counts clicks; give min_clicks, or leave it out")
        return {key: value for key, value in values.items() if key != "min_rows"}  # it had no effect

    @pydantic.model_validator(mode="after")
    def _slices_have_a_limit(self) -> "CalibrationBounds":
        if bool(self.slices) != (self.max_error is not None):
            raise ValueError("give slices and max_error together")
        return self

    def _limits_slices(self) -> bool:
        return bool(self.slices)


class NumberBounds(Section):
    """Limits of the metrics of a task that predicts a number, such as a watch time, on the test rows that have it.

    Example:
        data: {labels: {ctr: click, seconds: {column: watch_time, predicts: count}}}
        gates: {numbers: {seconds: {mae: {max: 30}, r2: {min: 0}}}}
        model: {name: mmoe}
    """

    rmse: Bounds | None = None
    """Limits of the root of the mean squared error, in the number's unit; null: none."""
    mae: Bounds | None = None
    """Limits of the mean absolute error, in the number's unit; null: none."""
    r2: Bounds | None = pydantic.Field(None, examples=[{"min": 0.0}])
    """Limits of the coefficient of determination, 1 - mean squared error / variance of the labels. Below 0, the mean of
    the test rows would be a better prediction. null: none.
    """
    calibration: Bounds | None = None
    """Limits of the mean prediction divided by the mean label; null: none."""

    @pydantic.model_validator(mode="after")
    def _some(self) -> "NumberBounds":
        given = {name: getattr(self, name) for name in ("rmse", "mae", "r2", "calibration")}
        if not any(given.values()):
            raise ValueError("give limits of rmse, mae, r2 or calibration")
        if named := [name for name, bounds in given.items() if bounds and bounds.confidence is not None]:
            raise ValueError(f"{named[0]}: confidence applies to metrics of clicks; remove it")
        _check_bounds(self, ("rmse", "mae", "r2"))  # RunConfig checks the calibration, by what the task predicts
        return self


class CatalogueBounds(Section):
    """Limits of the effective catalogue size (ECS): the effective number of items in the top `k` of all lists.

    A list holds the candidates that one user could see at once. The ECS is 1 if all lists show the same item, and N if
    they show N items equally often. `ctrpipe ranking` prints it, too.

    Example:
        gates: {ecs: {max_drop: 0.05, k: 10, group: query, item: ad}}
    """

    min: float | None = pydantic.Field(None, ge=1, examples=[40])
    """Lowest ECS that passes; null: no lower limit."""
    max_drop: float | None = pydantic.Field(None, ge=0, lt=1, examples=[0.05])
    """Maximum relative drop of the ECS from the last blessed model's ECS on the same lists; null: no limit."""
    k: int = pydantic.Field(10, ge=1)
    """Number of positions of each list that are shown."""
    group: str | None = pydantic.Field(None, examples=["session"])
    """Categorical column that groups rows into lists; null: `user`."""
    item: str | None = pydantic.Field(None, examples=["film"])
    """Categorical column of the candidates; null: the column that a history shares its items with, or `item`."""

    @pydantic.model_validator(mode="after")
    def _some(self) -> "CatalogueBounds":
        if self.min is None and self.max_drop is None:
            raise ValueError("give min, max_drop or both")
        return self


class Gates(Section):
    """Conditions on the metrics of the test rows. A model that fails one is not pushed.

    Example:
        gates: {auc: {min: 0.75}, calibration: {min: 0.9, max: 1.1}, max_drop: {auc: 0.002, log_loss: 0.001}}
    """

    auc: Bounds | None = None
    """Limits of the AUC (area under the ROC curve), 0 to 1; null: none."""
    gauc: Bounds | None = None
    """Limits of the gAUC, 0 to 1; needs `evaluation.group`. null: none."""
    log_loss: Bounds | None = None
    """Limits of the mean log loss, in nats per row; null: none."""
    auc_minus_log_loss: Bounds | None = None
    """Limits of the AUC minus the log loss, the number that `training.monitor` knows by this name; null: none."""
    rig: Bounds | None = pydantic.Field(Bounds(min=0.0), examples=[{"min": 0.02}])
    """Limits of the RIG (relative information gain), 1 - log loss / entropy of the base rate. Below 0, a model predicts
    worse than the click rate of the test rows as every row's prediction; the default blocks it. null: none.
    """
    calibration: CalibrationBounds | None = None
    """Limits of the calibration, the mean predicted probability divided by the observed click-through rate; 1 is
    ideal. null: none.
    """
    ecs: CatalogueBounds | None = None
    """Limits of the effective catalogue size. They keep a new model from narrowing the range of items that users see;
    null: none.
    """
    numbers: dict[str, NumberBounds] = pydantic.Field({}, examples=[{"seconds": {"mae": {"max": 30}}}])
    """Limits of tasks that predict a number (`predicts`), by task name in `data.labels`. null, of all or of a task:
    none.
    """
    max_drop: dict[Literal["auc", "gauc", "log_loss"], float] = {"auc": 0.0}
    """Maximum absolute deterioration relative to the last blessed model, by metric: how much lower the AUC or gAUC or
    how much higher the log loss may be. By default only deteriorations within the noise are permitted. null, of all or
    of a metric: no limit.
    """
    max_drop_confidence: float | None = pydantic.Field(0.95, gt=0.5, lt=1, examples=[0.99])
    """Confidence level at which a test on the same rows must find a drop above `max_drop` to block a model, so that
    chance alone does not block an equally good one. The test counts the noise of rows and of training runs. The latter
    is measured on the training runs of `ctrpipe run --seeds` and on the last versions of the same configuration in the
    output folder; without these, it is `training_noise`. null: compare the drop itself.
    """
    training_noise: dict[Literal["auc", "gauc", "log_loss"], Annotated[float, pydantic.Field(ge=0)]] = pydantic.Field(
        {}, examples=[{"auc": 0.001}]
    )
    """Standard deviation of a metric over training runs that differ only in their seeds. It is used if there are fewer
    than six runs to estimate it. By default, and if it is null, it is 0.002 for the AUC and the gAUC, and 0.002 of the
    log loss for the log loss.
    """

    @pydantic.field_validator("numbers", "max_drop", "training_noise", mode="before")
    @classmethod
    def _without_null(cls, limits: object) -> Any:
        """Removes null limits, which mean no limit."""
        if limits is None:
            return {}
        if not isinstance(limits, Mapping):
            return limits
        return {name: limit for name, limit in limits.items() if limit is not None}

    @pydantic.model_validator(mode="after")
    def _can_be_passed(self) -> "Gates":
        _check_bounds(self, ("auc", "gauc", "log_loss", "auc_minus_log_loss", "rig", "calibration"))
        _check_drops(self.max_drop.items(), self.training_noise.items())
        return self


class Statistics(Section):
    """Settings of the statistics of the splits.

    Example:
        statistics: {max_rows: 1000000}
    """

    max_rows: int = pydantic.Field(100_000, ge=1000)
    """Maximum number of rows. The statistics of a larger split are computed on a uniform sample of about this size, and
    the report says so.
    """
