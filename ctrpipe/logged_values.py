"""Converts the values of a DataFrame to the form of a model's training log.

pandas reads the words True and False of a log as booleans, and the text 02139 as the number 2139.
"""

import pathlib
from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.data import Data, Frame, is_frame, table_of
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.truths import WRITINGS, rows_of_log
from ctrpipe.transforms.log.column_types import other_text

_WORDS = WRITINGS[1:]  # the first is what a boolean becomes anyway


def in_words(
    name: str, values: pa.Array | pa.ChunkedArray, texts: Collection[bytes | float]
) -> pa.Array | pa.ChunkedArray:
    """Converts booleans to the words that a log in text has for them. Returns all other values unchanged.

    Args:
        name: The column's name, for the error message.
        values: The column.
        texts: Values of the column in the log.

    Raises:
        InputError: the log writes booleans in several ways.
    """
    if not pa.types.is_boolean(values.type):
        return values
    written = [words for words in _WORDS if not set(texts).isdisjoint(words)]
    if len(written) > 1:
        raise InputError(
            f"column '{name}': booleans, and the log writes them in several ways, as "
            f"'{written[0][0].decode()}' and '{written[1][0].decode()}'; give its texts"
        )
    return pc.if_else(values, *map(pa.scalar, written[0])) if written else values


def check_codes(name: str, values: pa.Array | pa.ChunkedArray, texts: Collection[bytes | float]) -> None:
    """Checks a table's numbers against a log that may have texts such as 02139: 2139 is another category.

    Args:
        name: The column's name.
        values: The column of the table.
        texts: Values of the column in the log.

    Raises:
        InputError: the log has one.
    """
    if code := other_text(values.type, texts):
        raise InputError(
            f"column '{name}': numbers, and the log has texts such as '{code}', which are other categories than their "
            "numbers; give its texts, as by dtype=str in pandas.read_csv"
        )


def with_words(data: Data | None, find_version: Callable[[], pathlib.Path]) -> Data | None:
    """Replaces booleans in tables by the words of a model's log. Files are returned unchanged.

    Args:
        data: See `ctrpipe.data.files_of`.
        find_version: Returns the model's version. Called only if a table has values that are no texts.

    Raises:
        InputError: see `ctrpipe.data.table_of`, `in_words` and `check_codes`.
    """
    if is_frame(data):
        table: Frame = table_with_words(table_of(data), find_version)
        return table
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [table_with_words(table_of(part), find_version) if is_frame(part) else part for part in data]
    return data


def table_with_words(table: pa.Table, find_version: Callable[[], pathlib.Path]) -> pa.Table:
    """Replaces booleans in a table by the words of a model's log.

    Raises:
        InputError: see `in_words` and `check_codes`.
    """
    if all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in table.schema.types):
        return table
    version = find_version()
    rows, compared = rows_of_log(version), read_log_spec(version).compared_columns
    for name in table.column_names:
        if name in compared:
            check_codes(name, table[name], rows.get(name, ()))
    columns = [in_words(name, table[name], rows.get(name, ())) for name in table.column_names]
    return pa.table(columns, table.column_names)
