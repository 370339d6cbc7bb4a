"""FinalMLP: two MLPs on differently gated features."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, fields_named
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor
from ctrpipe.models.layers.bilinear_fusion import BilinearFusion
from ctrpipe.models.layers.tower import Tower


@keras.saving.register_keras_serializable(package="ctrpipe")
class FinalMLP(CTRModel):
    """FinalMLP: two MLPs, each on the features that its gate selects, fused by their products.

    `logit = b + w_1ᵀ o_1 + w_2ᵀ o_2 + Σ_h o_1hᵀ W_h o_2h` with `o_s = MLP_s(2 sigmoid(Gate_s(c_s)) ∘ x)`. x is the
    concatenated embeddings and dense features. c_s is a learned vector, or the embeddings of the fields of a context.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        hidden_units: sequence of int. Widths of the first MLP. Defaults to (64, 64, 64).
        second_units: sequence of int. Widths of the second MLP. Defaults to (64, 64, 64).
        use_gates: bool. Whether gates select features; otherwise both MLPs read x. Defaults to True.
        gate_units: sequence of int. Widths of the hidden layers of each gate. Defaults to (64,).
        first_context, second_context: sequence of str. Names of the fields that a gate reads; None for a learned
            vector. Default to None.
        heads: int. Number of heads of the fusion; must divide the last widths of both MLPs. Defaults to 1.
        activation: str. Activation of both MLPs. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer of the first MLP. Defaults to 0.
        second_dropout: float. Dropout rate of the second MLP. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of both MLPs. Defaults to 0.
        embedding_dim: int. Width d of an embedding. Defaults to 16.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = FinalMLP(feature_map, embedding_dim=4, hidden_units=(8,), second_units=(6,), heads=2)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: an MLP has no hidden layer, a context names no field, or `heads` does not divide a width.

    References:
        Mao et al., "FinalMLP: An Enhanced Two-Stream MLP Model for CTR Prediction", 2023, equations 3 to 8.
    """

    may_embed_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (64, 64, 64),
        second_units: Sequence[int] = (64, 64, 64),
        use_gates: bool = True,
        gate_units: Sequence[int] = (64,),
        first_context: Sequence[str] | None = None,
        second_context: Sequence[str] | None = None,
        heads: int = 1,
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        second_dropout: float = 0.0,
        l2: float = 0.0,
        embedding_dim: int = 16,
        **options: Any,
    ) -> None:
        if not hidden_units or not second_units:
            raise ValueError("`hidden_units` and `second_units` should have a width each. Received an empty one")
        if widths := [width for width in (hidden_units[-1], second_units[-1]) if width % max(heads, 1)]:
            raise ValueError(f"`heads` should divide the last width {widths[0]} of an MLP. Received: heads={heads}")
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        contexts = (first_context or (), second_context or ())
        self.contexts = [fields_named("final_mlp", feature_map, context) for context in contexts]
        width = self.flat_width(embedding_dim)
        self.gates = [Tower(gate_units, width, name=f"gate_{number}") for number in (1, 2)] if use_gates else []
        self.streams = [
            self.mlp(hidden_units, None, activation, dropout, l2, name="stream_1"),
            self.mlp(second_units, None, activation, second_dropout, l2, name="stream_2"),
        ]
        self.fusion = BilinearFusion(self.tasks, heads, name="fusion")

    def build(self, input_shape: Shape | None = None) -> None:
        # Learned vectors start apart from 0, where a gate with hidden layers would have no gradient for them.
        initializer = keras.initializers.RandomNormal(stddev=0.1)
        self.vectors = [
            None
            if context or not self.gates
            else self.add_weight(name=f"context_{number}", shape=(self.embedding_dim,), initializer=initializer)
            for number, context in enumerate(self.contexts)
        ]

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x = self.flatten(rows, inputs)
        selected = [x, x]
        for number, gate in enumerate(self.gates):
            vector = self.vectors[number]
            if vector is None:
                context = ops.take(rows, self.contexts[number], axis=1)
                context = ops.reshape(context, (-1, len(self.contexts[number]) * self.embedding_dim))
            else:
                context = ops.cast(vector, x.dtype)[None]
            selected[number] = x * (2.0 * ops.sigmoid(gate(context, training=training)))
        streams = [stream(own, training=training) for stream, own in zip(self.streams, selected, strict=True)]
        return self.fusion(*streams)

    def output_biases(self) -> list[keras.Variable]:
        return super().output_biases() if self.linear_dense is not None else [self.fusion.first.bias]
