"""The base class of configuration sections: unknown keys are errors, and ranges such as `I1..I13` name columns."""

import re
from typing import Annotated

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
