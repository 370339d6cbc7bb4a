"""A log of impressions with histories, whose clicks depend on the earlier item of the candidate's category alone."""

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

LIKED = 2  # items of each category that are liked
ITEMS = 2 * LIKED
COLUMNS = ("click", "item", "category", "item_history", "category_history")
_CALIBRATION = 1 << 32  # the spawn key of the rows by which the bias is found


@dataclasses.dataclass(frozen=True)
class HistoryClickModel:
    """The parameters of the model that draws the clicks.

    `logit = bias + attention · s`, where s is 1 where the one item of the history that has the candidate's category is
    liked, and -1 where it is not. That item is another one than the candidate, which item similarity models leave out
    of its own history. A further item of the history, of another category, has the opposite s, and the rest is drawn by
    chance, each of its items `repeats` times: how often an item, a category or a liked item is in a history says
    nothing of the click. A model that compares each item with the candidate finds it; one that sums the history first
    has to tell all categories apart in the sum. An embedding of fewer numbers than there are categories cannot hold
    such a sum, the less so the longer the histories are and the more often their items are repeated: the other items'
    part of it grows with the root of length times repeats.

    Args:
        attention: Weight of s, in logits; 0 for clicks by chance.
        base_rate: Expected click-through rate.
        length: Items of the longest history, at least 4. Lengths are equally frequent from half of it.
        categories: Number of categories, of ITEMS items each, at least 2.
        repeats: How often a history has each of its items but those two, at least 1.

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
        """Returns the bias that gives the base rate, found on rows of no log."""
        *_, preference, _ = _draw_block(0, _CALIBRATION - 1, self)
        return solve_bias(self.attention * preference, self.base_rate)


@dataclasses.dataclass(frozen=True)
class HistoryRows:
    """Consecutive rows.

    Attributes:
        item: int64 [N], the candidates.
        history: int64 [N, length], items in order with -1 behind them.
        labels: int8 [N].
        probabilities: float64 [N], the labels' true probabilities.
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
    """Yields the rows of a log, at most BLOCK_ROWS at a time; the first N of a longer log are those of N rows."""
    bias = model.bias()
    for start in range(0, rows, BLOCK_ROWS):
        item, history, preference, uniform = (
            drawn[: rows - start] for drawn in _draw_block(seed, start // BLOCK_ROWS, model)
        )
        probabilities = sigmoid(bias + model.attention * preference)
        yield HistoryRows(item, history, (uniform < probabilities).astype(np.int8), probabilities)


def _draw_block(seed: int, block: int, model: HistoryClickModel) -> tuple[np.ndarray, ...]:
    """Returns a block's candidates, histories, their s, and numbers in [0, 1) that its labels are drawn from."""
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
    # Before they are shuffled, the first item has the candidate's category, and the second one the opposite s.
    liked = whole(2, BLOCK_ROWS, length)
    liked[:, 1] = 1 - liked[:, 0]
    own = category_of(item)[:, None]
    category = np.where(place == 0, own, (own + 1 + whole(categories - 1, BLOCK_ROWS, length)) % categories)
    which = whole(LIKED, BLOCK_ROWS, length)
    another = (item % ITEMS // 2 + 1 + whole(LIKED - 1, BLOCK_ROWS)) % LIKED  # than the candidate
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
