"""Finds the written form of numbers such as `$1,234.50`, `0.4 kg` or `3.892,71`."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.sample import LogSample, may_be_thousands
from ctrpipe.transforms.log.words import NUMBER, USUAL_MISSING
from ctrpipe.transforms.log.written import MINUS, WRITTEN_NUMBER, Written, numbers_of

_SHARE = 0.99  # of a column's values that are numbers of one form
_SIGNS: tuple[tuple[Any, Any], ...] = (
    *((None, "."), (None, ","), (",", "."), (".", ",")),
    *(("'", "."), ("'", ","), (" ", ","), (" ", "."), ("_", ".")),
)
_NO_AMOUNT = re.compile(r"(^|[_\s])(id|code|zip|phone|tel|key|hash|version|ip)s?$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of a column's numbers.

    Attributes:
        settings: The keys of `written`; empty for plain numbers such as 1234.5.
        question: A question for the user; "" if the form is clear.
        example: A value of the column.
    """

    settings: dict[str, str]
    question: str = ""
    example: str = ""


@dataclasses.dataclass(frozen=True)
class _Column:
    """The common form of a column's numbers: prefix, suffix, and possible separators.

    Attributes:
        values: The numbers as they are written.
    """

    prefix: str
    suffix: str
    figures: list[str]
    values: list[str]
    signs: list[tuple[Any, Any]]
    decimal: str = ""  # the separator that the numbers show; "" if they show none, or an unclear one

    @property
    def is_plain(self) -> bool:
        return not self.prefix and not self.suffix

    @property
    def unclear(self) -> Literal["", ",", "."]:
        """The character that may separate thousands or decimals; "" if it is clear."""
        for sign, other in ((",", "."), (".", ",")):
            both = {(None, sign), (sign, other)} <= set(self.signs)
            if both and any(sign in figure for figure in self.figures):
                return sign  # type: ignore[return-value]
        return ""


def plain_numbers(sample: LogSample) -> tuple[LogSample, dict[str, Form]]:
    """Returns a sample with written numbers converted to plain ones, and the form of each such column."""
    rewritten = {name: column for name, values in sample.columns.items() if (column := _column(name, values, sample))}
    shown = {column.decimal for column in rewritten.values() if column.decimal}
    by_log = sample.data.get("decimal") or ("".join(shown) if len(shown) == 1 else "")
    are_texts = sample.data["format"] in ("csv", "tsv")
    columns, forms = dict(sample.columns), {}
    for name, column in rewritten.items():
        form = _form(column, str(by_log), str(sample.data.get("decimal", ".")), are_texts)
        if form is None:
            continue
        largest = max(column.figures, key=len)
        between = " " if len(column.suffix) > 1 else ""
        example = next((value for value in column.values if MINUS in value), "")
        example = example or f"{column.prefix}{largest}{between}{column.suffix}"
        forms[name] = dataclasses.replace(form, example=excerpt(example))
        if form.settings:
            written = Written.model_validate(form.settings).decided(str(sample.data.get("decimal", ".")))
            columns[name] = _converted(columns[name], written)
    return dataclasses.replace(sample, columns=columns), forms


def are_written(name: str, values: Sequence[str], sample: LogSample) -> bool:
    """Returns whether a column's values are numbers with a prefix or a suffix, such as `$1,234.50`."""
    column = _column(name, values, sample)
    return column is not None and not column.is_plain


def _column(name: str, values: Sequence[str], sample: LogSample) -> _Column | None:
    """Returns what the numbers of a column have in common; None if they are none, of two forms, or a name's ids."""
    if name in sample.lists or name in sample.pointed or _NO_AMOUNT.search(name):
        return None
    present = [value for value in values if value and value not in USUAL_MISSING]
    if len(set(present)) <= 2:
        return None
    if all(map(NUMBER.fullmatch, present)):  # most columns of numbers
        if not any("." in value for value in present):
            return None
        if not may_be_thousands(present, "."):
            return _Column("", "", present[:1], present, [(None, ".")], ".")
    matches = [match for value in present if (match := WRITTEN_NUMBER.fullmatch(value.replace(MINUS, "-")))]
    if len(matches) < _SHARE * len(present):
        return None
    ends = {((match["before"] or "").strip(), match["after"] or "") for match in matches}
    if len(ends) > 1 or any(value.startswith("+") and " " in value for value in present):  # a telephone number
        return None
    [(prefix, suffix)] = ends
    fits = []
    for thousands, decimal in _SIGNS:
        form = Written(prefix=prefix, suffix=suffix, thousands=thousands, decimal=decimal)
        numbers = sum(number is not None for number in numbers_of(form, present))
        if numbers == len(matches):
            fits.append((thousands, decimal))
    figures = [match["figure"] for match in matches]
    if not fits:
        return None
    column = _Column(prefix, suffix, figures, present, fits)
    shows = not column.unclear and any(set(",.") & set(figure) for figure in figures)
    return dataclasses.replace(column, decimal=str(fits[0][1])) if shows else column


def _form(column: _Column, by_log: str, decimal: str, are_texts: bool) -> Form | None:
    """Returns the form of a column; None for plain numbers.

    Args:
        column: What its numbers have in common.
        by_log: The decimal separator of other columns; "" if no column shows one.
        decimal: `data.decimal`.
        are_texts: Whether the format has no numbers of its own.
    """
    thousands, point = column.signs[0]
    question = ""
    if sign := column.unclear:
        other = "." if sign == "," else ","
        are_thousands = by_log == other if by_log else sign == "," or _has_whole_ones(column.figures, sign)
        if column.is_plain and sign == "." and not are_texts:
            are_thousands = False
        elif not by_log:
            figure = next(figure for figure in column.figures if sign in figure)
            numbers = (figure.replace(sign, ""), figure.replace(sign, "."))
            form = f"thousands: {sign!r}, decimal: {other!r}" if not are_thousands else f"decimal: {sign!r}"
            read, instead = numbers if are_thousands else reversed(numbers)
            question = f"{figure} is read as {read}; or is it {instead} (written: {{{form}}})?"
        thousands, point = (sign, other) if are_thousands else (None, sign)
    if column.decimal and thousands is None and not column.is_plain:  # larger numbers may follow the first rows
        thousands = "," if point == "." else "."
    has_minus = column.is_plain and any(MINUS in value for value in column.values)
    settings = {"prefix": column.prefix, "suffix": column.suffix, "thousands": thousands or ""}
    settings = {key: value for key, value in settings.items() if value}
    shows_point = column.decimal or column.unclear or thousands in (",", ".")
    if (shows_point and point != decimal) or (has_minus and not settings):
        settings["decimal"] = point
    if not settings and not question:
        return None
    return Form(settings, question)


def _has_whole_ones(figures: Sequence[str], sign: str) -> bool:
    """Returns whether numbers below 1,000 have no decimals, as they would if the sign stood before decimals."""
    return any(sign not in figure for figure in figures)


def _converted(values: Sequence[str], form: Written) -> list[str]:
    places = [place for place, value in enumerate(values) if value and value not in USUAL_MISSING]
    numbers = list(values)
    for place, number in zip(places, numbers_of(form, [values[place] for place in places]), strict=True):
        numbers[place] = values[place] if number is None else number
    return numbers
