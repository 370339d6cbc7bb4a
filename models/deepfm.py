"""DeepFM."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.factorization_machine import FactorizationMachine
from ctrpipe.models.mlp import MLP


@keras.saving.register_keras_serializable(package="ctrpipe")
class DeepFM(MLP):
    """DeepFM: a factorisation machine and an MLP on the same embeddings.

    `logit = linear part + Σ_{i<j} <e_i, e_j> + MLP(concat(E))`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with one task.
        use_linear: bool. Whether to add the linear part. Defaults to True.
        **options: Options of MLP and CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = DeepFM(feature_map, embedding_dim=4, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has several tasks.

    References:
        Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", 2017.
    """

    embeds_dense = True

    def __init__(self, feature_map: FeatureMap, *, use_linear: bool = True, **options: Any) -> None:
        require_one_task("deepfm", feature_map)
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.factorization_machine = FactorizationMachine(name="factorization_machine")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        deep = super().interact(rows, inputs, training)
        return self.factorization_machine(rows) + ops.cast(deep, "float32")
