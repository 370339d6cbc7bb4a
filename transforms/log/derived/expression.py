"""The derived column `expression`."""

from typing import ClassVar, Literal

import pydantic

from ctrpipe.transforms.log.derived.derived import Derived, Source
from ctrpipe.transforms.log.derived.formulas import parse
from ctrpipe.transforms.log.kinds.numeric import Numeric


class Expression(Derived):
    """A number computed from the numbers of a row.

    It is computed in double precision. The result is missing if an operand is missing, after a division by 0, for the
    logarithm or root of a number outside its domain, and beyond the range of 32-bit floats; `if_missing(x, y)` is y if
    x is missing. The feature that reads it has all settings of `kind: numeric`.

    Example:
        derived:
          rate: {kind: expression, of: "log1p(clicks / (shows + 1))"}
          price_known: {kind: expression, of: "if_missing(price, 0)"}
        features: [{columns: [rate, price_known], kind: numeric, transform: standardize}]
    """

    makes: ClassVar[tuple[str, ...]] = ("numeric",)

    kind: Literal["expression"]
    """The kind of derived column."""
    of: str = pydantic.Field(min_length=1, max_length=1000, examples=["log1p(clicks / (shows + 1))"])
    """The formula: columns of numbers, numbers, `+ - * / **`, parentheses, and the functions abs, ceil, clip, exp,
    floor, if_missing, is_missing, log, log1p, max, min and sqrt. `clip(x, least, most)`, `max(x, y, ...)` and
    `if_missing(x, y)` take several numbers. A column whose name is not a single word is `column("ad price")`.
    """

    @pydantic.field_validator("of")
    @classmethod
    def _readable(cls, text: str) -> str:
        parse(text)
        return text

    def sources(self) -> dict[str, Source]:
        names = parse(self.of).columns
        return {name: Numeric(kind="numeric", columns=[name], transform="standardize") for name in names}
