"""Field-aware factorisation machine."""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ctrpipe.models.base.ctr_model import CTRModel, require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.explain.strengths import inner_products
from ctrpipe.models.layers.field_aware_interaction import FieldAwareInteraction
from ctrpipe.models.layers.field_embedding import FieldEmbedding


@keras.saving.register_keras_serializable(package="ctrpipe")
class FFM(CTRModel):
    """Field-aware factorisation machine: every field has one vector for each other field.

    `logit = linear part + Σ_{i<j} <v_i^(j), v_j^(i)> x_i x_j`. A row of the table holds an id's vectors for all fields:
    with F fields the table is F times as wide as an FM's.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with one task.
        embedding_dim: int. Width of one vector. Defaults to 4.
        use_linear: bool. Whether to add the linear part. Defaults to True.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = FFM(feature_map, embedding_dim=4)
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has several tasks.

    References:
        Juan et al., "Field-aware Factorization Machines for CTR Prediction", 2016, equation 4.
    """

    embeds_dense = True

    def __init__(
        self, feature_map: FeatureMap, *, embedding_dim: int = 4, use_linear: bool = True, **options: Any
    ) -> None:
        require_one_task("ffm", feature_map)
        width = embedding_dim * (len(feature_map.fields) + len(feature_map.dense))
        super().__init__(feature_map, embedding_dim=width, use_linear=use_linear, **options)
        self.interaction = FieldAwareInteraction(name="interaction")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.interaction(rows)

    def value_tables(self) -> list[FieldEmbedding]:
        """Returns []: a row holds one vector for each other field, not an embedding of the value."""
        return []

    def pair_strengths(self, covariances: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the strength of each pair of fields and dense features, (parts, parts).

        It is the standard deviation over rows of the pair's interaction in <v_i^(j), v_j^(i)> (see
        ctrpipe.models.explain.strengths).

        Args:
            covariances: Covariance over rows of each part's embedding, the concatenation of all its vectors v_i^(j).
        """
        count = len(covariances)
        width = len(covariances[0]) // count
        strengths = np.zeros((count, count))
        for first, second in itertools.combinations(range(count), 2):
            for_second, for_first = (
                slice(second * width, (second + 1) * width),
                slice(first * width, (first + 1) * width),
            )
            blocks = [covariances[first][for_second, for_second], covariances[second][for_first, for_first]]
            strengths[first, second] = strengths[second, first] = inner_products(blocks)[0, 1]
        return strengths
