"""Draws rows in blocks of a fixed size, so the first rows of a log do not depend on its length."""

import dataclasses

import numpy as np

from ctrpipe.transforms.generate.click_model import HiddenModel, sigmoid
from ctrpipe.transforms.generate.columns import Column
from ctrpipe.transforms.generate.formats import LogLayout

BLOCK_ROWS = 1 << 15


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows.

    Attributes:
        start: Index of the first row, from 0.
        values: int64 `[N]` by column: rank (categorical) or number (integer); undefined for missing values.
        present: bool `[N]` by column; omits columns without missing values.
        codes: int64 `[N]` by column, the inputs of the click model.
        uniform: float64 `[N]` in [0, 1), the random numbers of the labels.
    """

    start: int
    values: dict[str, np.ndarray]
    present: dict[str, np.ndarray]
    codes: dict[str, np.ndarray]
    uniform: np.ndarray

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.uniform)


def _draw_uint16(bits: np.random.PCG64, keys: list[str], rows: int) -> dict[str, np.ndarray]:
    # Raw bits, because their stream is the same in all numpy versions, unlike the methods of Generator. Whole blocks
    # are drawn: otherwise, the draws of the second column would depend on the number of rows.
    words = bits.random_raw(len(keys) * BLOCK_ROWS // 4).astype("<u8", copy=False)
    draws = words.view("<u2").reshape(len(keys), BLOCK_ROWS)
    return {key: draws[i, :rows] for i, key in enumerate(keys)}


def draw_block(spec: LogLayout, seed: np.random.SeedSequence, start: int, rows: int) -> Block:
    """Draws the first `rows` rows, at most BLOCK_ROWS, of the block with this seed."""
    bits = np.random.PCG64(seed)
    uniform = (bits.random_raw(BLOCK_ROWS)[:rows] >> np.uint64(11)) * 2.0**-53
    keys = list(dict.fromkeys(column.draw_key for column in spec.columns))
    quantile = _draw_uint16(bits, keys, rows)
    within = _draw_uint16(bits, keys, rows)
    missing = _draw_uint16(bits, list(dict.fromkeys(c.missing_key for c in spec.columns if c.missing)), rows)
    values: dict[str, np.ndarray] = {}
    present: dict[str, np.ndarray] = {}
    codes: dict[str, np.ndarray] = {}
    for column in spec.columns:
        key = column.draw_key
        values[column.name] = column.table.values(quantile[key], within[key])
        if column.missing:
            present[column.name] = missing[column.missing_key] >= column.missing_below
        codes[column.name] = _codes(column, values[column.name], present.get(column.name))
    return Block(start, values, present, codes, uniform)


def _codes(column: Column, values: np.ndarray, present: np.ndarray | None) -> np.ndarray:
    codes = column.code_of(values)
    return codes if present is None else np.where(present, codes, column.codes)


def draw_labels(block: Block, hidden: HiddenModel, bias: float) -> tuple[np.ndarray, np.ndarray]:
    """Draws labels; returns the labels, int8 `[N]`, and their true probabilities, float64 `[N]`."""
    probabilities = sigmoid(hidden.logits(block.codes) + bias)
    return (block.uniform < probabilities).astype(np.int8), probabilities
