"""Checks and converts the values of a raw log: bytes of a text file, or Parquet values.

The functions add malformed rows to `faults`, which maps a row to the reason. The first reason of a row is kept.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.lines import is_utf8
from ctrpipe.transforms.log.payload import plain
from ctrpipe.transforms.log.spec import Label, LogSpec, Word, spellings
from ctrpipe.transforms.log.times import time_pattern
from ctrpipe.transforms.log.whole_numbers import WHOLE_NUMBER, WHOLE_PART, texts_of_decimals, texts_of_floats
from ctrpipe.transforms.log.words import NUMBER_PATTERN
from ctrpipe.transforms.log.written import MINUS, NO_NUMBER, WRITTEN_NUMBER, Written

_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_OR_INFINITY = rb"[+-]?(?i:inf|infinity)"
_LARGEST = float(np.finfo(np.float32).max)
# Of the fraction of a second, before the zone of a timestamp.
_ZEROS_AT_END = r"(?:\.0+|(\.\d*[1-9])0+)(Z|[+-]\d{4})?$"


# What to do where the elements of a list, or of a history, have the separator in them.
OTHER_SEPARATOR = "; set another separator"
SEVERAL_VALUES = "; if an item has several values, set within, values_per_item and another separator"


@dataclasses.dataclass(frozen=True)
class TextNumbers:
    """The notation of a log's numbers in text.

    Attributes:
        missing: Words that mean a missing number, in addition to the empty value.
        decimal: The decimal separator: a point or a comma.
        infinite: Whether infinity and numbers too large for float32 are clipped to the largest float32. Otherwise they
            make their row malformed.
        form: The written form of the numbers, with its decimal separator; None for `1234.5`.
    """

    missing: tuple[bytes, ...] = ()
    decimal: str = "."
    infinite: bool = False
    form: Written | None = None

    def plain(self, values: pa.Array) -> pa.Array:
        """Rewrites numbers in binary values as `1234.5`. Values in another form become texts that do not parse as a
        number.
        """
        if self.form is not None:
            return self.form.plain(values)
        # A point would be a thousands separator: replacing it by a quote makes the value invalid.
        return pc.replace_substring(pc.replace_substring(values, b".", NO_NUMBER), b",", b".")


def text_numbers(spec: LogSpec, infinite: bool) -> dict[str, TextNumbers]:
    """Returns the notation of numbers in each column of a log.

    Args:
        spec: The description of the log.
        infinite: See TextNumbers.
    """
    forms = spec.number_forms
    words = {column: spec.missing_words(feature) for column, feature in spec.inputs.items()}
    return {
        column: TextNumbers(tuple(map(str.encode, missing)), spec.data.decimal, infinite, forms.get(column))
        for column, missing in words.items()
    }


def to_floats(values: pa.Array, name: str, faults: dict[int, str], written: TextNumbers) -> pa.Array:
    """Returns binary values as float32; null where a value is missing."""
    if written.decimal == "," or written.form is not None:
        faults_before = set(faults)
        values = without_words(values, written.missing)
        plain_numbers = written.plain(values)
        numbers = to_floats(plain_numbers, name, faults, TextNumbers(infinite=written.infinite))
        for row in faults.keys() - faults_before:
            faults[row] = f"{name}: {shown(values[row])} {_fault_of(plain_numbers[row].as_py(), written.form)}"
        return numbers
    suspects = _not_of_digits(values)
    if len(suspects) < len(values) // 32:
        bad = _no_numbers(values, suspects, written.infinite)
        numbers = _cast(_null_where(bad, values))
    else:  # with many suspects, converting all values is faster than matching the suspects
        bad = suspects[:0]
        try:
            numbers = _cast(values)
        except pa.ArrowInvalid:
            bad = _no_numbers(values, suspects, written.infinite)
            numbers = _cast(_null_where(bad, values))
    _note_numbers(values, _without_words(bad, values, written.missing), name, faults)
    return _finite(numbers, values, name, faults, written)


def as_floats(
    values: pa.Array, name: str, faults: dict[int, str], infinite: bool = False, missing: Sequence[float] = ()
) -> pa.Array:
    """Returns numbers as float32; null for NaN and the numbers `missing`, which mean a missing value.

    `infinite`: see TextNumbers.
    """
    numbers = values.cast(pa.float32(), safe=False)
    numbers = without_numbers(pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float32()), numbers), missing)
    return _finite(numbers, values, name, faults, TextNumbers(infinite=infinite))


def to_labels(
    values: pa.Array, name: str, faults: dict[int, str], label: Label, written: TextNumbers, optional: bool = False
) -> pa.Array:
    """Returns binary values as labels, float32 from 0 to 1, or any number of a task of numbers; null for a missing one.

    A number between 0 and 1 is a rate, such as the clicks of impressions.

    Args:
        values: The values of the label's column.
        name: Its name.
        faults: Gets the reason of each row without a valid label.
        label: Which values are positive.
        written: The words that mean a missing value.
        optional: Whether a label may be missing, because the log has others.
    """
    if label.is_number:
        return _amounts(values, name, faults, label, written)
    absent: pa.Array = pc.and_(pc.is_null(values), optional)
    if optional:
        absent = pc.or_(absent, pc.is_in(values, value_set=pa.array(written.missing, pa.binary())))
    if label.threshold is not None:
        return _above(pc.if_else(absent, None, values), name, faults, label.threshold, written, optional)
    one, zero = (pc.is_in(values, value_set=pa.array(words)) for words in ([b"1", b"1.0"], [b"0", b"0.0"]))
    expected = "0 or 1"
    is_in_words = bool(label.positive or label.negative)
    if is_in_words:
        one, zero = _in_words(values, label.positive), _in_words(values, label.negative)
        expected = f"one of {', '.join(map(str, [*label.positive, *label.negative]))}"
        if "" in label.negative:  # the readers have null for it
            zero = pc.or_(zero, pc.is_null(values))
        if not label.negative:
            zero = _other_values(values, one, name, faults, ("positive", label.positive), written)
        elif not label.positive:
            one = _other_values(values, zero, name, faults, ("negative", label.negative), written)
        if not (label.negative and label.positive):
            expected = "a value"
    elif not pc.all(pc.or_(one, zero)).as_py():
        one, zero = pc.or_(one, _in_words(values, _TRUE)), pc.or_(zero, _in_words(values, _FALSE))
    labels, known = one.cast(pa.float32()), pc.or_(one, zero)
    if not is_in_words and not pc.all(pc.or_(known, absent)).as_py():
        rates = to_floats(values, name, {}, written)  # a rate, such as clicks of impressions
        is_rate = pc.and_(pc.greater_equal(rates, 0.0), pc.less_equal(rates, 1.0)).fill_null(False)
        labels = pc.if_else(known, labels, rates)
        known = pc.or_(known, is_rate)
    for row in np.flatnonzero(~pc.or_(known, absent).to_numpy(zero_copy_only=False)).tolist():
        faults.setdefault(row, f"{name}: the label must be {expected}, found {shown(values[row])}")
    return pc.if_else(known, labels, pa.scalar(None, pa.float32())) if optional else labels


def _other_values(
    values: pa.Array,
    named: pa.Array,
    name: str,
    faults: dict[int, str],
    words: tuple[str, Sequence[Word]],
    written: TextNumbers,
) -> pa.Array:
    """Returns which rows have a value that is not one of a class's words, which the rule names alone.

    Args:
        values: The values of the label's column.
        named: Which rows have one of the words.
        name: The name of the column.
        faults: Gets the reason of each row whose value differs from one of the words in case or blanks only.
        words: The class, `positive` or `negative`, and its words.
        written: The words that mean a missing value.
    """
    kind, spelt = words
    missing = pc.is_in(values, value_set=pa.array(written.missing, pa.binary()))
    alike = pc.and_not(_looks_like(values, spelt), named).fill_null(False)
    for row in np.flatnonzero(alike.to_numpy(zero_copy_only=False)).tolist():
        text = f"{shown(values[row])} looks like a {kind} value; write them alike, or name it in data.labels"
        faults.setdefault(row, f"{name}: {text}")
    return pc.and_not(values.is_valid(), pc.or_(pc.or_(named, missing), alike))


_NO_LABEL = re.compile(r"the label must be .*, found nothing")
_NAN_LABEL = re.compile(r"the label must be .*, found '(?i:nan|null|none|n/?a)'")
_NO_WEIGHT = re.compile(r"the weight must be .*, found (?:nothing|'(.*)')$", re.DOTALL)
_NO_NUMBER = re.compile(r": '(.*)' is not a number(?: written as .*)?$", re.DOTALL)
_TOO_LARGE = re.compile(r"the label must be 0 or 1, found '(\d+(\.\d+)?)'")


def explained(reason: str) -> str:
    """Returns the reason of a malformed row, with advice for a weight, label or number in another form."""
    if reason == "a quote is not closed":
        return f"{reason}; if its value goes on in the next line, set data.quoted_line_breaks"
    if _NO_LABEL.search(reason):
        return f'{reason}: leave the row out of the log; or list "" in negative, if no value means no click'
    if _NAN_LABEL.search(reason):
        return f"{reason}: leave the row out of the log, as where no impression gives a rate"
    if weight := _NO_WEIGHT.search(reason):
        return f"{reason}; {_advice_on_weight(weight[1])}"
    if (number := _NO_NUMBER.search(reason)) and _is_adorned(number[1]):
        return f"{reason}; name the form of the column's numbers in written: its prefix, suffix, thousands and decimal"
    match = _TOO_LARGE.search(reason)
    if match is None or float(match[1]) <= 1:
        return reason
    if not float(match[1]).is_integer():
        return f"{reason}, and a rate has no more clicks than impressions"
    return f"{reason}: a rating needs a threshold in data.labels; counted clicks need their rate, and data.weight"


def _is_adorned(text: str) -> bool:
    """Returns whether a text is a number with a currency, a unit, thousands separators or a decimal comma."""
    match = WRITTEN_NUMBER.fullmatch(text.replace(MINUS, "-"))
    if match is None:
        return False
    return bool(MINUS in text or match["before"] or match["after"] or not match["figure"].replace(".", "", 1).isdigit())


def _advice_on_weight(text: str | None) -> str:
    """Returns what to write instead of a weight; `text` is None for a missing one."""
    if not text:
        return "write a number in each row, 1 where a row counts once"
    if not _is_adorned(text):
        return "write a number of 0 or more, or leave the row out"
    return f"write the number alone, with a point before its decimals and nothing between its thousands, for '{text}'"


def _amounts(values: pa.Array, name: str, faults: dict[int, str], label: Label, written: TextNumbers) -> pa.Array:
    """Returns the labels of a task that predicts a number; null for a missing one."""
    wrong: dict[int, str] = {}
    numbers = to_floats(values, name, wrong, written)
    least = " of 0 or more" if label.predicts == "count" else ""
    if least:
        negative = pc.less(numbers, 0.0).fill_null(False).to_numpy(zero_copy_only=False)
        wrong |= dict.fromkeys(np.flatnonzero(negative).tolist(), "")
    for row in wrong:
        faults.setdefault(row, f"{name}: the label must be a number{least}, found {shown(values[row])}")
    return numbers


def only_after(labels: pa.Array, before: pa.Array, name: str, named: str, faults: dict[int, str]) -> pa.Array:
    """Returns a task's labels, null for rows without the event that the task follows.

    Args:
        labels: The task's labels, float32.
        before: The labels of the task that it follows.
        name, named: The two columns.
        faults: Gets the rows with a label of 1 although the event that it follows did not happen.
    """
    possible = pc.greater(before, 0.0).fill_null(False)
    without = pc.and_(pc.equal(before, 0.0), pc.not_equal(labels, 0.0)).fill_null(False)
    for row in np.flatnonzero(without.to_numpy(zero_copy_only=False)).tolist():
        faults.setdefault(row, f"{name}: the label is {labels[row].as_py():g} where {named}, which it follows, is 0")
    return pc.if_else(possible, labels, pa.scalar(None, pa.float32()))


def to_weights(values: pa.Array, name: str, faults: dict[int, str], written: TextNumbers) -> pa.Array:
    """Returns binary values as weights, float32, at least 0."""
    weights = to_floats(values, name, {}, written)
    good = pc.and_(pc.greater_equal(weights, 0.0), pc.is_finite(weights)).fill_null(False)
    for row in np.flatnonzero(~good.to_numpy(zero_copy_only=False)).tolist():
        faults.setdefault(row, f"{name}: the weight must be a finite number of 0 or more, found {shown(values[row])}")
    return weights


def _above(
    values: pa.Array, name: str, faults: dict[int, str], threshold: float, written: TextNumbers, optional: bool
) -> pa.Array:
    wrong: dict[int, str] = {}
    numbers = to_floats(values, name, wrong, written)
    absent: list[int] = [] if optional else np.flatnonzero(numbers.is_null().to_numpy(zero_copy_only=False)).tolist()
    for row in {*wrong, *absent}:
        faults.setdefault(row, f"{name}: the label must be a number, found {shown(values[row])}")
    return pc.greater_equal(numbers, pa.scalar(threshold, pa.float32())).cast(pa.float32())


def _in_words(values: pa.Array, words: Sequence[Word]) -> pa.Array:
    return pc.is_in(values, value_set=pa.array([word.encode() for word in sorted(spellings(words))], pa.binary()))


def _looks_like(values: pa.Array, words: Sequence[Word]) -> pa.Array:
    """Returns whether values differ from one of some words at most in blanks around them and in upper and lower
    case.
    """
    plain = sorted({word.strip() for word in spellings(words) if word.strip()})
    pattern = "|".join(map(re.escape, plain)).encode()
    return pc.match_substring_regex(values, rb"^\s*(" + pattern + rb")\s*$", ignore_case=True)


def shown(value: pa.Scalar) -> str:
    """Returns a binary value for a message, in quotes."""
    text = value.as_py()
    return "nothing" if text is None else f"'{excerpt(text)}'"


def without_words(values: pa.Array, words: tuple[bytes, ...]) -> pa.Array:
    """Replaces the words that mean a missing value by null in binary values."""
    if not words:
        return values
    absent = pc.is_in(values, value_set=pa.array(words, pa.binary()))
    return _null_where(np.flatnonzero(absent.to_numpy(zero_copy_only=False)), values)


def without_numbers(values: pa.Array, missing: Sequence[float]) -> pa.Array:
    """Replaces the numbers that mean a missing value by null in float32 values."""
    if not missing:
        return values
    absent = pc.is_in(values, value_set=pa.array(missing, pa.float32()))
    return pc.if_else(absent, pa.scalar(None, pa.float32()), values)


def whole_numbers(values: pa.Array, separator: str | None = None, within: str | None = None) -> pa.Array:
    """Replaces 123.0 by 123 in binary values, like the served graph.

    Args:
        values: The values.
        separator: Separates the elements of a list; None for single values.
        within: Separates the values of an element; None for single-valued elements.
    """
    _, _, contents = values.buffers()
    if contents is None or b"." not in contents.to_pybytes():  # faster than any expression on the values
        return values
    if separator is None:
        return pc.replace_substring_regex(values, WHOLE_NUMBER, WHOLE_PART)
    elements = pc.split_pattern(values.fill_null(b""), separator)
    plain_elements = (
        pc.replace_substring_regex(elements.values, WHOLE_NUMBER, WHOLE_PART)
        if within is None
        else whole_numbers(elements.values, within)
    )
    lists = pa.ListArray.from_arrays(elements.offsets, plain_elements)
    absent = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
    return _null_where(absent, pc.binary_join(lists, separator.encode()))


def check_times(values: pa.Array, name: str, faults: dict[int, str], time_format: str) -> None:
    """Adds rows whose binary value does not match the time format to `faults`."""
    distinct = values.dictionary_encode()
    is_time = pc.match_substring_regex(distinct.dictionary, time_pattern(time_format)).to_numpy(zero_copy_only=False)
    if is_time.all():
        return
    wrong = np.flatnonzero(~np.append(is_time, True)[distinct.indices.fill_null(len(is_time)).to_numpy()])
    for row in wrong.tolist():
        expected = "a time of a known format" if time_format == "auto" else f"a time as {time_format}"
        faults.setdefault(row, f"{name}: {shown(values[row])} is not {expected}")


def check_utf8(values: pa.Array, name: str, faults: dict[int, str]) -> None:
    """Adds rows whose binary value is not valid UTF-8 to `faults`."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        check_utf8_of(range(len(values)), values, name, faults)


