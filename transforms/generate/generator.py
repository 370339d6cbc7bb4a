"""Writes a sample log and the true click probabilities of its rows."""

import dataclasses
import operator
import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path
from ctrpipe.transforms.generate.blocks import BLOCK_ROWS, Block, draw_block, draw_labels
from ctrpipe.transforms.generate.click_model import ClickModel, HiddenModel, solve_bias
from ctrpipe.transforms.generate.drift import Drift, check_days, day_folder, worlds
from ctrpipe.transforms.generate.formats import FORMATS, LogLayout
from ctrpipe.transforms.generate.writer import block_table, open_log, write_options

# Number of first rows that `best_auc` is computed on (standard error about 0.0003).
AUC_ROWS = 4_000_000
TRUTH_SCHEMA = pa.schema([("line", pa.int64()), ("probability", pa.float64())])
# Numbers of the blocks that determine the bias. No log uses them, so the bias is the same for all seeds.
_CALIBRATION = range((1 << 32) - 4, 1 << 32)


@dataclasses.dataclass(frozen=True)
class GenerateResult:
    """The result of `generate`.

    Attributes:
        rows: Number of rows of the log, without the header.
        positives: Number of rows with label 1.
        best_auc: AUC of the true probabilities on the drawn labels of the first AUC_ROWS rows, the highest AUC that a
            model can be expected to reach; NaN if these rows have one class only.
        log_loss: Mean log loss of the true probabilities, in nats.
        path: The log file.
        truth_path: Parquet file with `line` (int64, line number in the log) and `probability` (float64), in row order.
    """

    rows: int
    positives: int
    best_auc: float
    log_loss: float
    path: pathlib.Path
    truth_path: pathlib.Path


def generate(
    log_format: str,
    rows: int,
    seed: int,
    output: pathlib.Path,
    progress: Callable[[int], None] | None = None,
    click_model: ClickModel | None = None,
) -> GenerateResult:
    """Writes a log to `output` (gzip for `.gz`) and its true probabilities to `<output>.truth.parquet`.

    The same arguments give the same bytes, and a log of N rows equals the first N rows of a longer log. Memory does not
    grow with `rows` beyond AUC_ROWS.

    Args:
        log_format: A name in FORMATS: "criteo" (TSV without header: label, I1..I13, C1..C26), "avazu" (CSV with header)
            or "text" (TSV without header).
        rows: Number of rows, at least 1.
        seed: Non-negative seed of the rows. The effects on clicks depend only on `click_model`.
        output: Output file in an existing folder, replaced if it exists.
        progress: Called with the number of finished rows after every block.
        click_model: Parameters of the click model; None for the defaults.

    Raises:
        InputError: an argument is invalid, or the file cannot be written.
    """
    spec = _check(log_format, rows, seed, output)
    model = click_model or ClickModel()
    truth = output.with_name(output.name + ".truth.parquet")
    return _generate(spec, HiddenModel(spec, model), model, rows, seed, output, truth, {}, 0, progress)


def _generate(
    spec: LogLayout,
    hidden: HiddenModel,
    model: ClickModel,
    rows: int,
    seed: int,
    output: pathlib.Path,
    truth_path: pathlib.Path,
    ids: Mapping[str, np.ndarray],
    first_block: int,
    progress: Callable[[int], None] | None = None,
) -> GenerateResult:
    """Writes a log and its truth file; `ids` maps ranks to ids, for columns where they differ."""
    bias = intercept(spec, hidden, model)
    blocks = _Blocks(spec, hidden, bias, seed, first_block, ids)
    score = Score()
    try:
        # The log is renamed last, so that no log exists without its probabilities.
        with atomic_path(output) as log_part, atomic_path(truth_path) as truth_part:
            _write(blocks, rows, log_part, output.suffix == ".gz", truth_part, score, progress)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror or error}") from error
    return GenerateResult(rows, score.positives, score.auc(), score.loss / rows, output, truth_path)


