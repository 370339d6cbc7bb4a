"""Finds two categories of a column that a reader takes for one value, such as `Rome` and `Rome ` with a blank."""

import unicodedata
from collections.abc import Callable, Mapping

LEAST_SHARE = 0.005  # of the rows that each of the two has: rarer ones move nothing
_FEWEST_LETTERS = 3  # of a word; shorter codes, as a and A, may be two
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"


def _without_blanks(text: str) -> str:
    return " ".join(text.translate(dict.fromkeys(map(ord, _INVISIBLE))).split())


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", _without_blanks(text))


_WAYS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("blanks", _without_blanks),
    ("how Unicode composes an accent (NFC, NFD)", _composed),
    ("upper and lower case", lambda text: _composed(text).casefold()),
)


def look_alikes(counts: Mapping[str, int], rows: int) -> str:
    """Returns two of a column's categories that differ in nothing that a reader sees as a value; "" without such.

    Args:
        counts: The number of rows with each value.
        rows: The number of all rows.
    """
    frequent = sorted((text for text, count in counts.items() if count >= LEAST_SHARE * rows), key=lambda x: -counts[x])
    for way, plain in _WAYS:
        known: dict[str, str] = {}
        for text in frequent:
            is_short = sum(map(str.isalpha, text)) < _FEWEST_LETTERS
            if is_short and way == _WAYS[-1][0]:
                continue
            first = known.setdefault(plain(text), text)
            if first != text:
                shares = " and ".join(f"{counts[each] / rows:.1%}" for each in (first, text))
                shown = ascii if plain is _composed else repr  # of two that look the same
                return (
                    f"{shown(first)} and {shown(text)}, in {shares} of the rows, are two categories that differ in "
                    f"{way} alone: write them alike in the log and in requests"
                )
    return ""
