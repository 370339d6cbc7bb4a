"""Permutation importance: the loss of quality when a column's values are shuffled over the rows.

References:
    Breiman, "Random Forests", 2001; Fisher, Rudin and Dominici, "All Models are Wrong, but Many are Useful", 2019.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.common import metrics
from ctrpipe.common.estimates import Estimate, auc_estimate
from ctrpipe.common.significance import ALPHA, NORMAL_QUANTILE, holm
from ctrpipe.transforms.log.spec import TEXT

Floats = npt.NDArray[np.floating]
Score = Callable[[pa.Table], Floats]  # maps rows to probabilities [N]


@dataclasses.dataclass(frozen=True)
class Loss:
    """The loss in a metric, with its 95% confidence interval over rows and permutations."""

    value: float
    interval: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Importance:
    """The importance of a group of columns: the loss of the model if they are permuted.

    Attributes:
        name: The name of the group or of the column.
        columns: The columns that are permuted together.
        auc: The decrease of the AUC.
        log_loss: The increase of the log loss, in nats.
        p_value: The probability of such an increase if the model does not use the columns, adjusted for the number of
            groups (Holm). 1 before `adjusted`.
    """

    name: str
    columns: tuple[str, ...]
    auc: Loss
    log_loss: Loss
    p_value: float = 1.0

    @property
    def is_used(self) -> bool:
        """Whether the model uses the columns, at a family-wise error rate of 5%."""
        return self.p_value < ALPHA


@dataclasses.dataclass(frozen=True)
class Interaction:
    """The interaction of two groups of columns: the sum of the losses without each, minus the loss without both.

    The model loses the effect of the groups' product without either group, and loses it only once without both. The
    difference is this effect.

    Attributes:
        first, second: The groups' names.
        auc: The interaction in AUC.
        log_loss: The interaction in log loss, in nats. Both values are positive if one group is worth little without
            the other (as for complementarity), negative if each can replace the other, and 0 if the losses add up.
    """

    first: str
    second: str
    auc: Loss
    log_loss: Loss


@dataclasses.dataclass(frozen=True)
class _Asked:
    """The AUC and the log loss of one scoring."""

    auc: Estimate
    log_loss: Estimate


class Permuter:
    """Scores rows with the values of some columns permuted. `scorings` counts the calls of the model.

    Args:
        score: The model.
        rows: The sample, with at least two rows of each class.
        labels: 0 or 1, `[N]`.
        repeats: How often a group is permuted.
        seed: Seed of the permutations. All groups share the permutations, so they do not differ by chance.
    """

    def __init__(self, score: Score, rows: pa.Table, labels: Floats, repeats: int, seed: int):
        self._score = score
        self._rows = rows
        self._labels = labels
        self._repeats = repeats
        self._seed = seed
        self.scorings = 0
        self._whole = self._ask(rows)
        self._permuted: dict[tuple[str, ...], list[_Asked]] = {}

    @property
    def auc(self) -> float:
        """The AUC on the unpermuted rows."""
        return self._whole.auc.value

    @property
    def log_loss(self) -> float:
        """The log loss on the unpermuted rows, in nats."""
        return self._whole.log_loss.value

    def importance(self, name: str, columns: Sequence[str]) -> Importance:
        """Returns the importance of some columns, permuted together. Scores the rows `repeats` times."""
        asked = [self._without(columns, repeat) for repeat in range(self._repeats)]
        self._permuted[tuple(columns)] = asked
        losses = {
            metric: _loss([[(1, _of(one, metric)), (-1, _of(self._whole, metric))] for one in asked], metric)
            for metric in ("auc", "log_loss")
        }
        return Importance(name, tuple(columns), losses["auc"], losses["log_loss"])

    def interaction(self, first: Importance, second: Importance) -> Interaction:
        """Returns the interaction of two groups. Requires `importance` of each before. Takes one scoring."""
        both = self._without((*first.columns, *second.columns), 0)
        alone = [self._permuted[first.columns][0], self._permuted[second.columns][0]]
        losses = {}
        for metric in ("auc", "log_loss"):
            terms = [(-1, _of(both, metric)), (-1, _of(self._whole, metric))]
            terms += [(1, _of(one, metric)) for one in alone]
            losses[metric] = _loss([terms], metric)
        return Interaction(first.name, second.name, losses["auc"], losses["log_loss"])

    def _without(self, columns: Sequence[str], repeat: int) -> _Asked:
        random = np.random.default_rng([self._seed, repeat])
        order = pa.array(random.permutation(self._rows.num_rows))
        rows = self._rows
        for name in columns:
            rows = rows.set_column(rows.column_names.index(name), name, rows[name].take(order))
        return self._ask(rows)

    def _ask(self, rows: pa.Table) -> _Asked:
        probabilities = self._score(rows)
        self.scorings += 1
        auc = auc_estimate(self._labels, probabilities)
        if auc is None:
            raise ValueError("the sample should have two rows of each class")
        losses = metrics.log_losses(self._labels, probabilities)
        mean = float(losses.mean())
        return _Asked(auc, Estimate(mean, (losses - mean) / math.sqrt(len(losses) * (len(losses) - 1))))


def adjusted(importances: Sequence[Importance]) -> list[Importance]:
    """Returns the groups with adjusted p-values, the largest increase of the log loss first."""
    p_values = holm([_chance_of(one.log_loss) for one in importances])
    groups = [dataclasses.replace(one, p_value=float(p)) for one, p in zip(importances, p_values, strict=True)]
    return sorted(groups, key=lambda one: -one.log_loss.value)


def _chance_of(loss: Loss) -> float:
    """Returns the one-sided p-value of a loss: the probability of at least this value if the true loss is 0."""
    error = (loss.interval[1] - loss.interval[0]) / (2 * NORMAL_QUANTILE)
    if not error:
        return 0.0 if loss.value > 0 else 1.0
    return 0.5 * math.erfc(loss.value / error / math.sqrt(2))


def _of(asked: _Asked, metric: str) -> Estimate:
    return asked.auc if metric == "auc" else asked.log_loss


def _loss(repeats: list[list[tuple[int, Estimate]]], metric: str) -> Loss:
    """Returns the mean over repeats of a signed sum of estimates. For AUC, the sign is reversed."""
    turn = -1 if metric == "auc" else 1
    values = turn * np.array([sum(sign * estimate.value for sign, estimate in terms) for terms in repeats])
    signed = [sign * estimate.components for terms in repeats for sign, estimate in terms]
    components = np.sum(signed, axis=0) / len(repeats)
    variance = float(components @ components)
    if len(repeats) > 1:
        variance += float(values.var(ddof=1)) / len(repeats)
    value, half = float(values.mean()), NORMAL_QUANTILE * math.sqrt(variance)
    return Loss(value, (value - half, value + half))


def groups_of(columns: Sequence[str], text: Sequence[str], named: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Returns the columns that are permuted together, by name: named groups, the text, and each other column.

    Args:
        columns: The columns that the model reads.
        text: The columns of its text.
        named: Groups of columns by name.
    """
    together = {name: list(members) for name, members in named.items()}
    taken = {column for members in together.values() for column in members}
    rest = [column for column in text if column not in taken]
    if rest:
        together[TEXT] = rest
    taken.update(text)
    return {**{column: [column] for column in columns if column not in taken}, **together}
