"""Generates a log whose clicks depend only on the history item of the candidate's category."""

import dataclasses
import pathlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path
from ctrpipe.transforms.generate.blocks import BLOCK_ROWS
from ctrpipe.transforms.generate.click_model import sigmoid, solve_bias
from ctrpipe.transforms.generate.generator import TRUTH_SCHEMA, GenerateResult, Score, check_output, check_whole
from ctrpipe.transforms.generate.writer import open_log

LIKED = 2  # liked items per category
ITEMS = 2 * LIKED
COLUMNS = ("click", "item", "category", "item_history", "category_history")
_CALIBRATION = 1 << 32  # spawn key of the rows that determine the bias


@dataclasses.dataclass(frozen=True)
class HistoryClickModel:
    """Parameters of the model that draws the clicks.

    `logit = bias + attention · s`. Exactly one item of the history has the candidate's category; s is 1 if this item is
    liked, and -1 if not. The item differs from the candidate, because item similarity models exclude the candidate from
    its own history. A second history item, of another category, has the opposite s. The other items are random, each
    occurring `repeats` times. The frequency of an item, a category or liked items in the history is therefore
    uninformative about the click.

    A model that compares each history item with the candidate can learn s. A model that sums the history first must
    separate all categories in the sum. An embedding with fewer dimensions than categories cannot represent this sum,
    even less with longer histories and more repeats: the noise from the other items grows with the square root of
    length times repeats.

    Args:
        attention: Weight of s, in logits; 0 for random clicks.
        base_rate: Expected click-through rate.
        length: Maximum history length, at least 4. Lengths are uniform from half of it up to it.
        categories: Number of categories with ITEMS items each, at least 2.
        repeats: Number of occurrences of each item in a history, except those two, at least 1.

    Raises:
        InputError: a value is out of range.
    """

    attention: float = 4.0
    base_rate: float = 0.3
    length: int = 24
    categories: int = 200
    repeats: int = 1

    def __post_init__(self) -> None:
        if not 0.0 <= self.attention < np.inf:
            raise InputError(f"attention should be a non-negative number. Received: {self.attention!r}")
        if not 0.0 < self.base_rate < 1.0:
            raise InputError(f"base_rate should lie between 0 and 1. Received: {self.base_rate!r}")
        check_whole(length=(self.length, 4), categories=(self.categories, 2), repeats=(self.repeats, 1))

    def bias(self) -> float:
        """Returns the bias that produces the base rate, determined on rows that no log contains."""
        *_, preference, _ = _draw_block(0, _CALIBRATION - 1, self)
        return solve_bias(self.attention * preference, self.base_rate)


@dataclasses.dataclass(frozen=True)
class HistoryRows:
    """Consecutive rows.

    Attributes:
        item: int64 [N], candidates.
        history: int64 [N, length], items in order, padded with -1 at the end.
        labels: int8 [N].
        probabilities: float64 [N], true probabilities of the labels.
    """

    item: np.ndarray
    history: np.ndarray
    labels: np.ndarray
    probabilities: np.ndarray


def category_of(items: np.ndarray) -> np.ndarray:
    """Returns the categories of items, int64."""
    return items // ITEMS


def liking_of(items: np.ndarray) -> np.ndarray:
    """Returns 1 for liked items and -1 for others, int64."""
    return 1 - 2 * (items % 2)


