"""The model, the training and the gates that a draft proposes, by the number of rows, columns and clicks of a log."""

import dataclasses
import functools
import math
from typing import Any

import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.stores import in_parallel, is_url
from ctrpipe.transforms.log.files import stored_head, text_size, unreadable
from ctrpipe.transforms.log.formats.parquet import Parquet
from ctrpipe.transforms.log.formats.registry import columnar_of
from ctrpipe.transforms.log.sample import ROWS, LogSample

MOST_OF_TREES = 1_000_000  # rows from which networks with embeddings are ahead of trees as a rule
_LARGE_BATCHES = 4_000_000  # rows from which an epoch of batches of 4,096 has steps enough
_WIDE = 60  # columns from which a full matrix between them is slow and overfits
_TEST_SHARE = 0.1  # of the rows: data.split.test
_ERRORS = 3.0  # standard errors of the calibration that a gate leaves to chance
_LEAST_ROOM, _MOST_ROOM = 0.1, 0.5
_COUNTED_FILES = 100

# Attention takes more epochs to find what matters in a history, and hardly any if all embeddings begin near 0.
_HISTORIES = (
    "model:",
    "  {name: din, embedding_dim: 16, embedding_stddev: 0.1, hidden_units: [64, 32], use_linear: true, "
    "linear_rate: 3.0}",
    "training:",
    "  epochs: 4  # stops earlier where the validation rows get no better",
    "  patience: 6",
)


@dataclasses.dataclass(frozen=True)
class LogSize:
    """The size of a log.

    Attributes:
        rows: The number of rows, approximately.
        columns: The number of feature columns.
        rate: The share of clicks.
        history: Whether a column holds the items that a user clicked before.
        trees: Whether this machine can train trees.
        number: The task that predicts a number in addition to the clicks; "" for none.
    """

    rows: int
    columns: int
    rate: float
    history: bool = False
    trees: bool = True
    number: str = ""

    @property
    def is_large(self) -> bool:
        """Whether the draft proposes a network."""
        return self.rows >= MOST_OF_TREES

    @property
    def buckets(self) -> int:
        """The number of buckets for a numeric column: more rows allow finer buckets."""
        return 64 if self.is_large else 32


