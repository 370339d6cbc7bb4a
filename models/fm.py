"""Factorisation machine."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ctrpipe.models.base.ctr_model import CTRModel, require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.explain.strengths import inner_products
from ctrpipe.models.layers.factorization_machine import FactorizationMachine


@keras.saving.register_keras_serializable(package="ctrpipe")
class FM(CTRModel):
    """Factorisation machine.

    `logit = linear part + Σ_{i<j} <v_i, v_j> x_i x_j`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with one task.
        use_linear: bool. Whether to add the linear part. Defaults to True.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = FM(feature_map, embedding_dim=4)
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has several tasks.

    References:
        Rendle, "Factorization Machines", 2010, equation 1.
    """

    embeds_dense = True

    def __init__(self, feature_map: FeatureMap, *, use_linear: bool = True, **options: Any) -> None:
        require_one_task("fm", feature_map)
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.factorization_machine = FactorizationMachine(name="factorization_machine")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.factorization_machine(rows)

    def pair_strengths(self, covariances: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the strength of each pair of fields and dense features, (parts, parts).

        It is the standard deviation over rows of the pair's interaction in <v_i, v_j> (see
        ctrpipe.models.explain.strengths).

        Args:
            covariances: Covariance of each part's embedding over rows, (embedding_dim, embedding_dim) each.
        """
        return inner_products(covariances)
