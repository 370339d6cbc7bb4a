"""The kind `categorical`."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pydantic

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.composed import several_in_one
from ctrpipe.transforms.log.kinds.guess import EXPONENT_CODE, ColumnSample, Guess
from ctrpipe.transforms.log.kinds.kind import FEW, Seen, WithVocabulary
from ctrpipe.transforms.log.kinds.pretrained import Pretrained
from ctrpipe.transforms.log.written import WRITTEN_NUMBER

# What a draft keeps of a column of many values: those that occur twice, half a million at most.
OFTEN = {"top_k": 500_000, "min_count": 2}
_CLOCK = re.compile(r"\d{1,3}:[0-5]\d(:[0-5]\d(\.\d+)?)?( ?[AaPp][Mm])?")
# Texts that do not repeat and have parts that do, and what to do with them.
_PARTED: tuple[tuple[Callable[[str], bool], str], ...] = (
    (
        lambda value: re.match(r"[a-z][a-z0-9+.-]*://|www\.", value) is not None,
        "; parts of an address, such as its host, repeat: write them as columns of their own",
    ),
    (
        lambda value: re.fullmatch(r"\(?-?\d+\.\d+ ?[,; ] ?-?\d+\.\d+\)?", value) is not None,
        "; two numbers in a column, such as a place: write each as a column of its own",
    ),
    (
        lambda value: re.fullmatch(r"[^@\s]+@[^@\s]+\.[a-z]+", value) is not None,
        "; the part after the @ may repeat: write it as a column of its own",
    ),
)
_MOST_CLOCKS = 32  # different values that are more likely names than amounts


class Categorical(WithVocabulary):
    """A single value from a set, such as a device or a user id.

    Example:
        features:
          - {columns: [device, shop], kind: categorical, top_k: 500000, min_count: 10}
          - {columns: [user], kind: categorical, transform: hash, buckets: 100000}
    """

    kind: Literal["categorical"]
    """The kind of feature."""
    transform: Literal["vocabulary", "hash"] = "vocabulary"
    """`vocabulary` gives each value of the training rows its own id. `hash` maps a value to one of `buckets` ids."""
    buckets: int | None = pydantic.Field(None, ge=2, examples=[100_000])
    """Number of ids of `transform: hash`, which requires it."""
    missing_rate: float = pydantic.Field(0.0, ge=0, lt=1)
    """Share of the training rows' values that are replaced by a missing value, to train the embedding of the missing
    id. Out-of-vocabulary values then have the missing id too (robust training of BERT4CTR, appendix A.2).
    """

    pretrained: Pretrained | None = None
    """A table of vectors by the column's values: an additional input, or the embeddings' initial values; null: none."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Categorical":
        if (self.transform == "hash") != (self.buckets is not None):
            raise ValueError("transform: hash and buckets belong together; give both, or neither")
        if self.transform == "hash" and (self.top_k, self.min_count, self.oov_buckets) != (None, 1, 1):
            raise ValueError("top_k, min_count and oov_buckets apply to transform: vocabulary, not to hash")
        if self.transform == "hash" and self.pretrained and not self.pretrained.freeze:
            raise ValueError("pretrained: freeze: false needs an id for each value; set transform: vocabulary")
        if self.missing_rate and self.oov_buckets > 1:
            raise ValueError("missing_rate makes unknown values missing; set oov_buckets to 1")
        return self

    @property
    def is_single(self) -> bool:
        return True

    @property
    def dense_width(self) -> int:
        return self.frozen.length if self.frozen else 0

    @property
    def frozen(self) -> Pretrained | None:
        """The table of vectors that stay as they are."""
        return self.pretrained if self.pretrained and self.pretrained.freeze else None

    @property
    def tuned(self) -> Pretrained | None:
        """The table of vectors that the column's embeddings start from."""
        return self.pretrained if self.pretrained and not self.pretrained.freeze else None

    @property
    def drop_rate(self) -> float:
        return self.missing_rate

    def has_vocabulary(self, column: str) -> bool:
        return self.transform == "vocabulary"

    def lends_vocabulary(self, column: str) -> bool:
        return True

    def slots(self, column: str) -> dict[str, int]:
        return {column: 1}

    def meaning(self, column: str) -> tuple[object, ...]:
        vectors = (self.frozen.length, self.frozen.transform) if self.frozen else ()
        return (self.kind, self.role, self.transform, self.buckets, *vectors)

    @classmethod
    def guess(cls, column: ColumnSample) -> Guess | None:
        numbers = column.numbers
        nothing_repeats = numbers.what == "row" if numbers else column.never_repeats
        if numbers is None and column.present and column.most(lambda value: bool(WRITTEN_NUMBER.fullmatch(value))):
            example = excerpt(next(filter(WRITTEN_NUMBER.fullmatch, column.present)))
            is_what = "left out" if nothing_repeats else "read as categories"
            asked = f"numbers, as {example}, of several forms are {is_what}: write them alike in the log?"
            return Guess({} if nothing_repeats else {"kind": "categorical"}, f"{column.seen}; {asked}", True)
        if column.rounded_id:
            rounded = f"ids as {column.rounded_id}, which a spreadsheet has rounded (several ids became one)"
            return Guess({}, f"{rounded}: left out; export the ids as text", True)
        if nothing_repeats:
            left_out = Guess.nothing_repeats(column.seen, len(column.distinct) == len(column.present))
            advice = "" if numbers else next((text for form, text in _PARTED if column.most(form)), "")
            return dataclasses.replace(left_out, comment=left_out.comment + advice)
        settings: dict[str, Any] = {"kind": "categorical"}
        if len(column.distinct) > 1000 and sum(1 for count in column.distinct.values() if count > 1) > 100:
            settings |= OFTEN
        if (
            numbers is None
            and len(column.distinct) > _MOST_CLOCKS
            and column.most(lambda value: bool(_CLOCK.fullmatch(value)))
        ):
            asked = f"times of the day or durations, as {excerpt(column.present[0])}, are read as categories"
            return Guess(settings, f"{column.seen}; {asked}: write them as numbers, such as seconds, in the log?", True)
        if numbers is None and column.most(_is_of_other_digits):
            asked = f"numbers in the digits of another script, as {excerpt(column.present[0])}, are read as categories"
            return Guess(settings, f"{column.seen}; {asked}: write them in 0 to 9 in the log?", True)
        if numbers is None and (composed := several_in_one(column.distinct)):
            return Guess(settings, f"{column.seen}; {composed}?", True)
        if numbers is None:
            return Guess(settings, column.seen_as_texts)
        other = "; or numeric?" if numbers.or_other else ""
        if code := next(filter(EXPONENT_CODE.fullmatch, column.present), ""):
            other = f"; {excerpt(code)} is read as a code: or is it a number (kind: numeric)?"
        are_ids = "whole numbers taken as ids, " if len(column.distinct) > 2 else ""
        return Guess(settings, f"{are_ids}{column.seen}{other}", numbers.unsure)

    def notes(self, column: str, seen: Seen) -> Iterator[str]:
        if self.transform == "hash":
            return
        if seen.distinct > 0.95 * seen.present and seen.present > FEW:
            yield f"{column}: nearly every row has another value, of which a vocabulary teaches nothing"
        if seen.most < self.min_count:
            yield f"{column}: no value occurs {self.min_count} times (min_count) in the first {seen.rows:,} rows"


def _is_of_other_digits(value: str) -> bool:
    return value.isdecimal() and not value.isascii()
