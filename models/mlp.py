"""The vanilla MLP on concatenated embeddings."""

from collections.abc import Sequence

import keras

from models.ctr_model import CTRModel
from models.feature_map import FeatureMap
from models.tower import Tower


@keras.saving.register_keras_serializable(package="ctrpipe")
class MLP(CTRModel):
    """logit = MLP(concat(embeddings, dense)): Attention-Net's baseline without attention.

    Args:
        feature_map: The description of the packed tensors.
        embedding_dim: Width of an embedding.
        hidden_units: Widths of the hidden layers (600-400 for Criteo, 400-200 for Avazu in the paper).
        activation: Activation of the hidden layers.
        dropout: Rate after each hidden layer.
        embedding_stddev: Standard deviation of the initial embeddings.
        embedding_l2: λ on the embeddings that a row touches (see FieldEmbedding).
        l2: λ of λ/2·‖W‖² on the MLP's kernels.
        use_linear: Adds a logistic regression to the logit.
        linear_l2: λ on its weights.
        linear_rate: Factor on the linear part's learning rate (see CTRModel).
        embedding_dropout: Rate of dropout on the embeddings (not in the paper).
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        embedding_dim: int = 32,
        hidden_units: Sequence[int] = (600, 400),
        activation: str = "relu",
        dropout: float = 0.0,
        embedding_stddev: float = 0.001,
        embedding_l2: float = 0.0,
        l2: float = 0.0,
        use_linear: bool = False,
        linear_l2: float = 0.0,
        embedding_dropout: float = 0.0,
        linear_rate: float = 1.0,
        **kwargs,
    ):
        super().__init__(
            feature_map,
            embedding_dim,
            embedding_stddev,
            embedding_l2,
            use_linear,
            linear_l2,
            embedding_dropout,
            linear_rate,
            **kwargs,
        )
        self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows, inputs, training=None):
        return self.tower(self.flatten(rows, inputs), training=training)
