"""Attributes one row's logit to its columns, with a model that can only be asked."""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from models.explain.shapley import draw_orders, shapley
from models.metrics import EPSILON
from pipeline.explain.importance import Score
from transforms.log.payload import plain


@dataclasses.dataclass(frozen=True)
class ColumnAttribution:
    """What a group of columns adds to the row's logit.

    Attributes:
        name: The group's name, or the column's.
        value: The row's values as text; None for a missing one.
        logit: What they add; all groups' sum is the row's logit less the baseline's.
        error: Its standard error over the orders of columns that were drawn; None where they tell nothing of it.
    """

    name: str
    value: tuple[str | None, ...]
    logit: float
    error: float | None


@dataclasses.dataclass(frozen=True)
class RowExplained:
    """A row's explanation.

    Attributes:
        probability: What the model answers to the row.
        logit, baseline: Of the row, and the mean over the rows that it was compared with.
        columns: The attributions, the largest first.
    """

    probability: float
    logit: float
    baseline: float
    columns: tuple[ColumnAttribution, ...]


def explain_row(
    score: Score,
    row: pa.Table,
    background: pa.Table | None,
    groups: dict[str, list[str]],
    orders: int,
    random: np.random.Generator,
) -> RowExplained:
    """Returns the Shapley values of a row's groups of columns, by sampling.

    Args:
        score: The model.
        row: The row, of one line.
        background: Rows that give the values of absent columns, one drawn for each pair of orders; None for missing
            values.
        groups: The columns that come together, by name.
        orders: How many orders of the groups to draw. The model is asked about (groups + 1) rows for each.
        random: Draws them.
    """
    names = [column for members in groups.values() for column in members]
    group_of = [number for number, members in enumerate(groups.values()) for _ in members]
    others = _missing(row) if background is None else background
    together = {name: pa.concat_arrays([_array(row[name]), _array(others[name])]) for name in names}

    def logits(present: npt.NDArray[np.bool_], number: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        columns = {
            name: values.take(pa.array(np.where(present[:, group], 0, number + 1)))
            for (name, values), group in zip(together.items(), group_of, strict=True)
        }
        return logit_of(score(pa.table(columns)))

    drawn = draw_orders(len(groups), orders, random)
    found = shapley(logits, drawn, np.repeat(random.integers(0, others.num_rows, len(drawn) // 2), 2))
    attributions = [
        ColumnAttribution(
            name,
            tuple(_shown(row[column][0].as_py()) for column in members),
            float(found.columns[place]),
            float(found.errors[place]) if np.isfinite(found.errors[place]) else None,
        )
        for place, (name, members) in enumerate(groups.items())
    ]
    attributions.sort(key=lambda one: -abs(one.logit))
    probability = float(1 / (1 + np.exp(-found.logit)))
    return RowExplained(probability, found.logit, found.baseline, tuple(attributions))


def logit_of(probabilities: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Returns ln(p / (1 - p)), with p kept 1e-7 away from 0 and 1."""
    p = np.clip(np.asarray(probabilities, np.float64), EPSILON, 1 - EPSILON)
    return np.asarray(np.log(p) - np.log1p(-p))


def _missing(row: pa.Table) -> pa.Table:
    return pa.table({name: pa.nulls(1, plain(_array(row[name])).type) for name in row.column_names})


def _array(column: pa.ChunkedArray) -> pa.Array:
    return plain(column.combine_chunks())


def _shown(value: bytes | float | None) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else f"{value:g}"
