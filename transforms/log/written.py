"""The written form of a column's numbers: with a currency, a unit, or thousands separators."""

import functools
import re
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pydantic

from ctrpipe.transforms.log.section import Section

_BLANKS = ("\u00a0", "\u202f")  # in addition to the plain one; spreadsheets write them
_BLANK = f"(?: |\t|{'|'.join(_BLANKS)})*"
MINUS = "\u2212"  # as typesetting writes it: no sign of a number elsewhere
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_ALIKE = {"'": ("\u2019",), " ": _BLANKS}  # signs that stand for the same one
# Numbers with a sign of money, of percent or a unit, or with marks between thousands.
_BETWEEN = r"[,' _\u00a0\u202f\u2019]"
_FIGURE = (
    rf"(\d{{1,3}}({_BETWEEN}\d{{2,3}})*{_BETWEEN}\d{{3}}(\.\d+)?|\d{{1,3}}([.' \u00a0\u202f\u2019]\d{{3}})+,\d+|"
    r"\d{1,3}(\.\d{3})+|\d+([.,]\d+)?)"
)
_MONEY = (
    r"((US|R|A|AU|C|CA|NZ|S|HK|NT|MX)?\$|[€£¥₹₽₩₺₴₫₱₦₵₪฿₡₲₸₼₾৳]|kr\.?|zł|Kč|Ft|lei|Fr\.|Euros?|euros?|[KTU][Ss]h\.?|Rs\.?|Rp\.?|RM(?=\s)|S/\.?|"
    r"лв\.?|руб\.?|грн\.?)"
)
_UNIT = (
    r"(%|kg|g|mg|t|lbs?|oz|km|m|cm|mm|mi|ft|l|ml|h|hrs?|hours?|min|mins|minutes?|s|sec|secs|seconds?|ms|d|days?|[kKMGT]i?B|"
    r"[kKM]|Mio\.?|°C|°F|px|m²|qm|pcs|/ ?(5|6|7|10|20|100))"  # the last are the best of a rating, as in 3.1 / 5
)
# A number of an unknown form: `before` and `after` are its prefix and suffix.
WRITTEN_NUMBER = re.compile(
    rf"\(?[+-]?\s?((?P<before>{_MONEY}|[A-Z]{{3}}\s))?\s?[+-]?(?P<figure>{_FIGURE})\s?(?P<after>{_MONEY}|[A-Z]{{3}}|{_UNIT})?\)?-?",
    re.ASCII,
)
_DIGIT = re.compile(r"\d")
NO_NUMBER = b"'"  # begins a text that is no number, whatever follows


