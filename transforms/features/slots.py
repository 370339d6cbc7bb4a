"""The order of a packed row: the slots of each column in `ids`, and its columns in the other tensors.

The transform graph, the FeatureMap and the packing by distinct values all use this order.
"""

import dataclasses

from ctrpipe.models.base.feature_map import SLOT_WEIGHTS
from ctrpipe.transforms.log.spec import LogSpec


@dataclasses.dataclass(frozen=True)
class FieldSlots:
    """A field of a column, and its number of slots in `ids`."""

    name: str
    column: str
    slots: int


@dataclasses.dataclass(frozen=True)
class TensorSlice:
    """The columns `first` to `stop - 1` of a packed tensor, which hold the packed values of a raw column."""

    column: str
    tensor: str
    first: int
    stop: int

    @property
    def index(self) -> int | slice:
        """The second index into the tensor: an int for a single column, which is faster than a slice."""
        return self.first if self.stop == self.first + 1 else slice(self.first, self.stop)


def fields_of(spec: LogSpec) -> list[FieldSlots]:
    """Returns all fields in the order of their slots in `ids`."""
    return [
        FieldSlots(name, column, slots)
        for column, feature in spec.feature_by_column.items()
        for name, slots in feature.slots(column).items()
    ]


def dense_widths(spec: LogSpec) -> dict[str, int]:
    """Maps each column with dense features, in order, to its number of columns in `dense`."""
    widths = {column: feature.dense_width for column, feature in spec.feature_by_column.items()}
    return {column: width for column, width in widths.items() if width}


def tensor_slices(spec: LogSpec) -> list[TensorSlice]:
    """Returns the tensor slices of all columns. A text's slices are its first column's.

    The tensors are in the order of their columns in packed files.
    """
    widths: list[tuple[str, str, int]] = []
    if spec.text:
        widths += [(spec.text.columns[0], name, spec.text.length) for name in ("tokens", "segments")]
    for column, feature in spec.feature_by_column.items():
        widths += [(column, "ids", sum(slots.values()))] if (slots := feature.slots(column)) else []
        if feature.is_weighted:
            widths.append((column, SLOT_WEIGHTS, sum(feature.slots(column).values())))
        widths += [(column, "dense", feature.dense_width)] if feature.dense_width else []
    widths += [(column, "numbers", 2) for column in spec.written_columns]
    ends: dict[str, int] = {}
    slices: list[TensorSlice] = []
    for column, tensor, width in widths:
        first = ends.get(tensor, 0)
        ends[tensor] = first + width
        slices.append(TensorSlice(column, tensor, first, ends[tensor]))
    return slices


def column_of_slot(spec: LogSpec) -> list[str]:
    """Returns the column of each slot of `ids`."""
    return [field.column for field in fields_of(spec) for _ in range(field.slots)]
