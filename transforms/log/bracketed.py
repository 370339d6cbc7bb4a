"""Parses lists in brackets: `['a', 'b']` of Python, `["a", "b"]` of JSON, `{a,b}` of PostgreSQL."""

import ast
import json
import re

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.printable import excerpt

_IN_BRACKETS = re.compile(r"\s*(?:\[(?P<a>.*)\]|\((?P<b>.*)\)|\{(?P<c>.*)\})\s*", re.DOTALL)
_BEGINS = r"^\s*[\[({]"
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ELEMENT = re.compile(rf"\s*({_QUOTED}|[^\s,'\"\[\](){{}}][^,'\"\[\](){{}}]*?)?\s*(,|$)")
_WITHOUT_COMMAS = re.compile(rf"\s*(?:{_QUOTED})(?:\s+(?:{_QUOTED}))*\s*")
_NUMBERS = re.compile(r"[-+.\deE]+(?:\s+[-+.\deE]+)*")
_MISSING = frozenset(("None", "null", "NULL", "nan", "NaN"))


def begins_a_list(text: str) -> bool:
    """Returns whether a text begins with a bracket."""
    return text.lstrip()[:1] in ("[", "(", "{")


def elements_in_brackets(text: str) -> list[str] | None:
    """Returns the elements of a list in brackets, "" for a missing one; None if the text is not such a list.

    Example:
        >>> elements_in_brackets("['a', None, 'b, c']"), elements_in_brackets("[1 2]"), elements_in_brackets("a|b")
        (['a', '', 'b, c'], ['1', '2'], None)
    """
    bracketed = _IN_BRACKETS.fullmatch(text)
    if bracketed is None:
        return None
    inner = next(part for part in bracketed.groups() if part is not None).strip()
    if not inner:
        return []
    if _WITHOUT_COMMAS.fullmatch(inner):  # also as numpy prints arrays
        return [_plain(quoted) for quoted in re.findall(_QUOTED, inner)]
    if _NUMBERS.fullmatch(inner):
        return inner.split()
    elements = []
    place = 0
    while place < len(inner):
        match = _ELEMENT.match(inner, place)
        if match is None:
            return None
        elements.append(_plain(match[1] or ""))
        place = match.end()
    return elements


def from_brackets(values: pa.Array, separator: str, name: str, faults: dict[int, str]) -> pa.Array:
    """Converts lists in brackets to elements joined by a separator. Other binary values are unchanged.

    Args:
        values: The values of a column, null where missing.
        separator: The separator of the elements in the result.
        name: The column, for messages.
        faults: Gets the rows that begin with a bracket but hold no list, or whose elements contain the separator.
    """
    distinct = values.dictionary_encode()
    begins = pc.match_substring_regex(distinct.dictionary, _BEGINS).to_numpy(zero_copy_only=False)
    if not begins.any():
        return values
    joined: list[bytes | None] = distinct.dictionary.to_pylist()
    wrong: dict[int, str] = {}
    for place in begins.nonzero()[0].tolist():
        text = (joined[place] or b"").decode("utf-8", "surrogateescape")
        elements = elements_in_brackets(text)
        if elements is None:
            wrong[place] = f"{name}: '{excerpt(text)}' begins with a bracket and is no list of single values"
        elif any(separator in element for element in elements):
            wrong[place] = f"{name}: an element of the list has the separator '{separator}' in it; set another one"
        else:
            joined[place] = separator.join(elements).encode("utf-8", "surrogateescape") or None
    if wrong:
        for row, place in enumerate(distinct.indices.to_pylist()):
            if place in wrong:
                faults.setdefault(row, wrong[place])
    return pa.array(joined, pa.binary()).take(distinct.indices)


def _plain(element: str) -> str:
    """Returns an element without its quotes."""
    if element in _MISSING:
        return ""
    if element[:1] not in ("'", '"'):
        return element
    if "\\" not in element:
        return element[1:-1]
    try:
        return str(json.loads(element) if element[0] == '"' else ast.literal_eval(element))
    except (ValueError, SyntaxError):
        return element[1:-1]
