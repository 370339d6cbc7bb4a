"""Finds columns that are not useful features: they reveal the label, number the rows, or hold the weight.

A column reveals the label if it is known only after the click, such as the page that a click led to. A model with it is
almost perfect on the log and useless in production, where a request lacks the column.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from ctrpipe.common.metrics import auc
from ctrpipe.transforms.log.column_values import Values, numbers_of, plain_chunks
from ctrpipe.transforms.log.keyed_leaks import OWN_RATES, keyed_leaks
from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.kinds.multivalent import weighted_pair
from ctrpipe.transforms.log.late_ends import rows_without_clicks
from ctrpipe.transforms.log.own_items import held_items
from ctrpipe.transforms.log.own_rates import LEAST_KEYS, are_own_rates
from ctrpipe.transforms.log.payload import payload_rows, take_rows
from ctrpipe.transforms.log.shown_places import clicks_fall_with_place
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.strange_values import (
    alike_categories,
    composed_values,
    expressions_without_numbers,
    lookups_without_matches,
    pretrained_without_keys,
    rounded_ids,
    words_for_missing,
)

ALONE = "its values alone give the label away"  # how the strongest finding begins
MOST_AUC = 0.95  # of a column alone: those of real logs are far below, and a label with 5% of noise is not
_FEW_RATES = 0.05  # of the rows, of a label that is 0 or 1 in the others
LEAST_ROWS = 30  # of the rarer class, before anything is said of a column and the label
LEAST_SHARE = 0.05  # of the rarer class: a value that is less frequent cannot carry a model
CHANCE = 1e-6  # a finding is less likely by chance
LEAST_IDS = 500  # rows that all have another value, before a column is called an id
LEAST_PART = 0.01  # of the scale, that 99% of the numbers take: less leaves no difference between them
FRACTION_DIGITS = 8  # of a number with decimals: 32 bits do not hold all of them
LEAST_FRACTIONS = 0.1  # of a column's different values, that are such numbers
MOST_WEIGHT = 0.5  # of all rows, that one row may have
_SHOWN = 40  # characters of a value that are printed
_READ_ROWS = 1 << 12
_VARIANCE_OF_VALUES = 3.0  # of the clicks of a number, before it counts as a rate of a key: keys may share it
_MOST_LISTS = 2000  # different lists that are looked at for weights
_FRACTION = r"^[+-]?\d*\.\d+(?:[eE][+-]?\d+)?$"
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A finding about a column in the rows of a split."""

    column: str
    split: str
    text: str


