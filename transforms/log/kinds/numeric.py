"""The kind `numeric`."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import pydantic

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess
from ctrpipe.transforms.log.kinds.kind import Columns, Seen
from ctrpipe.transforms.log.words import NUMBER
from ctrpipe.transforms.log.written import Written

BUCKETS = ("log_bucketize", "bars_bucketize", "quantile_bucketize", "min_max")
TRANSFORMS = (*BUCKETS, "standardize", "quantile_normalize", "embed")
# What a draft writes of a column of amounts.
AMOUNT: dict[str, Any] = {"kind": "numeric", "transform": "quantile_bucketize", "buckets": 32}
# A number that may stand for a missing one: its share of the rows, and the number of different other ones.
_FREQUENT, _FEWEST_OTHERS = 0.01, 20


class Numeric(Columns):
    """A number, encoded as the id of a bucket or as a dense feature normalised over the training rows.

    Buckets: `log_bucketize`: floor(ln x); `bars_bucketize`: floor(ln(x)^2) for x > 2, else x (BARS);
    `quantile_bucketize`: `buckets` buckets of equally many rows; `min_max`: floor((x - min) / (max - min) * (buckets -
    1)), clipped to the first and the last bucket (BERT4CTR, section 3.2).

    Dense: `standardize`: (x - mean) / standard deviation, missing = 0; `quantile_normalize`: to a uniform distribution
    on [0, 1] by linear interpolation between 1,000 quantiles, missing = 0.5 (Hiformer, section 3.1.2). `embed`: the
    same, missing = -1, and the model embeds the number by `model.number_embedding` (periodic functions or AutoDis). The
    transform of an installed package is also dense.

    Every transform first clips x to the range of the training rows, widened on each side by its own width: with a
    training range of 0 to 10, 1e30 and infinity become 20, and -1e30 becomes -10. The run reports how many validation
    and test rows it clips.

    Example:
        features:
          - {columns: [I1..I13], kind: numeric, transform: quantile_bucketize, buckets: 50}
          - {columns: [age], kind: numeric, transform: standardize}
          - {columns: [price], kind: numeric, transform: embed}
    """

    is_number: ClassVar[bool] = True
    usual_missing: ClassVar[bool] = True

    kind: Literal["numeric"]
    """The kind of feature."""
    transform: str = pydantic.Field("log_bucketize", examples=["quantile_bucketize", "standardize"])
    """How the number is encoded: `log_bucketize`, `bars_bucketize`, `quantile_bucketize` and `min_max` give a bucket (a
    field); `standardize`, `quantile_normalize`, `embed` and transforms of installed packages (docs/hooks.md) a dense
    feature. A model embeds the one of `embed`, and lists it with its fields.
    """
    buckets: int | None = pydantic.Field(None, ge=2, examples=[50])
    """Number of buckets. `quantile_bucketize` requires it; `min_max` has 101 buckets if it is null."""
    written: Written | None = None
    """How the log writes the numbers, such as `$1,234.50` or `0.4 kg`; null: as 1234.5, or with `data.decimal`."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Numeric":
        if self.transform == "quantile_bucketize" and self.buckets is None:
            raise ValueError("transform: quantile_bucketize needs buckets")
        if self.buckets is not None and self.transform not in ("quantile_bucketize", "min_max"):
            raise ValueError(f"buckets applies to quantile_bucketize and min_max, not to {self.transform}")
        return self

    @property
    def number_form(self) -> Written | None:
        return self.written

    @property
    def is_dense(self) -> bool:
        return self.transform not in BUCKETS

    @property
    def is_embedded(self) -> bool:
        return self.transform == "embed"

    @property
    def is_hook(self) -> bool:
        """Whether the transform is from an installed package."""
        return self.transform not in TRANSFORMS

    @property
    def is_single(self) -> bool:
        return not self.is_dense

    @property
    def measured(self) -> Literal["nothing", "moments", "quantiles"]:
        return "quantiles" if self.transform in ("quantile_bucketize", "quantile_normalize", "embed") else "moments"

    @property
    def scale(self) -> str:
        return {"standardize": "standard deviation", "min_max": "range"}.get(self.transform, "")

    def slots(self, column: str) -> dict[str, int]:
        return {} if self.is_dense else {column: 1}

    def meaning(self, column: str) -> tuple[object, ...]:
        return (self.kind, self.role, self.transform, self.buckets)

    @classmethod
    def guess(cls, column: ColumnSample) -> Guess | None:
        numbers = column.numbers
        if numbers is None or numbers.what != "amount":
            return None
        other = "; or categorical with vocabulary?" if numbers.or_other else ""
        settings = dict(AMOUNT)
        if column.infinite:
            other += (
                f"; infinite in {column.infinite:,} rows, which a run takes for malformed: does it mean a missing "
                "number (missing_values: [inf, -inf])?"
            )
        if asked := _stand_in(column) or _versions(column):
            other += f"; {asked}"
        return Guess(settings, f"numbers, {column.seen}{other}", numbers.unsure or column.infinite > 0 or bool(asked))

    def notes(self, column: str, seen: Seen) -> Iterator[str]:
        if seen.present < seen.rows / 100:
            yield f"{column}: missing in {1 - seen.present / seen.rows:.1%} of the first {seen.rows:,} rows"


def _stand_in(column: ColumnSample) -> str:
    """Returns a question about a frequent number that lies far from all others, such as -999; "" without one."""
    numbers = {text: float(text) for text in column.distinct if NUMBER.fullmatch(text)}
    ordered = sorted(numbers, key=lambda text: numbers[text])
    if len(ordered) <= _FEWEST_OTHERS:
        return ""
    for one, nearest, farthest in ((0, 1, -1), (-1, -2, 0)):
        text, gap = ordered[one], abs(numbers[ordered[one]] - numbers[ordered[nearest]])
        share = column.distinct[text] / len(column.present)
        if share >= _FREQUENT and gap > abs(numbers[ordered[nearest]] - numbers[ordered[farthest]]):
            return (
                f"{excerpt(text)}, in {share:.0%} of the rows, lies far from all others: does it mean a missing number "
                f"(missing_values: [{excerpt(text)}])?"
            )
    return ""


def _versions(column: ColumnSample) -> str:
    """Returns a question about texts of one number with other decimals, such as 1.1 and 1.10; "" without any."""
    shortest: dict[str, str] = {}
    for text in column.distinct:
        is_plain = "." in text and "e" not in text.lower() and NUMBER.fullmatch(text)
        if is_plain and (short := text.rstrip("0"))[-1] != ".":
            other = shortest.setdefault(short, text)
            if other != text:
                both = " and ".join(map(excerpt, sorted((other, text), key=len)))
                return f"{both} are one number: or are they versions or codes (kind: categorical)?"
    return ""
