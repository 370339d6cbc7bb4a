"""Finds words for a missing value, such as `unknown` or a blank, in columns of numbers and times."""

import collections
import dataclasses
import re
from collections.abc import Mapping, Sequence

from ctrpipe.pipeline.draft.columns import guess_column
from ctrpipe.pipeline.draft.written_numbers import are_written
from ctrpipe.transforms.log.kinds.guess import Guess
from ctrpipe.transforms.log.sample import LogSample
from ctrpipe.transforms.log.words import INFINITE, USUAL_MISSING

_DIGIT = re.compile(r"\d")
# Words that mean a missing value in whatever column they are; others, such as `no` and `M`, may be values there.
_UNKNOWN = re.compile(
    r"[\W_]*|(un|not[\W_]*)(known|available|defined|specified|given|set)|missing|nil|empty|blank|unk|na|n\.a\.?",
    re.IGNORECASE,
)
_ERROR = re.compile(r"#(DIV/0|REF|VALUE|NUM|NAME|NULL|N/A)[!?]?")  # of a spreadsheet's formula
_MOST_WORDS = 3  # of a column
_MOST_ROWS = 0.8  # of a column's values, above which they are no numbers
_FEWEST_ROWS = 20  # with a number or time
_MOST_SIZES = 32  # different numbers in a column with words such as S, M and L; with more, they are amounts


def missing_words(sample: LogSample, but: Sequence[str] = ()) -> dict[str, list[str]]:
    """Returns the words for a missing value in each column whose other values are amounts or times.

    `data.missing_values` applies to every column, so a word that may be a value of another column is left out. Several
    words among a few different numbers, such as the sizes S, M and L among 36 to 44, are values: as missing values they
    would all be equal.

    Args:
        sample: The first rows of a log.
        but: Columns that are not looked at, such as the label.
    """
    found = {}
    for name, values in sample.columns.items():
        if name in sample.lists or name in but or not (words := _words(values)):
            continue
        others = ["" if value in words else value for value in values]
        if _are_sizes(words, others):
            continue
        if sum(map(bool, others)) >= _FEWEST_ROWS and _is_amount(name, others, sample):
            if not _is_amount(name, values, sample):
                found[name] = words
    return {name: words for name, words in found.items() if not any(_is_value(word, sample, found) for word in words)}


def as_missing(sample: LogSample, words: Mapping[str, Sequence[str]]) -> LogSample:
    """Returns a sample in which the given words of each column are missing values."""
    columns = {name: ["" if one in words[name] else one for one in sample.columns[name]] for name in words}
    return dataclasses.replace(sample, columns={**sample.columns, **columns})


def with_missing_values(sample: LogSample, words: Mapping[str, Sequence[str]], targets: Sequence[str]) -> LogSample:
    """Adds the words of all columns to `data.missing_values`, and removes the words from the sample's columns.

    Targets and lists keep their values. A usual word that only columns of texts have, such as NA for North America,
    stays a value, as without the key.
    """
    if not words:
        return sample
    names = [name for name in sample.columns if name not in {*targets, *sample.lists}]
    of_numbers, of_texts = set[str](), set[str]()
    for name in names:
        if usual := set(USUAL_MISSING).intersection(sample.columns[name]):
            (of_numbers if _is_number_or_time(name, sample.columns[name]) else of_texts).update(usual)
    usual_words = [word for word in USUAL_MISSING if word in of_numbers or word not in of_texts]
    listed = list(dict.fromkeys([*usual_words, *(word for of_column in words.values() for word in of_column)]))
    others = dict.fromkeys(names, listed)
    return as_missing(dataclasses.replace(sample, data={**sample.data, "missing_values": listed}), others)


def told(guess: Guess, words: Sequence[str]) -> Guess:
    """Adds a question to a column's guess: do its words mean a missing value?"""
    if not guess.settings:
        return guess
    shown = " and ".join(repr(word) for word in words)
    is_taken = "is taken" if len(words) == 1 else "are taken"
    asked = f"{shown} {is_taken} for a missing value, in every column (data.missing_values): is it one?"
    return dataclasses.replace(guess, comment=f"{guess.comment}; {asked}", unsure=True)


def _words(values: Sequence[str]) -> list[str]:
    """Returns a column's values without a digit; none if there are too many of them."""
    counts = collections.Counter(values)
    present = {value: count for value, count in counts.items() if value and value not in USUAL_MISSING}
    words = [
        value for value in present if _ERROR.fullmatch(value) or not (_DIGIT.search(value) or INFINITE.fullmatch(value))
    ]
    rows = sum(present[word] for word in words)
    return words if len(words) <= _MOST_WORDS and rows <= _MOST_ROWS * sum(present.values()) else []


def _are_sizes(words: Sequence[str], others: Sequence[str]) -> bool:
    """Returns whether several words are values among a few different numbers, "" where a row has one of the words."""
    named = [word for word in words if not (_UNKNOWN.fullmatch(word) or _ERROR.fullmatch(word))]
    return len(named) > 1 and len(set(others) - {""}) <= _MOST_SIZES


def _is_value(word: str, sample: LogSample, found: Mapping[str, Sequence[str]]) -> bool:
    """Returns whether a word may be a value of a column in which it is not found as one for a missing value."""
    others = (values for name, values in sample.columns.items() if word not in found.get(name, ()))
    is_sure = _UNKNOWN.fullmatch(word) or _ERROR.fullmatch(word)
    return not is_sure and any(word in values for values in others)


def _is_amount(name: str, values: Sequence[str], sample: LogSample) -> bool:
    return _is_number_or_time(name, values) or are_written(name, values, sample)


def _is_number_or_time(name: str, values: Sequence[str]) -> bool:
    return guess_column(name, values, False).settings.get("kind") in ("numeric", "time")
