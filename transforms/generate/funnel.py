"""Generates a log with two labels, click and conversion, with known probabilities."""

import dataclasses
import pathlib

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

SIZES = {"user": 200, "item": 400, "place": 6}  # number of values; items are sorted by popularity
COLUMNS = ("click", "conversion", *SIZES)
FUNNEL_TRUTH = TRUTH_SCHEMA.append(pa.field("after_click", pa.float64()))
_STRENGTH = 0.8  # standard deviation of a column's effects, in logits
_PAIR = 0.7  # effect of the user-item pair, in logits
# First spawn key that no log block uses: for the rows that determine the biases, and for the effects.
_OWN_KEYS = 1 << 31


@dataclasses.dataclass(frozen=True)
class FunnelModel:
    """Parameters of the model that draws clicks and conversions.

    Each logit is the sum of a bias, an effect of each column's value, and +0.7 if user and item are of the same half,
    else -0.7. The effects of a value on click and conversion have the correlation `likeness`; the pair effect is the
    same for both.

    Args:
        click_rate: Expected click-through rate.
        conversion_rate: Expected share of clicks followed by a conversion.
        likeness: Correlation of the effects on click and conversion, from -1 to 1.

    Raises:
        InputError: a value is out of range.
    """

    click_rate: float = 0.1
    conversion_rate: float = 0.1
    likeness: float = 0.5

    def __post_init__(self) -> None:
        for name, rate in (("click_rate", self.click_rate), ("conversion_rate", self.conversion_rate)):
            if not 0.0 < rate < 1.0:
                raise InputError(f"{name} should lie between 0 and 1. Received: {rate!r}")
        if not -1.0 <= self.likeness <= 1.0:
            raise InputError(f"likeness should lie between -1 and 1. Received: {self.likeness!r}")


@dataclasses.dataclass(frozen=True)
class FunnelBlock:
    """Consecutive rows.

    Attributes:
        codes: int64 [N] by column, from 0.
        logits: float64 [N, 2] without bias: click, and conversion given a click.
        uniform: float64 [N, 2] in [0, 1), the random numbers of the labels.
    """

    codes: dict[str, np.ndarray]
    logits: np.ndarray
    uniform: np.ndarray


def draw_funnel(seed: int, block: int, likeness: float) -> FunnelBlock:
    """Draws a block of BLOCK_ROWS rows."""
    uniform = _uniform(seed, block, BLOCK_ROWS, 2 + len(SIZES))
    codes = {"user": uniform[:, 2], "item": uniform[:, 3] ** 3, "place": uniform[:, 4]}
    codes = {name: (values * SIZES[name]).astype(np.int64) for name, values in codes.items()}
    logits = sum(_effects(name, likeness)[values] for name, values in codes.items())
    pair = np.where(codes["user"] % 2 == codes["item"] % 2, _PAIR, -_PAIR)
    return FunnelBlock(codes, logits + pair[:, None], uniform[:, :2])


def generate_funnel(rows: int, seed: int, output: pathlib.Path, model: FunnelModel | None = None) -> GenerateResult:
    """Writes a CSV log with the header COLUMNS, and its true probabilities to `<output>.truth.parquet`.

    The truth file has the click `probability` and the probability of a conversion `after_click`. Their product is the
    conversion probability of an impression. The same arguments give the same bytes, and a log of N rows equals the
    first N rows of a longer log.

    Args:
        rows: Number of rows, at least 1.
        seed: Non-negative seed of the rows.
        output: Output file in an existing folder, replaced if it exists; `.gz` compresses.
        model: Parameters of the model; None for the defaults.

    Returns:
        Paths and statistics; positives, AUC and log loss refer to clicks.

    Raises:
        InputError: an argument is invalid, or the file cannot be written.
    """
    check_whole(rows=(rows, 1), seed=(seed, 0))
    check_output(output)
    model = model or FunnelModel()
    biases = funnel_biases(model)
    truth_path = output.with_name(output.name + ".truth.parquet")
    score = Score()
    try:
        with (
            atomic_path(output) as log_part,
            atomic_path(truth_path) as truth_part,
            open_log(log_part, output.suffix == ".gz") as log,
            pyarrow.parquet.ParquetWriter(truth_part, FUNNEL_TRUTH) as truth,
        ):
            log.write(",".join(COLUMNS).encode() + b"\n")
            options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
            for start in range(0, rows, BLOCK_ROWS):
                block = draw_funnel(seed, start // BLOCK_ROWS, model.likeness)
                size = min(BLOCK_ROWS, rows - start)
                probabilities = sigmoid(block.logits[:size] + biases)
                # There is no conversion without a click.
                labels = np.cumprod(block.uniform[:size] < probabilities, axis=1).astype(np.int8)
                pyarrow.csv.write_csv(_table(block, labels), log, write_options=options)
                lines = np.arange(start, start + size) + 2
                truth.write_table(pa.table([lines, *probabilities.T], schema=FUNNEL_TRUTH))
                score.add(labels[:, 0], probabilities[:, 0])
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror or error}") from error
    return GenerateResult(rows, score.positives, score.auc(), score.loss / rows, output, truth_path)


def funnel_biases(model: FunnelModel) -> np.ndarray:
    """Returns the biases of both logits that produce the expected rates, float64 [2]."""
    block = draw_funnel(0, _OWN_KEYS, model.likeness)
    click, after = block.logits.T
    of_click = solve_bias(click, model.click_rate)
    is_clicked = block.uniform[:, 0] < sigmoid(click + of_click)
    return np.array([of_click, solve_bias(after[is_clicked], model.conversion_rate)])


def _effects(name: str, likeness: float) -> np.ndarray:
    """Returns the effects of a column's values on click and conversion, float64 [values, 2]."""
    key = _OWN_KEYS + 1 + list(SIZES).index(name)
    drawn: np.ndarray = (2 * _uniform(0, key, SIZES[name], 2) - 1) * np.sqrt(3)
    drawn[:, 1] = likeness * drawn[:, 0] + np.sqrt(1 - likeness**2) * drawn[:, 1]
    drawn *= _STRENGTH
    return drawn


def _uniform(seed: int, stream: int, *shape: int) -> np.ndarray:
    # Raw bits, because their stream is the same in all numpy versions.
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(stream,)))
    drawn: np.ndarray = (bits.random_raw(int(np.prod(shape))) >> np.uint64(11)).reshape(shape) * 2.0**-53
    return drawn


def _table(block: FunnelBlock, labels: np.ndarray) -> pa.Table:
    columns = {"click": pa.array(labels[:, 0]), "conversion": pa.array(labels[:, 1])}
    for name, codes in block.codes.items():
        numbers = pa.array(codes[: len(labels)]).cast(pa.string())
        columns[name] = pc.binary_join_element_wise(pa.scalar(name[0]), numbers, "")
    return pa.table(columns)
