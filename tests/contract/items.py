"""The items of TF Serving's contract, by section. A test says in its name which of them it is about."""

import re

ITEMS = {
    "R": ("routing", 15),
    "J": ("JSON parsing", 9),
    "P": ("predict requests", 22),
    "O": ("predict responses", 10),
    "C": ("classify and regress", 7),
    "S": ("model status", 4),
    "M": ("metadata", 3),
    "V": ("versions, labels, configuration", 10),
    "G": ("gRPC", 10),
    "B": ("batching", 7),
    "W": ("warm-up", 6),
    "X": ("monitoring", 4),
}
ADVICE = {"W5"}  # to those who record warm-up requests: nothing that a server does
ALL = [
    item
    for letter, (_, count) in ITEMS.items()
    for item in (f"{letter}{number}" for number in range(1, count + 1))
    if item not in ADVICE
]
_NAME = re.compile(r"test_((?:[A-Z]\d+_)+)")


def items_of(test: str) -> list[str]:
    """The items in a test's name: test_R4_R6_malformed is about R4 and R6."""
    found = _NAME.match(test)
    return found[1].strip("_").split("_") if found else []
