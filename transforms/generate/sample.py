"""A sample log in memory, as the click model sees it: for checks of what models learn, without raw rows."""

import dataclasses

import numpy as np

from transforms.generate.blocks import BLOCK_ROWS, draw_block, draw_labels
from transforms.generate.click_model import ClickModel, HiddenModel
from transforms.generate.formats import LogLayout
from transforms.generate.generator import intercept


@dataclasses.dataclass(frozen=True)
class Sample:
    """Rows without their raw values.

    Attributes:
        codes: int64 `[N, columns]`, in `[0, code_counts)` of the column; all that the click model tells apart.
        code_counts: codes of each column, that of a missing value included.
        labels: int8 `[N]`.
        probabilities: float64 `[N]`, what the labels were drawn with.
    """

    codes: np.ndarray
    code_counts: tuple[int, ...]
    labels: np.ndarray
    probabilities: np.ndarray


def sample(spec: LogLayout, model: ClickModel, rows: int, seed: int) -> Sample:
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
    return Sample(np.concatenate(codes), counts, np.concatenate(labels), np.concatenate(probabilities))
