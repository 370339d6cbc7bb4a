"""The values of a slicing column. A row with several values, such as `a|b`, is in the slice of each value."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MISSING = "(missing)"  # the value of a row without one
Places = npt.NDArray[np.intp]


def elements_of(texts: Sequence[str], separator: str) -> tuple[list[str], Places, Places]:
    """Returns the elements of texts, and pairs of a text's index and the index of an element in it, each pair once.

    Args:
        texts: The values of a column, each once.
        separator: The separator of the elements; "" if a text is one element.
    """
    if not separator:
        every = np.arange(len(texts), dtype=np.intp)
        return list(texts), every, every
    numbers: dict[str, int] = {}
    pairs = [
        (place, numbers.setdefault(element, len(numbers)))
        for place, text in enumerate(texts)
        for element in dict.fromkeys([part for part in text.split(separator) if part] or [MISSING])
    ]
    places, elements = np.array(pairs, np.intp).reshape(-1, 2).T
    return list(numbers), places, elements


def frequent_slices(
    texts: Sequence[str], codes: np.ndarray, separator: str, most: int
) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Returns the values that are in the most rows, most frequent first, and whether each row has the value, `[N]`.

    Args:
        texts: The values of a column, each once.
        codes: The index of each row's value, `[N]`.
        separator: The separator of a row's values; "" for single values.
        most: The largest number of values to return.
    """
    names, places, elements = elements_of(texts, separator)
    rows = np.bincount(codes, minlength=len(texts))
    counts = np.bincount(elements, rows[places], len(names))
    order = sorted((number for number in range(len(names)) if counts[number]), key=lambda n: (-counts[n], names[n]))
    slices = []
    for number in order[:most]:
        holds = np.zeros(len(texts), bool)
        holds[places[elements == number]] = True
        slices.append((names[number], holds[codes]))
    return slices
