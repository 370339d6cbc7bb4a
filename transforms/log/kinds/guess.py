"""A column of an unknown log and its inferred properties. `ctrpipe init` asks each kind for its guess."""

import collections
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from ctrpipe.transforms.log.words import INFINITE, NUMBER, USUAL_MISSING

# A column has a kind if at least this share of its values matches it.
_SHARE = 0.99
TIME_NAME = re.compile(r"(^|_|\b)(time|timestamp|ts|dt|ds|date|day|hour|datetime|created|at)(_|\b|$)", re.IGNORECASE)
ID_NAME = re.compile(
    r"(^|[_\s])((id|code|zip|type|category|hash|key|model|ip|site|app|device|user|item|ad|phone|telephone)s?|tel|msisdn|isbn|issn|ean|gtin|upc|barcode|sku|imei|imsi|iban|"
    r"publisher|advertiser|campaign|creative|placement|region|city|country|state|brand|store|shop|seller|merchant|vendor|"
    r"product|channel|genre|carrier|agent|agency|company|supplier|employer|operator|airline|hotel|dealer|branch|"
    r"network|browser|author|artist|domain)$",
    re.I,
)
_NUMBER_OF = re.compile(
    r"(n|num|nr|no|number|count|cnt|total|avg|mean|max|min|sum)[_\s]", re.IGNORECASE
)  # as in n_items
_CODE_NAME = re.compile(r"^[Cc]\d+$")
# A word of the name, as in `avg_price`, `viewCount` and `price2`: `country` is no count, and `language` no age.
_NUMBER_NAME = re.compile(
    r"((?i:^|[^a-z])|(?<=[a-z])(?=[A-Z]))(?i:prices?|counts?|cnt|ages?|num|amounts?|amn?ts?|pymnts?|pmts?|mths|mnths|yrs|hrs|durations?|len|length|sizes?|rates?|scores?|"
    r"views?|clicks?|income|salary|balance|distance|quantity|qty|budget|bid|cost|premiums?|fees?|revenue|spend|spent|total|"
    r"stock|inventory|battery|nights|adults|children|guests|rooms|pages|"
    r"days|hours|minutes|seconds|months|tenure|discount|temperature|percent|pct|ratio|visits)(?![a-z])|"
    r"(?i:price|amount|duration|(?<!ac)count)(?i:s?)$|^I\d+$"
)
_FLAG_NAME = re.compile(r"(is|has|was|did|can|with)(_|\s|(?=[A-Z]))")  # of two values: is_premium is no amount
_LEADING_ZERO = re.compile(r"0\d+$")  # 02139 is a code, which no amount is written as
# How spreadsheets write numbers of twelve digits and more, as 4.12E+11: the other digits are lost.
ROUNDED_ID = re.compile(r"[1-9]([.,]\d{1,5})?E\+\d{2}")
# 12e3 is a number, but programs write it as 12000 or 1.2e+04; as an id it is the text of a code.
EXPONENT_CODE = re.compile(r"\d+[eE]\d+")
_FEWEST_ROUNDED = 0.01  # of a column's values
_MOST_CODES = 32  # distinct whole numbers that are more likely codes than amounts
_REPEATED = 0.3  # of the values that are different, above which they are too many for codes
_MANY = 100  # rows in which values that do not repeat say something


@dataclasses.dataclass(frozen=True)
class Guess:
    """The inferred kind of a column.

    Attributes:
        settings: Keys of a feature; empty if the column is left out.
        comment: What was observed in the values, and what is uncertain.
        unsure: Whether a user should check the guess.
        is_unrepeated: Whether the column is left out because its values do not repeat.
    """

    settings: dict[str, Any]
    comment: str
    unsure: bool = False
    is_unrepeated: bool = False

    @classmethod
    def nothing_repeats(cls, seen: str, never: bool = True) -> "Guess":
        """Returns the guess for a column whose values never or rarely repeat: the column is left out.

        Args:
            seen: What was observed in the values.
            never: Whether no value occurs twice.
        """
        if never:
            return cls({}, f"another value in each row ({seen}), nothing repeats: left out", True, True)
        return cls({}, f"hardly any value occurs twice ({seen}), so they teach nothing: left out", True, True)


def _different(values: int) -> str:
    return "one value" if values == 1 else f"{values:,} different values"


def usual_length(lengths: Iterable[int]) -> int:
    """Returns the length that 95% of the lists do not exceed, clipped to [2, 50]."""
    ordered = sorted(lengths)
    return max(2, min(50, ordered[int(0.95 * (len(ordered) - 1))]))


@dataclasses.dataclass(frozen=True)
class NumberUse:
    """The meaning of a column's numbers.

    Attributes:
        what: "amount", "code" of a category, or "row", a different number in each row.
        unsure: Whether a user should check it.
        or_other: Whether the other of amount and code is possible too.
    """

    what: Literal["amount", "code", "row"]
    unsure: bool = False
    or_other: bool = False


