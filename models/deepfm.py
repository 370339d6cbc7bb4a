"""DeepFM."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.ctr_model import CTRModel, require_one_task
from models.feature_map import FeatureMap
from models.layers.factorization_machine import FactorizationMachine
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class DeepFM(CTRModel):
    """logit = linear part + FM + MLP, on the same embeddings.

    Args:
        feature_map: The description of the packed tensors; one task.
        hidden_units: Widths of the hidden layers.
        activation: Activation of the hidden layers.
        dropout: Rate after each hidden layer.
        l2: λ of λ/2·‖W‖² on the MLP's kernels.
        use_linear: The linear part.
        **options: See CTRModel.

    References:
        Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", 2017.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (600, 400),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        use_linear: bool = True,
        **options: Any,
    ) -> None:
        require_one_task("deepfm", feature_map)
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.factorization_machine = FactorizationMachine(name="factorization_machine")
        self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        deep = self.tower(self.flatten(rows, inputs), training=training)
        return self.factorization_machine(rows) + ops.cast(deep, "float32")