def suspects(spec: LogSpec, rows: pa.Table) -> Iterator[Suspect]:
    """Yields the findings about all feature columns in training rows, at most one of each kind per column.

    Args:
        spec: The description of the log.
        rows: Checked rows, with the columns of `payload_schema`.
    """
    labels = {task: numbers_of(rows[spec.data.columns_by_task[task]]) for task in spec.data.click_tasks}
    weights = numbers_of(rows[spec.data.weight]) if spec.data.weight else None
    if weights is not None and (text := _heavy(weights)):
        yield Suspect(str(spec.data.weight), "train", text)
    several = len(labels) > 1
    leaks = set()
    # Nearly every row has another vector, and none of them is an id.
    columns = {name: Values.of(rows[name]) for name in spec.feature_columns if name not in spec.vector_lengths}
    for column, values in columns.items():
        if not spec.inputs[column].is_position:
            places = (clicks_fall_with_place(column, values.numbers, label) for label in labels.values())
            if text := next(filter(None, places), ""):
                yield Suspect(column, "train", text)
        if weights is not None and _is_same(values.numbers, weights):
            yield Suspect(column, "train", f"its values are those of the weight, {spec.data.weight}")
        for task, label in labels.items():
            if text := _gives_away(values, label):
                yield _leak(column, text, task if several else None)
                leaks.add(column)
                break
        feature = spec.inputs[column]
        if (feature.is_single or feature.is_dense) and _numbers_rows(values):
            text = f"another value in each of {len(values.codes):,} rows, like an id of the row: it teaches nothing"
            yield Suspect(column, "train", text)
        if feature.is_single and (text := _fractions(values)):
            yield Suspect(column, "train", text)
        if feature.is_single and feature.has_vocabulary(column):
            for finds in (alike_categories, rounded_ids, words_for_missing, composed_values):
                if text := finds(values):
                    yield Suspect(column, "train", text)
        if feature.scale and (text := _stretched(values.numbers, feature.scale)):
            yield Suspect(column, "train", text)
        if text := _holds_own_item(feature, column, rows, labels):
            yield Suspect(column, "train", text)
        if feature.list_separator and not feature.weight_separator:
            if pair := _weighted_pair(rows[column], feature.list_separator):
                text = f"its elements seem to have weights, as {pair!r}: each pair counts as a value of its own"
                sign = ":" if ":" in pair else "="
                yield Suspect(column, "train", f"{text}; set weights: '{sign}' of kind: multivalent, or remove them")
    for finds_all in (expressions_without_numbers, lookups_without_matches, pretrained_without_keys):
        for name, text in finds_all(spec, rows):
            yield Suspect(name, "train", text)
    for task, column in spec.data.columns_by_task.items():
        if task not in spec.data.click_tasks and (text := _strange_numbers(numbers_of(rows[column]))):
            yield Suspect(column, "train", text)
    if weights is None:
        for task, label in labels.items():
            if text := _rare_rates(label):
                yield Suspect(spec.data.columns_by_task[task], "train", text)
    keys = [name for name in columns if spec.inputs[name].is_single]
    for task, label in labels.items():
        rest = {name: values for name, values in columns.items() if name not in leaks}
        for column, text in keyed_leaks(rest, [name for name in keys if name in rest], label):
            yield _leak(column, text, task if several else None)
            leaks.add(column)


def _leak(column: str, text: str, task: str | None) -> Suspect:
    """Returns the finding that a column reveals the label of a task; `task` is None for the only task."""
    of_task = "" if task is None else f" (label {task})"
    return Suspect(column, "train", f"{text}{of_task}; is it known before the click?")


def _holds_own_item(feature: Kind, column: str, rows: pa.Table, labels: Mapping[str, np.ndarray]) -> str:
    """Returns how a history reveals a label by including its own row's item; "" if it does not."""
    owner = feature.owner_of(column)
    separator = feature.list_separator
    if not separator or owner not in rows.column_names or owner == column:
        return ""
    histories, items = rows[column].combine_chunks(), rows[owner].combine_chunks()
    texts = (own_item_gives_away(histories, items, separator, label, owner) for label in labels.values())
    return next(filter(None, texts), "")


def own_item_gives_away(histories: pa.Array, items: pa.Array, separator: str, label: np.ndarray, owner: str) -> str:
    """Returns how histories reveal a label by including their own row's item; "" if they do not.

    Args:
        histories, items, separator: See `held_items`.
        label: The label of each row, 0 to 1.
        owner: The column of the items.
    """
    for place, held in held_items(histories, items, separator).items():
        auc_alone = _auc_of_order(held.astype(np.float64), np.isfinite(label), label[np.isfinite(label)] > 0.5)
        is_one_class = min(held.sum(), (~held).sum()) < LEAST_ROWS
        if not is_one_class and auc_alone > MOST_AUC:
            return (
                f"{owner} of the same row is its {place} in the rows with a click, which gives the label away (AUC "
                f"{auc_alone:.4f}); end each history before its impression"
            )
    return ""


def late_ends(spec: LogSpec, rows: Mapping[str, pa.Table]) -> Iterator[Suspect]:
    """Yields the labels without a click in the last rows of a split, unless chance explains it.

    Args:
        spec: The description of the log.
        rows: Rows of each split in the order of the log, by its name.
    """
    for split, table in rows.items():
        for task in spec.data.click_tasks:
            column = spec.data.columns_by_task[task]
            if count := rows_without_clicks(numbers_of(table[column])):
                yield Suspect(
                    column,
                    split,
                    f"0 in the last {count:,} of {table.num_rows:,} rows, which is not chance: their clicks may not "
                    "have arrived yet; leave out rows that are younger than a click may be late",
                )


