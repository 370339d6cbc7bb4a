"""The hidden click model of sample logs: main effects, planted pairs and planted triples of columns."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.hashing import hash_values
from ctrpipe.transforms.generate.columns import Column, Integer, code_shares
from ctrpipe.transforms.generate.formats import LogLayout

Interactions = Literal["both", "pairs", "triples", "none"]


@dataclasses.dataclass(frozen=True)
class ClickModel:
    """Parameters of the click model of a sample log.

    `logit = bias + sum main_c[x_c] + sum w2 s_a[x_a] s_b[x_b] + sum w3 s_a[x_a] s_b[x_b] s_c[x_c]`, where every column
    of a term splits its values into two halves of equal mass, s = -1 and s = +1. A product of such signs averages to
    zero over each of its columns. With `main_strength=0` and the format's own terms, pairs have no effect on any single
    column, and triples have no effect on any single column or pair of columns.

    Args:
        interactions: Orders of the planted terms.
        main_strength: Approximate standard deviation of the sum of the main effects, in logits; slightly larger with
            columns that follow another column.
        pair_strength: Standard deviation of the sum of the pair terms, in logits.
        triple_strength: Standard deviation of the sum of the triple terms, in logits.
        base_rate: Expected click-through rate; None for the format's rate.
        pairs, triples: Columns of each term; None for the format's terms.
        world: Seed of the effects. Logs with different row seeds and the same world have the same effects, so a model
            trained on one can be evaluated on the other.

    Raises:
        InputError: a value is out of range.
    """

    interactions: Interactions = "both"
    main_strength: float = 1.2
    pair_strength: float = 0.95
    triple_strength: float = 0.7
    base_rate: float | None = None
    pairs: tuple[tuple[str, str], ...] | None = None
    triples: tuple[tuple[str, str, str], ...] | None = None
    world: int = 0

    def __post_init__(self) -> None:
        if self.interactions not in get_args(Interactions):
            raise InputError(f"interactions should be one of {get_args(Interactions)}. Received: {self.interactions!r}")
        for name in ("main_strength", "pair_strength", "triple_strength"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise InputError(f"{name} should be a non-negative number. Received: {getattr(self, name)!r}")
        if self.base_rate is not None and not 0.0 < self.base_rate < 1.0:
            raise InputError(f"base_rate should lie between 0 and 1. Received: {self.base_rate!r}")


@dataclasses.dataclass(frozen=True)
class Term:
    """A planted term: `weight`, in logits, times the product of the signs of `columns`."""

    columns: tuple[str, ...]
    weight: float


def balanced_signs(shares: np.ndarray) -> np.ndarray:
    """Splits values with the shares `[V]` into two halves of about equal mass; returns signs -1 and +1 `[V]`.

    Assigns each value, largest share first, to the lighter half (greedy number partitioning).
    """
    signs = np.ones(len(shares))
    balance = 0.0
    for value in np.argsort(-shares, kind="stable"):
        signs[value] = -1.0 if balance > 0 else 1.0
        balance += signs[value] * shares[value]
    return signs


def _drawn_effects(column: Column, key: str) -> np.ndarray:
    return main_effects(column, hash_values(key, np.arange(column.codes + 1)) / 2.0**63 - 1.0)


def main_effects(column: Column, drawn: np.ndarray) -> np.ndarray:
    """Returns effects `[codes + 1]` with mean 0 and variance 1 over the rows; rare values share one effect.

    Args:
        column: The column.
        drawn: A random number in [-1, 1) for each code, `[codes + 1]`.
    """
    shares = code_shares(column)
    effects = drawn.copy()
    if isinstance(column, Integer):
        # A trend over the log buckets: a count acts mostly through its magnitude, which numeric features can model.
        effects[:-1] += np.sign(effects[0]) * np.arange(len(shares) - 1)
    if column.rare_code is not None:
        effects[column.rare_code] = 0.0
    effects -= shares @ effects
    return effects / max(float(np.sqrt(shares @ effects**2)), 1e-12)


class HiddenModel:
    """A ClickModel applied to a log format, with tables of effects and signs by column.

    Args:
        spec: Layout of the log.
        model: Parameters of the click model.
        effects: Function of a column and a hash key that returns the column's main effects, like `main_effects`.

    Raises:
        InputError: a term names a column that the layout lacks.
    """

    def __init__(
        self, spec: LogLayout, model: ClickModel, effects: Callable[[Column, str], np.ndarray] = _drawn_effects
    ) -> None:
        by_name = {column.name: column for column in spec.columns}
        total_weight = np.sqrt(sum(column.main_weight**2 for column in spec.columns))
        self.main: dict[str, np.ndarray] = {}
        if model.main_strength > 0:
            for name, column in by_name.items():
                scale = model.main_strength * column.main_weight / total_weight
                self.main[name] = scale * effects(column, f"{model.world}/{spec.name}/{name}")
        self.terms = _terms(spec, model)
        self.signs: dict[str, np.ndarray] = {}
        for name in dict.fromkeys(name for term in self.terms for name in term.columns):
            if name not in by_name:
                raise InputError(f"the click model names column {name!r}, which the {spec.name} log does not have")
            self.signs[name] = balanced_signs(code_shares(by_name[name]))

    def logits(self, codes: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the logits without the bias, float64 `[N]`, for codes `[N]` by column."""
        logits = np.zeros(len(next(iter(codes.values()))))
        for name, effects in self.main.items():
            logits += effects[codes[name]]
        signs = {name: table[codes[name]] for name, table in self.signs.items()}
        for term in self.terms:
            product = term.weight * signs[term.columns[0]]
            for name in term.columns[1:]:
                product *= signs[name]
            logits += product
        return logits


def _terms(spec: LogLayout, model: ClickModel) -> list[Term]:
    planted: list[tuple[tuple[tuple[str, ...], ...], float]] = []
    if model.interactions in ("both", "pairs"):
        planted.append((spec.pairs if model.pairs is None else model.pairs, model.pair_strength))
    if model.interactions in ("both", "triples"):
        planted.append((spec.triples if model.triples is None else model.triples, model.triple_strength))
    # Terms are uncorrelated, so their variances add up.
    return [Term(columns, strength / len(group) ** 0.5) for group, strength in planted for columns in group]


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns 1 / (1 + exp(-logits)) `[N]`."""
    probabilities: np.ndarray = 1.0 / (1.0 + np.exp(-logits))
    return probabilities


def solve_bias(logits: np.ndarray, base_rate: float) -> float:
    """Finds by bisection the bias that gives `logits` `[N]` the mean probability `base_rate`."""
    low, high = -40.0, 40.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sigmoid(logits + middle).mean() < base_rate else (low, middle)
    return (low + high) / 2
