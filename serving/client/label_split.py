"""Divides a client's requests between the labels of a model, for example for a canary."""

import hashlib
import math
import random
from collections.abc import Mapping

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.whole_numbers import text_of_float

Key = str | bytes | int | float


class LabelSplit:
    """A weighted choice between labels.

    A key gets the same label in every process. With two labels, a label whose weight grows keeps all its keys.

    Args:
        weights: Weight by label. {"stable": 0.95, "canary": 0.05} and {"stable": 95, "canary": 5} are equivalent.

    Raises:
        InputError: a weight is negative or not finite, or no weight is positive.
    """

    def __init__(self, weights: Mapping[str, float]):
        wrong = [label for label, weight in weights.items() if not (weight >= 0 and math.isfinite(weight))]
        if wrong or not sum(weights.values()) > 0:
            shown = ", ".join(f"{label}={weight}" for label, weight in weights.items())
            raise InputError(f"label weights '{shown}': give each label a weight of 0 or more, and one of them above 0")
        self.weights = dict(sorted(weights.items()))

    @classmethod
    def parse(cls, text: str) -> "LabelSplit":
        """Parses 'stable=95,canary=5'. Raises InputError for any other form."""
        weights: dict[str, float] = {}
        for part in text.split(","):
            label, _, weight = (piece.strip() for piece in part.partition("="))
            number: float | None
            try:
                number = float(weight)
            except ValueError:
                number = None
            if number is None or not label or label in weights:
                raise InputError(f"label weights '{text}': write them as stable=95,canary=5")
            weights[label] = number
        return cls(weights)

    def choose(self, key: Key | None = None) -> str:
        """Returns the label for one request, by the hash of a key such as a user's id, or at random."""
        point = (random.random() if key is None else _hashed(key)) * sum(self.weights.values())
        for label, weight in self.weights.items():
            if point < weight:
                return label
            point -= weight
        return next(
            label for label in reversed(self.weights) if self.weights[label]
        )  # a rounding error passed the last label


def _hashed(key: Key) -> float:
    """Returns a uniform hash of the key in [0, 1), equal in every process; 7, 7.0 and "7" are the same key."""
    key = text_of_float(key) if isinstance(key, float) else key
    text = key if isinstance(key, bytes) else str(key).encode()
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53
