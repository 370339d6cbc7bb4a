"""A sample of a log's rows."""

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.row_sample import RowSample


def test_a_sample_has_each_row_with_the_same_chance_in_the_order_of_the_log():
    drawn = []
    for seed in range(300):
        sample = RowSample(20, np.random.default_rng(seed))
        for start in (0, 30, 60):
            sample.add(pa.record_batch({"row": np.arange(start, start + 30)}))
        kept = sample.table()["row"].to_pylist()
        assert len(kept) == 20 and kept == sorted(set(kept))
        drawn += kept
    thirds = np.histogram(drawn, bins=[0, 30, 60, 90])[0] / len(drawn)
    assert np.abs(thirds - 1 / 3).max() < 0.02


def test_a_smaller_sample_is_a_part_of_a_larger_one():
    def drawn(rows: int, part: int | None = None) -> list[int]:
        sample = RowSample(rows, np.random.default_rng(3))
        for start in range(0, 900, 90):
            sample.add(pa.record_batch({"row": np.arange(start, start + 90)}))
        return sample.table(part).to_pydict()["row"]

    assert len(drawn(50)) == 50 and drawn(200, 50) == drawn(50)
