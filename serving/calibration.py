"""The calibration of a served model: a rising function from logits to probabilities, in the graph behind the model."""

import dataclasses
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ctrpipe.models.base.feature_map import FeatureMap

UNCALIBRATED = "serving_raw_uncalibrated"  # the signature of a calibrated model before its calibration

Array = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Line:
    """The log-odds `slope * logit + intercept` (Platt 1999); the slope is not negative."""

    slope: float
    intercept: float

    def log_odds(self, logits: tf.Tensor) -> tf.Tensor:
        return self.slope * logits + self.intercept

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(self.log_odds(logits))


@dataclasses.dataclass(frozen=True)
class Curve:
    """A probability that rises with the logit, in pieces: `start + slope * (logit - from)`.

    Attributes:
        points: The logits at which a piece begins, ascending, float32 `[P]`.
        pieces: `from`, `start` and `slope` of each piece, float32 `[P + 1, 3]`; the first ends at the first point. The
            probabilities are inside of (0, 1).
    """

    points: Array
    pieces: Array

    def log_odds(self, logits: tf.Tensor) -> tf.Tensor:
        probabilities = self.probabilities(logits)
        return tf.math.log(probabilities / (1.0 - probabilities))

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        # What tf.searchsorted calls, which makes a dozen operations more, for any rank.
        piece = tf.raw_ops.UpperBound(sorted_inputs=tf.constant(self.points[None]), values=logits[None])[0]
        first, start, slope = tf.unstack(tf.gather(tf.constant(self.pieces), piece), axis=1)
        return start + slope * (logits - first)


@dataclasses.dataclass(frozen=True)
class SliceLines:
    """A line on the log-odds g, `slope * g + intercept`, whose two numbers the values of some columns add up to.

    Attributes:
        slots: The columns' places in `ids`, int32 `[C]`.
        first, rows: Of each column, the id and the row of its first value, int32 `[C]`. The row before that and the one
            behind the column's last value are for ids that are not the column's.
        last: The row behind each column's last value, int32 `[C]`.
        lines: Slope and intercept of each row, float32 `[rows, 2]`. Slopes of the first column begin at 1, those of the
            others at 0, and the slopes of a row of the log add up to more than 0.
    """

    slots: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    lines: Array

    def log_odds(self, log_odds: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        places = tf.gather(ids, self.slots, axis=1) + (self.rows - self.first)
        places = tf.clip_by_value(places, self.rows - 1, self.last)
        slope, intercept = tf.unstack(tf.reduce_sum(tf.gather(tf.constant(self.lines), places), axis=1), axis=1)
        return slope * log_odds + intercept


@dataclasses.dataclass(frozen=True)
class TaskCalibration:
    """The calibration of one task: that of all rows, and what the values of some columns add to it."""

    overall: Line | Curve
    slices: SliceLines | None = None

    def probabilities(self, logits: tf.Tensor, ids: tf.Tensor | None) -> tf.Tensor:
        """Returns the probabilities, float32 `[N]`, of logits float32 `[N]` and packed ids int32 `[N, slots]`."""
        if self.slices is None:
            return self.overall.probabilities(logits)
        return tf.sigmoid(self.slices.log_odds(self.overall.log_odds(logits), ids))


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The calibrations of a model's tasks.

    Attributes:
        method: How they were fitted, as the configuration names it.
        tasks: By the task's name, in the model's order.
    """

    method: str
    tasks: dict[str, TaskCalibration]

    def by_task(self, logits: tf.Tensor, packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the probabilities of each task, float32 `[N]`.

        Args:
            logits: The model's, float32 `[N, tasks]`.
            packed: Its packed tensors.
        """
        values = tf.unstack(logits, num=len(self.tasks), axis=1)
        return {
            name: task.probabilities(own, packed.get("ids"))
            for (name, task), own in zip(self.tasks.items(), values, strict=True)
        }

    def probabilities(self, logits: tf.Tensor, packed: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the probabilities, float32 `[N, tasks]`; see `by_task`."""
        return tf.stack(list(self.by_task(logits, packed).values()), axis=1)

    def largest_change(self, logits: tf.Tensor, packed: dict[str, tf.Tensor], by: float) -> float:
        """Returns by how much a probability changes at most where its logit changes by up to `by`."""
        low, middle, high = (self.probabilities(logits + step, packed) for step in (-by, 0.0, by))
        return float(tf.reduce_max(tf.maximum(high - middle, middle - low)))

    def to_json(self) -> str:
        """Returns a description for people and for plots."""

        def plain(value: Any) -> Any:
            return value.tolist()

        return json.dumps(dataclasses.asdict(self), default=plain, indent=1)


def slice_rows(feature_map: FeatureMap, columns: list[str]) -> dict[str, npt.NDArray[np.int32]]:
    """Returns `slots`, `first`, `rows` and `last` of SliceLines for columns that are fields of one slot."""
    fields = {field.name: field for field in feature_map.fields}
    own = [fields[name] for name in columns]
    ends = np.cumsum([field.size + 2 for field in own])
    return {
        "slots": np.array([feature_map.slots_of(name).start for name in columns], np.int32),
        "first": np.array([field.offset for field in own], np.int32),
        "rows": np.array([end - field.size - 1 for end, field in zip(ends, own, strict=True)], np.int32),
        "last": (ends - 1).astype(np.int32),
    }
