"""Two-tower model: one tower reads the user, one the item; the logit compares their outputs."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.feature_map import SLOT_WEIGHTS, FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.base.vector_model import VectorModel
from ctrpipe.models.layers.tower import Tower


@keras.saving.register_keras_serializable(package="ctrpipe")
class TwoTower(VectorModel):
    """Two-tower model: the logit is the similarity of a user vector and an item vector.

    Items can be retrieved by their vectors.

    `logit = <u, v> / temperature + b` with `u = MLP_user([fields, dense])` and `v = MLP_item([fields, dense])`. With
    similarity "cosine", u and v are scaled to length 1. The item's columns have the role item or are named by a
    `shared_with`; the user tower reads all others. A history is pooled by the `pooling` of its field, but "attention"
    becomes the mean, because a user vector must not depend on an item.

    Args:
        feature_map: FeatureMap. Must have columns of the item, columns of the user, and one task.
        hidden_units: sequence of int. Widths of each tower's hidden layers. Defaults to (128,).
        vector_dim: int. Width of the vectors. Defaults to 32.
        similarity: str. "cosine" or "dot". Defaults to "cosine".
        temperature: float. Divisor of the similarity; with "cosine", a logit differs from b by at most 1 / temperature.
            Defaults to 0.1.
        activation: str. Activation of the hidden layers. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the towers' kernels. Defaults to 0.
        **options: Options of CTRModel, except `use_linear`.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = TwoTower(FeatureMap.from_sizes([item, history]), embedding_dim=4, vector_dim=3)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs)), keras.ops.shape(model.item_vectors(inputs))
        ((2, 1), (2, 3))

    Raises:
        ValueError: no column is the item's, or all columns are; the data has several tasks; or an option is invalid.

    References:
        Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations", 2019, section 3 and
        section 4.2 ("Normalization and Temperature"); here with the log loss of the label on every row of the log.
    """

    registered = "two_tower"

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (128,),
        vector_dim: int = 32,
        similarity: str = "cosine",
        temperature: float = 0.1,
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, similarity=similarity, **options)
        require_positive(vector_dim=vector_dim)
        if not temperature > 0:
            raise ValueError(f"`temperature` should be positive. Received: {temperature}")
        if self.table is not None:
            self.table.attends = False
        self.temperature = temperature
        towers = (hidden_units, vector_dim, activation, dropout, l2)
        self.user_tower = self.mlp(*towers, name="user_tower")
        self.item_tower = self.mlp(*towers, name="item_tower")

    def interact(self, rows: Tensor | None, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.logits_of(self._user(rows, inputs, training), self._item(rows, inputs, training))

    def user_vectors(self, inputs: Inputs) -> Tensor:
        """Returns the users' vectors, float32 (batch_size, vector_dim); they do not depend on the item's columns."""
        return self._user(self.rows(inputs, False), inputs, False)

    def item_vectors(self, inputs: Inputs) -> Tensor:
        """Returns the items' vectors, float32 (batch_size, vector_dim); they do not depend on the user's columns."""
        return self._item(self.rows(inputs, False), inputs, False)

    def candidate_logits(self, context: Inputs, candidates: Inputs) -> Tensor:
        """Returns the logits of many candidates for one user; the user tower is computed once."""
        user = self._vector_of(self.user_tower, context, self.user_places)
        logits = self.logits_of(user, self._vector_of(self.item_tower, candidates, self.item_places))
        return self.answered(logits, training=False)

    def logits_of(self, users: Tensor, items: Tensor) -> Tensor:
        """Returns the logits of pairs of vectors, float32 (batch_size, 1)."""
        return ops.sum(users * items, axis=1, keepdims=True) / self.temperature + ops.cast(self.bias, "float32")

    def _user(self, rows: Tensor | None, inputs: Inputs, training: bool | None) -> Tensor:
        read = self._read(rows, self.user_places, inputs, self.user_columns)
        return self.vector(self.user_tower(read, training=training))

    def _item(self, rows: Tensor | None, inputs: Inputs, training: bool | None) -> Tensor:
        read = self._read(rows, self.item_places, inputs, self.item_columns)
        return self.vector(self.item_tower(read, training=training))

    def _vector_of(self, tower: Tower, inputs: Inputs, places: list[int]) -> Tensor:
        """Returns the vectors for packed tensors that hold only one tower's slots."""
        rows = None
        if places:
            assert self.table is not None
            rows = self.table.embed(
                inputs["ids"], [self.feature_map.fields[place] for place in places], inputs.get(SLOT_WEIGHTS)
            )
        return self.vector(tower(self.flatten(rows, inputs), training=False))

    def _read(self, rows: Tensor | None, places: list[int], inputs: Inputs, dense: list[int]) -> Tensor:
        """Returns the embeddings at `places` and the columns `dense` of `inputs["dense"]`, (batch_size, width)."""
        some = ops.take(rows, places, axis=1) if places else None
        of_dense = {"dense": ops.take(inputs["dense"], dense, axis=1)} if dense else {}
        return self.flatten(some, of_dense)
