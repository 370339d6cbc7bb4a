"""The description of a model's data: its fields and their ids, dense features, text and labels.

The module imports only the standard library: a Beam worker that reads a feature map does not load Keras.

The packed tensors that a feature map describes:

- ``ids`` int32 ``[N, S]``: S slots, in the order of the fields. All fields share one id space, in which 0 is padding. A
  field has the ids ``[offset, offset + size)``: ``offset`` for an unknown (out-of-vocabulary) value, ``offset + 1`` for
  a missing value, then its vocabulary, then any further ids for unknown values.
  The items of a sequence are in order of time, the newest last, followed by padding. A sequence that shares the
  vocabulary of another field has that field's ids.
- ``dense`` float32 ``[N, D]``: normalised numbers, in the order of ``dense``. A number is one column, a vector
  as many as it has elements.
- ``slot_weights`` float32 ``[N, W]``, if a field is weighted: the weight of each slot of the weighted fields, in their
  order; 0 for padding. A model multiplies a slot's embedding by it.
- ``tokens``, ``segments`` int32 ``[N, T]``: text.
- ``numbers`` int32 ``[N, 2 M]``, for a model that reads raw numbers: the significand and the exponent of each column in
  ``numbers``. 35 is (35, 1) and -0.1234 is (-123, -1): the significand has up to three digits without trailing zeros,
  and its decimal point is after the first digit. 0 is (0, 0); a missing number is (MISSING_SIGNIFICAND, 0).
- ``label`` float32 ``[N, tasks]``; in the inputs only for StarSpace, which computes its own loss.
- ``weight`` float32 ``[N, 1]``, in training, if the rows have weights.
- ``group`` int32 ``[N, 2]``, in training with a loss within groups: the two halves of the group's number.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

LABEL, WEIGHT, GROUP = "label", "weight", "group"  # names of packed tensors
SLOT_WEIGHTS = "slot_weights"
PADDING_ID = 0
RESERVED_IDS = 2  # unknown and missing, before every field's vocabulary
MAX_IDS = 2**31 - 1  # ids are int32
KINDS = ("numeric", "categorical", "multivalent", "sequence", "time")
POOLINGS = ("sum", "mean", "attention")
ROLES = ("feature", "position", "item")
NUMBER_TOKENS = 1000  # the numbers 0 to 999, one token each
MAX_EXPONENT = 38  # a normal float32 has exponents from -38 to 38
MISSING_SIGNIFICAND = NUMBER_TOKENS  # above every significand


@dataclasses.dataclass(frozen=True)
class Field:
    """A field: ``slots`` columns of ``ids`` with values in ``[offset, offset + size)``, or 0 for padding.

    Args:
        name: The field's name, a column of the log.
        kind: One of KINDS.
        size: Number of the field's ids, including the reserved ids.
        offset: The field's first id.
        slots: Number of the field's columns in ``ids``; above 1 for a multivalent field or a sequence.
        role: One of ROLES: "position" for the position at which an ad was shown, "item" for a property of the
            candidate, otherwise "feature".
        pooling: One of POOLINGS: how a model with one embedding per field combines several slots. "attention" weights
            the slots by their similarity to the field that `shared_with` names.
        shared_with: For a sequence, the name of the field whose ids it uses; "" if it has its own ids.
        aligned_with: For a sequence, the name of the first sequence of its history, which may be itself. Sequences with
            the same name here are aligned: their items at one position belong to one event.
        weighted: Whether the slots have weights, in ``slot_weights``; for a multivalent field only.
        per_item: Number of slots of one item of a sequence, whose items may have several values.

    Raises:
        ValueError: `weighted` is set for another kind, `kind`, `role` or `pooling` is unknown, `size` leaves no id for
            the vocabulary, `slots` is not positive, `shared_with` or `aligned_with` is given for a field that is not a
            sequence, or "attention" lacks `shared_with`.
    """

    name: str
    kind: str
    size: int
    offset: int
    slots: int = 1
    role: str = "feature"
    pooling: str = "sum"
    shared_with: str = ""
    aligned_with: str = ""
    weighted: bool = False
    per_item: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"Field '{self.name}': kind should be one of {KINDS}. Received: kind={self.kind!r}")
        if self.role not in ROLES:
            raise ValueError(f"Field '{self.name}': role should be one of {ROLES}. Received: role={self.role!r}")
        if self.size <= RESERVED_IDS:
            raise ValueError(f"Field '{self.name}': size should be over {RESERVED_IDS}. Received: size={self.size}")
        if self.slots < 1:
            raise ValueError(f"Field '{self.name}': slots should be positive. Received: slots={self.slots}")
        if self.per_item < 1 or self.slots % self.per_item:
            raise ValueError(f"Field '{self.name}': per_item should divide slots. Received: per_item={self.per_item}")
        if self.pooling not in POOLINGS:
            raise ValueError(f"Field '{self.name}': pooling should be one of {POOLINGS}. Received: {self.pooling!r}")
        if self.weighted and self.kind != "multivalent":
            raise ValueError(f"Field '{self.name}': weighted needs kind='multivalent'. Received: kind={self.kind!r}")
        if self.kind != "sequence" and (self.shared_with or self.aligned_with):
            raise ValueError(f"Field '{self.name}': shared_with and aligned_with need kind='sequence'")
        if self.pooling == "attention" and not self.shared_with:
            raise ValueError(f"Field '{self.name}': pooling='attention' needs shared_with, the field that attends")

    @property
    def length(self) -> int:
        """The number of items of a sequence."""
        return self.slots // self.per_item

    @property
    def unknown_id(self) -> int:
        return self.offset

    @property
    def missing_id(self) -> int:
        return self.offset + 1


@dataclasses.dataclass(frozen=True)
class Text:
    """The description of a text: ``length`` tokens of a vocabulary, padded at the end.

    Args:
        length: T, the number of tokens.
        vocabulary_size: Tokens are in [0, vocabulary_size).
        padding_id, unknown_id, classify_id, separator_id, mask_id: The special tokens [PAD], [UNK], [CLS], [SEP],
            [MASK].
        number_ids: The tokens of the numbers 0, 1, 2, ..., at most up to 999; -1 for a number that is not in the
            vocabulary. Numbers beyond the last entry are not in the vocabulary.

    Raises:
        ValueError: `length` is not positive, `number_ids` has more than 1000 entries, or a token is outside the
            vocabulary.
    """

    length: int
    vocabulary_size: int
    padding_id: int = 0
    unknown_id: int = 1
    classify_id: int = 2
    separator_id: int = 3
    mask_id: int = 4
    number_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"The text's length should be positive. Received: length={self.length}")
        if len(self.number_ids) > NUMBER_TOKENS:
            raise ValueError(f"At most {NUMBER_TOKENS} numbers have tokens. Received: {len(self.number_ids)}")
        for token in (*self.special_ids, *(number for number in self.number_ids if number != -1)):
            if not 0 <= token < self.vocabulary_size:
                size = self.vocabulary_size
                raise ValueError(f"A token should be in [0, vocabulary_size = {size}). Received: {token}")

    @property
    def special_ids(self) -> tuple[int, ...]:
        return (self.padding_id, self.unknown_id, self.classify_id, self.separator_id, self.mask_id)


@dataclasses.dataclass(frozen=True)
class NumberTask:
    """A task that predicts a number: `center + scale z` for the output z, or `scale e^z` for `count`.

    An output thus has the magnitude of a logit for numbers of any unit.

    Args:
        task: The name of the task.
        predicts: "mean", "median" or "count".
        center, scale: Mean and standard deviation of the labels of the training rows; 0 and their mean for "count".

    Raises:
        ValueError: `predicts` is unknown, or `scale` is not positive.
    """

    task: str
    predicts: str
    center: float
    scale: float

    def __post_init__(self) -> None:
        if self.predicts not in ("mean", "median", "count"):
            raise ValueError(f"`predicts` should be mean, median or count. Received: {self.predicts}")
        if not self.scale > 0:
            raise ValueError(f"`scale` should be positive. Received: {self.scale}")


@dataclasses.dataclass(frozen=True)
class FeatureMap:
    """The description of a model's data. `FeatureMap.from_sizes` computes the offsets.

    Args:
        fields: The fields, in the order of their ids.
        dense: Names of the dense features.
        tasks: Names of the labels; the first is the primary one.
        text: The text; None for data without a text.
        numbers: Names of the columns in ``numbers``. Each is also a field of kind "numeric" or a dense feature.
        item_dense: Names of the dense features with the role item.
        negative_sampling: Share of the negatives that is kept in the training and validation rows, in (0, 1].
        fake_negatives: Whether every positive training row also appears as a negative. The model corrects its
            predictions for this.
        dense_widths: Number of columns of each dense feature in ``dense``: 1 for a number, the length for a vector. ()
            if all are numbers.
        number_tasks: The tasks that predict a number. All others predict a probability.
        embedded: Names of the dense features that are numbers in [0, 1], or -1 for a missing number. A model gives them
            nonlinear embeddings (NumberEmbedding).

    Raises:
        ValueError: `embedded` does not name numbers of `dense`, `dense_widths` has another length than `dense` or is
            not positive, the fields' ids have gaps or exceed int32, a name is repeated, a sequence's `shared_with`
            names neither a categorical field nor a sequence with its own ids, a name in `numbers` is neither a numeric
            field nor a dense feature, a name in `item_dense` is not a dense feature, there is no task, or
            `negative_sampling` is outside (0, 1].
    """

    fields: tuple[Field, ...]
    dense: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("ctr",)
    text: Text | None = None
    numbers: tuple[str, ...] = ()
    negative_sampling: float = 1.0
    item_dense: tuple[str, ...] = ()
    fake_negatives: bool = False
    dense_widths: tuple[int, ...] = ()
    number_tasks: tuple[NumberTask, ...] = ()
    embedded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.dense_widths and (len(self.dense_widths) != len(self.dense) or min(self.dense_widths) < 1):
            raise ValueError(
                f"dense_widths should have a width for each of {self.dense}. Received: {self.dense_widths}"
            )
        offset = 1  # id 0 is padding
        for field in self.fields:
            if field.shared_with:
                self._check_shared(field)
                continue
            if field.offset != offset:
                raise ValueError(f"Field '{field.name}': offset should be {offset}. Received: offset={field.offset}")
            offset += field.size
        if offset > MAX_IDS:
            raise ValueError(f"The fields need {offset} ids; ids are int32 and end at {MAX_IDS}")
        fields = [field.name for field in self.fields]
        # A categorical field may have a dense feature of its own name: the pretrained vector of its value.
        single = [field.name for field in self.fields if field.kind == "categorical" and self.dense_widths]
        apart = [*fields, *(name for name in self.dense if name not in single)]
        repeated = sorted({name for names in (apart, self.dense) for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"Names of fields and dense features should be unique. Received twice: {repeated}")
        numeric = {field.name for field in self.fields if field.kind == "numeric"} | set(self.dense)
        if len(set(self.numbers) & numeric) < len(self.numbers):
            raise ValueError(f"`numbers` should name numeric columns, each once. Received: numbers={self.numbers}")
        if not set(self.item_dense) <= set(self.dense):
            raise ValueError(f"`item_dense` should name dense features. Received: item_dense={self.item_dense}")
        if not all(self.widths.get(name) == 1 for name in self.embedded):
            raise ValueError(f"`embedded` should name numbers of `dense`. Received: embedded={self.embedded}")
        if not self.tasks:
            raise ValueError("A feature map needs at least one task")
        if not 0 < self.negative_sampling <= 1:
            raise ValueError(f"negative_sampling should be in (0, 1]. Received: {self.negative_sampling}")

    def _check_shared(self, field: Field) -> None:
        named = [owner for owner in self.fields if owner.name == field.shared_with and not owner.shared_with]
        owners = [owner for owner in named if owner.kind in ("categorical", "sequence")]
        if not owners:
            raise ValueError(f"Field '{field.name}': shared_with should name a categorical field, or a sequence")
        if field.pooling == "attention" and owners[0].kind == "sequence":
            raise ValueError(f"Field '{field.name}': pooling='attention' needs shared_with, a categorical field")
        if (field.offset, field.size) != (owners[0].offset, owners[0].size):
            raise ValueError(f"Field '{field.name}': offset and size should be those of '{field.shared_with}'")

    @classmethod
    def from_sizes(
        cls,
        fields: Sequence[tuple[Any, ...]],
        dense: tuple[str, ...] = (),
        tasks: tuple[str, ...] = ("ctr",),
        text: Text | None = None,
        numbers: tuple[str, ...] = (),
        dense_widths: tuple[int, ...] = (),
    ) -> "FeatureMap":
        """Returns a feature map in which each field's ids follow the ids of the previous field.

        Args:
            fields: ``(name, kind, vocabulary size without the reserved ids, slots, role, pooling, shared_with,
                aligned_with, weighted, per_item)`` in slot order; the elements after the size are optional.
            dense: Names of the dense features.
            tasks: Names of the labels; the first is the primary one.
            text: The text; None for data without a text.
            numbers: Names of the columns in ``numbers``.
            dense_widths: Number of columns of each dense feature in ``dense``; () if all are numbers.

        Example:
            >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("tags", "multivalent", 50, 3)])
            >>> [(field.name, field.offset, field.size, field.slots) for field in feature_map.fields]
            [('site', 1, 102, 1), ('tags', 103, 52, 3)]
        """
        first = first_ids(fields)
        placed = [
            Field(name, kind, vocabulary_size + RESERVED_IDS, first[name], *rest)
            for name, kind, vocabulary_size, *rest in fields
        ]
        return cls(tuple(placed), tuple(dense), tuple(tasks), text, tuple(numbers), dense_widths=dense_widths)

    @property
    def numbers_by_task(self) -> dict[str, NumberTask | None]:
        """The NumberTask of each task, in order; None for a probability."""
        named = {each.task: each for each in self.number_tasks}
        return {task: named.get(task) for task in self.tasks}

    @property
    def total_ids(self) -> int:
        """The number of rows of an embedding table for all fields, including the padding row."""
        return 1 + sum(field.size for field in self.fields if not field.shared_with)

    @property
    def widths(self) -> dict[str, int]:
        """The number of columns of each dense feature in ``dense``, in order."""
        return dict(zip(self.dense, self.dense_widths or (1,) * len(self.dense), strict=True))

    @property
    def dense_width(self) -> int:
        """D, the width of ``dense``."""
        return sum(self.widths.values())

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """The name of the dense feature of each column of ``dense``."""
        return tuple(name for name, width in self.widths.items() for _ in range(width))

    @property
    def total_slots(self) -> int:
        """S, the width of ``ids``."""
        return sum(field.slots for field in self.fields)

    @property
    def weighted_slots(self) -> tuple[str, ...]:
        """The name of the field of each column of ``slot_weights``."""
        return tuple(field.name for field in self.fields if field.weighted for _ in range(field.slots))

    def slots_of(self, name: str) -> slice:
        """Returns the columns of ``ids`` that belong to a field. Raises KeyError for an unknown name."""
        start = 0
        for field in self.fields:
            if field.name == name:
                return slice(start, start + field.slots)
            start += field.slots
        raise KeyError(name)

    @property
    def item_fields(self) -> tuple[Field, ...]:
        """The candidate's fields, in order: fields with the role item, and fields that a sequence shares ids with."""
        owners = {field.shared_with for field in self.fields}
        return tuple(field for field in self.fields if field.role == "item" or field.name in owners)

    @property
    def candidate_fields(self) -> tuple[Field, ...]:
        """The fields that differ between the candidates of a request; all fields if no column is the candidate's."""
        return self.item_fields if self._has_items else self.fields

    @property
    def candidate_dense(self) -> tuple[str, ...]:
        """The dense features that differ between the candidates of a request."""
        return self.item_dense if self._has_items else self.dense

    @property
    def _has_items(self) -> bool:
        return bool(self.item_fields or self.item_dense)

    @property
    def histories(self) -> tuple[tuple[Field, ...], ...]:
        """The histories, each a group of aligned sequences, in the order of the fields."""
        groups: dict[str, list[Field]] = {}
        for field in self.fields:
            if field.kind == "sequence":
                groups.setdefault(field.aligned_with or field.name, []).append(field)
        return tuple(tuple(group) for group in groups.values())

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "FeatureMap":
        """Parses the JSON of `to_json`. Raises ValueError if it is not a feature map."""
        value = json.loads(text)
        try:
            return cls(
                fields=tuple(Field(**field) for field in value["fields"]),
                dense=tuple(value["dense"]),
                tasks=tuple(value["tasks"]),
                text=_text(value["text"]) if value["text"] else None,
                numbers=tuple(value.get("numbers", ())),  # older files lack this key and the following ones
                negative_sampling=value.get("negative_sampling", 1.0),
                item_dense=tuple(value.get("item_dense", ())),
                fake_negatives=value.get("fake_negatives", False),
                dense_widths=tuple(value.get("dense_widths", ())),
                number_tasks=tuple(NumberTask(**task) for task in value.get("number_tasks", ())),
                embedded=tuple(value.get("embedded", ())),
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"Not a feature map: {error}") from error

    def save(self, path: pathlib.Path) -> None:
        path.write_text(self.to_json())

    @classmethod
    def load(cls, path: pathlib.Path) -> "FeatureMap":
        return cls.from_json(path.read_text())


def first_ids(fields: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Returns the first id of each field, by its name, for the fields of `FeatureMap.from_sizes`.

    A field with `shared_with` has the first id of that field, or 0 if there is none.
    """
    first, offset = {}, 1  # id 0 is padding
    for name, _, vocabulary_size, *rest in fields:
        if not _shared_with(rest):
            first[name] = offset
            offset += vocabulary_size + RESERVED_IDS
    return {name: first.get(_shared_with(rest) or name, 0) for name, _, _, *rest in fields}


def _shared_with(rest: Sequence[Any]) -> str:
    """Returns `shared_with` from the optional elements of a field in `from_sizes`; "" if left out."""
    return str(rest[3]) if len(rest) > 3 else ""


def _text(value: dict[str, Any]) -> Text:
    return Text(**{**value, "number_ids": tuple(value["number_ids"])})