def check_utf8_of(rows: Sequence[int], values: pa.Array, name: str, faults: dict[int, str], hint: str = "") -> None:
    """Adds the rows among `rows` whose binary value is not valid UTF-8 to `faults`, with a hint."""
    for row in rows:
        if row not in faults and not is_utf8(values[row].as_py() or b""):
            faults[row] = f"{name}: invalid UTF-8{hint}"


def as_binary(values: pa.Array, name: str, path: str, faults: dict[int, str] | None = None) -> pa.Array:
    """Returns a Parquet column as the bytes that a text file would contain; null for an empty string.

    Equal numbers have equal bytes, whatever their type, and so do equal times of day.

    Args:
        values: The column.
        name, path: Its name and the file, for error messages.
        faults: Gets the rows whose floating-point number is not an exact whole number; None: such rows are accepted.

    Raises:
        InputError: the column's type does not have a single value per row.
    """
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        values = texts_of_floats(values, name, faults)
    if pa.types.is_decimal(values.type):
        values = texts_of_decimals(values)
    try:
        values = values if pa.types.is_binary(values.type) else texts_of(values).cast(pa.binary())
    except pa.ArrowException as error:
        raise no_value_per_row(path, name, values.type) from error
    empty = pc.equal(pc.binary_length(values), 0).fill_null(False)
    return _null_where(np.flatnonzero(empty.to_numpy(zero_copy_only=False)), values)


