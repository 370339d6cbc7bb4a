"""Integrated gradients of one row's logit, with the Keras model that a run keeps, on TensorFlow or JAX."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS, FeatureMap
from ctrpipe.models.base.feature_map import Text as TextMap
from ctrpipe.models.base.row_parts import DENSE, logits_by_parts, row_parts
from ctrpipe.models.base.tensors import Tensor
from ctrpipe.models.explain.integrated_gradients import FIRST_STEPS, PathIntegral, integrate
from ctrpipe.transforms.log.spec import TEXT

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
# Maps the packed row, the start of the path, the change along the path and positions on it [n] to the logits [n] and,
# by part, to the rate at which each unit changes the logit, [n, units].
Rates = Callable[[Arrays, Arrays, Arrays, Array], tuple[Array, Arrays]]
PLACES = FIRST_STEPS + 1  # positions in each call of the model; a constant, because shapes are compiled
TOKENS, NUMBERS = "token_rows", "number_rows"


class RowGradients:
    """Integrates a model's gradients along a straight path from a baseline to a row.

    The path moves the real-valued inputs: embeddings of slots and tokens, and the dense features. Discrete inputs, such
    as the padding mask, keep the row's values along the path. At its start, they are replaced by the baseline's values,
    column by column. The contributions therefore add up to the whole difference of the logits.

    Args:
        model: The model. It has no trees.
        column_of_slot: The column of each slot of `ids`.
    """

    def __init__(self, model: CTRModel, column_of_slot: list[str]):
        self._model = model
        self._slots = np.array(column_of_slot)
        self._rates = _BACKENDS[keras.backend.backend()](model)

    def between(self, baseline: Arrays, row: Arrays) -> tuple[dict[str, float], Array, PathIntegral]:
        """Returns the contributions of columns and tokens to the difference between two rows' logits.

        Args:
            baseline, row: Packed tensors of one row each.

        Returns:
            The contribution of each column to the logit, with `text` for the text's columns; they add up to the
            difference of the two logits. The contribution of each token, [T], without the effect of the text's length.
            The integral.
        """
        start, end = self._parts(baseline), self._parts(row)
        integral, units = self._integrate(row, start, end)
        columns = self._by_column(units)
        exchanged = self._exchanged(baseline, row, start)
        for name, change in exchanged.items():
            columns[name] = columns.get(name, 0.0) + change
        whole = PathIntegral(
            integral.units, integral.start - sum(exchanged.values()), integral.end, integral.jumps, integral.steps
        )
        return columns, units.get(TOKENS, np.empty(0)), whole

    def from_average(self, rows: Arrays, row: Arrays) -> tuple[dict[str, float], Array, PathIntegral]:
        """Returns the same as `between`, on the path from the average of several rows' embeddings.

        Discrete inputs are not exchanged, because the average is not a row. The tokens of a text start from [MASK].

        Args:
            rows: Packed tensors of rows of the log.
            row: Packed tensors of one row.
        """
        start = {name: part.mean(axis=0, keepdims=True) for name, part in self._parts(rows).items()}
        if TOKENS in start:
            start |= {TOKENS: self._parts(masked(row, self._text))[TOKENS]}
        integral, units = self._integrate(row, start, self._parts(row))
        return self._by_column(units), units.get(TOKENS, np.empty(0)), integral

    @property
    def feature_map(self) -> FeatureMap:
        return self._model.feature_map

    @property
    def _text(self) -> TextMap:
        text = self._model.feature_map.text
        assert text is not None
        return text

    def _parts(self, rows: Arrays) -> Arrays:
        return {name: np.asarray(part) for name, part in row_parts(self._model, rows).items()}

    def _integrate(self, row: Arrays, start: Arrays, end: Arrays) -> tuple[PathIntegral, Arrays]:
        change = {name: end[name] - start[name] for name in end}
        ends = np.cumsum([part.shape[1] for part in change.values()])

        def way(places: Array) -> tuple[Array, Array]:
            logits, rates = [], []
            padded = np.append(places, np.ones(-len(places) % PLACES)).astype(np.float32)
            for block in np.split(padded, len(padded) // PLACES):
                of_block, by_part = self._rates(row, start, change, block)
                logits.append(of_block)
                rates.append(np.concatenate([by_part[name] for name in change], axis=1))
            return np.concatenate(logits)[: len(places)], np.concatenate(rates)[: len(places)]

        integral = integrate(way)
        return integral, dict(zip(change, np.split(integral.units, ends[:-1]), strict=True))

    def _by_column(self, units: Arrays) -> dict[str, float]:
        columns: dict[str, float] = {}
        for part, values in units.items():
            for name, value in zip(self._names(part, len(values)), values, strict=True):
                columns[name] = columns.get(name, 0.0) + float(value)
        return columns

    def _names(self, part: str, count: int) -> list[str]:
        """Returns the column of each unit of a part."""
        if part == DENSE:
            return list(self._model.feature_map.dense_columns)
        if part == TOKENS:
            return [TEXT] * count
        if part == NUMBERS:
            return self._written_columns()
        return list(self._slots)

    def _written_columns(self) -> list[str]:
        """Returns the column of each token of a number. The parts of a time are fields of one column."""
        fields = [field.name for field in self._model.feature_map.fields for _ in range(field.slots)]
        columns = dict(zip(fields, self._slots, strict=True)) if fields else {}
        return [str(columns.get(name, name)) for name in self._model.numbers.owners]

    def _exchanged(self, baseline: Arrays, row: Arrays, start: Arrays) -> dict[str, float]:
        """Returns how the logit at the start of the path changes when discrete inputs become the row's, by column."""
        names = list(dict.fromkeys([*self._slots, *self._model.feature_map.numbers]))
        has_text = "tokens" in row
        stages, now = [dict(row)], dict(row)
        for name in names:
            now = self._exchange(now, baseline, name)
            stages.append(now)
        stacked = {key: np.concatenate([stage[key] for stage in stages]) for key in row}
        logits = self._logits(stacked, {key: np.repeat(part, len(stages), axis=0) for key, part in start.items()})
        changes = dict(zip(names, logits[:-1] - logits[1:], strict=True))
        if has_text:
            last = self._logits(baseline, self._parts(baseline))[0]
            changes[TEXT] = logits[-1] - last
        return {name: float(change) for name, change in changes.items()}

    def _exchange(self, now: Arrays, baseline: Arrays, column: str) -> Arrays:
        """Returns packed tensors of one row with the ids and numbers of one column replaced by the baseline's."""
        changed = dict(now)
        if "ids" in now:
            changed["ids"] = np.where(self._slots == column, baseline["ids"], now["ids"])
        if SLOT_WEIGHTS in now:
            of_column = np.array([name == column for name in self._model.feature_map.weighted_slots])
            changed[SLOT_WEIGHTS] = np.where(of_column, baseline[SLOT_WEIGHTS], now[SLOT_WEIGHTS])
        numbers = np.repeat([name == column for name in self._model.feature_map.numbers], 2)
        if "numbers" in now:
            changed["numbers"] = np.where(numbers, baseline["numbers"], now["numbers"])
        return changed

    def _logits(self, rows: Arrays, parts: Arrays) -> Array:
        return np.asarray(logits_by_parts(self._model, rows, parts)[:, 0], np.float64)


