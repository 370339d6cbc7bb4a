"""Draws a sample log in memory, as inputs of the click model, to test what models learn."""

import dataclasses

import numpy as np

from ctrpipe.transforms.generate.blocks import BLOCK_ROWS, draw_block, draw_labels
from ctrpipe.transforms.generate.click_model import ClickModel, HiddenModel
from ctrpipe.transforms.generate.formats import LogLayout
from ctrpipe.transforms.generate.generator import intercept


@dataclasses.dataclass(frozen=True)
class GeneratedRows:
    """Rows of a sample log, as codes instead of raw values.

    Attributes:
        codes: int64 `[N, columns]`, inputs of the click model, in `[0, code_counts)` of their column.
        code_counts: Number of codes of each column, including the code of a missing value.
        labels: int8 `[N]`.
        probabilities: float64 `[N]`, true probabilities of the labels.
    """

    codes: np.ndarray
    code_counts: tuple[int, ...]
    labels: np.ndarray
    probabilities: np.ndarray


def sample(spec: LogLayout, model: ClickModel, rows: int, seed: int) -> GeneratedRows:
    """Returns the rows that `generate` writes for the same arguments."""
    hidden = HiddenModel(spec, model)
    bias = intercept(spec, hidden, model)
    names = [column.name for column in spec.columns]
    codes, labels, probabilities = [], [], []
    for start in range(0, rows, BLOCK_ROWS):
        sequence = np.random.SeedSequence(seed, spawn_key=(start // BLOCK_ROWS,))
        block = draw_block(spec, sequence, start, min(BLOCK_ROWS, rows - start))
        drawn = draw_labels(block, hidden, bias)
        codes.append(np.stack([block.codes[name] for name in names], axis=1))
        labels.append(drawn[0])
        probabilities.append(drawn[1])
    counts = tuple(column.codes + 1 for column in spec.columns)
    return GeneratedRows(np.concatenate(codes), counts, np.concatenate(labels), np.concatenate(probabilities))
