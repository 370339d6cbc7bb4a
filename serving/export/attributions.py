"""Integrated gradients in the exported graph: each column's contribution to a row's logit.

The path is a straight line from a row of missing values to the row, in the space of the model's real-valued inputs:
embeddings, dense features, rows of the token table. The gradients by these inputs are computed for all points in one
batch, and the logits of both ends in another. The size of the graph does not depend on the number of points.

References:
    Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017, equations 1 and 3.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS
from ctrpipe.models.base.row_parts import DENSE, logits_by_parts, row_parts
from ctrpipe.transforms.log.spec import TEXT

# Points of the Gauss-Legendre rule. A text encoder runs once for each point and takes nearly all of the time.
POINTS, TEXT_POINTS = 8, 2
BLOCK_ROWS, TEXT_BLOCK_ROWS = 256, 4  # rows in memory at once, each with all its points
Tensors = dict[str, tf.Tensor]


class Attributions:
    """Attributes a model's logit of the primary task to columns.

    The gradients are integrated with the Gauss-Legendre rule, which is exact where the logit is a polynomial of degree
    2 * points along the path. Where the logit bends or jumps, the sum of the gradient terms differs from the difference
    of the logits. The remainder is divided in proportion to the absolute terms, so the attributions always add up.

    Discrete inputs, such as the padding mask, keep the row's values along the path. At its start they are replaced with
    the missing row's values, one column at a time, as in `ctrpipe explain --row --baseline missing`.

    Args:
        model: A built model without trees.
        columns: The columns to attribute to: the log's columns, and `text` if the model has a text.
        column_of_slot: The column of each slot of `ids`.
        missing: The packed tensors of one row without values.
    """

    def __init__(
        self, model: CTRModel, columns: Sequence[str], column_of_slot: Sequence[str], missing: Mapping[str, np.ndarray]
    ):
        self._model = model
        self.columns = tuple(columns)
        self._slots = list(column_of_slot)
        self._missing = dict(missing)
        self._start = {name: np.asarray(part) for name, part in row_parts(model, self._missing).items()}
        has_text = "tokens" in self._missing
        points, weights = np.polynomial.legendre.leggauss(TEXT_POINTS if has_text else POINTS)
        self._points, self._weights = ((points + 1) / 2).astype(np.float32), (weights / 2).astype(np.float32)
        self._block = TEXT_BLOCK_ROWS if has_text else BLOCK_ROWS
        self._owners = {name: self._owners_of(name, part.shape[1]) for name, part in self._start.items()}
        self._exchanged = self._exchangeable()
        self._baseline = np.asarray(logits_by_parts(model, self._missing, self._start))[:1, 0].astype(np.float32)

    def __call__(self, packed: Tensors) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the rows' logits [N], the baseline logit [N], and the attributions [N, columns].

        Args:
            packed: The packed tensors of the rows, [N, ...].
        """
        rows = tf.shape(next(iter(packed.values())))[0]
        blocks = (rows + self._block - 1) // self._block
        logits, attributions = (tf.TensorArray(tf.float32, blocks, infer_shape=False) for _ in range(2))

        def one(block: tf.Tensor, logits: tf.TensorArray, attributions: tf.TensorArray) -> tuple[tf.Tensor, ...]:
            first = block * self._block
            part = {name: value[first : first + self._block] for name, value in packed.items()}
            logit, attribution = self._of_block(part)
            return block + 1, logits.write(block, logit), attributions.write(block, attribution)

        state = (tf.constant(0), logits, attributions)
        _, logits, attributions = tf.while_loop(lambda block, *_: block < blocks, one, state, parallel_iterations=1)
        of_columns = tf.reshape(attributions.concat(), [rows, len(self.columns)])
        return tf.reshape(logits.concat(), [rows]), tf.repeat(tf.constant(self._baseline), rows), of_columns

    def _of_block(self, packed: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the logits, [n], and the attributions, [n, columns], of one block of rows."""
        rows = tf.shape(next(iter(packed.values())))[0]
        end = {name: tf.convert_to_tensor(part) for name, part in row_parts(self._model, packed).items()}
        start = {name: tf.constant(part) for name, part in self._start.items()}
        change = {name: end[name] - start[name] for name in end}
        added, owners = [], []
        for name, gradient in self._mean_gradients(packed, start, change).items():
            product = gradient * change[name]
            added.append(tf.reduce_sum(product, -1) if len(product.shape) == 3 else product)
            owners.append(self._owners[name])
        units = tf.concat(added, 1)
        baseline = tf.repeat(tf.constant(self._baseline), rows)
        # The row, then the start of the path before each exchange. After the last exchange, the start is the baseline.
        stages = self._stages(packed)
        repeated = {name: tf.repeat(part, rows, 0) for name, part in start.items()}
        ends = {name: tf.concat([end[name]] + [repeated[name]] * len(stages), 0) for name in end}
        batch = {name: tf.concat([packed[name]] + [stage[name] for stage in stages], 0) for name in packed}
        logits = tf.reshape(logits_by_parts(self._model, batch, ends)[:, 0], [1 + len(stages), rows])
        at_start = [*tf.unstack(logits, axis=0)[1:], baseline]
        units += _shares(units) * (logits[0] - at_start[0] - tf.reduce_sum(units, 1))[:, None]
        attribution = units @ tf.constant(np.concatenate(owners))
        for column, before, after in zip(self._exchanged, at_start[:-1], at_start[1:], strict=True):
            attribution += (before - after)[:, None] * tf.one_hot(self.columns.index(column), len(self.columns))
        return logits[0], attribution

    def _mean_gradients(self, packed: Tensors, start: Tensors, change: Tensors) -> Tensors:
        """Returns the gradient by each part, averaged over the path, [n, units, ...]."""
        points = len(self._points)
        batch = {name: tf.tile(value, [points] + [1] * (len(value.shape) - 1)) for name, value in packed.items()}
        with tf.GradientTape() as tape:
            parts = {
                name: tf.concat([start[name] + point * part for point in self._points], 0)
                for name, part in change.items()
            }
            tape.watch(parts)
            logits = logits_by_parts(self._model, batch, parts)[:, 0]
        weights = tf.repeat(tf.constant(self._weights), tf.shape(logits)[0] // points)
        gradients = tape.gradient(logits, parts, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return {
            name: tf.reduce_sum(tf.reshape(value, tf.concat([[points], tf.shape(change[name])], 0)), 0)
            for name, value in gradients.items()
        }

    def _stages(self, packed: Tensors) -> list[Tensors]:
        """Returns the packed tensors before each exchange. After the last exchange, they are the missing row."""
        stages: list[Tensors] = []
        now = packed
        for column in self._exchanged:
            stages.append(now)
            now = dict(now)
            if "ids" in now:
                mask = np.array([name == column for name in self._slots])
                now["ids"] = tf.where(mask, self._missing["ids"], now["ids"])
            if SLOT_WEIGHTS in now:
                mask = np.array([name == column for name in self._model.feature_map.weighted_slots])
                now[SLOT_WEIGHTS] = tf.where(mask, self._missing[SLOT_WEIGHTS], now[SLOT_WEIGHTS])
            if "numbers" in now:
                mask = np.repeat([name == column for name in self._model.feature_map.numbers], 2)
                now["numbers"] = tf.where(mask, self._missing["numbers"], now["numbers"])
        return stages

    def _exchangeable(self) -> list[str]:
        """Returns the columns with discrete inputs: padded fields, columns in `numbers`, the text."""
        fields = [field for field in self._model.feature_map.fields for _ in range(field.slots)]
        padded = [name for name, field in zip(self._slots, fields, strict=True) if field.slots > 1 or field.weighted]
        text = [TEXT] if "tokens" in self._missing else []
        return list(dict.fromkeys([*padded, *self._model.feature_map.numbers, *text]))

    def _owners_of(self, part: str, units: int) -> np.ndarray:
        """Returns 1 if a unit of a part belongs to a column, and 0 otherwise, float32 [units, columns]."""
        feature_map = self._model.feature_map
        owners: Sequence[str]
        if part == DENSE:
            owners = feature_map.dense_columns
        elif part == "token_rows":
            owners = [TEXT] * units
        elif part == "number_rows":
            fields = [field.name for field in feature_map.fields for _ in range(field.slots)]
            of_field = dict(zip(fields, self._slots, strict=True))
            owners = [of_field.get(name, name) for name in self._model.numbers.owners]
        else:
            owners = self._slots
        return np.array([[owner == column for column in self.columns] for owner in owners], np.float32)


def _shares(added: tf.Tensor) -> tf.Tensor:
    """Returns each unit's share of the sum of absolute values, [n, units]; equal shares if all are 0."""
    size = tf.abs(added)
    whole = tf.reduce_sum(size, 1, keepdims=True)
    return tf.where(whole > 0, tf.math.divide_no_nan(size, whole), 1 / tf.cast(tf.shape(added)[1], tf.float32))