class Written(Section):
    r"""The form of a column's numbers if they are not written as 1234.5, such as `$1,234.50`, `0.4 kg` or `85%`.

    Texts in another form make their row malformed: with the suffix `kg`, both `0.4` and `400 g`. Blanks around the
    number, a sign before or after the prefix, and parentheses for a negative number are accepted. Numeric values of
    Parquet, JSON and requests are used directly, without prefix and suffix. The form applies wherever a log is read:
    `ctrpipe predict`, `score` and `drift`, DataFrames in Python, and `ctrpipe serve --rows_as_logged`.

    Example:
        features:
          - {columns: [price], kind: numeric, transform: embed, written: {prefix: "$", thousands: ","}}
          - {columns: [rent], kind: numeric, transform: embed, written: {suffix: "€", thousands: ".", decimal: ","}}
    """

    prefix: str = pydantic.Field("", examples=["$", "EUR"])
    """Text before each number."""
    suffix: str = pydantic.Field("", examples=["kg", "%", "/ 5"])
    """Text after each number; `/ 5` for ratings such as `3.1 / 5`."""
    thousands: Literal[",", ".", "'", " ", "_"] | None = pydantic.Field(None, examples=[","])
    """Sign between the thousands, which need not be there: `1,234` and `1234`. `1,23` makes its row malformed."""
    decimal: Literal[".", ","] | None = pydantic.Field(None, examples=[","])
    """Decimal separator; null: the separator in `data.decimal`."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Written":
        if not any((self.prefix, self.suffix, self.thousands, self.decimal)):
            raise ValueError("give a prefix, a suffix, thousands or decimal, or leave written out")
        for key, text in (("prefix", self.prefix), ("suffix", self.suffix)):
            digits = _DIGIT.search(text) and not (key == "suffix" and text.startswith("/"))
            if digits or re.search(r"^[+-]|\n", text) or text != text.strip():
                raise ValueError(
                    f"{key}: {text!r} must be a text without digits, signs and blanks around it; a suffix after / has "
                    "digits, as in 3.1 / 5"
                )
        return self

    def decided(self, decimal: str) -> "Written":
        """Returns the form with the log's decimal separator if it has none of its own.

        Raises:
            ValueError: the decimal separator is also the thousands separator.
        """
        form = self if self.decimal else self.model_copy(update={"decimal": decimal})
        if form.thousands == form.decimal:
            raise ValueError(f"written: {form.thousands!r} stands between thousands and before decimals; set decimal")
        return form

    @property
    def example(self) -> str:
        """A number of this form."""
        between = "\u00a0" if len(self.suffix) > 1 or self.suffix.isalpha() else ""
        figure = f"1{self.thousands or ''}234{self.decimal or '.'}5"
        return f"{self.prefix}{figure}{between}{self.suffix}".replace("\u00a0", " ")

    def text_of(self, number: str) -> str:
        """Writes a plain number, such as 1234.5, in this form."""
        return f"{self.prefix}{number.replace('.', self.decimal or '.')}{self.suffix}"

    def plain(self, values: pa.Array) -> pa.Array:
        """Rewrites numbers in this form as `1234.5`. Values in another form are prefixed by NO_NUMBER."""
        texts = pc.replace_substring(values, MINUS.encode(), b"-")
        texts = pc.replace_substring_regex(texts, r"^\((.*)\)$", r"-\1")
        good = pc.match_substring_regex(texts, self._pattern)
        numbers = pc.replace_substring_regex(texts, self._pattern, r"\1\2\3\4\5")
        if self.thousands:
            for sign in (self.thousands, *_ALIKE.get(self.thousands, ())):
                numbers = pc.replace_substring(numbers, sign.encode(), b"")
        if self.decimal == ",":
            numbers = pc.replace_substring(numbers, b",", b".")
        if pc.all(good).as_py() is not False:
            return numbers
        infinite = pc.match_substring_regex(texts, r"^[+-]?(?i:inf|infinity)$")
        others = pc.binary_join_element_wise(pa.scalar(NO_NUMBER), values, pa.scalar(b""))
        return pc.if_else(good, numbers, pc.if_else(infinite, texts, others))

    @functools.cached_property
    def _pattern(self) -> str:
        whole = r"\d+"
        if self.thousands:
            sign = "|".join(map(re.escape, (self.thousands, *_ALIKE.get(self.thousands, ()))))
            whole = rf"[1-9]\d{{0,2}}(?:(?:{sign})\d{{2,3}})*(?:{sign})\d{{3}}|\d+"
        point = re.escape(self.decimal or ".")
        before, after = re.escape(self.prefix), re.escape(self.suffix)
        figure = rf"(?:({whole})((?:{point}\d*)?{_EXPONENT})|({point}\d+{_EXPONENT}))"
        return rf"^{_BLANK}([+-]?){_BLANK}{before}{_BLANK}([+-]?){_BLANK}{figure}{_BLANK}{after}{_BLANK}$"


def numbers_of(form: Written, texts: Sequence[str]) -> list[str | None]:
    """Rewrites texts in a form as plain numbers; None for texts in another form. Words for infinity are numbers."""
    plain = form.plain(pa.array([text.encode("utf-8", "surrogateescape") for text in texts], pa.binary())).to_pylist()
    return [None if number.startswith(NO_NUMBER) else number.decode() for number in plain]
