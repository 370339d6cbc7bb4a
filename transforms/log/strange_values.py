"""Finds strange categories, such as rounded ids and two values in one, and columns with no number or match."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.column_values import Values, numbers_of
from ctrpipe.transforms.log.composed import several_in_one
from ctrpipe.transforms.log.derived.expression import Expression
from ctrpipe.transforms.log.derived.formulas import NumpyOperations, evaluate, parse
from ctrpipe.transforms.log.derived.lookup import Lookup
from ctrpipe.transforms.log.kinds.guess import ROUNDED_ID
from ctrpipe.transforms.log.look_alikes import LEAST_SHARE, MOST_ALIKE, look_alikes
from ctrpipe.transforms.log.pretrained_table import pretrained_tables, read_table
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.words import USUAL_MISSING

MOST_WITHOUT = 0.5  # of the rows, for which an expression may have no number
LEAST_WITHOUT = 30  # rows
_COMPOSED = 1000  # different values that are looked at
_LOOKED_UP = 10_000  # rows, of which none has a match


def alike_categories(values: Values) -> str:
    """Returns two categories of a column that look the same to a reader; "" if there are none."""
    counts = _counts(values)
    most = np.argsort(-counts, kind="stable")[:MOST_ALIKE]
    texts = [_shown(text) for text in values.texts.take(pa.array(most)).to_pylist()]
    return look_alikes(dict(zip(texts, counts[most].tolist(), strict=True)), len(values.codes))


def rounded_ids(values: Values) -> str:
    """Returns a warning if categories are numbers that a spreadsheet has rounded, such as 4.12E+11; "" if not."""
    shown = _rows_of(values, np.asarray(pc.match_substring_regex(_texts(values), f"^({ROUNDED_ID.pattern})$")))
    if shown is None:
        return ""
    text, share = shown
    return (
        f"values as {text}, in {share:.1%} of the rows, are numbers that a spreadsheet has rounded, so that several "
        "ids became one: export the ids as text"
    )


def words_for_missing(values: Values) -> str:
    """Returns a warning if a word for a missing value is a category next to another word or missing values; "" if
    not.
    """
    is_word = np.asarray(pc.is_in(_texts(values), value_set=pa.array(USUAL_MISSING)))
    ways = int((_counts(values)[is_word] > 0).sum()) + int((values.codes == 0).any())
    shown = _rows_of(values, is_word)
    if shown is None or ways < 2:
        return ""
    text, share = shown
    return (
        f"words for a missing value, as {text!r}, in {share:.1%} of the rows, are categories beside another way to "
        "write a missing value: name the words in data.missing_values"
    )


def composed_values(values: Values) -> str:
    """Returns a warning if categories are composed of several values, such as `48.85;2.35`; "" if not."""
    return several_in_one(_texts(values).drop_null().slice(0, _COMPOSED).to_pylist())


def expressions_without_numbers(spec: LogSpec, rows: pa.Table) -> Iterator[tuple[str, str]]:
    """Yields the expressions without a finite number in most rows with complete sources, and the number of such rows.

    Args:
        spec: The description of the log.
        rows: Checked rows, with the columns of `payload_schema`.
    """
    for name, derived in spec.derived.items():
        if not isinstance(derived, Expression):
            continue
        formula = parse(derived.of)
        columns = {source: numbers_of(rows[source]) for source in formula.columns}
        known = np.logical_and.reduce([np.isfinite(numbers) for numbers in columns.values()])
        with np.errstate(all="ignore"):
            numbers = np.broadcast_to(evaluate(formula, columns, NumpyOperations()), len(rows)).astype(np.float32)
        absent = int((known & ~np.isfinite(numbers)).sum())
        if absent >= LEAST_WITHOUT and absent > MOST_WITHOUT * known.sum():
            yield (
                name,
                f"{derived.of} has no finite number in {absent / known.sum():.0%} of the rows whose columns have one, "
                "as after a division by 0 or an overflow, and is missing there; correct the formula",
            )


def lookups_without_matches(spec: LogSpec, rows: pa.Table) -> Iterator[tuple[str, str]]:
    """Yields the lookups whose maps never have the row's key, in the first rows with both.

    Args:
        spec: The description of the log.
        rows: Checked rows, with the columns of `payload_schema`.
    """
    for name, derived in spec.derived.items():
        if not isinstance(derived, Lookup):
            continue
        separator, weights = derived.separator.encode(), derived.weights.encode()
        columns = (rows[column].slice(0, _LOOKED_UP).to_pylist() for column in (derived.key, derived.map))
        pairs = [(key, entries) for key, entries in zip(*columns, strict=True) if key and entries]
        if len(pairs) < LEAST_WITHOUT or any(
            key == entry.rpartition(weights)[0] for key, entries in pairs for entry in entries.split(separator)
        ):
            continue
        key, entries = (_shown(value) for value in pairs[0])
        yield (
            name,
            f"no {derived.map} of {len(pairs):,} rows has the row's {derived.key}, as {excerpt(entries, 40)!r} lacks "
            f"{excerpt(key, 40)!r}, and it is missing: are the keys written alike?",
        )


def pretrained_without_keys(spec: LogSpec, rows: pa.Table) -> Iterator[tuple[str, str]]:
    """Yields the categories none of whose values has a pretrained vector.

    Args:
        spec: The description of the log.
        rows: Checked rows, with the columns of `payload_schema`.

    Raises:
        InputError: a table of vectors cannot be read.
    """
    for column, table in pretrained_tables(spec).items():
        values = rows[column].combine_chunks().drop_null().cast(pa.binary())
        keys = read_table(table, column in spec.whole_number_columns).keys
        if len(values) >= LEAST_WITHOUT and not pc.any(pc.is_in(values, value_set=keys)).as_py():
            yield (
                column,
                f"no value of {len(values):,} rows has a vector in {table.path}, as {_shown(values[0].as_py())!r} has "
                f"none and {_shown(keys[0].as_py())!r} has one: are the keys written alike?",
            )


def _texts(values: Values) -> pa.Array:
    """Returns a column's distinct values as strings; invalid UTF-8 is replaced."""
    texts = values.texts
    return (
        texts if pa.types.is_string(texts.type) else pa.array([_shown(text) for text in texts.to_pylist()], pa.string())
    )


def _shown(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _counts(values: Values) -> np.ndarray:
    """Returns the number of rows with each of a column's texts."""
    counts: np.ndarray = np.bincount(values.codes, minlength=len(values.texts) + 1)[1:]
    return counts


def _rows_of(values: Values, of_texts: np.ndarray) -> tuple[str, float] | None:
    """Returns the most frequent of the selected texts, and their share of the rows; None for few rows."""
    counts = _counts(values) * of_texts
    share = float(counts.sum()) / max(len(values.codes), 1)
    if share < LEAST_SHARE:
        return None
    return _shown(values.texts[int(np.argmax(counts))].as_py()), share
