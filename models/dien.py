"""Deep Interest Evolution Network."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.feature_map import WEIGHT, FeatureMap
from ctrpipe.models.base.history_model import History, HistoryModel
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.interest_evolution import InterestEvolution
from ctrpipe.models.layers.places import take_places


@keras.saving.register_keras_serializable(package="ctrpipe")
class DIEN(HistoryModel):
    """Deep Interest Evolution Network: a GRU over a history, then an attentional GRU for the candidate.

    `logit = MLP([fields, dense, AUGRU(GRU(e), a)])`, with one pair of GRUs per history. An item of several aligned
    sequences is the concatenation of their embeddings.

    In training, the loss has an auxiliary term of weight `auxiliary_weight`:
    `-log σ(<h_t, e_{t+1}>) - log(1 - σ(<h_t, e'>))`, averaged over the items t except the newest, then over the rows.
    It trains an interest h_t to distinguish the next item e_{t+1} from a negative item e'. The negative is the item at
    the place of e_{t+1} in the history of the next row of the batch; a shorter history is repeated from its first item.
    Batches are shuffled by the seed, and so the seed determines the negatives too. An item is skipped if it has no
    negative, or if the negative equals the next item.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`.
        units: int. Width of the second GRU. Defaults to 32.
        auxiliary_weight: float. Weight α of the auxiliary loss; 0 for none. Defaults to 1, as in the authors' code.
        hidden_units: sequence of int. Widths of the MLP. Defaults to (200, 80), as in the authors' code.
        activation: str. Activation of the MLP. Defaults to "relu"; the authors' code uses PReLU or Dice.
        dropout: float or sequence of float. Dropout rate of the MLP. Defaults to 0.
        l2: float. Strength λ of the L2 penalty on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = DIEN(FeatureMap.from_sizes([item, history]), embedding_dim=4)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`, `units` is not positive, or `auxiliary_weight` is negative.

    References:
        Zhou et al., "Deep Interest Evolution Network for Click-Through Rate Prediction", 2019.
    """

    shares_history = True
    reads_labels = True  # for the weights

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        units: int = 32,
        auxiliary_weight: float = 1.0,
        hidden_units: Sequence[int] = (200, 80),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, **options)
        if auxiliary_weight < 0:
            raise ValueError(f"`auxiliary_weight` should be non-negative. Received: {auxiliary_weight}")
        self.auxiliary_weight = auxiliary_weight
        self.evolutions = [
            InterestEvolution(units, name=f"evolution_{number}") for number in range(len(feature_map.histories))
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        evolved, of_fields = [], self.of_fields(rows)
        for layer, history in zip(self.evolutions, self.histories(of_fields, inputs["ids"]), strict=True):
            output, interests = layer(history.candidate, history.items, history.is_item, return_interests=True)
            evolved.append(output)
            if training and self.auxiliary_weight and history.items.shape[1] > 1:
                self.add_loss(self.auxiliary_weight * auxiliary_loss(interests, history, inputs.get(WEIGHT)))
        return self.tower(self.beside(evolved, of_fields, inputs), training=training)


def auxiliary_loss(interests: Tensor, history: History, weights: Tensor | None = None) -> Tensor:
    """Returns the auxiliary loss of DIEN, a float32 scalar: how poorly the interests predict the next item.

    Args:
        interests: Interests h, (batch_size, length, width).
        history: The history that the interests were computed from.
        weights: How often each row counts, (batch_size, 1); None: once.
    """
    length = interests.shape[1]
    count = ops.maximum(ops.sum(ops.cast(history.is_item, "int32"), axis=1), 1)
    others = ops.mod(ops.arange(length, dtype="int32")[None], ops.roll(count, -1)[:, None])
    other_items = take_places(ops.roll(history.items, -1, axis=0), others)
    other_ids = ops.take_along_axis(ops.roll(history.item_ids, -1, axis=0), others, axis=1)
    counts = ops.logical_and(history.is_item[:, 1:], other_ids[:, 1:] > 0)
    counts = ops.cast(ops.logical_and(counts, other_ids[:, 1:] != history.item_ids[:, 1:]), "float32")
    before = interests[:, :-1]
    next_score = ops.cast(ops.sum(before * history.items[:, 1:], axis=2), "float32")
    other_score = ops.cast(ops.sum(before * other_items[:, 1:], axis=2), "float32")
    losses = counts * (ops.softplus(-next_score) + ops.softplus(other_score))
    of_rows = ops.sum(losses, axis=1) / ops.maximum(ops.sum(counts, axis=1), 1.0)
    if weights is None:
        return ops.mean(of_rows)
    weights = ops.cast(weights, "float32")[:, 0]
    total = ops.sum(weights)
    return ops.sum(of_rows * weights) / ops.where(total > 0, total, 1.0)
