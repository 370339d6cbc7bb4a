"""Boosted trees on top of a logistic regression: they start from its logit, and read its weights and the dense
features.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import batch_size, require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.boosted import Boosted
from ctrpipe.models.layers.tree_ensemble import TreeEnsemble
from ctrpipe.models.lr import LR

STEP = 2.0**-16  # sums of its multiples below 256 are exact in float32, in whatever order they are added


@keras.saving.register_keras_serializable(package="ctrpipe")
class LightGBM(LR, Boosted):
    """Gradient-boosted trees of LightGBM on top of a logistic regression.

    `logit = LR(x) + Σ_t value_t[leaf_t(x)]` with `x = [dense, w[id_1], w[id_2], ..., ordinals, LR(x)]`. The ordinal of
    an id is its rank in the vocabulary, or its bucket. A category with many values is a number for the trees: its
    weight in the regression (target encoding).

    The regression is trained first, by L-BFGS, and boosting starts from its logit. The trees are trained on out-of-fold
    weights and logits, as in stacked generalisation: with weights fitted on the row itself, a rare value would leak the
    row's label.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with one task.
        trees: int. Maximum number of trees; the validation rows end the boosting. Defaults to 300.
        leaves: int. Maximum number of leaves of a tree. Defaults to 15.
        depth: int. Maximum depth of a tree. Defaults to 8.
        rate: float. Factor on each tree's values (shrinkage). Defaults to 0.05.
        columns: float. Share of the columns of x that each tree samples. Defaults to 0.7.
        leaf_rows: int. Minimum number of training rows in a leaf. Defaults to 50.
        leaf_l2: float. L2 penalty on the values of the leaves, in units of their rows' second derivatives. Defaults to
            5.
        **options: Options of LR, for the regression.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = LightGBM(feature_map, trees=3, leaves=4, depth=2)
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has several tasks, or a number is out of its range.

    References:
        Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", 2017; Wolpert, "Stacked
        Generalization", 1992.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        trees: int = 300,
        leaves: int = 15,
        depth: int = 8,
        rate: float = 0.05,
        columns: float = 0.7,
        leaf_rows: int = 50,
        leaf_l2: float = 5.0,
        **options: Any,
    ) -> None:
        require_one_task("lightgbm", feature_map)
        require_positive(trees=trees, leaves=leaves, depth=depth, leaf_rows=leaf_rows)
        if not (0 < rate <= 1 and 0 < columns <= 1 and leaf_l2 >= 0):
            raise ValueError(
                "`rate` and `columns` should be above 0 and at most 1, and `leaf_l2` at least 0. Received: "
                f"rate={rate}, columns={columns}, leaf_l2={leaf_l2}"
            )
        super().__init__(feature_map, **options)
        self.trees = TreeEnsemble(trees, leaves, depth, dtype="float32", name="trees")
        self.rate = rate
        self.columns = columns
        self.leaf_rows = leaf_rows
        self.leaf_l2 = leaf_l2
        self.shift = self.add_weight(name="shift", shape=(1,), dtype="float32", initializer="zeros", trainable=False)

    def call(self, inputs: Inputs, training: bool | None = None, gathered: Inputs | None = None) -> Tensor:
        values = self.values(inputs, gathered)
        logits = values[:, -1:] + self.trees(values) + ops.cast(self.shift, "float32")
        return self.answered(logits, training)

    def values(self, inputs: Inputs, gathered: Inputs | None = None) -> Tensor:
        """Returns the inputs of the trees, float32 (batch_size, features). The last column is the regression's logit.

        A difference in the last digit can send a row to another leaf. Weights are therefore rounded to multiples of
        STEP, which sum to the same value in any order: in batches of any size, in Keras and in the served graph.

        Args:
            inputs, gathered: See CTRModel.call.
        """
        assert self.linear_dense is not None
        dense = ops.cast(inputs["dense"] if "dense" in inputs else ops.zeros((batch_size(inputs), 1)), "float32")
        if not self.linear_dense.built:
            self.linear_dense(dense)
        kernel = ops.cast(self.linear_dense.kernel, "float32")
        parts, weights = [], [_exact(self.linear_rate * dense * kernel[:, 0])]
        if "dense" in inputs:
            parts.append(dense)
        if "ids" in inputs:
            by_field = ops.cast(self.linear_weights(inputs, gathered)[:, :, 0], "float32")
            weights.append(_exact(self.linear_rate * by_field))
            parts += [weights[-1], *self._ordinals(inputs)]
        bias = _exact(self.linear_rate * ops.cast(self.linear_dense.bias, "float32"))
        logits = ops.sum(ops.concatenate(weights, axis=1), axis=1, keepdims=True) + bias
        return ops.concatenate([*parts, logits], axis=1)

    def _ordinals(self, inputs: Inputs) -> list[Tensor]:
        """Returns the places of the ids within their fields, for the fields of one slot; [] if there is none."""
        slots = [(field, self.feature_map.slots_of(field.name)) for field in self.feature_map.fields]
        single = [(field.offset, slot.start) for field, slot in slots if field.slots == 1]
        if not single:
            return []
        offsets, places = (np.array(numbers, "int32") for numbers in zip(*single, strict=True))
        ids = ops.take(inputs["ids"], places, axis=1)
        return [ops.cast(ids - ops.convert_to_tensor(offsets), "float32")]

    def round_weights(self) -> None:
        """Rounds the regression's id weights to multiples of STEP, which makes sums over a row exact."""
        if self.linear is not None:
            table = self.linear_rate * np.asarray(self.linear.table, np.float64)
            self.linear.table.assign(np.round(table / STEP) * STEP / self.linear_rate)

    def fold(self) -> None:
        self.trees.fold()

    def shift_logits(self, shift: float) -> None:
        self.shift.assign_add([shift])


def _exact(weights: Tensor) -> Tensor:
    """Rounds to multiples of STEP, with the gradient of the weights; the sum below is exact."""
    return weights + ops.stop_gradient(ops.round(weights / STEP) * STEP - weights)
