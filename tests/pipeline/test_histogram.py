"""The histogram of equal widths is TFDV's own, bin by bin, and is what TFDV's statistics have."""

import numpy as np
import pyarrow as pa
import pytest
from tfx_bsl import sketches

from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.monitoring import statistics, validation
from ctrpipe.pipeline.monitoring.faster_tfdv import generate_equi_width_histogram, histograms_on_arrays
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files

RANDOM = np.random.default_rng(7)
VALUES = {
    "normal": RANDOM.normal(size=500),
    "few values": RANDOM.integers(0, 5, 300).astype(float),
    "on the edges": np.arange(11.0),
    "long tail": np.exp(5 * RANDOM.normal(size=400)),
    "constant": np.full(9, 3.0),
    "one": np.array([-2.5]),
    "overflow": np.array([-1.7e308, 0, 1.7e308]),
    "infinite": RANDOM.choice([1.0, 2, 3, 7, np.inf, -np.inf], 200),
    "positive infinity": np.array([1.0, 2, 4, np.inf]),
    "only infinity": np.full(4, np.inf),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("bins", [1, 10])
def test_bins_are_those_of_tfdv(name, bins):
    values = VALUES[name]
    sketch = sketches.QuantilesSketch(0.001, 1 << 20, 1)
    sketch.AddValues(pa.array(values))
    found = [each.flatten().to_numpy(zero_copy_only=False) for each in sketch.GetQuantilesAndCumulativeWeights(1000)]
    finite = values[np.isfinite(values)]
    bounds = (finite.min(initial=np.inf), finite.max(initial=-np.inf))
    arguments = (*found, *bounds, bins, float(np.isposinf(values).sum()))
    ours, theirs = (
        generate_equi_width_histogram(*arguments),
        validation.quantiles_util.generate_equi_width_histogram(*arguments),
    )
    assert ours.type == theirs.type and len(ours.buckets) == len(theirs.buckets)
    for mine, other in zip(ours.buckets, theirs.buckets, strict=True):
        assert (mine.low_value, mine.high_value) == (other.low_value, other.high_value)
        assert mine.sample_count == pytest.approx(other.sample_count, rel=1e-12, abs=1e-9)


def test_tfdv_computes_so_inside_the_block_alone():
    own = validation.quantiles_util.generate_equi_width_histogram
    assert own is not generate_equi_width_histogram
    with histograms_on_arrays():
        assert validation.quantiles_util.generate_equi_width_histogram is generate_equi_width_histogram
    assert validation.quantiles_util.generate_equi_width_histogram is own


def test_statistics_have_it(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("ctrpipe.pipeline.monitoring.faster_tfdv.generate_equi_width_histogram", counted(calls))
    with PayloadWriter(tmp_path, "part", pa.schema({"n": pa.float32()})) as writer:
        writer.write(pa.RecordBatch.from_pydict({"n": pa.array([1.0, 2, 4], pa.float32())}))
    statistics.generate_statistics({"log": payload_files(tmp_path)}, 10, 0, Workers(processes=1))
    assert calls == [4.0]


def counted(calls):
    def generate(*arguments, **options):
        calls.append(options["finite_max"])
        return generate_equi_width_histogram(*arguments, **options)

    return generate
