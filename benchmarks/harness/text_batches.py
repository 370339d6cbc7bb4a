"""Random rows of numbers and a text, as inputs of models with a text."""

import numpy as np

from ctrpipe.models import FeatureMap
from ctrpipe.models.base.feature_map import Text

LENGTH, WORDS = 64, 30522
BUCKETS = 101


def feature_map(features: int) -> FeatureMap:
    """Returns the description of numbers, each bucketized (101 buckets) and as written, and of a text."""
    fields = [(f"field_{index}", "numeric", BUCKETS, 1, "feature") for index in range(features)]
    text = Text(LENGTH, WORDS, number_ids=tuple(range(1000, 2000)))
    return FeatureMap.from_sizes(fields, text=text, numbers=tuple(name for name, *_ in fields))


def batches(data: FeatureMap, rows: int, count: int) -> list[dict[str, np.ndarray]]:
    """Returns batches of random rows with texts without padding."""
    random = np.random.default_rng(1)
    offsets = np.array([field.offset for field in data.fields])
    return [
        {
            "ids": (offsets + random.integers(2, BUCKETS + 2, (rows, len(offsets)))).astype(np.int32),
            "tokens": random.integers(1000, WORDS, (rows, LENGTH)).astype(np.int32),
            "segments": np.repeat((np.arange(LENGTH) >= LENGTH // 2)[None], rows, axis=0).astype(np.int32),
            # Significands of one to three digits, and exponents 0 to 3.
            "numbers": random.integers((1, 0), (1000, 4), (rows, len(data.numbers), 2))
            .reshape(rows, -1)
            .astype(np.int32),
        }
        for _ in range(count)
    ]