def gives_away(values: pa.ChunkedArray, label: np.ndarray) -> str:
    """Returns how a column's values reveal a label; "" if they do not.

    Args:
        values: The column: texts, or floating-point numbers.
        label: The label of each row, 0 to 1.
    """
    return _gives_away(Values.of(values), label)


def _weighted_pair(column: pa.ChunkedArray, separator: str) -> str | None:
    """Returns an element such as `sports:0.25` if nearly all elements of a list column are a value and a number."""
    values = pc.unique(plain_chunks(column.drop_null())).cast(pa.binary()).to_pylist()[:_MOST_LISTS]
    texts = [value.decode("utf-8", "replace") for value in values]
    return weighted_pair({element for text in texts for element in text.split(separator) if element})


def constant_columns(spec: LogSpec, rows: Mapping[str, pa.Table]) -> Iterator[Suspect]:
    """Yields the columns with at most one value in a validation or test split but several in training, unless by
    chance.

    Args:
        spec: The description of the log.
        rows: Rows of each split, by its name.
    """
    if "train" not in rows or not rows["train"].num_rows:
        return
    for column in spec.feature_columns:
        if spec.inputs[column].time_format or column in spec.vector_lengths:
            continue  # the last rows of a log are of the last hour
        train = rows["train"][column]
        for split, table in rows.items():
            if split == "train" or not table.num_rows:
                continue
            distinct = pc.unique(table[column])
            if len(distinct) != 1:
                continue
            is_missing = not distinct[0].is_valid
            same = pc.is_null(train) if is_missing else pc.equal(plain_chunks(train), distinct[0])
            alike = pc.sum(same).as_py() or 0
            share = (alike + 1) / (len(train) + 2)
            if share < 1 - 1 / (len(train) + 2) and share**table.num_rows < CHANCE:
                if is_missing:
                    text = f"missing in all rows, as in {alike / len(train):.0%} of the training rows"
                else:
                    of_train = f"which {alike / len(train):.0%} of the training rows have"
                    text = f"one value in all rows, {_shown(distinct[0])}, {of_train}"
                yield Suspect(column, split, text)


def spread_rows(files: Sequence[pathlib.Path], most: int) -> pa.Table:
    """Returns about `most` rows of payload files at most, in blocks that are spread evenly over the files."""
    total = payload_rows(files)
    every = max(total / max(most, 1), 1.0)
    tables: list[pa.Table] = []
    before = 0
    for file in files:
        rows = payload_rows([file])
        blocks = [np.zeros(0, np.int64)]
        for first in range(0, rows, _READ_ROWS):
            block, last = ((before + first - back) / _READ_ROWS / every for back in (0, _READ_ROWS))
            if math.floor(block) != math.floor(last):  # so the first block is always read
                blocks.append(np.arange(first, min(first + _READ_ROWS, rows)))
        tables += take_rows(file, np.concatenate(blocks))
        before += rows
    return pa.concat_tables([pa.parquet.read_schema(files[0]).empty_table(), *tables])


# Findings -------------------------------------------------------------------------------------------------------------


def _is_same(numbers: np.ndarray | None, weights: np.ndarray) -> bool:
    """Returns whether numbers equal the weight, if the weight varies."""
    if numbers is None or len(weights) < LEAST_ROWS or np.ptp(weights) == 0:
        return False
    return bool(np.array_equal(numbers.astype(np.float32), weights.astype(np.float32)))


def _heavy(weights: np.ndarray) -> str:
    """Returns a warning if one row has most of the total weight; "" if not."""
    total, largest = float(np.nansum(weights)), float(np.nanmax(weights, initial=0))
    if len(weights) < LEAST_IDS or largest <= MOST_WEIGHT * total:
        return ""
    return (
        f"one of {len(weights):,} rows has {largest / total:.0%} of their weight, {largest:g}: it dominates the "
        "model; correct it, or cap the weights"
    )


