"""The `evaluation`, `gates` and `statistics` parts of a run's configuration."""

from typing import Literal

import pydantic

from ctrpipe.pipeline.config.model import Model
from ctrpipe.transforms.log.spec import Section


class Tail(Section):
    """A slice of rare rows: those whose combination of some columns' values is rare among the training rows.

    Example:
        evaluation: {tail: {columns: [query, ad], max_count: 2}}
    """

    columns: list[str] = pydantic.Field(min_length=1, examples=[["query", "ad"]])
    """Feature columns whose values are combined."""
    max_count: int = pydantic.Field(2, ge=0)
    """A test row belongs to the slice where its combination occurs in at most so many training rows."""


class Evaluation(Section):
    """Slices and a baseline, which the report shows beside the metrics of all test rows.

    Example:
        evaluation: {slices: [device], baseline: {name: lr}}
    """

    slices: list[str] = pydantic.Field([], examples=[["device"]])
    """Feature columns: the metrics are shown for each of their values."""
    tail: Tail | None = None
    """The slice of rare combinations; null: none."""
    baseline: Model | None = pydantic.Field(None, examples=[{"name": "lr"}])
    """A model that is trained beside, for comparison, with the keys of `model`; null: none."""


class Bounds(Section):
    """Limits that a metric must keep, ends included; one of them may be left out.

    Example:
        gates: {auc: {min: 0.75}, log_loss: {max: 0.46}, calibration: {min: 0.9, max: 1.1}}
    """

    min: float | None = pydantic.Field(None, examples=[0.75])
    """The least value that passes; null: no lower limit."""
    max: float | None = pydantic.Field(None, examples=[0.46])
    """The greatest value that passes; null: no upper limit."""
    confidence: float | None = pydantic.Field(None, gt=0.5, lt=1, examples=[0.95])
    """How sure the limits must be kept over other test rows: the one-sided confidence limit of the metric has to keep
    them, so that chance pushes no model. null: the metric itself has to.
    """

    @pydantic.model_validator(mode="after")
    def _some(self) -> "Bounds":
        if self.min is None and self.max is None and not self._limits_slices():
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        return self

    def _limits_slices(self) -> bool:
        return False


class CalibrationBounds(Bounds):
    """Limits of the calibration, of all test rows and of slices.

    Example:
        evaluation: {slices: [device]}
        gates: {calibration: {min: 0.9, max: 1.1, slices: [device], max_error: 0.05, min_rows: 1000}}
    """

    slices: list[str] = pydantic.Field([], examples=[["device"]])
    """Columns of `evaluation.slices`: the calibration is bounded for each of their values too."""
    max_error: float | None = pydantic.Field(None, gt=0, examples=[0.05])
    """How far a value's calibration may be from 1; needs `slices`."""
    min_rows: int = pydantic.Field(1000, ge=1)
    """Values with fewer test rows are not judged: their clicks are few, and chance decides."""

    @pydantic.model_validator(mode="after")
    def _slices_have_a_limit(self) -> "CalibrationBounds":
        if bool(self.slices) != (self.max_error is not None):
            raise ValueError("give slices and max_error together")
        return self

    def _limits_slices(self) -> bool:
        return bool(self.slices)


class CatalogueBounds(Section):
    """Limits of the effective catalogue size (ECS): how many items the first places of all lists show.

    A list is what one user could be shown at once, as in `ctrpipe ranking`, which prints this number. 1: all lists show
    the same item; N: they show N items, each as often as the others.

    Example:
        gates: {ecs: {max_drop: 0.05, k: 10, group: query, item: ad}}
    """

    min: float | None = pydantic.Field(None, ge=1, examples=[40])
    """The least ECS that passes; null: no lower limit."""
    max_drop: float | None = pydantic.Field(None, ge=0, lt=1, examples=[0.05])
    """The greatest share by which it may be lower than the last blessed model's on the same lists; null: any."""
    k: int = pydantic.Field(10, ge=1)
    """How many places of each list are shown."""
    group: str | None = pydantic.Field(None, examples=["session"])
    """The categorical column whose values are the lists; null: `user`."""
    item: str | None = pydantic.Field(None, examples=["film"])
    """The categorical column of the candidates; null: the one that a history shares its items with, or `item`."""

    @pydantic.model_validator(mode="after")
    def _some(self) -> "CatalogueBounds":
        if self.min is None and self.max_drop is None:
            raise ValueError("give min, max_drop or both")
        return self


class Gates(Section):
    """Conditions on the test rows' metrics that a model must meet to be pushed.

    Example:
        gates: {auc: {min: 0.75}, calibration: {min: 0.9, max: 1.1}, max_drop: {auc: 0.002}}
    """

    auc: Bounds | None = None
    """Limits of the area under the ROC curve, 0 to 1; null: none."""
    log_loss: Bounds | None = None
    """Limits of the mean log loss, in nats per row; null: none."""
    calibration: CalibrationBounds | None = None
    """Limits of the mean prediction divided by the observed click-through rate, 1 when both agree; null: none."""
    ecs: CatalogueBounds | None = None
    """Limits of how much of the catalogue the first places show, so that a new model does not narrow what people see;
    null: none.
    """
    max_drop: dict[Literal["auc", "log_loss"], float] = {"auc": 0.001}
    """By metric, how much worse than the last blessed model it may be (auc: how much lower; log_loss: how much higher).
    """
    max_drop_confidence: float | None = pydantic.Field(None, gt=0.5, lt=1, examples=[0.95])
    """How sure a drop must be more than `max_drop`, by a paired test on the same rows, to block a model, so that chance
    blocks none that is as good. null: the drop on the test rows decides.
    """


class Statistics(Section):
    """How the statistics of the splits are computed.

    Example:
        statistics: {max_rows: 1000000}
    """

    max_rows: int = pydantic.Field(100_000, ge=1000)
    """Of a split with more rows, the statistics are those of a uniform sample of about so many; the report says so."""