def texts_of(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns values as Arrow writes them, but the seconds of times without the zeros at their end.

    03:00:00.000 is 03:00:00, so that equal times have one text, whatever the unit of their type.

    Raises:
        pa.ArrowException: values of this type have no text.
    """
    texts = values.cast(pa.string())
    has_unit = pa.types.is_time(values.type) or pa.types.is_timestamp(values.type)
    return pc.replace_substring_regex(texts, _ZEROS_AT_END, r"\1\2") if has_unit else texts


def as_texts(values: pa.Array) -> pa.Array:
    """Decodes bytes as UTF-8. Invalid bytes become U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(decoded, pa.string())


def no_value_per_row(path: str, name: str, kind: pa.DataType) -> InputError:
    """Returns the error for a Parquet column of an unsupported type."""
    advice = "write numbers, texts or times, or lists of them for the kinds multivalent, sequence and vector"
    return InputError(f"{path}: column {name} of type {kind} cannot be read as a value per row; {advice}")


def join_lists(
    values: pa.Array,
    separator: str,
    name: str,
    path: str,
    faults: dict[int, str],
    keep_missing: bool = False,
    exact: bool = False,
    within: str | None = None,
) -> pa.Array:
    """Joins each list of a Parquet column to a binary value with separators; null for an empty list.

    With `keep_missing`, a missing element keeps its place as an empty value. With `exact`, an element that is not an
    exact whole number makes its row malformed. With `within`, an element may be a list, and `within` joins its
    elements.

    Raises:
        InputError: the elements are not single values.
    """
    flat = plain(pc.list_flatten(values))
    if within is not None and is_list(flat.type):
        inner: dict[int, str] = {}
        flat = join_lists(flat, within, name, path, inner, exact=exact)
        for element, fault in inner.items():
            faults.setdefault(pc.list_parent_indices(values)[element].as_py(), fault)
    if pa.types.is_nested(flat.type):
        raise no_value_per_row(path, name, values.type)
    parents = pc.list_parent_indices(values)
    inexact: dict[int, str] = {}
    elements = as_binary(flat, name, path, inexact if exact else None)
    for element, fault in inexact.items():
        faults.setdefault(parents[element].as_py(), fault)
    if keep_missing:
        elements = elements.fill_null(b"")
    present = elements.is_valid()
    parents, elements = parents.filter(present).to_numpy(), elements.filter(present)
    for row in parents[pc.match_substring(elements, separator).to_numpy(zero_copy_only=False)].tolist():
        fault = f"{name}: an element of the list has the separator '{separator}' in it"
        faults.setdefault(row, fault + (SEVERAL_VALUES if keep_missing else OTHER_SEPARATOR))
    ends = np.cumsum(np.bincount(parents, minlength=len(values)))
    lists = pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), elements)
    return as_binary(pc.binary_join(lists, separator.encode()), name, path)


