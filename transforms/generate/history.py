"""A log of impressions with histories, whose clicks depend on the earlier items of the candidate's category alone."""

import dataclasses
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from common.errors import InputError
from common.files import atomic_path
from transforms.generate.blocks import BLOCK_ROWS
from transforms.generate.click_model import sigmoid, solve_bias
from transforms.generate.generator import TRUTH_SCHEMA, GenerateResult, Score, check_output, check_whole
from transforms.generate.writer import open_log

CATEGORIES = 200
ITEMS = 800  # as many in each category, half of them liked
LENGTH = 24  # of the longest history
MATCHED = 3  # items of the candidate's category in a history, at most
COLUMNS = ("click", "item", "category", "item_history", "category_history")
_OF_CATEGORY = ITEMS // CATEGORIES
_CALIBRATION = 1 << 32  # the spawn key of the rows by which the bias is found


@dataclasses.dataclass(frozen=True)
class HistoryClickModel:
    """The parameters of the model that draws the clicks.

    `logit = bias + attention · mean of s_j over the items j of the history that have the candidate's category`, where s
    is 1 for a liked item and -1 for another one; a mean of none is 0. For every item of the candidate's category the
    history has one of another category with the opposite s, and the rest is drawn by chance: how often an item, a
    category or a liked item is in a history says nothing of the click. A model that compares each item with the
    candidate finds it; one that sums the history first has to tell all categories apart in the sum.

    Args:
        attention: Weight of the mean, in logits; 0 for clicks by chance.
        base_rate: Expected click-through rate.

    Raises:
        InputError: a value is out of range.
    """

    attention: float = 4.0
    base_rate: float = 0.3

    def __post_init__(self) -> None:
        if not 0.0 <= self.attention < np.inf:
            raise InputError(f"attention should be a non-negative number. Received: {self.attention!r}")
        if not 0.0 < self.base_rate < 1.0:
            raise InputError(f"base_rate should lie between 0 and 1. Received: {self.base_rate!r}")


@dataclasses.dataclass(frozen=True)
class HistoryBlock:
    """Consecutive rows.

    Attributes:
        item: int64 [N], the candidates.
        history: int64 [N, LENGTH], items in order with -1 behind them.
        preference: float64 [N], the mean of s over the items of the candidate's category.
        uniform: float64 [N] in [0, 1), from which the labels are drawn.
    """

    item: np.ndarray
    history: np.ndarray
    preference: np.ndarray
    uniform: np.ndarray


def category_of(items: np.ndarray) -> np.ndarray:
    """Returns the categories of items, int64."""
    return items // _OF_CATEGORY


def liking_of(items: np.ndarray) -> np.ndarray:
    """Returns 1 for liked items and -1 for others, int64."""
    return 1 - 2 * (items % 2)


def draw_histories(seed: int, block: int) -> HistoryBlock:
    """Returns the BLOCK_ROWS rows of a block of a log."""
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(block,)))

    def uniform(*shape: int) -> np.ndarray:
        # Raw bits, because their stream is the same in all numpy versions.
        return (bits.random_raw(int(np.prod(shape))) >> np.uint64(11)).reshape(shape) * 2.0**-53

    def whole(count: int, *shape: int) -> np.ndarray:
        return (uniform(*shape) * count).astype(np.int64)

    item = whole(ITEMS, BLOCK_ROWS)
    length = whole(LENGTH + 1, BLOCK_ROWS)
    matched = np.minimum(1 + whole(MATCHED, BLOCK_ROWS), length // 2)
    place = np.arange(LENGTH)[None, :]
    is_matched = place < matched[:, None]
    is_opposite = ~is_matched & (place < 2 * matched[:, None])
    liked = whole(2, BLOCK_ROWS, LENGTH)
    # The one at place n + matched is the opposite of the one at place n.
    opposite = 1 - np.take_along_axis(liked, np.maximum(place - matched[:, None], 0), axis=1)
    liked = np.where(is_opposite, opposite, liked)
    own = category_of(item)[:, None]
    category = np.where(is_matched, own, (own + 1 + whole(CATEGORIES - 1, BLOCK_ROWS, LENGTH)) % CATEGORIES)
    history = category * _OF_CATEGORY + 2 * whole(_OF_CATEGORY // 2, BLOCK_ROWS, LENGTH) + (1 - liked)
    sums = np.where(is_matched, liking_of(history), 0).sum(axis=1)
    preference = sums / np.maximum(matched, 1)
    present = place < length[:, None]
    shuffled = np.argsort(np.where(present, uniform(BLOCK_ROWS, LENGTH), 2.0), axis=1, kind="stable")
    history = np.take_along_axis(np.where(present, history, -1), shuffled, axis=1)
    return HistoryBlock(item, history, preference, uniform(BLOCK_ROWS))


def generate_history(
    rows: int, seed: int, output: pathlib.Path, click_model: HistoryClickModel | None = None
) -> GenerateResult:
    """Writes a CSV log with the header COLUMNS, histories with `|` between their values, and its true probabilities.

    The same arguments give the same bytes, and the first N rows of a longer log are the log of N rows.

    Args:
        rows: Number of rows, at least 1.
        seed: Non-negative seed of the rows.
        output: The file to write, replaced if it exists, in an existing folder; `.gz` compresses.
        click_model: The parameters of the click model; None for the defaults.

    Raises:
        InputError: an argument is invalid, or the file cannot be written.
    """
    check_whole(rows=(rows, 1), seed=(seed, 0))
    check_output(output)
    model = click_model or HistoryClickModel()
    bias = solve_bias(model.attention * draw_histories(0, _CALIBRATION - 1).preference, model.base_rate)
    truth_path = output.with_name(output.name + ".truth.parquet")
    score = Score()
    try:
        with (
            atomic_path(output) as log_part,
            atomic_path(truth_path) as truth_part,
            open_log(log_part, output.suffix == ".gz") as log,
            pyarrow.parquet.ParquetWriter(truth_part, TRUTH_SCHEMA) as truth,
        ):
            log.write(",".join(COLUMNS).encode() + b"\n")
            options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
            for start in range(0, rows, BLOCK_ROWS):
                block = draw_histories(seed, start // BLOCK_ROWS)
                size = min(BLOCK_ROWS, rows - start)
                probabilities = sigmoid(bias + model.attention * block.preference)[:size]
                labels = (block.uniform[:size] < probabilities).astype(np.int8)
                pyarrow.csv.write_csv(_table(block, labels), log, write_options=options)
                lines = np.arange(start, start + size) + 2
                truth.write_table(pa.table([lines, probabilities], schema=TRUTH_SCHEMA))
                score.add(labels, probabilities)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror or error}") from error
    return GenerateResult(rows, score.positives, score.auc(), score.loss / rows, output, truth_path)


def _table(block: HistoryBlock, labels: np.ndarray) -> pa.Table:
    item, history = block.item[: len(labels)], block.history[: len(labels)]
    names = {"item": item, "category": category_of(item)}
    lists = {"item_history": history, "category_history": category_of(history)}
    columns = {name: _texts(name, values) for name, values in names.items()}
    present = history >= 0
    offsets = pa.array(np.append(0, np.cumsum(present.sum(axis=1))).astype(np.int32))
    for name, values in lists.items():
        texts = _texts(name.removesuffix("_history"), values[present])
        columns[name] = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), "|")
    return pa.table({"click": pa.array(labels), **columns}).select(list(COLUMNS))


def _texts(name: str, values: np.ndarray) -> pa.Array:
    prefix = pa.scalar(name[0])
    return pc.binary_join_element_wise(prefix, pa.array(values).cast(pa.string()), "")
