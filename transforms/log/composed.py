"""Texts that hold several values: two numbers of a place, or the fields of an object."""

import re
from collections.abc import Collection

from ctrpipe.common.printable import excerpt

_LEAST_SHARE = 0.99  # of a column's different values, that have the form
_PLACE = re.compile(r"\(?-?\d+(\.\d+)? ?[,;| ] ?-?\d+\.\d+\)?", re.ASCII)
_OBJECT = re.compile(r"\{\s*([\"'][^\"']*[\"']\s*:.*)?\}", re.DOTALL)
_FORMS = (
    (_PLACE, "two numbers in one column, such as a place", "write each as a column of its own"),
    (_OBJECT, "objects", "write each field as a column, or the log as JSON lines"),
)


def several_in_one(texts: Collection[str]) -> str:
    """Returns what the values of a column are composed of, and what to do; "" if they are not composed."""
    for form, what, cure in _FORMS:
        alike = [text for text in texts if form.fullmatch(text.strip())]
        if alike and len(alike) >= _LEAST_SHARE * len(texts):
            return f"{what}, as {excerpt(alike[0], 60)}, are read as categories: {cure}"
    return ""
