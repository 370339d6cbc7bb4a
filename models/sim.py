"""Search-based Interest Model."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.history_model import HistoryModel
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.candidate_attention import CandidateAttention
from ctrpipe.models.layers.hash_search import HashSearch
from ctrpipe.models.layers.one_history import weighted_sum
from ctrpipe.models.layers.places import best_places, take_places
from ctrpipe.models.layers.soft_search import SoftSearch

SEARCHES = ("soft", "hard", "hash", "attention")


@keras.saving.register_keras_serializable(package="ctrpipe")
class SIM(HistoryModel):
    """Search-based Interest Model: attention to the k items of a long history that match the candidate.

    `logit = MLP([fields, dense, Attention(v_candidate, found), r̄])`.

    A soft search finds the k items with the largest `r_j = <W_b e_j, W_a v_candidate>`. The MLP also reads the mean `r̄
    = Σ_j r_j e_j / n` over all n items, through which W_a and W_b are trained; the paper trains them with a separate
    loss on that sum. The other searches have no mean. A hard search finds the newest k items of the candidate's
    category. A hash search finds the k items whose hash shares the most bits with the candidate's hash (ETA). An
    attention search finds, for each head, the k items with the highest attention scores (TWIN). An item of several
    aligned sequences is the concatenation of their embeddings.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`.
        search: str. "soft", "hard", "hash" or "attention". Defaults to "soft".
        category: str. For a hard search, the name of the sequence with the items' categories; its `shared_with` names
            the candidate's category. Defaults to "".
        found: int. Number k of items to find. Defaults to 50.
        search_units: int. Output width of W_a and W_b, or number of bits of a hash. Defaults to 16.
        heads: int. Number of attention heads. Defaults to 2.
        key_dim: int. Width of a head's queries and keys. Defaults to 16.
        hidden_units: sequence of int. Widths of the MLP. Defaults to (200, 80), as in the paper.
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate of the MLP. Defaults to 0.
        l2: float. Strength λ of the L2 penalty on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = SIM(FeatureMap.from_sizes([item, history]), embedding_dim=4, found=2)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`, a size is not positive, `search` is unknown, or, for a hard
            search, a history has no sequence `category` with `shared_with`.

    References:
        Pi et al., "Search-based User Interest Modeling with Lifelong Sequential Behavior Data for Click-Through Rate
        Prediction", 2020, section 3, without the time intervals and without the model of the short-term history; Chen
        et al., 2021 (ETA); Chang et al., 2023 (TWIN).
    """

    shares_history = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        search: str = "soft",
        category: str = "",
        found: int = 50,
        search_units: int = 16,
        heads: int = 2,
        key_dim: int = 16,
        hidden_units: Sequence[int] = (200, 80),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, **options)
        require_positive(found=found)
        if search not in SEARCHES:
            raise ValueError(f"`search` should be one of {SEARCHES}. Received: {search!r}")
        self.found = found
        self.categories = []
        for group in feature_map.histories if search == "hard" else ():
            named = [f for f in group if f.name == category and f.shared_with and f.per_item == 1]
            if not named:
                raise ValueError(
                    f"SIM with search='hard' needs `category`, a sequence with shared_with of the history "
                    f"{group[0].name}. Received: category={category!r}"
                )
            self.categories.append(named[0])
        numbers = range(len(feature_map.histories))
        self.search = search
        searches: dict[str, type[SoftSearch] | type[HashSearch]] = {"soft": SoftSearch, "hash": HashSearch}
        kind = searches.get(search)
        self.searches = [kind(search_units, name=f"search_{number}") for number in numbers] if kind else []
        attended = found if search == "attention" else None
        self.attentions = [
            CandidateAttention(heads, key_dim, attended, name=f"attention_{number}") for number in numbers
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        read, of_fields = [], self.of_fields(rows)
        for number, history in enumerate(self.histories(of_fields, inputs["ids"])):
            searched, attention = history.is_item, self.attentions[number]
            if self.search == "attention":
                read.append(attention(history.candidate, history.items, searched))
                continue
            if self.search == "hash":
                scores = self.searches[number](history.candidate, history.items)
            elif self.searches:
                scores = self.searches[number](history.candidate, history.items)
                count = ops.maximum(ops.sum(ops.cast(searched, "float32"), axis=1, keepdims=True), 1.0)
                weights = ops.where(searched, scores, 0.0) / count
                read.append(weighted_sum(ops.cast(weights, history.items.dtype), history.items))
            else:
                field = self.categories[number]
                names = field.name, field.shared_with
                of_items, of_candidate = (inputs["ids"][:, self.feature_map.slots_of(name)] for name in names)
                searched = ops.logical_and(searched, of_items == of_candidate)
                scores = ops.broadcast_to(ops.arange(field.slots, dtype="float32")[None], ops.shape(searched))
            places, is_found = best_places(scores, searched, self.found)
            read.append(attention(history.candidate, take_places(history.items, places), is_found))
        return self.tower(self.beside(read, of_fields, inputs), training=training)
