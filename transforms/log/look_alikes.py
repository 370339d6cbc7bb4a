"""Finds two categories of a column that look the same to a reader, such as `Rome` and `Rome ` with a blank."""

import html
import unicodedata
from collections.abc import Callable, Mapping

LEAST_SHARE = 0.005  # of the rows that each of the two has: rarer ones move nothing
LEAST_TOGETHER = 0.05  # of the rows that have another writing of a value, of rare values together
MOST_ALIKE = 20_000  # values that are compared, the most frequent ones
_FEWEST_LETTERS = 3  # of a word; shorter codes, as a and A, may be two
_INVISIBLE = dict.fromkeys(map(ord, "\0\u00ad\u200e\u200f\u200b\u200c\u200d\u2060\ufeff"))


def _without_blanks(text: str) -> str:
    visible = text if text.isascii() and "\0" not in text else text.translate(_INVISIBLE)  # which is slow
    return " ".join(visible.split())


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", _without_blanks(text))


def _in_one_case(text: str) -> str:
    return _composed(text).casefold() if sum(map(str.isalpha, text)) >= _FEWEST_LETTERS else text


def _without_zeros(text: str) -> str:
    return text.lstrip("0") or "0" if text.isdecimal() else text


def _without_entities(text: str) -> str:
    return html.unescape(text) if "&" in text else text


def _decoded_once(text: str) -> str:
    """Returns `é` for `Ã©`, the bytes of UTF-8 that were read as those of Windows."""
    if text.isascii():
        return text
    try:
        return text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return text


def _plain_forms(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


_WAYS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("the entities of HTML", _without_entities),
    ("an encoding that was read as another one", _decoded_once),
    ("blanks or invisible signs", _without_blanks),
    ("how Unicode composes an accent (NFC, NFD)", _composed),
    ("upper and lower case", _in_one_case),
    ("leading zeros", _without_zeros),
    ("the width or form of a sign", _plain_forms),
)


def one_writing(text: str) -> str:
    """Returns one writing of all texts that `look_alikes` finds alike."""
    return _without_zeros(_composed(_plain_forms(_decoded_once(_without_entities(text)))).casefold())


def look_alikes(counts: Mapping[str, int], rows: int, what: str = "categories", sampled: int | None = None) -> str:
    """Returns two of a column's categories that look the same to a reader; "" if there are none.

    Args:
        counts: The number of rows with each value.
        rows: The number of all rows.
        what: What the values are.
        sampled: The number of rows with a value in `counts`, if the values are a sample; None: `rows`.
    """
    texts = sorted(counts, key=lambda x: -counts[x])
    for way, plain in _WAYS:
        known: dict[str, str] = {}
        pairs = [(first, text) for text in texts if (first := known.setdefault(plain(text), text)) != text]
        if not pairs:
            continue
        first, text = pairs[0]
        together = sum(counts[other] for _, other in pairs)
        is_rare = counts[text] < LEAST_SHARE * rows
        if is_rare and together < LEAST_TOGETHER * (sampled or rows):
            continue
        shares = " and ".join(f"{counts[each] / rows:.1%}" for each in (first, text))
        shown = ascii if plain is _composed else repr  # of two that look the same
        others = f", and {len(pairs) - 1:,} more like them" if is_rare and len(pairs) > 1 else ""
        return (
            f"{shown(first)} and {shown(text)}, in {shares} of the rows{others}, are two {what} that differ in "
            f"{way} alone: write them alike in the log and in requests"
        )
    return ""