def count_rows(files: list[str], sample: LogSample) -> int:
    """Returns the number of rows of a log; an estimate if an exact count would read all rows.

    Raises:
        InputError: a file cannot be read, or is not of the first one's format.
    """
    if sample.rows < ROWS and len(files) == 1:
        return sample.rows
    try:
        if sample.data.get("format") == "parquet":
            counted = files[:_COUNTED_FILES]
            rows = 0
            for path in counted:
                if columnar_of(stored_head(path)) is not Parquet:
                    raise InputError(f"{path}: not Parquet, as {files[0]} is; name files of one format")
                rows += Parquet.row_count(path)
            return rows * len(files) // len(counted)
        row_bytes = sum(len(value) + 1 for values in sample.columns.values() for value in values) / max(sample.rows, 1)
        # A store is asked for each size, so a part of many files tells that of all.
        counted = files[:: len(files) // _COUNTED_FILES or 1] if is_url(files[0]) else files
        rows_of = functools.partial(_rows_of, row_bytes=max(row_bytes, 1))
        return round(sum(in_parallel(rows_of, counted)) * len(files) / len(counted))
    except OSError as error:
        raise unreadable(files[0], error) from error


def _rows_of(path: str, row_bytes: float) -> float:
    """Returns the number of rows of a file: exactly for a columnar one, which a log of text may have too."""
    columnar = columnar_of(stored_head(path))
    return columnar.row_count(path) if columnar else text_size(path) / row_bytes


def recipe(size: LogSize) -> list[str]:
    """Returns the lines of a configuration from `model` on."""
    return [*_model(size), *_gates(size)]


def settings(size: LogSize) -> dict[str, Any]:
    """Returns the model, its training and its baseline, as values of a configuration."""
    values: dict[str, Any] = yaml.safe_load("\n".join(recipe(size)))
    return {key: value for key, value in values.items() if key != "gates"}


def _model(size: LogSize) -> list[str]:
    if size.number:
        return _tasks(size)
    if size.is_large:
        return _network(size)
    return _trees() if size.trees else _regression()


def _regression() -> list[str]:
    return [
        "# A logistic regression, trained to its optimum in seconds. `ctrpipe models` lists the others.",
        "model: {name: lr}",
        "training:",
        "  optimizer: lbfgs",
        "  refit: true  # the newest rows are the validation rows; the served model learns from them too",
    ]


def _trees() -> list[str]:
    return [
        "# LightGBM's trees on numbers and on a logistic regression's weights of categories, trained in seconds.",
        "# `ctrpipe models` lists the others; on more rows try deepfm or dcn_v2.",
        "model: {name: lightgbm}",
        "training:",
        "  refit: true  # the newest rows are the validation rows; the served model learns from them too",
    ]


def _network(size: LogSize) -> list[str]:
    """Returns the settings of configs/criteo, or of a model of histories, with the schedule of millions of rows."""
    return [
        "# `ctrpipe models` lists the others.",
        *(_HISTORIES if size.history else _impressions(size)),
        *_long_log(size, "  # times linear_rate for the linear part"),
        "  end_at_base_rate: true  # the mean prediction is the click rate of the training rows",
    ]


def _long_log(size: LogSize, of_rate: str = "") -> list[str]:
    """Returns the schedule of millions of rows; `of_rate` is a comment on the learning rate."""
    return [
        "  decay: cosine",
        f"  batch_size: {1024 if size.rows < _LARGE_BATCHES else 4096}",
        "  evaluations_per_epoch: 4",
        f"  learning_rate: 0.0033{of_rate}",
        "  refit: false  # true: trains again from the start, on the validation rows, too, in twice the time",
    ]


def _impressions(size: LogSize) -> list[str]:
    rank = ", rank: 64" if size.columns > _WIDE else ""
    return [
        "# What is published for 45 million rows is larger: embedding_dim: 16, hidden_units: [400, 400, 400].",
        "model:",
        f"  {{name: dcn_v2, embedding_dim: 8, layers: 2{rank}, hidden_units: [64, 32], dropout: 0.2, use_linear: true, "
        "linear_rate: 3.0}",
        "training:",
        "  epochs: 1  # of a million rows and more; two take twice the time",
        "  patience: 4",
        "  table_l2: 0.0036",
        "  regularisation_rows: 42000  # what table_l2 and dropout are stated for; more rows need less of them",
    ]


def _tasks(size: LogSize) -> list[str]:
    """Returns a model of several tasks, with the schedule for the number of rows."""
    schedule = [
        "  epochs: 20  # stops earlier where the validation rows get no better",
        "  batch_size: 256",
        "  evaluations_per_epoch: 2",
        "  patience: 4",
        "  learning_rate: 0.001",
    ]
    if size.is_large:
        schedule = [
            "  epochs: 1  # of a million rows and more; two take twice the time",
            "  patience: 4",
            *_long_log(size),
        ]
    dim = 16 if size.is_large else 8
    return [
        "# Experts that the clicks and the number share. `ctrpipe models` lists the others of several tasks.",
        "model:",
        f"  {{name: mmoe, embedding_dim: {dim}, experts: 4, expert_units: 64, hidden_units: [32]}}",
        "training:",
        *schedule,
        "  start_at_base_rate: true",
    ]


def _gates(size: LogSize) -> list[str]:
    clicks = size.rows * _TEST_SHARE * min(size.rate, 1 - size.rate)
    room = max(_LEAST_ROOM, _ERRORS / math.sqrt(max(clicks, 1e-9)))
    is_regression = not (size.is_large or size.trees or size.number)
    numbers = f", numbers: {{{size.number}: {{r2: {{min: 0}}}}}}" if size.number else ""
    baseline = [] if is_regression else ["evaluation: {baseline: {name: lr}}  # a logistic regression on the same rows"]
    lines = [
        *baseline,
        "# A model that misses a gate is not pushed. Two more are on without a line: the model must be better than",
        "# the base rate (rig), and not surely worse than the last one that passed (max_drop).",
    ]
    if room > _MOST_ROOM:
        few = f"about {clicks:.0f} test clicks say too little"
        if numbers:
            return [*lines, f"gates: {{{numbers[2:]}}}  # no calibration: {few}"]
        return [*lines, f"# gates: {{calibration: {{min: 0.9, max: 1.1}}}}  # {few}"]
    low, high = 1 - room, 1 + room
    of_clicks = f"calibration: {{min: {low:.2f}, max: {high:.2f}}}"
    return [*lines, f"gates: {{{of_clicks}{numbers}}}  # about {clicks:,.0f} test clicks"]
