"""The base class of configuration sections.

Unknown keys are errors, so are true and false where a number is expected, and ranges such as `I1..I13` name columns.
"""

import functools
import re
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import pydantic

RANGE = re.compile(r"^(?P<prefix>.*?)(?P<first>\d+)\.\.(?P=prefix)(?P<last>\d+)$")
MAX_RANGE = 100_000


def expand_names(names: list[str]) -> list[str]:
    """Expands ranges of names: ['label', 'I1..I3'] -> ['label', 'I1', 'I2', 'I3'].

    If the first number begins with 0, all numbers have its width: 'e08..e10' -> 'e08', 'e09', 'e10'.

    Raises:
        ValueError: a range is descending or has more than MAX_RANGE names.
    """
    expanded: list[str] = []
    for name in names:
        name_range = RANGE.match(name)
        if name_range:
            first, last = int(name_range["first"]), int(name_range["last"])
            if not 0 <= last - first < MAX_RANGE:
                raise ValueError(f"'{name}' should name 1 to {MAX_RANGE} columns")
            digits = len(name_range["first"]) if name_range["first"].startswith("0") else 1
            expanded += [f"{name_range['prefix']}{number:0{digits}}" for number in range(first, last + 1)]
        else:
            expanded.append(name)
    return expanded


ColumnNames = Annotated[list[str], pydantic.AfterValidator(expand_names)]


class Section(pydantic.BaseModel):
    """A section of the configuration. Unknown keys are errors; fields cannot be assigned after validation.

    The docstring below a field is its description in docs/configuration.md. The text after `Example:` in a class's
    docstring is YAML that a configuration may contain.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, values: object) -> Any:
        """Raises ValueError for true or false where a number is expected, which pydantic would read as 1 or 0."""
        wrong = [name for name, value in values.items() if _holds_a_truth(value)] if isinstance(values, dict) else []
        for name in wrong and _fields_of_numbers(cls).intersection(wrong):
            raise ValueError(f"{name}: expected a number, and no true or false")
        return values


@functools.cache
def _fields_of_numbers(section: type[pydantic.BaseModel]) -> frozenset[str]:
    """Returns the fields of a section, or of its elements, that take numbers and neither truth values nor sections."""
    kinds = {name: list(_leaves(field.annotation)) for name, field in section.model_fields.items()}
    return frozenset(
        name
        for name, leaves in kinds.items()
        if any(leaf in (int, float) for leaf in leaves) and not any(map(_is_open, leaves))
    )


def _leaves(annotation: object) -> Iterator[Any]:
    """Yields the types in an annotation, without those that contain others."""
    if not (inner := get_args(annotation)):
        yield annotation
    for each in inner:
        yield from _leaves(each)


def _is_open(leaf: object) -> bool:
    """Returns whether a type takes truth values, or checks what it contains itself."""
    return leaf in (bool, Any, object) or (isinstance(leaf, type) and issubclass(leaf, pydantic.BaseModel))


def _holds_a_truth(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_a_truth, value.values()))
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_a_truth, value)))
