"""StarSpace: compares entities, each a bag of discrete features with shared embeddings."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.candidates import by_field, join_rows
from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.feature_map import LABEL, SLOT_WEIGHTS, WEIGHT, FeatureMap, Field
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor
from ctrpipe.models.base.vector_model import VectorModel
from ctrpipe.models.layers.one_history import weighted_sum

LOSSES = ("margin", "softmax")


@keras.saving.register_keras_serializable(package="ctrpipe")
class StarSpace(VectorModel):
    """StarSpace: the similarity of two entities, each the sum of its features' embeddings.

    `logit = w sim(a, b) + c`, with `a = Σ e_i` over the features of one entity (such as a document, a user or a query)
    and `b = Σ e_j` over the features of the other (such as a label, an item or a document). `sim` is the cosine or the
    dot product. b has the columns with the role item or named by a `shared_with`; a has all others. An id has the same
    embedding on both sides. A dense feature is x_d v_d. If a history of a contains the item b, that event is left out
    of a, as in FISM.

    The embeddings are trained only on the rows with label 1, the pairs (a, b). The loss is the mean over these pairs of

        margin    Σ_k max(0, μ - sim(a, b) + sim(a, b_k⁻))
        softmax   -log(e^sim(a, b) / (e^sim(a, b) + Σ_k e^sim(a, b_k⁻)))

    The negatives b_k⁻ are the b of the next k rows of the batch, regardless of their label; the first row follows the
    last. Batches are shuffled by the seed: each negative is the b of a random row of the log, as in the authors' code.
    The paper draws from the set of all b. Rows with sampled negatives (`events.negatives`) bring draws from that set
    into the batch. A negative is skipped if it equals b, or if its row has label 1 and the same a. A fractional label
    weights its pair.

    The log loss of all rows, including label 0, trains only w and c. This turns the similarity into the logit of a
    probability (Platt scaling) and does not change the ranking by similarity.

    Args:
        feature_map: FeatureMap. Must have columns of b, columns of a, and one task.
        similarity: str. "cosine" or "dot". Defaults to "cosine".
        loss: str. "margin" or "softmax"; the authors' code combines softmax only with "dot". Defaults to "margin".
        margin: float. Margin μ of the ranking loss. Defaults to 0.05, as in the authors' code.
        negatives: int. Number k of negatives per pair. Defaults to 10.
        max_norm: float. Maximum length r of an embedding; 0 for no limit. Defaults to 1.
        leave_out: bool. Whether b is left out of a's histories. Set it to False for a graph: its heads share the tails'
            embeddings, and a head that is its own tail would be left out. Defaults to True.
        **options: Options of CTRModel, except `use_linear`.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = StarSpace(FeatureMap.from_sizes([item, history]), embedding_dim=4)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs)), keras.ops.shape(model.item_vectors(inputs))
        ((2, 1), (2, 4))

    Raises:
        ValueError: no column is b's, or all columns are; the data has several tasks; or an option is invalid.

    References:
        Wu et al., "StarSpace: Embed All The Things!", 2018, section 3.
    """

    pools = False
    embeds_dense = True
    registered = "starspace"
    reads_labels = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        similarity: str = "cosine",
        loss: str = "margin",
        margin: float = 0.05,
        negatives: int = 10,
        max_norm: float = 1.0,
        leave_out: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, similarity=similarity, **options)
        require_positive(negatives=negatives)
        if loss not in LOSSES:
            raise ValueError(f"`loss` should be one of {LOSSES}. Received: {loss!r}")
        if not margin >= 0:
            raise ValueError(f"`margin` should be non-negative. Received: {margin}")
        if not max_norm >= 0:
            raise ValueError(f"`max_norm` should be non-negative. Received: max_norm={max_norm}")
        if self.table is not None:
            self.table.max_norm = max_norm
        self.pair_loss, self.margin, self.negatives = loss, margin, negatives
        fields = feature_map.fields
        self._user_fields = [fields[place] for place in self.user_places]
        self._item_fields = [fields[place] for place in self.item_places]
        one_item = {field.name for field in fields if field.kind == "categorical"} if leave_out else set()
        # Maps a sequence to the sequence of its history that shows which events contain the item b.
        self._events: dict[str, Field] = {}
        for group in feature_map.histories:
            shared = [field for field in group if field.shared_with in one_item]
            self._events |= {field.name: shared[0] for field in group if shared}
        self._owners = sorted({shared.shared_with for shared in self._events.values()})

    def build(self, input_shape: Shape | None = None) -> None:
        super().build(input_shape)
        self.slope = self.add_weight(name="slope", shape=(1,), initializer="ones")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        a, b = self._user(rows, inputs, self._of_owners(inputs)), self._item(rows, inputs)
        similarity = ops.sum(a * b, axis=1, keepdims=True)
        if training and LABEL in inputs:
            self.add_loss(self._mean_loss(a, b, inputs))
            similarity = ops.stop_gradient(similarity)
        return self._logits(similarity)

    def user_vectors(self, inputs: Inputs) -> Tensor:
        return self._user(self.rows(inputs, False), inputs, {})

    def item_vectors(self, inputs: Inputs) -> Tensor:
        return self._item(self.rows(inputs, False), inputs)

    def candidate_logits(self, context: Inputs, candidates: Inputs) -> Tensor:
        """Returns the logits of many candidates for one entity a; the features of a are looked up once."""
        rows: dict[str, Tensor] = {}
        ids: dict[str, Tensor] = {}
        for side, fields in ((context, self._user_fields), (candidates, self._item_fields)):
            if fields:
                assert self.table is not None
                ids |= by_field(side["ids"], fields)
                taken = by_field(ops.take(self.table.table, side["ids"], axis=0), fields)
                of_slots = self.table.slot_weights(ids, fields, side.get(SLOT_WEIGHTS))
                rows |= {name: each * of_slots[name] if name in of_slots else each for name, each in taken.items()}
        of_owners = {name: ids[name] for name in self._owners}
        a = self._sum(self._user_fields, rows, ids, of_owners, self._numbers(context, self.user_columns))
        b = self._sum(self._item_fields, rows, ids, {}, self._numbers(candidates, self.item_columns))
        return self.answered(self._logits(ops.sum(a * b, axis=1, keepdims=True)), training=False)

    def _user(self, rows: Tensor, inputs: Inputs, of_owners: Inputs) -> Tensor:
        """Returns the vectors of a, without the history events of the items in `of_owners`."""
        return self._side(rows, inputs, self._user_fields, self.user_dense, of_owners)

    def _item(self, rows: Tensor, inputs: Inputs) -> Tensor:
        return self._side(rows, inputs, self._item_fields, self.item_dense, {})

    def _side(
        self, rows: Tensor, inputs: Inputs, fields: Sequence[Field], dense: list[int], of_owners: Inputs
    ) -> Tensor:
        slots = self.feature_map.total_slots
        of_fields = by_field(rows[:, :slots], self.feature_map.fields)
        ids = by_field(inputs["ids"], self.feature_map.fields) if fields else {}
        numbers = ops.take(rows, [slots + place for place in dense], axis=1) if dense else None
        return self._sum(fields, of_fields, ids, of_owners, numbers)

    def _sum(
        self, fields: Sequence[Field], rows: Inputs, ids: Inputs, of_owners: Inputs, numbers: Tensor | None
    ) -> Tensor:
        """Returns the vectors of entities, float32 (batch_size, embedding_dim).

        Args:
            fields: The fields of the entities.
            rows: Embeddings of the slots by field, (batch_size, slots, embedding_dim), or (1, ...) for all rows.
            ids: Ids of the slots by field, (batch_size, slots), or (1, slots) for all rows.
            of_owners: Ids whose events are left out, (batch_size, 1), by the field that histories share ids with.
            numbers: Embeddings of the dense features or of their columns, (batch_size, features, embedding_dim); None
                if there are none.
        """
        parts = [] if numbers is None else [ops.sum(numbers, axis=1)]
        if fields:
            counted = [self._counted(field, ids, of_owners) for field in fields]
            joined = join_rows([rows[field.name] for field in fields])
            parts.append(weighted_sum(ops.cast(join_rows(counted), joined.dtype), joined))
        return self.vector(sum(parts[1:], start=parts[0]))

    def _counted(self, field: Field, ids: Inputs, of_owners: Inputs) -> Tensor:
        """Returns which slots of a field are features of the entity, bool (batch_size, slots)."""
        is_feature = ids[field.name] > 0
        shared = self._events.get(field.name)
        if shared is None or shared.shared_with not in of_owners:
            return is_feature
        return ops.logical_and(is_feature, ids[shared.name] != of_owners[shared.shared_with])

    def _of_owners(self, inputs: Inputs) -> dict[str, Tensor]:
        """Returns the ids of b, (batch_size, 1), by field."""
        return {name: inputs["ids"][:, self.feature_map.slots_of(name)] for name in self._owners}

    def _numbers(self, inputs: Inputs, dense: list[int]) -> Tensor | None:
        """Returns the embeddings x v of one entity's columns of `dense`, which `inputs` holds alone; None without
        columns.
        """
        if not dense:
            return None
        assert self.dense_table is not None
        vectors = ops.take(ops.convert_to_tensor(self.dense_table.vectors), dense, axis=0)
        return ops.cast(ops.expand_dims(inputs["dense"], -1), vectors.dtype) * vectors

    def _logits(self, similarity: Tensor) -> Tensor:
        return ops.cast(self.slope, "float32") * similarity + ops.cast(self.bias, "float32")

    def _mean_loss(self, a: Tensor, b: Tensor, inputs: Inputs) -> Tensor:
        """Returns the mean loss of a batch's pairs; 0 if it has none."""
        batch = ops.shape(a)[0]
        steps = ops.arange(1, self.negatives + 1, dtype="int32")[None]
        places = ops.mod(ops.arange(batch, dtype="int32")[:, None] + steps, ops.maximum(batch, 1))
        labels = ops.cast(inputs[LABEL], "float32")[:, 0]
        is_pair_of_a = ops.logical_and(
            self._same(inputs, places, self._user_fields, self.user_columns), ops.take(labels, places) > 0
        )
        is_b = self._same(inputs, places, self._item_fields, self.item_columns)
        counted = ops.logical_and(steps < batch, ops.logical_not(ops.logical_or(is_b, is_pair_of_a)))
        losses = pair_losses(
            ops.sum(a * b, axis=1),
            ops.sum(a[:, None] * ops.take(b, places, axis=0), axis=2),
            counted,
            self.pair_loss,
            self.margin,
        )
        weights = labels * ops.cast(inputs[WEIGHT], "float32")[:, 0] if WEIGHT in inputs else labels
        total = ops.sum(weights)
        return ops.sum(weights * losses) / ops.where(total > 0, total, 1.0)

    def _same(self, inputs: Inputs, places: Tensor, fields: Sequence[Field], dense: list[int]) -> Tensor:
        """Returns whether the rows at `places`, (batch_size, k), have the same entity as each row, bool."""
        columns = [inputs["ids"][:, self.feature_map.slots_of(field.name)] for field in fields]
        same = [ops.concatenate(columns, axis=1)] if columns else []
        same += [ops.take(inputs["dense"], dense, axis=1)] if dense else []
        equal = [ops.all(ops.take(of, places, axis=0) == of[:, None], axis=2) for of in same]
        return equal[0] if len(equal) == 1 else ops.logical_and(*equal)


def pair_losses(pairs: Tensor, others: Tensor, counted: Tensor, loss: str, margin: float) -> Tensor:
    """Returns the loss of each pair, float32 (batch_size,).

    Args:
        pairs: sim(a, b), float32 (batch_size,).
        others: sim(a, b_k⁻), float32 (batch_size, k).
        counted: Which of `others` are counted as negatives, bool (batch_size, k).
        loss: One of LOSSES.
        margin: Margin μ, for the loss "margin".
    """
    excess = others - pairs[:, None]
    if loss == "margin":
        return ops.sum(ops.where(counted, ops.relu(margin + excess), 0.0), axis=1)
    excess = ops.where(counted, excess, -1e9)
    return ops.logsumexp(ops.concatenate([ops.zeros_like(excess[:, :1]), excess], axis=1), axis=1)
