"""Reads the rows of a REST request like a JSON lines log, for `--rows_as_logged`.

TF Serving refuses a number in a text column, `null`, a list, a missing column and an unknown column. A log may have all
of these, and the log's reader defines their meaning. The resulting inputs are for `serving_raw`.
"""

import math
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.logged_values import own_values
from ctrpipe.serving.rows import RAW
from ctrpipe.serving.server.body_cost import CHECK_EVERY, TIMES_SIZE, Reading
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.json_values import json_type, shown
from ctrpipe.serving.server.served import ServedVersion
from ctrpipe.serving.server.tensors import decode_base64, is_base64
from ctrpipe.transforms.log.bracketed import begins_a_list, elements_in_brackets
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import as_binary
from ctrpipe.transforms.log.words import INFINITE, NUMBER
from ctrpipe.transforms.log.written import Written, numbers_of

Row = Mapping[str, Any]
_CELL_BYTES = 40  # of a value that a row leaves out: its places in a list and in an array, and its number
OF_RAW_COLUMNS = (RAW, "serving_explain")  # the signatures whose inputs are the raw columns


class _Place(NamedTuple):
    """The place of a value in a request: its row, from 1, and its column."""

    row: int
    column: str

    def wrong(self, value: object, expected: str) -> ServingError:
        """Returns the error for a value that a log cannot have at this place."""
        text = f"{shown(value)} Type: {json_type(value)}"
        return bad_request(f"instances, row {self.row}, {self.column}: {text}; send {expected}")


class LoggedRows:
    """Reads the rows of requests to models that ctrpipe exported. Requests to other models are read as in TF Serving.

    Args:
        spare_bytes: Memory of a body's values above four times its size (`--max_json_memory_bytes`).
    """

    def __init__(self, spare_bytes: int) -> None:
        self._spare_bytes = spare_bytes
        self._logs: weakref.WeakKeyDictionary[Any, tuple[LogSpec, OwnValues] | None] = weakref.WeakKeyDictionary()

    def inputs(
        self, version: ServedVersion, request: Mapping[str, Any], signature: str, size: int, reading: Reading
    ) -> tuple[str, dict[str, np.ndarray]] | None:
        """Returns the signature and its inputs; None if the request is not a list of rows of raw columns.

        Keys of a row other than its columns, such as the label, are ignored. A missing number is NaN, a missing text
        "".

        Args:
            version: The requested version.
            request: The parsed body.
            signature: The requested signature; "" for `serving_raw`.
            size: The size of the body.
            reading: The request's deadline.

        Raises:
            ServingError: a value cannot be in the log (the message names its row and column), or the rows omit so many
                columns that filling them would exceed the body's memory limit.
        """
        name, rows, log = signature or RAW, request.get("instances"), self._log(version)
        if log is None or name not in OF_RAW_COLUMNS or name not in version.input_types:
            return None
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            return None
        dtypes = version.input_types[name]
        cost = _CELL_BYTES * len(rows) * len(dtypes)
        if cost > (most := self._spare_bytes + TIMES_SIZE * size):
            raise bad_request(
                f"The {len(rows)} rows would take {cost} bytes of memory, above {most}: "
                f"--max_json_memory_bytes={self._spare_bytes} and {TIMES_SIZE} times their size; send fewer at a time"
            )
        reader = _Reader(rows, *log, reading)
        return name, {
            column: reader.texts(column) if dtype == tf.string else reader.numbers(column)
            for column, dtype in dtypes.items()
        }

    def _log(self, version: ServedVersion) -> tuple[LogSpec, OwnValues] | None:
        """Returns the description of a version's log and its values; None for another exporter's version."""
        if version.servable not in self._logs:
            path = version.servable.path
            try:
                spec = read_log_spec(path)
                self._logs[version.servable] = (spec, own_values(path, spec))
            except InputError:
                self._logs[version.servable] = None
        return self._logs[version.servable]