def check_aligned(columns: Mapping[str, pa.Array], separator: str, faults: dict[int, str]) -> None:
    """Adds rows whose aligned sequences differ in length to `faults`.

    An empty sequence may mean a single missing value, so it is aligned with sequences of zero or one value.
    """
    lengths = {}
    for name, values in columns.items():
        between = pc.count_substring(values.fill_null(b""), separator)
        lengths[name] = between.to_numpy(zero_copy_only=False) + 1
    first, *others = lengths
    for name in others:
        for row in np.flatnonzero(lengths[name] != lengths[first]).tolist():
            both = f"{lengths[name][row]} values, but {first}, with which it is aligned, has {lengths[first][row]}"
            faults.setdefault(row, f"{name}: {both}")


def check_list_of_numbers(values: pa.Array, name: str, separator: str, faults: dict[int, str]) -> None:
    """Adds rows with an element that is not a finite number to `faults`, for lists in text."""
    lists = pc.split_pattern(values, separator)
    parents = pc.list_parent_indices(lists).to_numpy()
    elements = pc.list_flatten(lists)
    is_number = pc.match_substring_regex(elements, f"^(?:{NUMBER_PATTERN})$").to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(~is_number).tolist():
        faults.setdefault(int(parents[place]), f"{name}: {shown(elements[place])} is not a number")
    wrong: dict[int, str] = {}
    to_floats(elements.filter(pa.array(is_number)), name, wrong, TextNumbers())
    for place, fault in wrong.items():
        faults.setdefault(int(parents[is_number][place]), fault)


