"""The attribution of a row's logit to its columns. All methods share these classes."""

import dataclasses
import datetime
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.derived.cross import BETWEEN
from ctrpipe.transforms.log.epochs import epoch_seconds
from ctrpipe.transforms.log.spec import TEXT
from ctrpipe.transforms.log.vectors import is_vector

SHOWN_ELEMENTS = 3  # of a vector
_NUMBER_OF_TIME = re.compile(r"-?\d{9,}(\.\d*)?")  # shorter ones, as 14102100, are read by the column as a whole


@dataclasses.dataclass(frozen=True)
class ColumnAttribution:
    """The contribution of a group of columns to the row's logit.

    Attributes:
        name: The name of the group or of the column.
        value: The row's values as text. None for a missing value.
        logit: The contribution. All contributions add up to the row's logit minus the baseline's.
        error: The standard error of the contribution over the drawn orders of columns. None if it cannot be estimated.
    """

    name: str
    value: tuple[str | None, ...]
    logit: float
    error: float | None


@dataclasses.dataclass(frozen=True)
class TokenAttribution:
    """The contribution of a token to the row's logit. It is a part of the contribution of the text's columns."""

    token: str
    logit: float


@dataclasses.dataclass(frozen=True)
class RowExplained:
    """The explanation of a row.

    Attributes:
        probability: The probability that the served model predicts for the row.
        logit, baseline: The logits of the row and of what it was compared with (one row, or the mean over rows). With
            gradients they precede the calibration, and `probability` follows it.
        columns: The contributions, the largest absolute value first.
        method: "shapley" or "gradients".
        tokens: The contributions of the text's tokens, in order. Only gradients have them.
        jumps: The part of the sum that no gradient explains, see ctrpipe.models.explain.integrated_gradients. None for
            Shapley values.
    """

    probability: float
    logit: float
    baseline: float
    columns: tuple[ColumnAttribution, ...]
    method: str = "shapley"
    tokens: tuple[TokenAttribution, ...] = ()
    jumps: float | None = None

    def with_moments(self, formats: Mapping[str, str]) -> "RowExplained":
        """Returns the explanation with readable times next to numeric times such as epochs.

        Args:
            formats: The format of each column of times.
        """
        columns = [
            dataclasses.replace(one, value=tuple(_with_moment(text, formats[one.name]) for text in one.value))
            if one.name in formats
            else one
            for one in self.columns
        ]
        return dataclasses.replace(self, columns=tuple(columns))


def served_explanation(
    row: pa.Table, probability: float, logit: float, baseline: float, columns: Mapping[str, float]
) -> RowExplained:
    """Returns the explanation that a server has returned for a row.

    Args:
        row: The row, a table of one row.
        probability, logit, baseline: As in RowExplained.
        columns: The contribution of each column. `text` is the group of all columns that are not named. A derived
            column has no value in the row.
    """
    text = [name for name in row.column_names if name not in columns]
    others = {TEXT: text} if TEXT in columns else {}
    groups = {name: [name] if name in row.column_names else others.get(name, []) for name in columns}
    attributions = attributions_of(row, groups, list(columns.values()), [None] * len(columns))
    return RowExplained(probability, logit, baseline, attributions, "gradients")


def attributions_of(
    row: pa.Table, groups: dict[str, list[str]], values: list[float], errors: Sequence[float | None]
) -> tuple[ColumnAttribution, ...]:
    """Returns the contributions of groups of columns, the largest absolute value first.

    Args:
        row: The row, a table of one row.
        groups: The columns of each group, by the group's name.
        values: The contribution of each group to the logit.
        errors: Their standard errors, None if not known.
    """
    attributions = [
        ColumnAttribution(name, tuple(_shown_scalar(row[column][0]) for column in members), value, error)
        for (name, members), value, error in zip(groups.items(), values, errors, strict=True)
    ]
    return tuple(sorted(attributions, key=lambda one: -abs(one.logit)))


def _with_moment(text: str | None, time_format: str) -> str | None:
    if text is None or not _NUMBER_OF_TIME.fullmatch(text):
        return text
    [seconds] = epoch_seconds(pa.array([text]), time_format)
    if not np.isfinite(seconds):
        return text
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=float(seconds))
    return f"{text} ({moment:%Y-%m-%d %H:%M} UTC)"


def _shown_scalar(value: pa.Scalar) -> str | None:
    if not is_vector(value.type) or not value.is_valid:
        return shown(value.as_py())
    elements = np.frombuffer(value.as_py(), "<f4")
    first = ", ".join(f"{element:g}" for element in elements[:SHOWN_ELEMENTS])
    return f"[{first}, ... {len(elements)} numbers]" if len(elements) > SHOWN_ELEMENTS else f"[{first}]"


def shown(value: bytes | float | None) -> str | None:
    """Returns a value of a log, or of a derived column, as text; None for a missing value."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").replace(BETWEEN, " x ")
    return None if value is None else f"{value:g}"
