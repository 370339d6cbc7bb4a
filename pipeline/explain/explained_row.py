"""A row's logit attributed to its columns, whoever has worked it out."""

import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa


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
class TokenAttribution:
    """What a token of the text adds to the row's logit; a part of what the text's columns add."""

    token: str
    logit: float


@dataclasses.dataclass(frozen=True)
class RowExplained:
    """A row's explanation.

    Attributes:
        probability: What the served model answers to the row.
        logit, baseline: Of the row, and of what it was compared with: the mean over rows, or one. By gradients they are
            those before a calibration, which `probability` is behind.
        columns: The attributions, the largest first.
        method: "shapley" or "gradients".
        tokens: Of the text's tokens, in their order; only gradients tell them.
        jumps: Of the sum what no gradient explains; see ctrpipe.models.explain.integrated_gradients. None for
            Shapley values.
    """

    probability: float
    logit: float
    baseline: float
    columns: tuple[ColumnAttribution, ...]
    method: str = "shapley"
    tokens: tuple[TokenAttribution, ...] = ()
    jumps: float | None = None


def served_explanation(
    row: pa.Table, probability: float, logit: float, baseline: float, columns: Mapping[str, float]
) -> RowExplained:
    """Returns what a server has answered of a row.

    Args:
        row: The row, of one line.
        probability, logit, baseline: As in RowExplained.
        columns: What each column adds; `text` stands for those that are not named.
    """
    text = [name for name in row.column_names if name not in columns]
    groups = {name: [name] if name in row.column_names else text for name in columns}
    attributions = attributions_of(row, groups, list(columns.values()), [None] * len(columns))
    return RowExplained(probability, logit, baseline, attributions, "gradients")


def attributions_of(
    row: pa.Table, groups: dict[str, list[str]], values: list[float], errors: Sequence[float | None]
) -> tuple[ColumnAttribution, ...]:
    """Returns the attributions of groups of columns, the largest first.

    Args:
        row: The row, of one line.
        groups: The columns that come together, by name.
        values: What each group adds to the logit.
        errors: Their standard errors, None where there is none.
    """
    found = [
        ColumnAttribution(name, tuple(shown(row[column][0].as_py()) for column in members), value, error)
        for (name, members), value, error in zip(groups.items(), values, errors, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.logit)))


def shown(value: bytes | float | None) -> str | None:
    """Returns a value of a log as text; None for a missing one."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else f"{value:g}"
