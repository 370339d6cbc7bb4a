"""Finds categories that are written in another way in later rows, such as codes that become words in the test rows."""

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.column_values import plain_chunks
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.suspects import LEAST_ROWS, Suspect

LEAST_NEW = 0.2  # of the rows of a split, whose values are written as hardly any value of the training rows is
MOST_BEFORE = 0.01  # of the training rows, whose values are written so
MOST_VALUES = 2_000  # different ones that are looked at, the most frequent
_SHOWN = 40  # characters of a value that are printed
_NUMBERS = ((r"[+-]?(0|[1-9]\d*)", "whole"), (r"0\d+", "zeros"), (r"[+-]?\d*[.,]\d+([eE][+-]?\d+)?", "decimals"))


def changed_values(spec: LogSpec, rows: Mapping[str, pa.Table]) -> Iterator[Suspect]:
    """Yields the columns of categories whose values in a later split are written unlike those of the training rows.

    They may be words and codes, 007 and 7.0 and 7, or upper and lower case.

    Args:
        spec: The description of the log.
        rows: Rows of each split, by its name.
    """
    train = rows.get("train")
    if train is None:
        return
    for column in spec.feature_columns:
        if not spec.inputs[column].is_single:
            continue
        before = _by_writing(train[column])
        known = {writing for writing, rows_of in before.items() if _total(rows_of) > MOST_BEFORE * _total_of(before)}
        for split, table in rows.items():
            later = _by_writing(table[column]) if split != "train" and before else {}
            new = {value: count for writing in later.keys() - known for value, count in later[writing].items()}
            if len(new) < 2 or _total(new) < max(LEAST_ROWS, LEAST_NEW * _total_of(later)):
                continue  # of one value in all rows `constant_columns` tells
            of_train = {value: count for writing in known for value, count in before[writing].items()}
            yield Suspect(
                column,
                split,
                f"{_total(new) / _total_of(later):.0%} of its values, as {_most_frequent(new)}, are written unlike "
                f"those of the training rows, as {_most_frequent(of_train)}: a model does not know them; write them "
                "alike in the whole log and in requests",
            )


def _by_writing(column: pa.ChunkedArray) -> dict[str, dict[str, int]]:
    """Returns the number of rows with each of the most frequent values, by how the value is written."""
    counts = pc.value_counts(plain_chunks(column).combine_chunks().drop_null())
    counts = counts.take(np.argsort(-counts.field("counts").to_numpy(), kind="stable")[:MOST_VALUES])
    by_writing: dict[str, dict[str, int]] = {}
    for value, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        by_writing.setdefault(_writing(text), {})[text] = count
    return by_writing


def _writing(text: str) -> str:
    """Returns the notation of a value: the form of a number, or the letter case with digits and other signs."""
    number = next((name for pattern, name in _NUMBERS if re.fullmatch(pattern, text, re.ASCII)), "")
    if number:
        return number
    letters = "".join(filter(str.isalpha, text))
    case = "lower" if letters == letters.lower() else "upper" if letters == letters.upper() else "both"
    signs = {"digits" if sign.isdecimal() else "signs" for sign in text if not sign.isalpha()}
    return " ".join([case if letters else "", *sorted(signs)])


def _total(rows: Mapping[str, int]) -> int:
    return sum(rows.values())


def _total_of(writings: Mapping[str, Mapping[str, int]]) -> int:
    return sum(map(_total, writings.values()))


def _most_frequent(rows: Mapping[str, int]) -> str:
    return repr(excerpt(max(rows, key=lambda value: rows[value]), _SHOWN))