def _numbers_rows(values: Values) -> bool:
    """Returns whether each row has a different value: distinct texts, or whole numbers that count the rows."""
    rows = len(values.codes)
    if rows < LEAST_IDS or not values.codes.all() and not values.is_binned:
        return False
    if not values.is_binned:
        return len(values.texts) == rows
    numbers = values.numbers
    assert numbers is not None
    if not np.isfinite(numbers).all() or (numbers % 1).any():
        return False
    return len(np.unique(numbers)) == rows and bool(np.ptp(numbers) < 2 * rows)


def _fractions(values: Values) -> str:
    """Returns a warning if a text column has numbers with so many digits that programs write them differently; "" if
    not.

    1/3 is 0.33333334 in 32 bits and 0.3333333333333333 in 64: two categories.
    """
    if not (pa.types.is_binary(values.texts.type) or pa.types.is_string(values.texts.type)) or not len(values.texts):
        return ""
    long = values.texts.filter(pc.match_substring_regex(values.texts, _FRACTION))
    shown = next((text for text in long.slice(0, _MOST_LISTS).to_pylist() if _digits(text) >= FRACTION_DIGITS), None)
    if shown is None or len(long) < LEAST_FRACTIONS * len(values.texts):
        return ""
    text = shown.decode() if isinstance(shown, bytes) else shown
    text_before = f"numbers with many digits, as {text}, are categories, and"
    short = str(np.float32(text))
    if short != text and _digits(short) < FRACTION_DIGITS and float(np.float32(short)) == float(text):
        text_before += f" {short}, the same number in 32 bits, is another one"
    else:
        text_before += " in 32 and in 64 bits the same number has other digits, which makes it another one"
    return f"{text_before}; make the column numeric, or round it in the log and in requests"


def _digits(text: bytes | str) -> int:
    """Returns the number of significant digits of a number."""
    written = (text.decode() if isinstance(text, bytes) else text).lower().partition("e")[0]
    return len(written.lstrip("+-0.").replace(".", ""))


def _stretched(numbers: np.ndarray | None, scale: str) -> str:
    """Returns a warning if a few extreme numbers stretch a column's scale so far that all others look alike; "" if not.

    Args:
        numbers: The column's values, NaN for a missing one.
        scale: What the transform divides by: "standard deviation" or "range".
    """
    known = np.empty(0) if numbers is None else numbers[np.isfinite(numbers)]
    if len(known) < LEAST_IDS:
        return ""
    low, high = np.quantile(known, [0.005, 0.995])
    size = float(np.std(known) if scale == "standard deviation" else np.ptp(known))
    if not 0 < high - low < LEAST_PART * size:
        return ""
    end = max(known.min(), known.max(), key=lambda value: abs(value - (low + high) / 2))
    return (
        f"its {scale} is {size:g}, but 99% of its values lie between {low:g} and {high:g}: extreme values such as "
        f"{end:g} make all others alike; name them in missing_values, or take quantile_bucketize or quantile_normalize"
    )


def _rare_rates(label: np.ndarray) -> str:
    """Returns a warning about a label that is between 0 and 1 in a few rows only; "" if not."""
    known = label[np.isfinite(label)]
    rates = known[(known > 0) & (known < 1)]
    if not 0 < len(rates) < _FEW_RATES * len(known):
        return ""
    return (
        f"the label is a rate, such as {rates[0]:g}, in {len(rates) / len(known):.2%} of the rows, and 0 or 1 in the "
        "others: correct these labels, or name the impressions of each row in data.weight"
    )


def _strange_numbers(label: np.ndarray) -> str:
    """Returns a warning about a label of numbers that is one number, or has a few extreme ones; "" if not."""
    known = label[np.isfinite(label)]
    if len(known) < LEAST_IDS:
        return ""
    if known.min() == known.max():
        return f"the label is {known[0]:g} in all of {len(known):,} rows that have one: it teaches nothing"
    if not _stretched(label, "standard deviation"):
        return ""
    low, high = np.quantile(known, [0.005, 0.995])
    end = max(known.min(), known.max(), key=lambda value: abs(value - (low + high) / 2))
    return (
        f"99% of the label's numbers lie between {low:g} and {high:g}, and one is {end:g}: a few rows decide a mean; "
        "name such numbers in missing_values, or set predicts: median"
    )


