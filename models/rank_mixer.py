"""RankMixer."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_one_rate, require_positive
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.token_mixer import TokenMixer


@keras.saving.register_keras_serializable(package="ctrpipe")
class RankMixer(CTRModel):
    """RankMixer: tokens of features that exchange their heads, each with a feed-forward network of its own.

    The concatenated embeddings and dense features are cut into T tokens, `x_t = W_t e_t + b_t`, of width D. After the
    blocks, `logit = MLP(mean_t x_t)`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        tokens: int. Number T of tokens. Defaults to 8.
        token_dim: int. Width D of a token; must be divisible by `tokens`. Defaults to 64.
        layers: int. Number of blocks. Defaults to 2.
        ffn_dim: int. Width of the hidden layers of the tokens' networks. Defaults to 128.
        experts: int. Number of experts of each token, with sparse gates; 1 for no gates. Defaults to
            1.
        router_l1: float. Strength λ of the penalty λ mean Σ gates, which makes gates zero. Defaults to 0.
        hidden_units: sequence of int. Widths of the MLP. Defaults to ().
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float. Dropout rate of the blocks and of the MLP. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = RankMixer(feature_map, embedding_dim=4, tokens=2, token_dim=6, experts=2)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: a size is not positive, `tokens` does not divide `token_dim`, or `router_l1` is set without experts.

    References:
        Zhu et al., "RankMixer: Scaling Up Ranking Models in Industrial Recommenders", 2025.
    """

    may_embed_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        tokens: int = 8,
        token_dim: int = 64,
        layers: int = 2,
        ffn_dim: int = 128,
        experts: int = 1,
        router_l1: float = 0.0,
        hidden_units: Sequence[int] = (),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_positive(tokens=tokens, token_dim=token_dim, layers=layers, experts=experts)
        require_one_rate(dropout)
        if token_dim % tokens:
            raise ValueError(f"`token_dim` should be divisible by `tokens`. Received: {token_dim} and {tokens}")
        if router_l1 and experts == 1:
            raise ValueError("`router_l1` is a penalty on the gates of experts; give `experts` above 1 or remove it")
        super().__init__(feature_map, **options)
        self.count = tokens
        self.router_l1 = router_l1
        self.project = [keras.layers.Dense(token_dim, name=f"token_{index}") for index in range(tokens)]
        self.mixers = [TokenMixer(ffn_dim, experts, dropout, name=f"mixer_{index}") for index in range(layers)]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        flat = self.flatten(rows, inputs)
        width = -(-flat.shape[1] // self.count)
        flat = ops.pad(flat, ((0, 0), (0, width * self.count - flat.shape[1])))
        parts = ops.split(flat, self.count, axis=1)
        tokens = ops.stack([layer(part) for layer, part in zip(self.project, parts, strict=True)], axis=1)
        for mixer in self.mixers:
            tokens = mixer(tokens, training=training)
            if self.router_l1 and training:
                gates = ops.cast(mixer.gates(tokens), "float32")
                self.add_loss(self.router_l1 * ops.mean(ops.sum(gates, axis=(1, 2))))
        return self.tower(ops.mean(tokens, axis=1), training=training)
