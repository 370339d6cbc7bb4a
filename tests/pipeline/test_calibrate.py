"""The calibration's fit against scikit-learn, and what it answers in TensorFlow."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.isotonic
import sklearn.linear_model
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models import FeatureMap
from ctrpipe.pipeline.config import Calibration
from ctrpipe.pipeline.training.calibrate import (
    CalibrationRows,
    check_classes,
    fit_calibration,
    fit_histogram,
    fit_isotonic,
    fit_line,
    fit_overall,
    fit_slices,
    weight_of_negatives,
)
from ctrpipe.serving.calibration import TaskCalibration
from ctrpipe.transforms.features.packed_files import PackedWriter
from tests.pipeline import scored_log

METHODS = ("isotonic", "platt", "histogram")
MAP = FeatureMap.from_sizes([("a", "categorical", 6), ("b", "categorical", 8), ("c", "categorical", 5)])
GRID = np.linspace(-6, 4, 3001).astype(np.float32)


def some_rows(count: int = 4000, seed: int = 1, weights: bool = False) -> CalibrationRows:
    """Logits that are too sure and too high."""
    random = np.random.default_rng(seed)
    logits = random.normal(-1.5, 1.2, count).astype(np.float32).astype(np.float64)
    labels = random.random(count) < scipy.special.expit(0.6 * logits - 0.7)
    own = random.integers(1, 4, count).astype(np.float64) if weights else np.ones(count)
    return CalibrationRows(logits, labels.astype(np.float64), own)


def some_ids(count: int, seed: int = 2) -> np.ndarray:
    """Ids of the fields a and c: of a, the last value is rare and the one before it has no row."""
    random = np.random.default_rng(seed)
    a = random.choice([2, 3, 5], count, p=[0.6, 0.395, 0.005])
    offsets = [field.offset for field in MAP.fields]
    return np.stack([offsets[0] + a, offsets[2] + random.integers(0, 4, count)], axis=1).astype(np.int32)


def answers(calibration: TaskCalibration, logits: np.ndarray, ids: np.ndarray | None = None) -> np.ndarray:
    if ids is not None:
        all_ids = np.zeros((len(ids), len(MAP.fields)), np.int32)
        all_ids[:, [0, 2]] = ids
        ids = tf.constant(all_ids)
    return calibration.probabilities(tf.constant(logits, tf.float32), ids).numpy()


def repeated(rows: CalibrationRows) -> CalibrationRows:
    """Each row as often as its weight says."""
    counts = rows.weights.astype(int)
    return CalibrationRows(
        np.repeat(rows.logits, counts), np.repeat(rows.labels, counts), np.ones(counts.sum(), np.float64)
    )


@pytest.mark.parametrize("weights", [False, True])
def test_isotonic_is_scikit_learn_s(weights):
    rows = some_rows(weights=weights)
    least = 1 / (rows.weights.sum() + 2)
    reference = sklearn.isotonic.IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip")
    expected = reference.fit(rows.logits, rows.labels, rows.weights).predict(GRID)
    calibration = TaskCalibration(fit_isotonic(rows))
    found = answers(calibration, GRID)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.ptp(found) > 0.5 and found.min() == pytest.approx(least)
    order = np.argsort(rows.logits)
    steps = scipy.optimize.isotonic_regression(rows.labels[order], weights=rows.weights[order]).x
    np.testing.assert_allclose(answers(calibration, rows.logits[order]), np.clip(steps, least, 1 - least), atol=1e-6)


@pytest.mark.parametrize("weights", [False, True])
def test_platt_is_a_logistic_regression_on_the_logit(weights):
    rows = some_rows(weights=weights)
    reference = sklearn.linear_model.LogisticRegression(penalty=None, tol=1e-10, max_iter=1000)
    reference.fit(rows.logits[:, None], rows.labels, rows.weights)
    line = fit_line(rows)
    assert line.slope == pytest.approx(reference.coef_[0, 0], abs=1e-5)
    assert line.intercept == pytest.approx(reference.intercept_[0], abs=1e-5)
    expected = reference.predict_proba(GRID[:, None])[:, 1]
    np.testing.assert_allclose(answers(TaskCalibration(line), GRID), expected, atol=1e-5)


def test_a_histogram_has_the_bins_shares_and_joins_those_that_fall():
    # Bins of two rows: shares 0, 1, 1/2 and 1; the second and the third are joined to 3/4.
    logits = np.array([-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
    labels = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    curve = fit_histogram(CalibrationRows(logits, labels, np.ones(8)), 4)
    asked = np.array([-9.0, -3.0, -2.001, -2.0, -0.5, 1.0, 1.99, 2.0, 9.0], np.float32)
    expected = [0.1, 0.1, 0.1, 0.75, 0.75, 0.75, 0.75, 0.9, 0.9]  # 0 and 1 are kept 1 / (8 rows + 2) away
    np.testing.assert_allclose(answers(TaskCalibration(curve), asked), expected, rtol=1e-6)


def test_rows_of_one_logit_are_in_one_bin_and_get_their_share():
    rows = CalibrationRows(np.full(50, -1.0), np.arange(50) % 5 == 0, np.ones(50))
    for method in METHODS:
        found = answers(TaskCalibration(fit_overall(Calibration(method=method), rows)), np.array([-3.0, -1.0, 2.0]))
        np.testing.assert_allclose(found, 0.2, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_weight_of_two_is_the_row_twice(method):
    rows, settings = some_rows(600, weights=True), Calibration(method=method, by=["a", "c"])
    ids = some_ids(600)
    twice = repeated(rows)
    found = []
    for each, own in ((rows, ids), (twice, np.repeat(ids, rows.weights.astype(int), axis=0))):
        overall = fit_overall(settings, each)
        found.append(answers(TaskCalibration(overall, fit_slices(settings, each, overall, MAP, own)), GRID[:600], ids))
    np.testing.assert_allclose(found[0], found[1], atol=2e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_probability_never_falls_where_the_logit_rises(method):
    random = np.random.default_rng(3)
    ids, spans = some_ids(600), []
    random_labels = (random.random(600) < 0.3).astype(np.float64)
    for rows in (some_rows(600), dataclasses.replace(some_rows(600), labels=random_labels)):
        # One value in which the order is the other way round.
        turned = np.where(ids[:, 1] == ids[:, 1].min(), 1 - rows.labels, rows.labels)
        rows = dataclasses.replace(rows, labels=turned)
        settings = Calibration(method=method, by=["a", "c"], shrinkage=0.01)
        overall = fit_overall(settings, rows)
        slices = fit_slices(settings, rows, overall, MAP, ids)
        for value in np.unique(ids, axis=0):
            found = answers(TaskCalibration(overall, slices), GRID, np.tile(value, (len(GRID), 1)))
            assert (np.diff(found) >= -2e-7).all()  # but for a sigmoid's last bit
            spans.append(np.ptp(found))
    assert max(spans) > 0.3


def test_a_model_whose_order_is_wrong_gets_the_base_rate():
    rows = some_rows()
    turned = dataclasses.replace(rows, logits=-rows.logits)
    for method in ("platt", "isotonic"):
        found = answers(TaskCalibration(fit_overall(Calibration(method=method), turned)), np.array([-2.0, 0.0, 2.0]))
        np.testing.assert_allclose(found, rows.labels.mean(), rtol=0.2)


def test_classes_that_the_logit_tells_apart_give_finite_numbers():
    logits = np.array([-2.0, -1.0, 1.0, 2.0])
    rows = CalibrationRows(logits, (logits > 0).astype(np.float64), np.ones(4))
    for method in METHODS:
        found = answers(TaskCalibration(fit_overall(Calibration(method=method, bins=2), rows)), np.array([-9.0, 9.0]))
        assert 0 <= found[0] < 0.2 < 0.8 < found[1] <= 1


def test_a_value_of_many_rows_has_the_logistic_regression_of_its_rows():
    rows, ids = some_rows(8000), some_ids(8000)[:, :1]
    settings = Calibration(method="platt", by=["a"], shrinkage=1e-4)
    moved = np.where(ids[:, 0] == ids.min(), scipy.special.expit(1.4 * rows.logits + 1), 0.2)
    labels = (np.random.default_rng(4).random(8000) < moved).astype(np.float64)
    rows = dataclasses.replace(rows, labels=labels)
    overall = fit_line(rows)
    slices = fit_slices(settings, rows, overall, MAP, ids)
    own = ids[:, 0] == ids.min()
    reference = sklearn.linear_model.LogisticRegression(penalty=None, tol=1e-10)
    reference.fit(rows.logits[own, None], labels[own])
    asked = np.concatenate([np.tile(ids.min(), (len(GRID), 1)), np.zeros((len(GRID), 1), int)], axis=1)
    expected = reference.predict_proba(GRID[:, None])[:, 1]
    np.testing.assert_allclose(answers(TaskCalibration(overall, slices), GRID, asked), expected, atol=1e-3)


@pytest.mark.slow
def test_a_value_of_few_rows_is_shrunk_to_all_rows():
    # Of n rows with the click rate p, the share n p (1 - p) / (n p (1 - p) + shrinkage) of a small deviation is kept.
    count, rate, deviation = 40_000, 0.2, 0.1
    logit = float(scipy.special.logit(rate))
    ids = np.full((count, 1), MAP.fields[0].offset + 2, np.int32)
    ids[:1000], ids[1000] = MAP.fields[0].offset + 3, MAP.fields[0].offset + 4
    expected = np.where(ids[:, 0] == MAP.fields[0].offset + 3, scipy.special.expit(logit + deviation), rate)
    rows = CalibrationRows(np.full(count, logit), expected, np.ones(count))
    settings = Calibration(method="platt", by=["a"], shrinkage=100)
    slices = fit_slices(settings, rows, fit_line(rows), MAP, ids)
    common, own, single, none = slices.lines[1 + 2 : 1 + 6, 1]  # behind the row of ids before the column's
    assert own - common == pytest.approx(deviation * 160 / (160 + 100), rel=0.05)
    assert abs(single) < 0.001 and none == 0
    np.testing.assert_allclose(slices.lines[:, 0], 1, atol=1e-6)  # nothing says how steep a value of one logit is


def test_ids_that_are_not_the_column_s_get_the_calibration_of_all_rows():
    rows, ids = some_rows(), some_ids(4000)
    settings = Calibration(method="platt", by=["a", "c"], shrinkage=1)
    overall = fit_line(rows)
    calibration = TaskCalibration(overall, fit_slices(settings, rows, overall, MAP, ids))
    logits = np.array([-1.0, -1.0, -1.0], np.float32)
    found = answers(calibration, logits, np.array([[0, 0], [99, 99], [-7, 500]]))
    np.testing.assert_allclose(found, answers(TaskCalibration(overall), logits), rtol=1e-6)


def write(folder, ids: np.ndarray, labels: np.ndarray) -> list[str]:
    folder.mkdir()
    with PackedWriter(folder / "part.parquet") as writer:
        writer.write({"ids": ids.astype(np.int32), "label": labels.astype(np.float32)})
    return [f"{folder}/*"]


def by_first_id(inputs, training):
    """A model of two tasks whose logits say the first id."""
    logit = tf.cast(inputs["ids"][:, 0], tf.float32) / 2 - 2.5
    return tf.stack([logit, -logit], axis=1)


@pytest.mark.slow
def test_the_negatives_of_a_sample_count_for_all(tmp_path):
    random = np.random.default_rng(5)
    ids = np.stack([1 + random.integers(0, 6, 500), np.full(500, 7), np.full(500, 15)], axis=1)
    labels = (random.random(500) < 0.4)[:, None]
    negative = ~labels[:, 0]
    thrice = [np.concatenate([values, values[negative], values[negative]]) for values in (ids, labels)]
    sample, all_rows = write(tmp_path / "sample", ids, labels), write(tmp_path / "all", *thrice)

    def one_task(inputs, training):
        return by_first_id(inputs, training)[:, :1]

    for method in METHODS:
        settings = Calibration(method=method, by=["a"], bins=3)
        found = fit_calibration(settings, MAP, sample, 3.0 * negative.sum(), one_task)
        expected = fit_calibration(settings, MAP, all_rows, None, one_task)
        asked = {"ids": tf.constant(ids[:50], tf.int32)}
        logits = one_task(asked, False)
        probabilities = found.probabilities(logits, asked).numpy()
        np.testing.assert_allclose(probabilities, expected.probabilities(logits, asked).numpy(), atol=2e-6)
        assert probabilities.mean() < 0.3


@pytest.mark.parametrize(("weight", "expected"), [(None, 3.0), ("w", 2.5)])
def test_the_negatives_of_a_payload_are_counted_by_weight(tmp_path, weight, expected):
    log = {"click": [0.0, 1.0, 0.0, 0.0], "n": [1.0] * 4, "w": [0.5, 7.0, 2.0, 0.0]}
    run = scored_log.config(log, {"ctr": "click"}, weight=weight)
    assert weight_of_negatives(run.log_spec, scored_log.write(tmp_path / "rows", run, log, parts=2)) == expected


def test_each_task_has_a_calibration_of_its_own(tmp_path):
    random = np.random.default_rng(6)
    ids = np.stack([1 + random.integers(0, 6, 3000), np.full(3000, 7), np.full(3000, 15)], axis=1)
    labels = np.stack([random.random(3000) < 0.1 * ids[:, 0], random.random(3000) < 0.6 - 0.1 * ids[:, 0]], axis=1)
    two = dataclasses.replace(MAP, tasks=("ctr", "cvr"))
    found = fit_calibration(Calibration(method="platt"), two, write(tmp_path / "two", ids, labels), None, by_first_id)
    asked = {"ids": tf.constant(ids, tf.int32)}
    probabilities = found.probabilities(by_first_id(asked, False), asked).numpy()
    np.testing.assert_allclose(probabilities.mean(axis=0), labels.mean(axis=0), atol=1e-4)
    assert list(found.tasks) == ["ctr", "cvr"]


def test_validation_rows_of_one_class_are_refused_in_one_line(tmp_path):
    ids, labels = np.ones((9, 3)), np.stack([np.arange(9) % 2, np.zeros(9)], axis=1)
    two = dataclasses.replace(MAP, tasks=("ctr", "cvr"))
    files = write(tmp_path / "rows", ids, labels)
    with pytest.raises(InputError, match="^calibration: the labels of cvr are all 0 in the validation rows") as error:
        check_classes(two, files)
    assert "\n" not in str(error.value)