@dataclasses.dataclass(frozen=True)
class ColumnSample:
    """The values of a column in the first rows of a log without a description.

    Attributes:
        name: The column's name.
        values: The value of each row; "" or a usual word if it is missing.
        is_list: Whether the file has lists in the column; their elements are joined by "|".
        weights: The separator between an element and its weight, for a column of maps.
    """

    name: str
    values: Sequence[str]
    is_list: bool = False
    weights: str = ""

    @functools.cached_property
    def present(self) -> list[str]:
        """The values that are not missing."""
        return [value for value in self.values if value not in USUAL_MISSING and value != ""]

    @functools.cached_property
    def distinct(self) -> collections.Counter[str]:
        """The number of rows with each value."""
        return collections.Counter(self.present)

    @property
    def seen(self) -> str:
        """The number of different values and the share of missing ones, in words."""
        missing = 1 - len(self.present) / len(self.values)
        return f"{_different(len(self.distinct))}, {f'{missing:.0%} missing' if missing else 'never missing'}"

    @property
    def seen_as_texts(self) -> str:
        """`seen` for texts, which counts the usual words for a missing number, such as NA and None, as values."""
        words = collections.Counter(value for value in self.values if value in USUAL_MISSING and value)
        missing = 1 - (len(self.present) + words.total()) / len(self.values)
        seen = f"{_different(len(self.distinct) + len(words))}, "
        seen += f"{missing:.0%} missing" if missing else "never missing"
        if not words:
            return seen
        word, count = words.most_common(1)[0]
        share = f"{count / len(self.values):.1%} of the rows"
        return f"{seen}; {word}, in {share}, is a value of its own, which missing_values changes"

    @functools.cached_property
    def infinite(self) -> int:
        """The number of infinite numbers."""
        return sum(INFINITE.fullmatch(value) is not None for value in self.present)

    @functools.cached_property
    def rounded_id(self) -> str:
        """An id that a spreadsheet has rounded, such as 4.12E+11, if a share of the column's ids are rounded; "" if
        not.
        """
        if not ID_NAME.search(self.name):
            return ""
        rounded = [value for value in self.present if ROUNDED_ID.fullmatch(value)]
        return rounded[0] if rounded and len(rounded) >= _FEWEST_ROUNDED * len(self.present) else ""

    @property
    def hardly_repeats(self) -> bool:
        """Whether almost every row has a different value."""
        return len(self.distinct) > 0.95 * len(self.present)

    @property
    def never_repeats(self) -> bool:
        """Whether almost every one of many rows has a different value."""
        return self.hardly_repeats and len(self.present) > _MANY

    def most(self, is_one: Callable[[str], bool]) -> bool:
        """Returns whether almost all present values fulfil a condition."""
        most = len(self.present) * (1 - _SHARE)
        wrong = 0
        for value in self.present:
            wrong += not is_one(value)
            if wrong > most:
                return False
        return True

    @functools.cached_property
    def numbers(self) -> NumberUse | None:
        """The meaning of the column's numbers; None if its values are lists or not numbers."""
        if (
            self.is_list
            or self.rounded_id
            or not self.most(lambda value: bool(NUMBER.fullmatch(value) or INFINITE.fullmatch(value)))
        ):
            return None
        texts = [value for value in self.present if NUMBER.fullmatch(value)]
        if not texts:
            return None
        if sum(bool(_LEADING_ZERO.match(value)) for value in texts) > len(texts) * (1 - _SHARE):
            return NumberUse("row" if self.never_repeats else "code", unsure=bool(_NUMBER_NAME.search(self.name)))
        codes = sum(bool(EXPONENT_CODE.fullmatch(value)) for value in texts)
        if codes and (2 * codes > len(texts) or ID_NAME.search(self.name)):
            return NumberUse("row" if self.never_repeats else "code", unsure=True, or_other=True)
        if any("." in value.removesuffix(".0") or "e" in value.lower() for value in texts):
            return NumberUse("amount")
        is_id = ID_NAME.search(self.name) and not _NUMBER_OF.match(self.name)
        is_flag = len(self.distinct) <= 2 and _FLAG_NAME.match(self.name)
        if not is_id and not is_flag and (_NUMBER_NAME.search(self.name) or _NUMBER_OF.match(self.name)):
            return NumberUse("amount")
        if is_id or _CODE_NAME.match(self.name):
            return NumberUse("row" if self.never_repeats else "code")
        if any(len(value) > 9 for value in self.present) or len(self.distinct) <= 2:
            return NumberUse("row" if self.hardly_repeats else "code")
        numbers = sorted(int(float(value)) for value in texts)
        if len(self.distinct) == len(self.present) > _MANY:
            counts_rows = numbers[-1] - numbers[0] < 2 * len(self.present)
            return NumberUse("row") if counts_rows else NumberUse("amount", unsure=True)
        are_skewed = numbers[0] <= 1 and numbers[len(numbers) // 2] * 4 < numbers[-1]
        hardly_repeat = len(self.present) > _MANY and len(self.distinct) > _REPEATED * len(self.present)
        is_amount = hardly_repeat or (are_skewed and len(self.distinct) > _MOST_CODES)
        return NumberUse("amount" if is_amount else "code", unsure=True, or_other=True)
