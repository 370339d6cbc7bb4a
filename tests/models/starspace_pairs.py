"""StarSpace's pairs of a bag and a label, and their loss in numpy: without TensorFlow, for tests on JAX too."""

import math

import numpy as np

from ctrpipe.models import FeatureMap

PAIRS = FeatureMap.from_sizes(
    [("label", "categorical", 4, 1, "item"), ("words", "multivalent", 6, 3)]  # ids 1 to 6, 7 to 14
)
# Rows 0 and 3 are one document with two labels; 1 and 4 have one label; 5 has no pair.
IDS = np.array([[3, 9, 10, 0], [4, 11, 12, 13], [5, 9, 14, 0], [6, 9, 10, 0], [4, 13, 0, 0], [3, 12, 10, 11]], np.int32)
LABELS = np.array([1.0, 1.0, 0.5, 1.0, 1.0, 0.0])
WEIGHTS = np.array([1.0, 2.0, 1.0, 1.0, 0.5, 3.0])


def loss_by_loops(table, similarity: str, loss: str, k: int, margin: float, labels, weights) -> float:
    """The mean loss of the pairs, one pair and one negative at a time."""

    def vector(ids) -> np.ndarray:
        total = sum(table[i] for i in ids if i)
        return total / np.linalg.norm(total) if similarity == "cosine" else total

    total = count = 0.0
    for i, (b, *a) in enumerate(IDS):
        negatives = []
        for step in range(1, min(k, len(IDS) - 1) + 1):
            j = (i + step) % len(IDS)
            other, *of = IDS[j]
            if other != b and not (of == a and labels[j] > 0):
                negatives.append(vector(a) @ vector([other]))
        pair = vector(a) @ vector([b])
        if loss == "margin":
            one = sum(max(0.0, margin - pair + negative) for negative in negatives)
        else:
            one = -math.log(math.exp(pair) / (math.exp(pair) + sum(math.exp(negative) for negative in negatives)))
        total += labels[i] * weights[i] * one
        count += labels[i] * weights[i]
    return total / count