def masked(row: Arrays, text: TextMap) -> Arrays:
    """Returns a packed row with all tokens but the special ones replaced by [MASK]."""
    kept = np.isin(row["tokens"], text.special_ids)
    return {**row, "tokens": np.where(kept, row["tokens"], text.mask_id).astype(row["tokens"].dtype)}


def _repeated(row: Mapping[str, Array], count: int) -> Arrays:
    return {name: np.repeat(value, count, axis=0) for name, value in row.items()}


def _tensorflow_rates(model: CTRModel) -> Rates:
    import tensorflow as tf  # lazy: takes 4 s, and JAX does not need it

    @tf.function(reduce_retracing=True)
    def compiled(
        row: dict[str, tf.Tensor], start: dict[str, tf.Tensor], change: dict[str, tf.Tensor], places: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        with tf.GradientTape() as tape:
            parts = {name: start[name] + _as_factor(places, part) * part for name, part in change.items()}
            tape.watch(parts)
            logits = logits_by_parts(model, row, parts)[:, 0]
        gradients = tape.gradient(logits, parts, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return logits, {name: _of_units(gradients[name] * part) for name, part in change.items()}

    def rates(row: Arrays, start: Arrays, change: Arrays, places: Array) -> tuple[Array, Arrays]:
        logits, by_part = compiled(_repeated(row, len(places)), start, change, places)
        return logits.numpy(), {name: part.numpy() for name, part in by_part.items()}

    return rates


def _jax_rates(model: CTRModel) -> Rates:
    import jax  # lazy: takes 1 s, and TensorFlow does not need it

    @jax.jit
    def compiled(row: Tensor, start: Tensor, change: Tensor, places: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        def total(parts: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            with keras.StatelessScope():
                logits = logits_by_parts(model, row, parts)[:, 0]
            return logits.sum(), logits

        parts = {name: start[name] + _as_factor(places, part) * part for name, part in change.items()}
        (_, logits), gradients = jax.value_and_grad(total, has_aux=True)(parts)
        return logits, {name: _of_units(gradients[name] * part) for name, part in change.items()}

    def rates(row: Arrays, start: Arrays, change: Arrays, places: Array) -> tuple[Array, Arrays]:
        logits, by_part = compiled(_repeated(row, len(places)), start, change, places)
        return np.asarray(logits), {name: np.asarray(part) for name, part in by_part.items()}

    return rates


def _as_factor(places: Tensor, part: Tensor) -> Tensor:
    """Returns positions [n], reshaped to multiply parts [n, units, ...]."""
    return keras.ops.reshape(places, (-1,) + (1,) * (len(part.shape) - 1))


def _of_units(products: Tensor) -> Tensor:
    """Returns products summed over each unit's width, [n, units]."""
    return keras.ops.sum(products, axis=-1) if len(products.shape) == 3 else products


_BACKENDS: dict[str, Callable[[CTRModel], Rates]] = {"tensorflow": _tensorflow_rates, "jax": _jax_rates}
