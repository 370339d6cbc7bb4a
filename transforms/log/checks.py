"""Checks the rows of a log of any format: missing values, numbers, times, labels and weights."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.batches import LogBatch, RawBatch, Reject
from ctrpipe.transforms.log.bracketed import from_brackets
from ctrpipe.transforms.log.first_bytes import ENCODING_HINT
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.ordering import MISSING, OTHER_KIND, Keys, Ordering
from ctrpipe.transforms.log.spec import LogSpec, spellings
from ctrpipe.transforms.log.values import (
    TextNumbers,
    as_binary,
    as_floats,
    as_texts,
    check_aligned,
    check_list_of_numbers,
    check_times,
    check_utf8,
    check_utf8_of,
    only_after,
    shown,
    text_numbers,
    to_floats,
    to_labels,
    to_weights,
    whole_numbers,
    without_numbers,
    without_words,
)
from ctrpipe.transforms.log.vectors import to_vectors
from ctrpipe.transforms.log.weighted import to_weighted
from ctrpipe.transforms.log.words import USUAL_MISSING


class RowChecks:
    """Converts the columns of rows to checked values; malformed rows become rejects.

    Args:
        spec: The description of the log.
        labels: Whether rows must have labels, and weights if `data.weight` is set. If False, neither is read. In such
            rows to score, an infinite number is clipped to the largest float32, as a server does, because each row
            needs a prediction. In rows with labels, an infinite number makes the row malformed.
        features: Whether to read the features; if not, only labels and weights are read.
        ordering: How the values of `data.split.column` are compared (`by: time`); None: no comparison.
        kept: Columns to return unchanged, features or not.
    """

    def __init__(
        self,
        spec: LogSpec,
        labels: bool,
        features: bool = True,
        ordering: Ordering | None = None,
        kept: Sequence[str] = (),
    ):
        self._kept = tuple(kept)
        self._split_column = spec.data.split.column if labels else None
        self._ordering = ordering
        self._missing_groups = tuple(word.encode() for word in sorted(spellings(spec.data.missing_values or ())))
        self._line_or_row = spec.line_or_row
        self._numeric_columns = list(dict.fromkeys(spec.numeric_columns)) if features else []
        self._text_columns = list(dict.fromkeys(spec.text_columns)) if features else []
        by_column = spec.inputs if features else {}
        self._vectors = {name: feature for name, feature in by_column.items() if isinstance(feature, Vector)}
        self._label_columns = spec.label_columns if labels else []
        self._weight = spec.data.weight if labels else None
        targets = spec.target_columns if labels else []
        extra = [self._split_column] if self._split_column else []
        self.columns = list(
            dict.fromkeys([*self._numeric_columns, *self._text_columns, *self._vectors, *targets, *extra, *self._kept])
        )
        self._separators = spec.separators
        self._weights = spec.weight_separators
        self._within = spec.inner_separators
        self._bracketed = spec.bracketed_columns
        self._aligned = [feature.columns for feature in spec.features if features and feature.are_aligned]
        self._lists_of_weights = [made.aligned for made in spec.derived.values() if features and made.aligned]
        decimal = spec.data.decimal
        self._infinite = not labels
        self._written = text_numbers(spec, self._infinite)
        self._times = spec.time_formats
        self._whole = set(spec.whole_number_columns)
        words = USUAL_MISSING if spec.data.missing_values is None else sorted(spellings(spec.data.missing_values))
        self._label_written = TextNumbers(tuple(word.encode() for word in words), decimal)
        self._missing_numbers = spec.missing_numbers
        self._label_rules = {label.column: label for label in spec.data.labels.values()}
        columns = spec.data.columns_by_task
        self._after = {label.column: columns[label.after] for label in spec.data.labels.values() if label.after}

    def check(self, raw: RawBatch) -> LogBatch:
        """Returns the good rows, converted, and all malformed ones.

        Args:
            raw: Rows with the columns `self.columns`.
        """
        rows, faults, keys = self._convert(raw)
        rejects = [
            Reject(int(raw.lines[row]), faults[row], raw.text(row) if raw.text else _values_of(raw.columns, row))
            for row in sorted(faults)
        ]
        rejects = sorted([*raw.rejects, *rejects], key=lambda reject: reject.line)
        kept = self._kept_columns(raw, sorted(faults)) if self._kept else None
        batch = LogBatch(raw.path, rows, np.delete(raw.lines, list(faults)), rejects, keys, kept)
        lines = len(raw.lines) + len(raw.rejects)
        if not batch.rows.num_rows == len(batch.lines) == lines - len(batch.rejects):
            counts = f"{batch.rows.num_rows} rows and {len(batch.rejects)} malformed ones"
            raise RuntimeError(f"{batch.path}: {counts} of {lines} lines")
        return batch

    def _convert(self, raw: RawBatch) -> tuple[pa.RecordBatch, dict[int, str], Keys | None]:
        """Returns the good rows, the reasons of malformed rows by row, and the split keys of the good rows."""
        columns: dict[str, pa.Array] = {}
        faults = dict(raw.faults)
        for name in self._numeric_columns:
            if pa.types.is_binary(raw.columns[name].type):
                read = to_floats(raw.columns[name], name, faults, self._written[name])
                columns[name] = without_numbers(read, self._missing_numbers)
            else:
                given = (self._written[name].infinite, self._missing_numbers)
                columns[name] = as_floats(raw.columns[name], name, faults, *given)
        for name in self._text_columns:
            columns[name] = self._plain_texts(raw.columns[name], name, faults)
            if raw.not_utf8 is None:
                check_utf8(raw.columns[name], name, faults)
            else:
                check_utf8_of(raw.not_utf8, raw.columns[name], name, faults, ENCODING_HINT)
            if name in self._times:
                check_times(columns[name], name, faults, self._times[name])
        for name, feature in self._vectors.items():
            columns[name] = to_vectors(raw.columns[name], name, faults, feature, self._written[name])
        for aligned in self._aligned:
            check_aligned({name: columns[name] for name in aligned}, self._separators[aligned[0]], faults)
        for named in self._lists_of_weights:
            between = self._separators[named[0]]
            check_aligned({name: columns[name] for name in named}, between, faults)
            check_list_of_numbers(columns[named[-1]], named[-1], between, faults)
        for name in self._label_columns:
            rule, several = self._label_rules[name], len(self._label_rules) > 1
            columns[name] = to_labels(raw.columns[name], name, faults, rule, self._label_written, several)
        for name, before in self._after.items() if self._label_columns else ():
            columns[name] = only_after(columns[name], columns[before], name, before, faults)
        if len(self._label_rules) > 1 and self._label_columns:
            _check_one_known({name: columns[name] for name in self._label_columns}, faults)
        if self._weight:
            columns[self._weight] = to_weights(raw.columns[self._weight], self._weight, faults, self._label_written)
        keys = self._split_keys(raw, faults) if self._split_column else None
        bad = sorted(faults)
        return _without_rows(pa.RecordBatch.from_pydict(columns), bad), faults, _without(keys, bad)

    def _kept_columns(self, raw: RawBatch, bad: list[int]) -> pa.RecordBatch:
        """Returns the `kept` columns as text, without the bad rows."""
        texts = {}
        for name in self._kept:
            values = raw.columns[name]
            if pa.types.is_nested(values.type):
                raise InputError(
                    f"{raw.path}: --keep {name}: a column of type {values.type} has no value per row to carry along; "
                    "leave it out, and join the scores with the log by file and line"
                )
            texts[name] = as_texts(as_binary(values, name, raw.path))
        return _without_rows(pa.RecordBatch.from_pydict(texts), bad)

    def _split_keys(self, raw: RawBatch, faults: dict[int, str]) -> Keys:
        """Returns the keys of the split, and adds rows without a readable time to `faults`.

        Raises:
            InputError: a value's kind differs from the column's first values.
        """
        name = str(self._split_column)
        values = raw.columns[name]
        if not pa.types.is_binary(values.type):  # numbers of Parquet
            values = as_binary(values, name, raw.path)
        if self._ordering is None:
            return without_words(whole_numbers(values), self._missing_groups)
        keys = self._ordering.compare(values)
        for row in np.flatnonzero(keys.faults).tolist():
            if row in faults:
                continue
            text = shown(values[row])
            if keys.faults[row] == OTHER_KIND:
                raise InputError(
                    f"{raw.path}: {self._line_or_row} {raw.lines[row]}: {name}: {text} is among "
                    f"{self._ordering.plural}, and a column to split by has one kind of values; write them alike, or "
                    "set data.split.compare_as"
                )
            wrong = "there is no time" if keys.faults[row] == MISSING else f"{text} is no time"
            faults[row] = f"{name}: {wrong} to split by"
        return keys.keys

    def _plain_texts(self, values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
        """Normalises missing values and whole numbers, as the served graph does (`KindTransform.plain`)."""
        if name in self._written:
            values = without_words(values, self._written[name].missing)
        if name in self._bracketed:
            values = from_brackets(values, self._separators[name], name, faults)
        if name in self._weights:
            between = (self._separators[name], self._weights[name])
            return to_weighted(values, name, faults, between, name in self._whole, self._infinite)
        if name not in self._whole:
            return values
        return whole_numbers(values, self._separators.get(name), self._within.get(name))


def _check_one_known(labels: Mapping[str, pa.Array], faults: dict[int, str]) -> None:
    """Adds the rows without any label to the faults."""
    known = np.any([values.is_valid().to_numpy(zero_copy_only=False) for values in labels.values()], axis=0)
    for row in np.flatnonzero(~known).tolist():
        faults.setdefault(row, f"{', '.join(labels)}: one label at least must be known, found none")


def _without(keys: Keys | None, bad: list[int]) -> Keys | None:
    """Returns the keys without the given rows."""
    if keys is None or not bad:
        return keys
    if isinstance(keys, np.ndarray):
        return np.delete(keys, bad)
    return keys.take(pa.array(np.delete(np.arange(len(keys)), bad)))


def _without_rows(rows: pa.RecordBatch, bad: list[int]) -> pa.RecordBatch:
    if not bad:
        return rows
    if len(bad) > rows.num_rows // 150:
        keep = np.ones(rows.num_rows, bool)
        keep[bad] = False
        return rows.filter(pa.array(keep))
    # Faster than a filter if few rows are removed.
    starts, ends = [0, *(row + 1 for row in bad)], [*bad, rows.num_rows]
    good = [rows.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]
    return pa.Table.from_batches(good).combine_chunks().to_batches()[0]


def _values_of(columns: Mapping[str, pa.Array], row: int) -> str:
    """Returns the values of a row, separated by tabs."""
    values = (column[row].as_py() for column in columns.values())
    texts = (value if isinstance(value, bytes) else b"" if value is None else str(value).encode() for value in values)
    return "\t".join(text.decode("utf-8", "backslashreplace") for text in texts)
