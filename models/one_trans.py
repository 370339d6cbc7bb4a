"""OneTrans: one Transformer over histories and features."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.candidates import join_rows
from ctrpipe.models.base.checks import require_one_rate, require_positive
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.history_model import HistoryModel
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor
from ctrpipe.models.layers.one_history import is_shared
from ctrpipe.models.layers.places import newest_first
from ctrpipe.models.layers.unified_layer import UnifiedLayer


@keras.saving.register_keras_serializable(package="ctrpipe")
class OneTrans(HistoryModel):
    """OneTrans: one Transformer over the items of all histories, tokens of the user and tokens of the candidate.

    An item is a token, `W e_j` with a learned position. The user's other columns are cut into `user_tokens` tokens, and
    the candidate's columns into `candidate_tokens`, each by a dense layer on all of them. After the layers (see
    UnifiedLayer), `logit = MLP(the candidate's tokens)`. Nothing of the user depends on the candidate, so a request for
    many candidates computes the user's keys and values once.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`.
        width: int. Width of a token. Defaults to 32.
        layers: int. Number of layers. Defaults to 2.
        heads: int. Number of heads; must divide `width`. Defaults to 2.
        ffn_dim: int. Width of the feed-forward networks' hidden layer. Defaults to 64.
        user_tokens: int. Number of tokens of the user's columns that are not histories. Defaults to 4.
        candidate_tokens: int. Number of tokens of the candidate's columns. Defaults to 4.
        hidden_units: sequence of int. Widths of the MLP. Defaults to (64,).
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float. Dropout rate of the layers and of the MLP. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = OneTrans(FeatureMap.from_sizes([item, history]), embedding_dim=4, width=8)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`, a size is not positive, or `heads` does not divide `width`.

    References:
        Zhang et al., "OneTrans: Unified Feature Interaction and Sequence Modeling with One Transformer in Industrial
        Recommender", 2025.
    """

    shares_history = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        width: int = 32,
        layers: int = 2,
        heads: int = 2,
        ffn_dim: int = 64,
        user_tokens: int = 4,
        candidate_tokens: int = 4,
        hidden_units: Sequence[int] = (64,),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        sizes = {"width": width, "layers": layers, "heads": heads, "ffn_dim": ffn_dim}
        require_positive(**sizes, user_tokens=user_tokens, candidate_tokens=candidate_tokens)
        require_one_rate(dropout)
        if width % heads:
            raise ValueError(f"`heads` should divide `width`. Received: {heads} and {width}")
        super().__init__(feature_map, **options)
        self.width = width
        of_candidate = feature_map.candidate_fields
        self.candidate_names = [field.name for field in of_candidate if field.kind != "sequence"]
        self.user_names = [
            field.name for field in feature_map.fields if field.kind != "sequence" and field not in of_candidate
        ]
        dense = feature_map.dense_columns
        self.candidate_dense = [place for place, name in enumerate(dense) if name in feature_map.candidate_dense]
        self.user_dense = [place for place in range(len(dense)) if place not in self.candidate_dense]
        self.user_tokens = user_tokens if self.user_names or self.user_dense else 0
        self.candidate_tokens = candidate_tokens
        groups = feature_map.histories
        self.of_items = [keras.layers.Dense(width, use_bias=False, name=f"items_{n}") for n in range(len(groups))]
        self.of_user = keras.layers.Dense(self.user_tokens * width, name="user") if self.user_tokens else None
        self.of_candidate = keras.layers.Dense(candidate_tokens * width, name="candidate")
        self.stack = [
            UnifiedLayer(heads, ffn_dim, index == layers - 1, dropout, name=f"layer_{index}") for index in range(layers)
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def build(self, input_shape: Shape | None = None) -> None:
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        self.positions = [
            self.add_weight(name=f"positions_{number}", shape=(group[0].length, self.width), initializer=initializer)
            for number, group in enumerate(self.feature_map.histories)
        ]

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        of_fields = self.of_fields(rows)
        histories = self.histories(of_fields, inputs["ids"])
        shared = is_shared(histories[0].candidate, histories[0].items)
        items, are_items = [], []
        for layer, positions, history in zip(self.of_items, self.positions, histories, strict=True):
            tokens = layer(newest_first(history.items, history.is_item))
            items.append(tokens + ops.cast(positions, tokens.dtype)[None])
            are_items.append(history.is_item)
        states, is_item = join_rows(items), join_rows(are_items)
        user = None
        if self.of_user is not None:
            columns = self._columns(of_fields, inputs, self.user_names, self.user_dense, shared)
            user = ops.reshape(self.of_user(columns), (-1, self.user_tokens, self.width))
            if shared:  # so that the graph knows that there is one row
                user = ops.reshape(user, (1, self.user_tokens, self.width))
        columns = self._columns(of_fields, inputs, self.candidate_names, self.candidate_dense, False)
        candidate = ops.reshape(self.of_candidate(columns), (-1, self.candidate_tokens, self.width))
        for layer in self.stack:
            states, user, candidate = layer(states, user, candidate, is_item, training=training)
        return self.tower(ops.reshape(candidate, (-1, self.candidate_tokens * self.width)), training=training)

    def _columns(
        self, of_fields: Mapping[str, Tensor], inputs: Inputs, names: list[str], dense: list[int], shared: bool
    ) -> Tensor:
        """Returns the concatenated embeddings and dense features of some columns, of the first row if it is shared."""
        parts = []
        if names:
            slots = [of_fields[name] for name in names]
            rows = join_rows([one if one.shape[1] == 1 else ops.sum(one, axis=1, keepdims=True) for one in slots])
            parts.append(ops.reshape(rows, (-1, len(names) * rows.shape[2])))
        if dense:
            numbers = ops.take(inputs["dense"], dense, axis=1)
            numbers = ops.reshape(numbers[:1], (1, len(dense))) if shared else numbers
            parts.append(ops.cast(numbers, parts[0].dtype) if parts else numbers)
        return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
