"""Interactions of pairs of columns and pairs of values: in the log, and in a model."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from ctrpipe.common.metrics import ranks
from ctrpipe.common.processes import cores
from ctrpipe.common.progress import throttled_announce
from ctrpipe.common.significance import ALPHA, holm
from ctrpipe.models.explain.information import ValuePairs, chance_complementarity, complementarity, value_pairs
from ctrpipe.models.explain.interplay import Interplay, interplay
from ctrpipe.models.explain.pair_counts import PairCounts
from ctrpipe.pipeline.explain.attention import PickedRows
from ctrpipe.pipeline.explain.importance import Importance, Interaction, Permuter
from ctrpipe.pipeline.explain.value_codes import LogCodes

VALUE_PAIRS = 20  # listed pairs of values
LEAST_ROWS = 100  # minimum rows of a listed pair of values
CURVE_POINTS = 20
SCREENED = 10  # number of most important columns whose pairs are permuted in any case
CHANCE_DRAWS = 40
LEVEL = 0.95
# The measures that pairs are ranked by, in the order of the table. Most pairs of a log do not act together. Their noise
# would hide the ranking of the pairs that do, so all pairs not shown to act together get the same value.
MEASURES: dict[str, Callable[["ColumnPair"], float | None]] = {
    "interplay": lambda pair: pair.interplay.bits if pair.acts_together else 0.0,
    "complementarity": lambda pair: pair.complementarity if pair.acts_together else 0.0,
    "picked": lambda pair: pair.picked,
    "strength": lambda pair: pair.strength,
    "permutation": lambda pair: pair.interaction.log_loss.value if pair.interaction else None,
}


@dataclasses.dataclass(frozen=True)
class ColumnPair:
    """A pair of columns: their interaction in the log and in the model.

    Attributes:
        first, second: The columns.
        complementarity: In bits, minus the mean over permuted clicks. The Miller-Madow correction alone is not enough
            if most values are rare.
        chance: The 95% interval of the complementarity over permuted clicks, in bits, around its mean.
        z: The complementarity in standard deviations over permuted clicks. 0 if they have none.
        interplay: How far the clicks deviate from a model in which the columns' log-odds add up. Its p-value is
            adjusted for the number of pairs (Holm).
        interaction: The interaction by permutation. None if the pair was not permuted.
        picked: How often the model's attention picks one for the other. None if the model does not attend over both.
        strength: The strength of the learned interaction. None if the model does not define one.
    """

    first: str
    second: str
    complementarity: float
    chance: tuple[float, float]
    z: float
    interplay: Interplay
    interaction: Interaction | None = None
    picked: float | None = None
    strength: float | None = None

    @property
    def acts_together(self) -> bool:
        """Whether the log shows that the two columns act together, at a family-wise error rate of 5%."""
        return self.interplay.p_value < ALPHA


@dataclasses.dataclass(frozen=True)
class ValuePair:
    """A pair of values of two columns (Attention-Net, Table 4).

    Attributes:
        first, first_value, second, second_value: The columns and their values.
        where: The condition of the rows, such as `device = phone and 201 < duration <= 414`.
        rows: Number of rows with both values.
        complementarity: In bits.
        rate_of_first, rate_of_second, rate_of_both: Click-through rates.
        picked: How often attention picks one for the other in rows with both values. None for a model without
            attention, or if no row of the sample has both.
    """

    first: str
    first_value: str
    second: str
    second_value: str
    where: str
    rows: int
    complementarity: float
    rate_of_first: float
    rate_of_second: float
    rate_of_both: float
    picked: float | None = None


@dataclasses.dataclass(frozen=True)
class CurvePoint:
    """A point of the curve of picked pairs (Attention-Net, Figure 2).

    Attributes:
        complementarity: In bits. The point covers the pairs of values with at least this complementarity.
        rows: The share of these pairs among all pairs of values in all rows.
        picked: How often attention picks one value of these pairs for the other.
    """

    complementarity: float
    rows: float
    picked: float


def column_pairs(codes: LogCodes, counts: PairCounts, seed: int) -> list[ColumnPair]:
    """Returns all pairs of columns, the largest deviation from additive log-odds (z) first."""
    report = throttled_announce()
    places = list(counts.pairs())
    pairs: list[ColumnPair] = []
    with ThreadPoolExecutor(cores()) as threads:
        for pair in threads.map(lambda place: _column_pair(codes, counts, place, seed), places):
            pairs.append(pair)
            report(f"Complementarity: {len(pairs)} of {len(places)} pairs")
    p_values = holm([pair.interplay.p_value for pair in pairs])
    pairs = [
        dataclasses.replace(pair, interplay=dataclasses.replace(pair.interplay, p_value=float(p_value)))
        for pair, p_value in zip(pairs, p_values, strict=True)
    ]
    return sorted(pairs, key=lambda pair: -pair.interplay.z)


def _column_pair(codes: LogCodes, counts: PairCounts, place: tuple[int, int], seed: int) -> ColumnPair:
    random = np.random.default_rng([seed, *place])
    table = counts.of(*place)
    drawn = chance_complementarity(table, CHANCE_DRAWS, random)
    bias, spread = float(drawn.mean()), float(drawn.std(ddof=1))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - bias
    value = float(complementarity(table)) - bias
    return ColumnPair(
        codes.columns[place[0]],
        codes.columns[place[1]],
        value,
        (float(low), float(high)),
        value / spread if spread else 0.0,
        interplay(table, CHANCE_DRAWS, random),
    )


def permute_pairs(
    pairs: Sequence[ColumnPair], importances: Iterable[Importance], permuter: Permuter, count: int
) -> list[ColumnPair]:
    """Returns the pairs, with the first `count` pairs of important columns permuted.

    A column is important if the model uses it, or if it is one of the SCREENED most important.

    Args:
        pairs: The pairs, in the order in which they are permuted.
        importances: The most important column first.
        permuter: Scores permuted rows with the model.
        count: How many pairs are permuted.
    """
    ranked = enumerate(importances)
    single = {
        one.columns[0]: one for place, one in ranked if (one.is_used or place < SCREENED) and len(one.columns) == 1
    }
    left = count
    permuted = []
    for pair in pairs:
        if left and pair.first in single and pair.second in single:
            left -= 1
            interaction = permuter.interaction(single[pair.first], single[pair.second])
            pair = dataclasses.replace(pair, interaction=interaction)
        permuted.append(pair)
    return permuted


def unused_columns(pairs: Sequence[ColumnPair], importances: Iterable[Importance]) -> list[str]:
    """Returns the columns that act together with another in the log, but are not shown to be used by the model."""
    acting = {name for pair in pairs if pair.acts_together for name in (pair.first, pair.second)}
    return [name for one in importances if not one.is_used for name in one.columns if name in acting]


def with_model(
    pairs: Sequence[ColumnPair], picked: Mapping[frozenset[str], float], strengths: Mapping[frozenset[str], float]
) -> list[ColumnPair]:
    """Returns the pairs with the shares that attention picks and the learned strengths."""
    names = [frozenset((pair.first, pair.second)) for pair in pairs]
    return [
        dataclasses.replace(pair, picked=picked.get(name), strength=strengths.get(name))
        for pair, name in zip(pairs, names, strict=True)
    ]


def rank_correlations(pairs: Sequence[ColumnPair]) -> list[dict[str, str | int | float]]:
    """Returns Spearman's correlation of every two measures, over the pairs of columns that have both.

    Correlations that do not exist are left out.
    """
    correlations: list[dict[str, str | int | float]] = []
    names = list(MEASURES)
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            known = [(MEASURES[first](pair), MEASURES[second](pair)) for pair in pairs]
            both = [(one, other) for one, other in known if one is not None and other is not None]
            value = _spearman(both)
            if value is not None:
                correlations.append({"first": first, "second": second, "pairs": len(both), "spearman": value})
    return correlations


def _spearman(known: Sequence[tuple[float, float]]) -> float | None:
    """Returns the rank correlation, or None for fewer than three pairs or a constant side."""
    if len(known) < 3:
        return None
    first, second = (ranks(np.array(values)) for values in zip(*known, strict=True))
    if not first.std() or not second.std():
        return None
    return float(np.corrcoef(first, second)[0, 1])


def pairs_of_values(
    codes: LogCodes,
    counts: PairCounts,
    rows: npt.NDArray[np.integer] | None = None,
    picked: PickedRows | None = None,
) -> tuple[list[ValuePair], list[CurvePoint]]:
    """Returns the most complementary pairs of values of all columns, and the curve of picked pairs.

    Args:
        codes, counts: The codes and the counts of all rows of the log.
        rows: The codes of the rows in `picked`, `[columns, N]`. None for a model without attention.
        picked: The pairs that attention picks in these rows.
    """
    best: list[ValuePair] = []
    cells: list[npt.NDArray[np.float64]] = []
    for place in counts.pairs():
        names = codes.columns[place[0]], codes.columns[place[1]]
        pairs = value_pairs(counts.of(*place), LEAST_ROWS)
        asked = np.zeros((2, len(pairs.rows)))
        shares = picked.of(*names) if picked else None
        if rows is not None and shares is not None:
            asked = _by_values(pairs, rows[list(place)], shares, counts.of(*place).shape)
            cells.append(np.stack([pairs.complementarity, *asked]))
        for cell in np.argsort(-pairs.complementarity)[:VALUE_PAIRS]:
            chosen = pairs.first[cell], pairs.second[cell]
            values = [codes.names[column][value] for column, value in zip(place, chosen, strict=True)]
            holds = [codes.conditions[column][value] for column, value in zip(place, chosen, strict=True)]
            best.append(
                ValuePair(
                    names[0],
                    values[0],
                    names[1],
                    values[1],
                    " and ".join(holds),
                    int(pairs.rows[cell]),
                    float(pairs.complementarity[cell]),
                    float(pairs.rate_of_first[cell]),
                    float(pairs.rate_of_second[cell]),
                    float(pairs.rate_of_both[cell]),
                    float(asked[1, cell] / asked[0, cell]) if asked[0, cell] else None,
                )
            )
        best = sorted(best, key=lambda pair: -pair.complementarity)[:VALUE_PAIRS]
    return best, _curve(np.concatenate(cells, axis=1)) if cells else []


def _by_values(
    pairs: ValuePairs, rows: npt.NDArray[np.integer], shares: npt.NDArray[np.floating], shape: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """Returns the number of rows with each pair of values, and the sum of their picked shares, `[2, P]`."""
    cell = rows[0].astype(np.intp) * shape[1] + rows[1]
    size = shape[0] * shape[1]
    totals = np.stack([np.bincount(cell, minlength=size), np.bincount(cell, shares, size)])
    return np.asarray(totals[:, pairs.first * shape[1] + pairs.second])


def _curve(cells: npt.NDArray[np.float64]) -> list[CurvePoint]:
    """Returns the picked share among the most complementary pairs, at CURVE_POINTS shares of the data.

    Args:
        cells: Complementarity, rows and picked rows of each pair of values, `[3, P]`.
    """
    bits, rows, picked = cells[:, np.argsort(-cells[0], kind="stable")]
    if not rows.sum():
        return []
    so_far = np.cumsum(rows)
    shares = np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS
    places = np.unique(np.minimum(np.searchsorted(so_far, shares * so_far[-1] - 1e-9), len(rows) - 1))
    picks = np.cumsum(picked)
    return [
        CurvePoint(float(bits[place]), float(so_far[place] / so_far[-1]), float(picks[place] / so_far[place]))
        for place in places
    ]