class _Reader:
    """Reads the columns of rows. Checks the deadline after every CHECK_EVERY values.

    Args:
        rows: The rows.
        spec: The description of the model's log.
        own: Its values.
        reading: The request's deadline.
    """

    def __init__(self, rows: list[Row], spec: LogSpec, own: OwnValues, reading: Reading) -> None:
        self._rows, self._spec, self._own, self._reading = rows, spec, own, reading
        self._bracketed = spec.bracketed_columns
        self._kinds: set[type] = set()  # of the values of the column that is read
        self._count = 0

    def texts(self, name: str) -> np.ndarray:
        """Returns a text column, bytes objects `[N]`; b"" for a missing value."""
        known = (self._spec.separators.get(name), self._spec.inner_separators.get(name))
        separators = [separator for separator in known if separator]
        self._kinds = set()
        texts = [self._text(row.get(name), separators, _Place(number, name)) for number, row in self._numbered()]
        numbers, truths = bool(self._kinds & {int, float}), bool in self._kinds
        try:
            return np.array(self._own.of_texts(name, texts, f"instances, {name}", numbers, truths), object)
        except InputError as error:
            raise bad_request(str(error)) from error

    def numbers(self, name: str) -> np.ndarray:
        """Returns a numeric column, float32 `[N]`, or vectors, `[N, length]`; NaN for a missing value."""
        length = self._spec.vector_lengths.get(name)
        values = [row.get(name) for row in self._rows]
        if form := self._spec.text_forms.get(name):
            values = self._plain(values, form, name)
        else:
            words = frozenset(self._spec.missing_words(self._spec.inputs[name]))
            values = [None if isinstance(value, str) and value in words else value for value in values]
        rows = [self._vector(value, length, _Place(number, name)) for number, value in enumerate(values, 1)]
        array = np.array(rows, np.float32)
        return array if length is not None else array[:, 0]

    def _numbered(self) -> Iterator[tuple[int, Row]]:
        return enumerate(self._rows, 1)

    def _tick(self) -> None:
        self._count += 1
        if not self._count % CHECK_EVERY:
            self._reading.check_time()

    def _text(self, value: object, separators: list[str], place: _Place) -> bytes:
        """Returns a value as text; lists and nested lists are joined by a separator per level."""
        self._tick()
        if isinstance(value, str) and place.column in self._bracketed and begins_a_list(value):
            listed = elements_in_brackets(value)
            if listed is None:
                raise place.wrong(value, "a list of single values")
            value = listed
        if not isinstance(value, list):
            if value == value:  # not NaN, which is a missing value
                self._kinds.add(type(value))
            return _text(value, place)
        if not separators:
            raise place.wrong(value, "a single value")
        separator = separators[0].encode()
        elements = [self._text(element, separators[1:], place) for element in value]
        if any(separator in element for element in elements):
            raise place.wrong(value, f"a list whose elements do not contain {separators[0]!r}")
        return separator.join(elements)

    def _plain(self, values: list[Any], form: Written, name: str) -> list[Any]:
        """Converts texts in the log's form to plain numbers, and words for missing numbers to None."""
        missing = {"", *self._spec.missing_words(self._spec.inputs[name])}
        places = [place for place, value in enumerate(values) if isinstance(value, str) and value not in missing]
        known = dict(zip(places, numbers_of(form, [values[place] for place in places]), strict=True))
        other = next((place for place, number in known.items() if number is None), None)
        if other is not None:
            raise _Place(other + 1, name).wrong(values[other], f"a number, as 1234.5, or a text as {form.example!r}")
        return [
            known[place] if place in known else None if isinstance(value, str) else value
            for place, value in enumerate(values)
        ]

    def _vector(self, value: object, length: int | None, place: _Place) -> list[float]:
        self._tick()
        if value is None:
            return [math.nan] * (length or 1)
        elements = value if isinstance(value, list) and length is not None else [value]
        if len(elements) != (length or 1):
            raise place.wrong(value, f"a list of {length} numbers, or null")
        return [_number(element, place) for element in elements]


def _text(value: Any, place: _Place) -> bytes:
    if value is None or value == "" or value != value:  # the last is NaN
        return b""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if is_base64(value):
        return decode_base64(value["b64"])
    if isinstance(value, int):  # a truth value is 0 or 1, or what `OwnValues` makes of it
        return str(int(value)).encode()
    if not isinstance(value, float):
        raise place.wrong(value, "a text, a number, a truth value or null")
    faults: dict[int, str] = {}
    [text] = as_binary(pa.array([value]), place.column, "the request", faults).to_pylist()
    if faults:
        raise place.wrong(value, "a whole number that is exact, or a text")
    return text or b""


def _number(value: Any, place: _Place) -> float:
    if value is None or value == "":
        return math.nan
    if isinstance(value, str) and not (NUMBER.fullmatch(value) or INFINITE.fullmatch(value)):
        raise place.wrong(value, "a number or null")  # Python would read 1_000 and digits of other scripts
    try:
        if isinstance(value, str | bool | int | float):
            return float(value)
    except OverflowError:  # beyond a double: as far from all other rows as infinity
        return math.copysign(math.inf, value)
    raise place.wrong(value, "a number or null")
