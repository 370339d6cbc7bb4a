"""Finds the known name nearest to a mistyped one, for error messages."""

import difflib
from collections.abc import Iterable

ALIKE = 0.6  # similarity of two names, by difflib, from which one may be meant by the other


def nearest_name(name: str, known: Iterable[str], alike: float = ALIKE) -> str | None:
    """Returns the known name most similar to an unknown one, ignoring case; None if none is similar.

    Args:
        name: The unknown name.
        known: The names that exist.
        alike: The least similarity, between 0 and 1.

    Example:
        >>> nearest_name("DeepFM", ["dcn", "deepfm"]), nearest_name("x", ["dcn", "deepfm"])
        ('deepfm', None)
    """
    names: dict[str, str] = {}
    for one in known:
        names.setdefault(one.casefold(), one)
    close = difflib.get_close_matches(name.casefold(), list(names), 1, alike)
    return names[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: `; did you mean price?`, or "" if no name is similar."""
    near = nearest_name(name, known)
    return f"; did you mean {near}?" if near is not None else ""
