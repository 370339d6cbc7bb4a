"""Deep Interest Network."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.history_model import HistoryModel
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.activation_unit import ActivationUnit


@keras.saving.register_keras_serializable(package="ctrpipe")
class DIN(HistoryModel):
    """Deep Interest Network: pools a history with a network that compares each item with the candidate.

    `logit = MLP([fields, dense, Σ_j a(e_j, v_candidate) e_j])`, with one sum per history. An item of several aligned
    sequences is the concatenation of their embeddings.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`.
        hidden_units: sequence of int. Widths of the MLP. Defaults to (200, 80), as in the paper's code.
        activation: str. Activation of the MLP. Defaults to "relu"; the paper's Dice is not implemented.
        dropout: float or sequence of float. Dropout rate of the MLP. Defaults to 0.
        l2: float. Strength λ of the L2 penalty on the MLP's kernels. Defaults to 0.
        attention_hidden_units: sequence of int. Widths of the network that weights the items. Defaults to (80, 40).
        attention_activation: str. Activation of that network. Defaults to "sigmoid".
        **options: Options of CTRModel.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = DIN(FeatureMap.from_sizes([item, history]), embedding_dim=4)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`.

    References:
        Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", 2018, section 4.3.
    """

    shares_history = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (200, 80),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        attention_hidden_units: Sequence[int] = (80, 40),
        attention_activation: str = "sigmoid",
        **options: Any,
    ) -> None:
        super().__init__(feature_map, **options)
        self.units = [
            ActivationUnit(attention_hidden_units, attention_activation, name=f"attention_{number}")
            for number in range(len(feature_map.histories))
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        of_fields = self.of_fields(rows)
        histories = self.histories(of_fields, inputs["ids"])
        pooled = [
            unit(history.candidate, history.items, history.is_item)
            for unit, history in zip(self.units, histories, strict=True)
        ]
        return self.tower(self.beside(pooled, of_fields, inputs), training=training)