def draw_histories(seed: int, rows: int, model: HistoryClickModel) -> Iterator[HistoryRows]:
    """Yields the rows of a log, at most BLOCK_ROWS at a time.

    A log of N rows equals the first N rows of a longer log.
    """
    bias = model.bias()
    for start in range(0, rows, BLOCK_ROWS):
        item, history, preference, uniform = (
            drawn[: rows - start] for drawn in _draw_block(seed, start // BLOCK_ROWS, model)
        )
        probabilities = sigmoid(bias + model.attention * preference)
        yield HistoryRows(item, history, (uniform < probabilities).astype(np.int8), probabilities)


def _draw_block(seed: int, block: int, model: HistoryClickModel) -> tuple[np.ndarray, ...]:
    """Returns the candidates, histories, s, and the random numbers in [0, 1) of the labels of a block."""
    length, categories = model.length, model.categories
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(block,)))

    def uniform(*shape: int) -> np.ndarray:
        # Raw bits, because their stream is the same in all numpy versions.
        return (bits.random_raw(int(np.prod(shape))) >> np.uint64(11)).reshape(shape) * 2.0**-53

    def whole(count: int, *shape: int) -> np.ndarray:
        return (uniform(*shape) * count).astype(np.int64)

    item = whole(categories * ITEMS, BLOCK_ROWS)
    lengths = length - whole(length // 2 + 1, BLOCK_ROWS)
    place = np.arange(length)[None, :]
    # Before shuffling, the first item has the candidate's category, and the second item has the opposite s.
    liked = whole(2, BLOCK_ROWS, length)
    liked[:, 1] = 1 - liked[:, 0]
    own = category_of(item)[:, None]
    category = np.where(place == 0, own, (own + 1 + whole(categories - 1, BLOCK_ROWS, length)) % categories)
    which = whole(LIKED, BLOCK_ROWS, length)
    another = (item % ITEMS // 2 + 1 + whole(LIKED - 1, BLOCK_ROWS)) % LIKED  # index of another item
    which[:, 0] = np.where(liked[:, 0] == 1 - item % 2, another, which[:, 0])
    history = category * ITEMS + 2 * which + (1 - liked)
    history = history[:, np.where(place[0] < 2, place[0], 2 + (place[0] - 2) // model.repeats)]
    preference = liking_of(history[:, 0]).astype(np.float64)
    present = place < lengths[:, None]
    shuffled = np.argsort(np.where(present, uniform(BLOCK_ROWS, length), 2.0), axis=1, kind="stable")
    history = np.take_along_axis(np.where(present, history, -1), shuffled, axis=1)
    return item, history, preference, uniform(BLOCK_ROWS)


def generate_history(
    rows: int, seed: int, output: pathlib.Path, click_model: HistoryClickModel | None = None
) -> GenerateResult:
    """Writes a CSV log with the header COLUMNS and `|`-separated histories, and its true probabilities.

    The same arguments give the same bytes, and a log of N rows equals the first N rows of a longer log.

    Args:
        rows: Number of rows, at least 1.
        seed: Non-negative seed of the rows.
        output: Output file in an existing folder, replaced if it exists; `.gz` compresses.
        click_model: Parameters of the click model; None for the defaults.

    Raises:
        InputError: an argument is invalid, or the file cannot be written.
    """
    check_whole(rows=(rows, 1), seed=(seed, 0))
    check_output(output)
    model = click_model or HistoryClickModel()
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
            line = 2
            for drawn in draw_histories(seed, rows, model):
                pyarrow.csv.write_csv(_table(drawn), log, write_options=options)
                lines = np.arange(line, line + len(drawn.item))
                truth.write_table(pa.table([lines, drawn.probabilities], schema=TRUTH_SCHEMA))
                score.add(drawn.labels, drawn.probabilities)
                line += len(drawn.item)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror or error}") from error
    return GenerateResult(rows, score.positives, score.auc(), score.loss / rows, output, truth_path)


def _table(rows: HistoryRows) -> pa.Table:
    item, history = rows.item, rows.history
    names = {"item": item, "category": category_of(item)}
    lists = {"item_history": history, "category_history": category_of(history)}
    columns = {name: _texts(name, values) for name, values in names.items()}
    present = history >= 0
    offsets = pa.array(np.append(0, np.cumsum(present.sum(axis=1))).astype(np.int32))
    for name, values in lists.items():
        texts = _texts(name.removesuffix("_history"), values[present])
        columns[name] = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), "|")
    return pa.table({"click": pa.array(rows.labels), **columns}).select(list(COLUMNS))


def _texts(name: str, values: np.ndarray) -> pa.Array:
    prefix = pa.scalar(name[0])
    return pc.binary_join_element_wise(prefix, pa.array(values).cast(pa.string()), "")