def is_list(kind: pa.DataType) -> bool:
    """Returns whether an Arrow type is a list type."""
    return any(is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _null_where(rows: np.ndarray, values: pa.Array) -> pa.Array:
    """Returns binary values with null in the given rows."""
    if not len(rows):
        return values
    keep = np.ones(len(values), bool)
    keep[rows] = False
    # if_else corrupts slices of binary arrays (apache/arrow#49410); replace_with_mask takes seven times as long.
    valid = pc.and_(values.is_valid(), pa.array(keep))
    _, offsets, contents = values.buffers()
    buffers = [valid.buffers()[1], offsets.slice(4 * values.offset), contents]
    return pa.Array.from_buffers(values.type, len(values), buffers)


def _cast(values: pa.Array) -> pa.Array:
    """Returns binary values as float32; infinity for numbers that are too large.

    Raises:
        pa.ArrowInvalid: a value is not a number.
    """
    return values.view(pa.string()).cast(pa.float32())


def _not_of_digits(values: pa.Array) -> np.ndarray:
    """Returns the rows whose binary value contains bytes other than digits."""
    _, offsets, contents = values.buffers()
    if contents is None:
        return np.empty(0, np.int64)
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(contents, np.uint8)[ends[0] : ends[-1]]
    positions = ends[0] + np.flatnonzero(text - np.uint8(ord("0")) > 9)  # bytes below "0" wrap around
    rows: np.ndarray = np.searchsorted(ends, positions, side="right") - 1
    rows = rows[np.diff(rows, prepend=-1) > 0]
    return rows


def _no_numbers(values: pa.Array, rows: np.ndarray, infinite: bool) -> np.ndarray:
    """Returns the given rows whose value is not a number. Infinity is a number if `infinite`."""
    if not len(rows):
        return rows
    pattern = b"|".join([_NUMBER.pattern, _OR_INFINITY] if infinite else [_NUMBER.pattern])
    is_number = pc.match_substring_regex(values.take(pa.array(rows)), f"^(?:{pattern.decode()})$").fill_null(True)
    wrong: np.ndarray = rows[~is_number.to_numpy(zero_copy_only=False)]
    return wrong


def _finite(numbers: pa.Array, values: pa.Array, name: str, faults: dict[int, str], written: TextNumbers) -> pa.Array:
    """Returns the numbers, with null for words for missing values, because Arrow parses "nan" as a number.

    Adds other non-finite numbers to `faults`, unless infinity is allowed.
    """
    good = pc.is_finite(numbers)
    if pc.all(good).as_py() is False:  # None where all values are missing
        odd = np.flatnonzero(~good.fill_null(True).to_numpy(zero_copy_only=False))
        wrong = _without_words(odd, values, written.missing)
        if written.infinite:
            finite = numbers.to_numpy(zero_copy_only=False)
            infinite = wrong[np.isinf(finite[wrong])]
            largest = np.zeros(len(numbers), np.float32)
            largest[infinite] = np.copysign(np.float32(_LARGEST), finite[infinite])
            numbers = pc.if_else(pa.array(largest != 0), pa.array(largest), numbers)
            good, wrong = pc.or_(good.fill_null(False), pa.array(largest != 0)), np.setdiff1d(wrong, infinite)
        _note_numbers(values, wrong, name, faults)
        if len(wrong) < len(odd):
            numbers = pc.if_else(good.fill_null(False), numbers, pa.scalar(None, numbers.type))
    return numbers


def _without_words(rows: np.ndarray, values: pa.Array, words: tuple[bytes, ...]) -> np.ndarray:
    """Returns the given rows whose binary value is not one of the words."""
    if not len(rows) or not words:
        return rows
    absent = pc.is_in(values.take(pa.array(rows)), value_set=pa.array(words, pa.binary()))
    others: np.ndarray = rows[~absent.to_numpy(zero_copy_only=False)]
    return others


def _note_numbers(values: pa.Array, rows: np.ndarray, name: str, faults: dict[int, str]) -> None:
    for row in rows.tolist():
        value = values[row].as_py()
        text = value if isinstance(value, bytes) else str(value).encode()
        faults.setdefault(row, f"{name}: '{excerpt(text)}' {_fault_of(text)}")


def _fault_of(text: bytes, form: Written | None = None) -> str:
    if _NUMBER.fullmatch(text):
        return "is too large for a 32-bit float"
    return f"is not a number written as {form.example}" if form else "is not a number"
