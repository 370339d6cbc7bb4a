"""Calibration in the exported graph: an increasing function from logits to probabilities."""

import dataclasses
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ctrpipe.models.base.answers import answer
from ctrpipe.models.base.feature_map import FeatureMap, NumberTask

UNCALIBRATED = "serving_raw_uncalibrated"  # the signature of the probabilities before calibration

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
class Beta:
    """The log-odds `rise * ln p - fall * ln(1 - p) + intercept` of the model's probability p (Kull et al. 2017).

    Unlike a line, it can bend: `rise` is the slope for low log-odds, `fall` for high ones. Neither is negative.
    """

    rise: float
    fall: float
    intercept: float

    def log_odds(self, logits: tf.Tensor) -> tf.Tensor:
        # ln p = -softplus(-z) and ln(1 - p) = -softplus(z): finite for every logit.
        return self.fall * tf.nn.softplus(logits) - self.rise * tf.nn.softplus(-logits) + self.intercept

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(self.log_odds(logits))


@dataclasses.dataclass(frozen=True)
class Curve:
    """A piecewise linear probability that rises with the logit: `start + slope * (logit - from)`.

    Attributes:
        points: The logits between two pieces, ascending, float32 `[P]`.
        pieces: `from`, `start` and `slope` of each piece, float32 `[P + 1, 3]`. The first piece ends at the first
            point. All probabilities are in (0, 1).
    """

    points: Array
    pieces: Array

    def log_odds(self, logits: tf.Tensor) -> tf.Tensor:
        probabilities = self.probabilities(logits)
        return tf.math.log(probabilities / (1.0 - probabilities))

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        # tf.searchsorted calls this too, but adds a dozen operations to support any rank.
        piece = tf.raw_ops.UpperBound(sorted_inputs=tf.constant(self.points[None]), values=logits[None])[0]
        first, start, slope = tf.unstack(tf.gather(tf.constant(self.pieces), piece), axis=1)
        return start + slope * (logits - first)


@dataclasses.dataclass(frozen=True)
class SliceLines:
    """A line on the log-odds g, `slope * g + intercept`, that depends on the values of some columns.

    The slope and the intercept are sums over the columns: each value of a column has a row in `lines`.

    Attributes:
        slots: The slot of each column in `ids`, int32 `[C]`.
        first, rows: The id of each column's first value, and its row in `lines`, int32 `[C]`. Ids below a column's
            range use the row before its first value, ids above use the row after its last value.
        last: The row after each column's last value, int32 `[C]`.
        lines: The slope and intercept that each value adds, float32 `[rows, 2]`. The fit starts from slope 1 for the
            first column and slope 0 for the others. The slopes of each row of the log sum to a positive number.
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
class Uncorrected:
    """The outputs of a regression task, which no method calibrates."""

    number: NumberTask

    def log_odds(self, outputs: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError  # a number has no odds

    def probabilities(self, outputs: tf.Tensor) -> tf.Tensor:
        return answer(outputs, self.number)


Overall = Line | Beta | Curve | Uncorrected

UNCHANGED = Line(1.0, 0.0)  # the probabilities as the model has them


@dataclasses.dataclass(frozen=True)
class CalibrationChoice:
    """The calibration chosen for a task, and why.

    Attributes:
        taken: The chosen method, or "none".
        by: Whether each value of the columns `by` has its own correction. None if the configuration has no `by`.
        held_out: The log loss of each candidate on held-out folds of the validation rows, in nats: "none", the methods,
            and "<taken> by <columns>". Empty if there were too few rows for held-out folds.
        reason: A sentence about the choice.
    """

    taken: str
    by: bool | None
    held_out: dict[str, float]
    reason: str

    @property
    def text(self) -> str:
        """The choice as one line."""
        losses = ", ".join(f"{name} {loss:.6f}" for name, loss in self.held_out.items())
        return f"{self.taken}: {self.reason}" + (f" (held-out log loss: {losses})" if losses else "")


@dataclasses.dataclass(frozen=True)
class TaskCalibration:
    """The calibration of one task: a function for all rows, and a correction by column values.

    `choice` explains the choice of the method; None if there was no choice.
    """

    overall: Overall
    slices: SliceLines | None = None
    choice: CalibrationChoice | None = None

    def probabilities(self, logits: tf.Tensor, ids: tf.Tensor | None) -> tf.Tensor:
        """Returns float32 probabilities `[N]` of float32 logits `[N]` and int32 ids `[N, slots]`."""
        if self.slices is None:
            return self.overall.probabilities(logits)
        return tf.sigmoid(self.slices.log_odds(self.overall.log_odds(logits), ids))


@dataclasses.dataclass(frozen=True)
class FittedCalibration:
    """The calibration of each task of a model.

    Attributes:
        method: The configured method. A task may have another one; see its `choice`.
        tasks: The calibrations by task, in the model's order.
    """

    method: str
    tasks: dict[str, TaskCalibration]

    def by_task(self, logits: tf.Tensor, packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the probabilities of each task, float32 `[N]`.

        Args:
            logits: The model's logits, float32 `[N, tasks]`.
            packed: The packed tensors of the same rows.
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
        """Returns the largest change of a probability when its logit changes by up to `by`."""
        low, middle, high = (self.by_task(logits + step, packed) for step in (-by, 0.0, by))
        clicks = [name for name, task in self.tasks.items() if not isinstance(task.overall, Uncorrected)]
        changes = [tf.maximum(high[name] - middle[name], middle[name] - low[name]) for name in clicks]
        return float(tf.reduce_max(tf.stack(changes)))

    def choices(self) -> dict[str, dict[str, Any]]:
        """Returns the choice of each task for JSON: the fields of CalibrationChoice, and its `text`."""
        choices = {name: task.choice for name, task in self.tasks.items() if task.choice}
        return {name: {**dataclasses.asdict(choice), "text": choice.text} for name, choice in choices.items()}

    def to_json(self) -> str:
        """Returns a JSON description for readers and plots."""

        def plain(value: Any) -> Any:
            return value.tolist()

        return json.dumps(dataclasses.asdict(self), default=plain, indent=1)


def slice_rows(feature_map: FeatureMap, columns: list[str]) -> dict[str, npt.NDArray[np.int32]]:
    """Returns `slots`, `first`, `rows` and `last` of SliceLines for single-slot columns."""
    fields = {field.name: field for field in feature_map.fields}
    own = [fields[name] for name in columns]
    ends = np.cumsum([field.size + 2 for field in own])
    return {
        "slots": np.array([feature_map.slots_of(name).start for name in columns], np.int32),
        "first": np.array([field.offset for field in own], np.int32),
        "rows": np.array([end - field.size - 1 for end, field in zip(ends, own, strict=True)], np.int32),
        "last": (ends - 1).astype(np.int32),
    }
