"""Base class of the models that compute one vector for the user and one for the item."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, require_no_embedded, require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor

SIMILARITIES = ("cosine", "dot")
LEAST_SQUARE = 1e-12  # lower bound of a squared length in the normalisation


class VectorModel(CTRModel):
    """Base class of vector models: the logit is a similarity of a user vector and an item vector.

    Items can therefore be retrieved by their vectors. The item's columns have the role item or are named by a
    `shared_with`; all others belong to the user. A subclass defines `user_vectors` and `item_vectors`. Their inner
    products must rank items in the same order as the logits.

    Args:
        feature_map: FeatureMap. Must have columns of the item, columns of the user, and one task.
        similarity: str. One of SIMILARITIES.
        **options: Options of CTRModel, except `use_linear`.

    Example:
        >>> class Products(VectorModel):
        ...     def user_vectors(self, inputs):
        ...         return self.vector(self.rows(inputs)[:, self.user_places[0]])
        ...     def item_vectors(self, inputs):
        ...         return self.vector(self.rows(inputs)[:, self.item_places[0]])
        ...     def interact(self, rows, inputs, training=None):
        ...         products = self.user_vectors(inputs) * self.item_vectors(inputs)
        ...         return ops.sum(products, axis=1, keepdims=True) + self.bias
        >>> feature_map = FeatureMap.from_sizes([("user", "categorical", 50), ("ad", "categorical", 9, 1, "item")])
        >>> model = Products(feature_map, similarity="cosine", embedding_dim=4)
        >>> ops.shape(model({"ids": ops.array([[3, 55], [7, 60]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: no column is the item's, or all columns are; the data has several tasks; or an option is invalid.
    """

    needs_items = True
    # Name in the registry, for error messages.
    registered: str = ""

    def __init__(self, feature_map: FeatureMap, *, similarity: str, **options: Any) -> None:
        name = self.registered
        require_one_task(name, feature_map)
        require_no_embedded(name, feature_map)
        if similarity not in SIMILARITIES:
            raise ValueError(f"`similarity` should be one of {SIMILARITIES}. Received: {similarity!r}")
        if options.get("use_linear"):
            raise ValueError(f"{name} has no linear part, because no vector could hold it; remove `use_linear`")
        super().__init__(feature_map, **options)
        of_item = feature_map.item_fields
        self.item_places = [n for n, field in enumerate(feature_map.fields) if field in of_item]
        self.user_places = [n for n, field in enumerate(feature_map.fields) if field not in of_item]
        self.item_dense = [n for n, name in enumerate(feature_map.dense) if name in feature_map.item_dense]
        self.user_dense = [n for n, name in enumerate(feature_map.dense) if name not in feature_map.item_dense]
        # The columns of the tensor `dense`: a vector has several.
        columns = feature_map.dense_columns
        self.item_columns = [n for n, name in enumerate(columns) if name in feature_map.item_dense]
        self.user_columns = [n for n, name in enumerate(columns) if name not in feature_map.item_dense]
        if not (self.item_places or self.item_dense):
            raise ValueError(f"{name} needs the item's columns; give them `role: item`, or a sequence `shared_with`")
        if not (self.user_places or self.user_dense):
            raise ValueError(f"{name} needs columns of the user; all of them are the item's")
        self.similarity = similarity

    def build(self, input_shape: Shape | None = None) -> None:
        self.bias = self.add_weight(name="bias", shape=(1,), initializer="zeros")

    def output_biases(self) -> list[keras.Variable]:
        return [self.bias]

    def user_vectors(self, inputs: Inputs) -> Tensor:
        """Returns the users' vectors, float32 (batch_size, vector_dim); they do not depend on the item's columns."""
        raise NotImplementedError

    def item_vectors(self, inputs: Inputs) -> Tensor:
        """Returns the items' vectors, float32 (batch_size, vector_dim); they do not depend on the user's columns."""
        raise NotImplementedError

    def vector(self, output: Tensor) -> Tensor:
        """Returns the vectors to compare, float32 (batch_size, vector_dim); with "cosine", scaled to length 1."""
        vectors = ops.cast(output, "float32")
        if self.similarity == "dot":
            return vectors
        # `ops.normalize` has a NaN gradient for a zero vector, such as that of a user without any known value.
        squares = ops.sum(ops.square(vectors), axis=1, keepdims=True)
        return vectors * ops.rsqrt(ops.maximum(squares, LEAST_SQUARE))
