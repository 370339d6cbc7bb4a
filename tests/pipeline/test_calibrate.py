"""The calibration's fit against scikit-learn, and what it answers in TensorFlow."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.isotonic
import sklearn.linear_model
import sklearn.metrics
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models import FeatureMap
from ctrpipe.models.base.feature_map import NumberTask
from ctrpipe.pipeline.config import Calibration
from ctrpipe.pipeline.training.calibrate import (
    CalibrationRows,
    check_classes,
    fit_beta,
    fit_calibration,
    fit_histogram,
    fit_isotonic,
    fit_line,
    fit_overall,
    fit_slices,
    fit_task,
    fold_numbers,
    weight_of_negatives,
)
from ctrpipe.serving.calibration import TaskCalibration
from ctrpipe.transforms.features.packed_files import PackedWriter
from tests.pipeline import scored_log

METHODS = ("isotonic", "beta", "platt", "histogram")
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
    calibration = TaskCalibration(fit_isotonic(rows, 0))
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


@pytest.mark.parametrize("weights", [False, True])
def test_beta_is_a_logistic_regression_on_both_logarithms(weights):
    rows = some_rows(weights=weights)
    features = np.stack([scipy.special.log_expit(rows.logits), -scipy.special.log_expit(-rows.logits)], axis=1)
    reference = sklearn.linear_model.LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000, solver="newton-cholesky")
    reference.fit(features, rows.labels, rows.weights)
    beta = fit_beta(rows)
    assert min(reference.coef_[0]) > 0
    np.testing.assert_allclose([beta.rise, beta.fall], reference.coef_[0], atol=1e-4)
    assert beta.intercept == pytest.approx(reference.intercept_[0], abs=1e-4)
    p = scipy.special.expit(GRID.astype(np.float64))
    expected = scipy.special.expit(beta.rise * np.log(p) - beta.fall * np.log1p(-p) + beta.intercept)
    np.testing.assert_allclose(answers(TaskCalibration(beta), GRID), expected, atol=1e-6)
    extreme = answers(TaskCalibration(beta), np.array([-3e38, -1e4, 1e4, 3e38]))
    np.testing.assert_allclose(extreme, [0, 0, 1, 1], atol=1e-6)


def test_a_beta_s_coefficient_that_would_fall_is_left_out():
    """Clicks that get rarer for high logits: the rise goes up to a rate and no further."""
    logits = np.repeat([-3.0, 0.0, 3.0], 1000)
    labels = np.concatenate([np.arange(1000) < clicks for clicks in (50, 500, 450)]).astype(np.float64)
    beta = fit_beta(CalibrationRows(logits, labels, np.ones(3000)))
    assert beta.fall == 0 < beta.rise
    reference = sklearn.linear_model.LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000)
    reference.fit(scipy.special.log_expit(logits)[:, None], labels)
    assert beta.rise == pytest.approx(reference.coef_[0, 0], abs=1e-4)


def test_steps_of_few_clicks_are_joined():
    """Three steps of 4, 1 and 3 clicks of 8 rows or fewer: with 2 clicks and 2 others each, the last two are one."""
    logits = np.repeat([0.0, 1.0, 2.0], [8, 2, 4])
    labels = np.array([1.0] * 2 + [0.0] * 6 + [1.0, 0.0] + [1.0] * 3 + [0.0])
    rows = CalibrationRows(logits, labels, np.ones(14))
    asked = np.array([0.0, 1.0, 2.0], np.float32)
    alone = answers(TaskCalibration(fit_isotonic(rows, 0)), asked)
    np.testing.assert_allclose(alone, [2 / 8, 1 / 2, 3 / 4], rtol=1e-6)
    np.testing.assert_allclose(answers(TaskCalibration(fit_isotonic(rows, 2)), asked), [2 / 8, 4 / 6, 4 / 6], rtol=1e-6)
    np.testing.assert_allclose(answers(TaskCalibration(fit_isotonic(rows, 7)), asked), [6 / 14] * 3, rtol=1e-6)
    twice = dataclasses.replace(rows, weights=np.where(labels == 0, 2.0, 1.0), others_scale=2.0)
    joined = answers(TaskCalibration(fit_isotonic(twice, 2)), asked)
    np.testing.assert_allclose(joined, [2 / 14, 4 / 8, 4 / 8], rtol=1e-6)  # a negative that counts twice was seen once
    three = fit_histogram(rows, 3, 2)
    np.testing.assert_allclose(answers(TaskCalibration(three), asked), [2 / 8, 4 / 6, 4 / 6], rtol=1e-6)


def chosen(settings: Calibration, rows: CalibrationRows, ids: np.ndarray | None = None) -> TaskCalibration:
    return fit_task(settings, rows, MAP, np.zeros((len(rows.labels), 0), np.int32) if ids is None else ids)


def test_few_clicks_do_not_change_a_model_that_is_right():
    """Of 10,000 rows with 100 clicks the isotonic curve alone says 1 where the truth is three quarters."""
    random = np.random.default_rng(11)
    logits = random.normal(-6.2, 2, 10_000).astype(np.float32).astype(np.float64)
    labels = (random.random(10_000) < scipy.special.expit(logits)).astype(np.float64)
    rows, others = CalibrationRows(logits, labels, np.ones(10_000)), random.normal(-6.2, 2, 50_000)
    truth = scipy.special.expit(others)
    alone, found = (
        answers(calibration, others)
        for calibration in (TaskCalibration(fit_isotonic(rows, 0)), chosen(Calibration(method="isotonic"), rows))
    )

    def lost(p: np.ndarray) -> float:
        p = p.astype(np.float64)
        return float((truth * np.log(truth / p) + (1 - truth) * np.log((1 - truth) / (1 - p))).mean())

    assert lost(alone) > 0.001 > 0.0005 > lost(found)


def test_a_calibration_is_taken_where_it_helps_on_held_out_rows():
    rows = some_rows(20_000)
    task = chosen(Calibration(method="platt"), rows)
    assert task.choice.taken == "platt" and task.overall == fit_line(rows)
    # The losses, with scikit-learn fits in a loop over the same folds.
    folds, expected = fold_numbers(rows), np.empty(20_000)
    clicks = np.bincount(folds, rows.labels)
    assert np.ptp(clicks) <= 1 and np.ptp(np.bincount(folds)) <= 1
    for fold in range(5):
        own = folds == fold
        reference = sklearn.linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
        reference.fit(rows.logits[~own, None], rows.labels[~own])
        expected[own] = reference.predict_proba(rows.logits[own, None])[:, 1]
    losses = task.choice.held_out
    assert losses["platt"] == pytest.approx(sklearn.metrics.log_loss(rows.labels, expected), abs=1e-6)
    assert losses["none"] == pytest.approx(sklearn.metrics.log_loss(rows.labels, scipy.special.expit(rows.logits)))
    assert losses["platt"] < losses["none"] and task.choice.reason == "it lowers the log loss on held-out rows"


def test_a_curve_is_taken_where_no_line_fits():
    random = np.random.default_rng(12)
    logits = random.normal(0, 2, 40_000)
    labels = (random.random(40_000) < np.where(logits < 0, 0.1, 0.6)).astype(np.float64)
    for method in ("isotonic", "histogram"):
        task = chosen(Calibration(method=method), CalibrationRows(logits, labels, np.ones(40_000)))
        assert task.choice.taken == method and list(task.choice.held_out) == ["none", "platt", "beta", method]
        np.testing.assert_allclose(answers(task, np.array([-2.0, 2.0])), [0.1, 0.6], atol=0.02)


def test_too_few_clicks_to_judge_leave_the_model_as_it_is():
    rows = some_rows(500)
    few = dataclasses.replace(rows, labels=(np.arange(500) < 9).astype(np.float64))
    for each, text in (
        (few, "9 validation rows with a click are"),
        (dataclasses.replace(few, labels=1 - few.labels), "9 without a click are"),
    ):
        task = chosen(Calibration(method="isotonic", by=["a", "c"]), each, some_ids(500))
        assert task.choice.taken == "none" and task.choice.by is False and text in task.choice.reason
        np.testing.assert_allclose(answers(task, GRID), scipy.special.expit(GRID), rtol=1e-6)


@pytest.mark.parametrize("differs", [True, False])
def test_values_have_corrections_of_their_own_where_these_help(differs):
    random = np.random.default_rng(13)
    ids = some_ids(8000)[:, :1]
    logits = random.normal(-1, 1, 8000)
    shift = np.where(ids[:, 0] == ids[:, 0].min(), 0.8, -0.8) if differs else 0.0
    labels = (random.random(8000) < scipy.special.expit(logits + shift)).astype(np.float64)
    task = chosen(
        Calibration(method="platt", by=["a"], shrinkage=1), CalibrationRows(logits, labels, np.ones(8000)), ids
    )
    assert task.choice.by is differs and (task.slices is not None) is differs
    assert [name for name in task.choice.held_out if name.endswith(" by a")]
    assert ("by a lowers it" in task.choice.text) is differs


def test_a_histogram_has_the_bins_shares_and_joins_those_that_fall():
    # Bins of two rows: shares 0, 1, 1/2 and 1; the second and the third are joined to 3/4.
    logits = np.array([-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
    labels = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    curve = fit_histogram(CalibrationRows(logits, labels, np.ones(8)), 4, 0)
    asked = np.array([-9.0, -3.0, -2.001, -2.0, -0.5, 1.0, 1.99, 2.0, 9.0], np.float32)
    expected = [0.1, 0.1, 0.1, 0.75, 0.75, 0.75, 0.75, 0.9, 0.9]  # 0 and 1 are kept 1 / (8 rows + 2) away
    np.testing.assert_allclose(answers(TaskCalibration(curve), asked), expected, rtol=1e-6)


def test_rows_of_one_logit_are_in_one_bin_and_get_their_share():
    rows = CalibrationRows(np.full(50, -1.0), np.arange(50) % 5 == 0, np.ones(50))
    for method in METHODS:
        found = answers(
            TaskCalibration(fit_overall(Calibration(method=method), method, rows)), np.array([-3.0, -1.0, 2.0])
        )
        np.testing.assert_allclose(found, 0.2, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_weight_of_two_is_the_row_twice(method):
    rows, settings = some_rows(600, weights=True), Calibration(method=method, by=["a", "c"])
    ids = some_ids(600)
    twice = repeated(rows)
    found = []
    for each, own in ((rows, ids), (twice, np.repeat(ids, rows.weights.astype(int), axis=0))):
        overall = fit_overall(settings, method, each)
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
        settings = Calibration(method=method, by=["a", "c"], shrinkage=0.01, clicks_per_step=0)
        overall = fit_overall(settings, method, rows)
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
        found = answers(
            TaskCalibration(fit_overall(Calibration(method=method), method, turned)), np.array([-2.0, 0.0, 2.0])
        )
        np.testing.assert_allclose(found, rows.labels.mean(), rtol=0.2)


def test_classes_that_the_logit_tells_apart_give_finite_numbers():
    logits = np.array([-2.0, -1.0, 1.0, 2.0])
    rows = CalibrationRows(logits, (logits > 0).astype(np.float64), np.ones(4))
    for method in METHODS:
        found = answers(
            TaskCalibration(fit_overall(Calibration(method=method, bins=2, clicks_per_step=0), method, rows)),
            np.array([-9.0, 9.0]),
        )
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
    # A row without a label counts for its other tasks alone.
    known = np.arange(3000) < 2000
    some = np.where(known[:, None] | [True, False], labels, np.nan)
    files, head = (
        write(tmp_path / name, ids[:size], of[:size])
        for name, size, of in (("some", 3000, some), ("head", 2000, labels))
    )
    with_missing, first = (
        fit_calibration(Calibration(method="platt"), two, each, None, by_first_id) for each in (files, head)
    )
    assert with_missing.tasks == {"ctr": found.tasks["ctr"], "cvr": first.tasks["cvr"]}
    # A task that predicts a number has its outputs in the number's unit, whatever the method.
    number = dataclasses.replace(two, number_tasks=(NumberTask("cvr", "mean", 100.0, 5.0),))
    mixed = fit_calibration(Calibration(method="platt"), number, files, None, by_first_id)
    assert mixed.tasks["ctr"] == found.tasks["ctr"] and mixed.choices().keys() == {"ctr"}
    answers, logits = mixed.by_task(by_first_id(asked, False), asked), by_first_id(asked, False).numpy()
    np.testing.assert_allclose(answers["cvr"], 100 + 5 * logits[:, 1], rtol=1e-6)


def test_validation_rows_of_one_class_are_refused_in_one_line(tmp_path):
    ids, labels = np.ones((9, 3)), np.stack([np.arange(9) % 2, np.zeros(9)], axis=1)
    two = dataclasses.replace(MAP, tasks=("ctr", "cvr"))
    files = write(tmp_path / "rows", ids, labels)
    with pytest.raises(InputError, match="^calibration: the labels of cvr are all 0 in the validation rows") as error:
        check_classes(two, files)
    assert "\n" not in str(error.value)
