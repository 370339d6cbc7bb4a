"""Finds lists with weights in another column, such as `a|b` and `0.5|0.1`, for `ctrpipe init`."""

import re
from collections.abc import Mapping, Sequence

from ctrpipe.pipeline.draft.made_columns import MadeColumn, free_name
from ctrpipe.transforms.log.derived.weighted import BEFORE
from ctrpipe.transforms.log.kinds.guess import Guess
from ctrpipe.transforms.log.sample import LIST_SEPARATOR, LogSample
from ctrpipe.transforms.log.words import NUMBER

_FEWEST = 20  # rows with several elements, before two columns are lists of the same length by more than chance
_NAME = re.compile(r"weight|wt|wgt|score|count|prob|conf|freq|tf|relevance|strength", re.IGNORECASE)


def weighted_pairs(sample: LogSample, guesses: Mapping[str, Guess]) -> list[MadeColumn]:
    """Returns the pairs of columns whose lists have the same length in each row, one of them of numbers.

    Args:
        sample: The first rows of a log.
        guesses: The kind of each column that may be a feature.
    """
    free = [name for name in guesses if name not in (*sample.within, *sample.bracketed)]
    pairs: list[MadeColumn] = []
    taken: set[str] = set()
    for name in free:
        settings = guesses[name].settings
        if settings.get("kind") != "multivalent" or "weights" in settings or settings["separator"] == BEFORE:
            continue
        separator = settings["separator"]
        lists = _lists(sample.columns[name], separator)
        if sum(len(row) > 1 for row in lists) < _FEWEST or _are_weights(name, lists):
            continue
        lengths = [len(row) for row in lists]
        fitting = [
            other
            for other in free
            if other not in (name, *taken)
            and (other in sample.lists) == (name in sample.lists)
            and _are_weights(other, numbers := _lists(sample.columns[other], separator))
            and [len(row) for row in numbers] == lengths
        ]
        stem = name.removesuffix("s")
        weights = next((other for other in fitting if stem in other), next(iter(fitting), None))
        if weights is None:
            continue
        taken |= {name, weights}
        derived = {"kind": "weighted", "values": name, "weights": weights}
        if separator != LIST_SEPARATOR:
            derived["separator"] = separator
        comment = f"{name} with the weights in {weights}, a list of the same length in each row"
        guess = Guess({**settings, "weights": BEFORE}, f"{comment}; {guesses[name].comment}", True)
        pairs.append(MadeColumn(free_name(f"weighted_{name}", sample), (name, weights), derived, guess))
    return pairs


def _lists(values: Sequence[str], separator: str) -> list[list[str]]:
    return [value.split(separator) if value else [] for value in values]


def _are_weights(name: str, lists: Sequence[Sequence[str]]) -> bool:
    """Returns whether all elements are numbers, and not only whole ones, unless the column's name says weights."""
    elements = [element for row in lists for element in row]
    if not elements or not all(map(NUMBER.fullmatch, elements)):
        return False
    return any("." in element.removesuffix(".0") for element in elements) or bool(_NAME.search(name))
