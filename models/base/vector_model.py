"""The base class of the models that make a vector of the user's columns and one of the item's."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor

SIMILARITIES = ("cosine", "dot")
LEAST_SQUARE = 1e-12  # of a vector's length, where it is made 1


class VectorModel(CTRModel):
    """Base class: the likeness of a user's vector and an item's is the logit, so that items are found by their vectors.

    The item's columns are those of the role item and those that `shared_with` names; all others are the user's. A
    subclass defines `user_vectors` and `item_vectors`, whose products put the items into the order of the logits.

    Args:
        feature_map: FeatureMap. Columns of the item, and others; one task.
        similarity: str. One of SIMILARITIES.
        **options: Options of CTRModel; without `use_linear`.

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
        ValueError: no column is the item's, or all are; the data has several tasks; or an option is impossible.
    """

    needs_items = True
    # The name of the registry, for messages.
    registered: str = ""

    def __init__(self, feature_map: FeatureMap, *, similarity: str, **options: Any) -> None:
        name = self.registered
        require_one_task(name, feature_map)
        if similarity not in SIMILARITIES:
            raise ValueError(f"`similarity` should be one of {SIMILARITIES}. Received: {similarity!r}")
        if options.get("use_linear"):
            raise ValueError(f"{name} has no linear part: no vector would hold it; leave `use_linear` out")
        super().__init__(feature_map, **options)
        of_item = feature_map.item_fields
        self.item_places = [n for n, field in enumerate(feature_map.fields) if field in of_item]
        self.user_places = [n for n, field in enumerate(feature_map.fields) if field not in of_item]
        self.item_dense = [n for n, name in enumerate(feature_map.dense) if name in feature_map.item_dense]
        self.user_dense = [n for n, name in enumerate(feature_map.dense) if name not in feature_map.item_dense]
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
        """Returns the users' vectors, float32 (batch_size, vector_dim), whatever the item's columns hold."""
        raise NotImplementedError

    def item_vectors(self, inputs: Inputs) -> Tensor:
        """Returns the items' vectors, float32 (batch_size, vector_dim), whatever the user's columns hold."""
        raise NotImplementedError

    def vector(self, output: Tensor) -> Tensor:
        """Returns vectors as they are compared, float32 (batch_size, vector_dim): with "cosine" of length 1."""
        vectors = ops.cast(output, "float32")
        if self.similarity == "dot":
            return vectors
        # Of a zero vector, as of a user without anything known, `ops.normalize` has the gradient NaN.
        squares = ops.sum(ops.square(vectors), axis=1, keepdims=True)
        return vectors * ops.rsqrt(ops.maximum(squares, LEAST_SQUARE))
