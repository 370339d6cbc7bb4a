"""Finds numbered columns that form one vector, such as `emb_0` to `emb_63`, for `ctrpipe init`."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from ctrpipe.pipeline.draft.made_columns import MadeColumn, free_name
from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.sample import LIST_SEPARATOR, LogSample
from ctrpipe.transforms.log.section import expand_names
from ctrpipe.transforms.log.words import NUMBER

_NUMBERED = re.compile(r"(.*\D)(\d+)", re.DOTALL)
_VECTOR_NAME = re.compile(
    r"(^|[\W_])(emb|embed|embedding|vec|vector|latent|factor|dim|svd|pca|als|bert|w2v|clip)s?($|[\W_\d])", re.IGNORECASE
)
_FEWEST_NAMED, _FEWEST = 4, 16  # elements, of a name that says what they are and of any other name
_GAPS = 0.1  # of the numbers between the first and the last: elements that are constant are no columns of a draft
_SCALE = 4.0  # times the smallest deviation of an element is the largest
_DECIMALS = 0.5  # of the values: elements of a vector may be 0


def numbered_vectors(sample: LogSample, guesses: Mapping[str, Guess]) -> list[MadeColumn]:
    """Returns a vector for each set of numbered columns with one scale and the same missing rows.

    Args:
        sample: The first rows of a log.
        guesses: The kind of each column that may be a feature.
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    others: set[str] = set()
    for name, guess in guesses.items():
        match = _NUMBERED.fullmatch(name)
        if not match or not guess.settings:
            continue
        is_plain = guess.settings["kind"] == "numeric" and "written" not in guess.settings
        if is_plain and not guess.unsure and name in sample.columns:
            groups.setdefault(match[1], []).append((int(match[2]), name))
        else:
            others.add(match[1])
    made = (_vector(prefix, sorted(members), sample) for prefix, members in groups.items() if prefix not in others)
    return [vector for vector in made if vector]


def _vector(prefix: str, members: Sequence[tuple[int, str]], sample: LogSample) -> MadeColumn | None:
    names = [name for _, name in members]
    fewest = _FEWEST_NAMED if _VECTOR_NAME.search(prefix) else _FEWEST
    numbers = [number for number, _ in members]
    span = numbers[-1] - numbers[0] + 1
    if len(names) < fewest or len(set(numbers)) < len(numbers) or span - len(names) > _GAPS * span:
        return None
    columns = [ColumnSample(name, sample.columns[name]) for name in names]
    present = [value in column.distinct for column in columns[:1] for value in column.values]
    if any([value in column.distinct for value in column.values] != present for column in columns):
        return None
    if not all(map(_is_element, columns)):
        return None
    deviations = [float(np.std(np.array(column.present, np.float64))) for column in columns]
    if max(deviations) > _SCALE * min(deviations):
        return None
    rows = zip(*(column.values for column in columns), strict=True)
    joined = [LIST_SEPARATOR.join(row) if is_one else "" for row, is_one in zip(rows, present, strict=True)]
    guess = Vector.guess(ColumnSample(prefix, joined, is_list=True))
    if guess is None:
        return None
    ranges = _ranges(members)
    told = f"{names[0]} to {names[-1]} seem to be the elements of one vector; {guess.comment}"
    made = dataclasses.replace(guess, comment=told, unsure=True)
    name = free_name(prefix.rstrip("_-. ") or "vector", sample)
    return MadeColumn(name, tuple(names), {"kind": "vector", "of": ranges}, made)


def _is_element(column: ColumnSample) -> bool:
    """Returns whether a column has only finite numbers, most of them with decimals, and several distinct ones."""
    if len(column.distinct) < 2 or not all(map(NUMBER.fullmatch, column.distinct)):
        return False
    decimals = sum("." in value.removesuffix(".0") or "e" in value.lower() for value in column.present)
    return decimals >= _DECIMALS * len(column.present)


def _ranges(members: Sequence[tuple[int, str]]) -> list[str]:
    """Returns the names of numbered columns, with `e1..e4` for those that follow each other."""
    ranges: list[str] = []
    for _, group in itertools.groupby(enumerate(members), lambda item: item[1][0] - item[0]):
        names = [name for _, (_, name) in group]
        written = f"{names[0]}..{names[-1]}"
        ranges += [written] if len(names) > 1 and expand_names([written]) == names else names
    return ranges