def _gives_away(values: Values, label: np.ndarray) -> str:
    """Returns how a column reveals a label; "" if it does not. Rows without a label are ignored."""
    known = np.isfinite(label)
    codes, clicks = values.codes[known], label[known] > 0.5
    rare = clicks if clicks.mean() <= 0.5 else ~clicks  # the rarer class
    if len(clicks) == 0 or rare.sum() < LEAST_ROWS:
        return ""
    alone = max(_auc_alone(codes, clicks), _auc_of_order(values.numbers, known, clicks))
    if alone > MOST_AUC:
        return f"{ALONE}, with an AUC of {alone:.4f}"
    if values.numbers is not None and _are_own_rates(values.numbers[known], clicks):
        return OWN_RATES
    rows, of_rare = np.bincount(codes), np.bincount(codes, rare)
    least = max(LEAST_ROWS, LEAST_SHARE * rare.sum())
    tried = len(rows) + 1
    is_pure = (rows == of_rare) & (rows >= least) & (rare.mean() ** rows * tried < CHANCE)
    share = "of the rows with a click" if rare is clicks else "of the rows without a click"
    if is_pure.any():
        code = int(np.argmax(np.where(is_pure, rows, 0)))
        value = "a bin of its values" if values.is_binned else _shown(values.texts[code - 1])
        value = value if code else "a missing value"
        return f"{value} is in {rows[code] / rare.sum():.0%} {share} and in no other: it gives the label away"
    present = codes > 0
    if not present.all() and present.sum() >= least and rare[present].all():
        return f"it has a value in {present.sum() / rare.sum():.0%} {share} and in no other: it gives the label away"
    return ""


def _are_own_rates(numbers: np.ndarray, clicks: np.ndarray) -> bool:
    """Returns whether numbers are the rows' own click rates by a key. Rows with equal numbers form a key."""
    finite = np.isfinite(numbers)
    values, keys = np.unique(numbers[finite], return_inverse=True)
    return len(values) >= LEAST_KEYS and are_own_rates(numbers[finite], keys, clicks[finite], _VARIANCE_OF_VALUES)


def _auc_of_order(numbers: np.ndarray | None, known: np.ndarray, clicks: np.ndarray) -> float:
    """Returns the AUC of a column's unbinned numbers as scores, in either direction; 0 if a number is missing."""
    if numbers is None or not np.isfinite(numbers[known]).all():
        return 0.0
    value = auc(clicks, numbers[known]) or 0.5
    return float(max(value, 1 - value))


def _auc_alone(codes: np.ndarray, clicks: np.ndarray) -> float:
    """Returns the AUC of each value's click rate, learned from the other half of the rows.

    A value that is absent from the other half gets its base rate. A hash of the row number forms the halves, so both
    span the log.
    """
    aucs = []
    half = (np.arange(len(codes), dtype=np.uint64) * _MIXER >> np.uint64(40)) % np.uint64(2) == 0
    for learnt in (half, ~half):
        rate = clicks[learnt].mean()
        size = int(codes.max()) + 1
        rows, of_clicks = np.bincount(codes[learnt], minlength=size), np.bincount(codes[learnt], clicks[learnt], size)
        value = auc(clicks[~learnt], ((of_clicks + rate) / (rows + 1))[codes[~learnt]])
        aucs.append(0.5 if value is None else value)
    return float(min(aucs))


def _shown(value: pa.Scalar) -> str:
    plain_value = value.as_py()
    if isinstance(plain_value, bytes):
        return repr(plain_value.decode("utf-8", "replace")[:_SHOWN])
    return f"{plain_value:g}" if isinstance(plain_value, float) else str(plain_value)
