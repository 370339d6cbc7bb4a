"""The items of docs/contract.md. The name of a test contains the items that it tests."""

import pathlib
import re
from typing import NamedTuple

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "contract.md"
_ITEM = re.compile(r"- \*\*([A-Z]\d+)\*\* (.+)")
_NAME = re.compile(r"test_((?:[A-Z]\d+_)+)")


class Item(NamedTuple):
    """A line of the document, under the heading of its section."""

    section: str
    text: str

    @property
    def is_advice(self) -> bool:
        """Whether the item concerns people and cannot be tested."""
        return "without a test" in self.text


def read_items() -> dict[str, Item]:
    """Returns the items by code, in the document's order."""
    items: dict[str, Item] = {}
    section = ""
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif match := _ITEM.fullmatch(line):
            assert match[1] not in items, f"{match[1]} is there twice"
            items[match[1]] = Item(section, match[2])
    return items


def items_of(test: str) -> list[str]:
    """Returns the codes in a test's name: test_R4_R6_malformed is about R4 and R6."""
    match = _NAME.match(test)
    return match[1].strip("_").split("_") if match else []
