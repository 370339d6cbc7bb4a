"""Booleans of a DataFrame as the words that the log of a model has for them, which pandas reads as booleans."""

import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.data import Data, Frame, is_frame, table_of
from ctrpipe.serving.assets import GoldenRows
from ctrpipe.serving.layout import Asset, asset_path

_WORDS = ((b"True", b"False"), (b"true", b"false"), (b"TRUE", b"FALSE"))


def rows_of_log(version: pathlib.Path) -> Mapping[str, np.ndarray]:
    """Returns the columns of a few rows of the log that a version was trained on; {} if the version has none."""
    try:
        return dict(GoldenRows.load(asset_path(version, Asset.GOLDEN)).raw)
    except (OSError, KeyError, ValueError):
        return {}


def in_words(
    name: str, values: pa.Array | pa.ChunkedArray, texts: Collection[bytes | float]
) -> pa.Array | pa.ChunkedArray:
    """Returns booleans as the words of a log in text; those of other logs, and other values, as they are.

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


def with_words(data: Data | None, find_version: Callable[[], pathlib.Path]) -> Data | None:
    """Returns data whose tables have the words of a model's log in place of booleans. Files stay as they are.

    Args:
        data: See `ctrpipe.data.files_of`.
        find_version: Returns the model's version. Called only if a table has booleans.

    Raises:
        InputError: see `ctrpipe.data.table_of` and `in_words`.
    """
    if is_frame(data):
        table: Frame = table_with_words(table_of(data), find_version)
        return table
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [table_with_words(table_of(part), find_version) if is_frame(part) else part for part in data]
    return data


def table_with_words(table: pa.Table, find_version: Callable[[], pathlib.Path]) -> pa.Table:
    """Returns a table with the words of a model's log in place of booleans.

    Raises:
        InputError: see `in_words`.
    """
    if not any(pa.types.is_boolean(kind) for kind in table.schema.types):
        return table
    rows = rows_of_log(find_version())
    columns = [in_words(name, table[name], rows.get(name, ())) for name in table.column_names]
    return pa.table(columns, table.column_names)
