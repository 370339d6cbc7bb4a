"""HSTU: hierarchical sequential transduction units."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_one_rate, require_positive
from ctrpipe.models.base.feature_map import FeatureMap, Field
from ctrpipe.models.base.history_model import History, HistoryModel
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.hstu_layer import HSTULayer
from ctrpipe.models.layers.places import newest_first


@keras.saving.register_keras_serializable(package="ctrpipe")
class HSTU(HistoryModel):
    """HSTU: pointwise attention with a gate, and with biases of place and time, over a history and the candidate.

    `logit = MLP([fields, dense, x_candidate])`, where x_candidate is the candidate's state after the layers (see
    HSTULayer). An item attends only to itself and older items, so a user's history is computed once for all candidates.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`.
        width: int. Width of the states. Defaults to 32.
        layers: int. Number of layers. Defaults to 2.
        heads: int. Number of heads; must divide `width`. Defaults to 2.
        times: str. Name of an aligned sequence whose values are buckets of the items' times, such as their age at the
            impression; each bucket then has a bias in the attention. Defaults to "", no bias of time.
        hidden_units: sequence of int. Widths of the MLP. Defaults to (200, 80).
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float. Dropout rate of the layers and of the MLP. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = HSTU(FeatureMap.from_sizes([item, history]), embedding_dim=4, width=8)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`, a size is not positive, `heads` does not divide `width`, or
            `times` is not a sequence of a history.

    References:
        Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers for Generative
        Recommendations", 2024.
    """

    shares_history = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        width: int = 32,
        layers: int = 2,
        heads: int = 2,
        times: str = "",
        hidden_units: Sequence[int] = (200, 80),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_positive(width=width, layers=layers, heads=heads)
        require_one_rate(dropout)
        if width % heads:
            raise ValueError(f"`heads` should divide `width`. Received: {heads} and {width}")
        super().__init__(feature_map, **options)
        groups = feature_map.histories
        self.times: list[Field | None] = [next((one for one in group if one.name == times), None) for group in groups]
        if times and not any(self.times):
            named = ", ".join(field.name for group in groups for field in group)
            raise ValueError(f"HSTU: `times` should be a sequence of a history: {named}. Received: times={times!r}")
        self.project = [keras.layers.Dense(width, name=f"project_{number}") for number in range(len(groups))]
        self.stacks = [
            [
                HSTULayer(heads, field.size if field else 0, dropout, name=f"layer_{number}_{index}")
                for index in range(layers)
            ]
            for number, field in enumerate(self.times)
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        of_fields = self.of_fields(rows)
        read = []
        for number, history in enumerate(self.histories(of_fields, inputs["ids"])):
            project = self.project[number]
            states = project(newest_first(history.items, history.is_item))
            candidate = project(history.candidate)
            buckets = self._buckets(self.times[number], history, inputs["ids"])
            for layer in self.stacks[number]:
                states, candidate = layer(states, candidate, history.is_item, buckets, training=training)
            read.append(candidate)
        return self.tower(self.beside(read, of_fields, inputs), training=training)

    def _buckets(self, field: Field | None, history: History, ids: Tensor) -> Tensor | None:
        """Returns the time bucket of each item, newest first, int32; 0 for padding."""
        if field is None:
            return None
        own = ids[:, self.feature_map.slots_of(field.name)][:, :: field.per_item]
        if history.items.shape[0] == 1:
            own = ops.reshape(own[:1], (1, field.length))
        ordered = newest_first(ops.cast(ops.maximum(own - field.offset, 0), "float32")[..., None], history.is_item)
        return ops.cast(ordered[..., 0], "int32")
