"""Transformer over a history."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.checks import require_one_rate
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.history_model import HistoryModel
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.history_transformer import HistoryTransformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class SequenceTransformer(HistoryModel):
    """Transformer over a history: encoder of the items, decoder with the candidate as query.

    `logit = MLP([fields, dense, Decoder(v_candidate, Encoder(e_1, ..., e_n))])`, with one Transformer per history. An
    item of several aligned sequences is the concatenation of their embeddings. `training.warmup_steps` sets the
    Transformer paper's learning rate schedule.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`.
        width: int. Width of the states. Defaults to 32.
        layers: int. Number of encoder layers, and of decoder layers. Defaults to 1.
        heads: int. Number of attention heads; must divide `width`. Defaults to 2.
        ffn_dim: int. Width of the feed-forward networks' hidden layer. Defaults to 128.
        positions: str. "sinusoidal", or "learned" for one learned vector per position. Defaults to "sinusoidal".
        attention: str. "softmax", or "pointwise" for a SiLU instead of the softmax, divided by the number of items, as
            in HSTU. Defaults to "softmax".
        causal: bool. Whether an item attends only to itself and to older items. Defaults to True.
        hidden_units: sequence of int. Widths of the MLP. Defaults to (200, 80).
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float. Dropout rate of the Transformer and the MLP. Defaults to 0.
        l2: float. Strength λ of the L2 penalty on the MLP's kernels. Defaults to 0.
        embedding_stddev: float. Standard deviation of the initial embeddings. Defaults to 0.05: sinusoidal positions
            have a magnitude of 1 and would initially drown out smaller embeddings.
        **options: Options of CTRModel.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = SequenceTransformer(FeatureMap.from_sizes([item, history]), embedding_dim=4, width=8)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`, a size is not positive, `heads` does not divide `width`, or
            `positions` or `attention` is unknown.

    References:
        Vaswani et al., "Attention Is All You Need", 2017; Zhai et al., "Actions Speak Louder than Words", 2024 (HSTU).
    """

    shares_history = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        width: int = 32,
        layers: int = 1,
        heads: int = 2,
        ffn_dim: int = 128,
        positions: str = "sinusoidal",
        attention: str = "softmax",
        causal: bool = True,
        hidden_units: Sequence[int] = (200, 80),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        embedding_stddev: float = 0.05,
        **options: Any,
    ) -> None:
        require_one_rate(dropout)
        super().__init__(feature_map, embedding_stddev=embedding_stddev, **options)
        sizes: dict[str, Any] = {"width": width, "layers": layers, "heads": heads, "ffn_dim": ffn_dim}
        sizes |= {"positions": positions, "attention": attention, "causal": causal, "dropout": dropout}
        self.transformers = [
            HistoryTransformer(**sizes, name=f"transformer_{number}") for number in range(len(feature_map.histories))
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