def generate_days(
    log_format: str,
    days: int,
    rows: int,
    seed: int,
    folder: pathlib.Path,
    drift: Drift,
    progress: Callable[[str], None] | None = None,
    click_model: ClickModel | None = None,
) -> list[GenerateResult]:
    """Writes a drifting log for several days, to `folder`/day=2026-01-01/log.tsv and so on.

    The true probabilities are in `_truth.parquet` next to each log. Readers of the folder ignore files that start with
    `_`.

    Args:
        log_format: "criteo" or "text".
        days: Number of days, at least 1.
        rows: Number of rows per day.
        seed: As in `generate`; each day has different rows.
        folder: Output folder, created if it does not exist.
        drift: Drift rates from day to day.
        progress: Called with a progress line after each day.
        click_model: Click model of the first day; None for the defaults.

    Raises:
        InputError: as in `generate`, or the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot make the folder ({error.strerror}); choose another --output") from error
    spec = _check(log_format, rows, seed, folder / "log.tsv")
    check_days(days, spec)
    model = click_model or ClickModel()
    results = []
    for day, world in enumerate(worlds(spec, model, drift, days)):
        day_folder(folder, day).mkdir(exist_ok=True)
        log, truth = (day_folder(folder, day) / name for name in ("log.tsv", "_truth.parquet"))
        # Every day has its own range of 2^24 block numbers.
        results.append(_generate(spec, world.hidden, model, rows, seed, log, truth, world.ids, day << 24))
        if progress:
            progress(f"{log.parent.name}: {rows:,} rows, best possible AUC {results[-1].best_auc:.4f}")
    return results


def _check(log_format: str, rows: int, seed: int, output: pathlib.Path) -> LogLayout:
    if log_format not in FORMATS:
        raise InputError(f"unknown log format {log_format!r}: use one of {', '.join(FORMATS)}")
    check_whole(rows=(rows, 1), seed=(seed, 0))
    check_output(output)
    return FORMATS[log_format]


def check_output(output: pathlib.Path) -> None:
    """Raises InputError if `output` is a folder or its parent folder does not exist."""
    if output.is_dir():
        raise InputError(f"the output {output} is a folder: name a file in it")
    if not output.parent.is_dir():
        raise InputError(f"the folder {output.parent} of the output does not exist: create it first")


def check_whole(**numbers: tuple[int, int]) -> None:
    """Raises InputError if a value is not a whole number or is below its minimum, given as (value, minimum)."""
    for name, (value, least) in numbers.items():
        try:
            too_small = operator.index(value) < least
        except TypeError:
            too_small = True
        if too_small:
            raise InputError(f"{name} should be a whole number of at least {least}. Received: {value!r}")


def intercept(spec: LogLayout, hidden: HiddenModel, model: ClickModel) -> float:
    """Returns the bias that produces the base rate of the click model. It is the same for all seeds."""
    sequences = (np.random.SeedSequence(0, spawn_key=(number,)) for number in _CALIBRATION)
    logits = [hidden.logits(draw_block(spec, sequence, 0, BLOCK_ROWS).codes) for sequence in sequences]
    return solve_bias(np.concatenate(logits), spec.base_rate if model.base_rate is None else model.base_rate)


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """The parameters that blocks of rows are drawn from (see `_generate`)."""

    spec: LogLayout
    hidden: HiddenModel
    bias: float
    seed: int
    first: int
    ids: Mapping[str, np.ndarray]

    def draw(self, start: int, rows: int) -> tuple[Block, np.ndarray, np.ndarray]:
        """Draws at most BLOCK_ROWS rows from `start` on; returns the rows, labels and true probabilities."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(self.first + start // BLOCK_ROWS,))
        block = draw_block(self.spec, sequence, start, rows)
        labels, probabilities = draw_labels(block, self.hidden, self.bias)
        moved = {name: ids[block.values[name]] for name, ids in self.ids.items()}
        return dataclasses.replace(block, values=block.values | moved), labels, probabilities


def _write(
    blocks: _Blocks,
    rows: int,
    log_part: pathlib.Path,
    compress: bool,
    truth_part: pathlib.Path,
    score: "Score",
    progress: Callable[[int], None] | None,
) -> None:
    spec = blocks.spec
    with open_log(log_part, compress) as log, pyarrow.parquet.ParquetWriter(truth_part, TRUTH_SCHEMA) as truth:
        if spec.header:
            log.write(spec.header.encode() + b"\n")
        csv_writer: pyarrow.csv.CSVWriter | None = None
        for start in range(0, rows, BLOCK_ROWS):
            block, labels, probabilities = blocks.draw(start, min(BLOCK_ROWS, rows - start))
            table = block_table(spec, block, labels, blocks.seed)
            csv_writer = csv_writer or pyarrow.csv.CSVWriter(log, table.schema, write_options=write_options(spec))
            csv_writer.write_table(table)
            lines = np.arange(start, start + block.rows) + (2 if spec.header else 1)
            truth.write_table(pa.table([lines, probabilities], schema=TRUTH_SCHEMA))
            score.add(labels, probabilities)
            if progress is not None:
                progress(start + block.rows)


class Score:
    """Accumulates log loss and AUC of the true probabilities over blocks; AUC on the first AUC_ROWS rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.positives = 0
        self.loss = 0.0
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, labels: np.ndarray, probabilities: np.ndarray) -> None:
        """Adds rows with labels (0 or 1) and true probabilities, [N] each."""
        clicked = labels == 1
        self.positives += int(clicked.sum())
        self.loss -= float(np.log(np.where(clicked, probabilities, 1.0 - probabilities)).sum())
        if (left := AUC_ROWS - self.rows) > 0:
            self._kept.append((clicked[:left], probabilities[:left]))
        self.rows += len(labels)

    def auc(self) -> float:
        """Returns the AUC; NaN if the rows have one class only."""
        clicked, probabilities = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        value = metrics.auc(clicked, probabilities)
        return float("nan") if value is None else value
