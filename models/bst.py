"""Behavior Sequence Transformer."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.checks import require_one_rate
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.history_model import HistoryModel
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.behavior_transformer import BehaviorTransformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class BST(HistoryModel):
    """Behavior Sequence Transformer: one Transformer over candidate and history, then an MLP.

    `logit = MLP([fields, dense, Transformer([v_candidate; e_newest; ...; e_oldest])])`, one Transformer for each
    history. An item of several aligned sequences is the concatenation of their embeddings.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`.
        layers: int. Number of Transformer layers. Defaults to 1, as in the paper.
        heads: int. Number of attention heads; must divide the items' width plus `position_dim`. Defaults to 4; the
            paper uses 8.
        ffn_dim: int. Width of the feed-forward networks' hidden layer. Defaults to 64.
        position_dim: int. Width of a position's embedding. Defaults to 16.
        output: str. The MLP's input from a history: "all", the concatenated outputs of all places, as in the paper;
            or "candidate", the candidate's output. Defaults to "all".
        hidden_units: sequence of int. Widths of the MLP. Defaults to (1024, 512, 256), as in the paper.
        activation: str. Activation of the MLP. Defaults to "leaky_relu", as in the paper.
        dropout: float. Dropout rate of the Transformer and the MLP. Defaults to 0; the paper uses 0.2.
        l2: float. Strength λ of the L2 penalty on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = BST(FeatureMap.from_sizes([item, history]), embedding_dim=4, position_dim=4)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`, a size is not positive, `heads` does not divide the width,
            or `output` is unknown.

    References:
        Chen et al., "Behavior Sequence Transformer for E-commerce Recommendation in Alibaba", 2019.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 1,
        heads: int = 4,
        ffn_dim: int = 64,
        position_dim: int = 16,
        output: str = "all",
        hidden_units: Sequence[int] = (1024, 512, 256),
        activation: str = "leaky_relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_one_rate(dropout)
        super().__init__(feature_map, **options)
        self.transformers = [
            BehaviorTransformer(layers, heads, ffn_dim, position_dim, output, dropout, name=f"transformer_{number}")
            for number in range(len(feature_map.histories))
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        of_fields = self.of_fields(rows)
        histories = self.histories(of_fields, inputs["ids"])
        read = [
            layer(history.candidate, history.items, history.is_item, training=training)
            for layer, history in zip(self.transformers, histories, strict=True)
        ]
        return self.tower(self.beside(read, of_fields, inputs), training=training)
