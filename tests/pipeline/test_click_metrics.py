"""The metrics that TFMA runs on blocks of rows, against common/metrics.py, scikit-learn and TFMA's own."""

import math

import numpy as np
import pytest
import sklearn.metrics
from tensorflow_model_analysis.metrics import calibration, cross_entropy_metrics, metric_types

from ctrpipe.common import metrics
from ctrpipe.pipeline.evaluation import click_metrics

KEY = metric_types.MetricKey("_clicks")


def count(labels: np.ndarray, scores: np.ndarray, cuts: list[int]) -> click_metrics.Counts:
    """Returns the counts of rows that are added in blocks, cut at `cuts`. The first two blocks share an accumulator."""
    combiner = click_metrics.CountClicks(KEY, None)
    accumulators = [combiner.create_accumulator()]
    for number, part in enumerate(np.split(np.arange(len(labels)), cuts)):
        if number > 1:
            accumulators.append(combiner.create_accumulator())
        block = metric_types.StandardMetricInputs({"labels": labels[part], "predictions": scores[part]})
        accumulators[-1] = combiner.add_input(accumulators[-1], block)
    accumulators[0] = combiner.compact(accumulators[0])
    return combiner.extract_output(combiner.merge_accumulators(accumulators))[KEY]


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores. All scores lie between two of TFMA's thresholds, and many are equal."""
    random = np.random.default_rng(1)
    labels = (random.random(3000) < 0.3).astype(np.float32)
    return labels, np.float32(1e-3 + 1e-6 * (labels + random.normal(size=3000)).round(2))


def test_blocks_give_the_metrics_of_all_rows(rows):
    labels, scores = rows
    counts = count(labels, scores, [700, 701, 2000])
    assert len(counts[0]) < 1000 and click_metrics.row_count(*counts) == 3000
    auc = click_metrics.auc(*counts)
    assert auc == pytest.approx(metrics.auc(labels, scores), abs=1e-12) and 0.6 < auc < 0.9
    assert auc == pytest.approx(sklearn.metrics.roc_auc_score(labels, scores), abs=1e-9)
    log_loss = click_metrics.log_loss(*counts)
    assert log_loss == pytest.approx(metrics.log_loss(labels, scores), abs=1e-12)
    assert log_loss == pytest.approx(sklearn.metrics.log_loss(labels, scores.astype(float)), rel=1e-6)
    assert click_metrics.calibration(*counts) == pytest.approx(metrics.calibration(labels, scores), abs=1e-9)
    assert click_metrics.rig(*counts) == pytest.approx(metrics.rig(labels, scores), abs=1e-12)


def test_log_loss_and_calibration_equal_tfmas(rows):
    labels, scores = rows
    counts = count(labels, scores, [])
    for metric, ours in (
        (cross_entropy_metrics.BinaryCrossEntropy(), click_metrics.log_loss),
        (calibration.Calibration(), click_metrics.calibration),
    ):
        computation, *derived = metric.computations(example_weighted=False)
        combiner = computation.combiner
        accumulator = combiner.create_accumulator()
        for label, score in zip(labels, scores, strict=True):
            row = metric_types.StandardMetricInputs({"labels": label[None], "predictions": score[None]})
            accumulator = combiner.add_input(accumulator, row)
        found = combiner.extract_output(accumulator)
        for step in derived:
            found |= step.result(found)
        [value] = [value for key, value in found.items() if key.name == metric.name]
        assert ours(*counts) == pytest.approx(float(value), rel=1e-5)  # TFMA adds up float32


def test_memory_grows_with_the_number_of_distinct_predictions_only(rows, monkeypatch):
    monkeypatch.setattr(click_metrics, "MERGE_AT", 100)
    labels, scores = rows
    combiner = click_metrics.CountClicks(KEY, None)
    accumulator = combiner.create_accumulator()
    most = 0
    for start in range(0, 3000, 10):
        part = slice(start, start + 10)
        block = metric_types.StandardMetricInputs({"labels": labels[part], "predictions": scores[part]})
        accumulator = combiner.add_input(accumulator, block)
        most = max(most, sum(len(values) for values, _, _ in accumulator))
    different = len(np.unique(scores))
    assert different < most <= 2 * different + 110
    expected = count(labels, scores, [])
    for found, wanted in zip(combiner.extract_output(accumulator)[KEY], expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_slice_with_one_class_or_no_rows_has_tfmas_values():
    one_class = count(np.zeros(3, np.float32), np.float32([0.1, 0.5, 0.5]), [])
    assert click_metrics.auc(*one_class) == 0.0
    assert math.isnan(click_metrics.calibration(*one_class))
    assert click_metrics.log_loss(*one_class) == pytest.approx(-(math.log(0.9) + 2 * math.log(0.5)) / 3, rel=1e-6)
    assert click_metrics.auc(*click_metrics.NOTHING) == 0.0
    assert math.isnan(click_metrics.log_loss(*click_metrics.NOTHING))


def test_a_wrong_prediction_of_exactly_0_has_a_finite_loss():
    assert click_metrics.log_loss(*count(np.float32([1, 1]), np.float32([0, 1]), [])) == pytest.approx(
        -math.log(1e-7) / 2, rel=1e-6
    )
