"""`optimizer: lbfgs` against scikit-learn's logistic regression on the same rows, with features made by numpy."""

import dataclasses
import math
import pathlib
import threading

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.models import create
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training import linear, linear_fit
from ctrpipe.pipeline.training.data import packed_batches
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.packed_files import PackedWriter

FIELDS = [("site", "categorical", 20), ("tags", "multivalent", 8, 3, "feature", "mean"), ("words", "multivalent", 6, 2)]
MAP = FeatureMap.from_sizes(FIELDS, dense=("price", "constant"), tasks=("ctr", "cvr"))
ONE = FeatureMap.from_sizes(FIELDS, dense=("price", "constant"))


def rows(count: int, seed: int, rate: float = 0.0, tasks: int = 1, weighted: bool = True) -> dict[str, np.ndarray]:
    """Returns packed rows whose clicks depend on all columns."""
    random = np.random.default_rng(seed)
    site = 1 + random.integers(0, 22, (count, 1))
    tags = np.where(random.random((count, 3)) < 0.7, 23 + random.integers(0, 10, (count, 3)), 0)
    words = np.where(random.random((count, 2)) < 0.8, 33 + random.integers(0, 8, (count, 2)), 0)
    dense = np.stack([random.normal(5e4, 2e4, count), np.full(count, 7.0)], axis=1).astype(np.float32)
    truth = np.random.default_rng(0).normal(0, 0.8, 41)
    ids = np.concatenate([site, tags, words], axis=1).astype(np.int32)
    score = design(ids) @ truth + (dense[:, 0] - 5e4) / 4e4 + rate
    labels = (random.random((count, tasks)) < expit(score)[:, None]).astype(np.float32)
    packed = {"ids": ids, "dense": dense, "label": labels}
    return packed | ({"weight": random.integers(1, 5, (count, 1)).astype(np.float32)} if weighted else {})


def design(ids: np.ndarray) -> np.ndarray:
    """Returns what each id adds to the logit: 1, and for `tags` 1 over the number of the row's tags."""
    matrix = np.zeros((len(ids), 41))
    for row, values in enumerate(ids):
        of_tags = max(int((values[1:4] > 0).sum()), 1)
        for slot, value in enumerate(values):
            matrix[row, value] += (value > 0) / (of_tags if 1 <= slot < 4 else 1)
    return matrix


def features(packed: dict[str, np.ndarray], of: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the features of rows. Prices are scaled by the mean and deviation of the rows `of`."""
    prices = (packed["dense"][:, :1].astype(np.float64) - of["dense"][:, :1].mean()) / of["dense"][:, :1].std()
    return np.concatenate([design(packed["ids"]), prices], axis=1)


def reference(packed: dict[str, np.ndarray], variance: float, labels: np.ndarray) -> LogisticRegression:
    known = np.isfinite(labels)
    weights = packed["weight"][:, 0].astype(np.float64) if "weight" in packed else np.ones(len(labels))
    model = LogisticRegression(C=variance, tol=1e-10, max_iter=5000)
    return model.fit(features(packed, packed)[known], labels[known], (weights / weights.mean())[known])


def write(folder: pathlib.Path, name: str, packed: dict[str, np.ndarray]) -> list[str]:
    with PackedWriter(folder / f"{name}.parquet") as writer:
        writer.write(packed)
    return [str(folder / f"{name}.parquet")]


def trained(folder: pathlib.Path, feature_map: FeatureMap, model: Model | None = None, **settings: object):
    training = Training(optimizer="lbfgs", **settings)
    files = [str(folder / "train.parquet")], [str(folder / "validation.parquet")]
    return train(TrainingJob(model or Model(name="lr"), training, feature_map, *files, 1), folder / "work")


def predicted(result, files: list[str], feature_map: FeatureMap) -> np.ndarray:
    return result.learner.predict(packed_batches(files, feature_map, 512))[1]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_fit_is_scikit_learns(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    monkeypatch.setattr(linear_fit, "_BLOCK_ROWS", 256)
    monkeypatch.setattr(linear_fit, "_MOST_BYTES", 1 << 30 if in_memory else 0)
    packed = rows(1000, 1, tasks=2)
    packed["label"][::3, 1] = np.nan  # this task's label is missing
    fitted = linear_fit.LinearRows(write(tmp_path, "train", packed), MAP)
    assert fitted.is_small == in_memory
    for task in (0, 1):
        found = fitted.fit(task, 0.3)
        expected = reference(packed, 0.3, packed["label"][:, task])
        assert found.converged and found.iterations > 5
        np.testing.assert_allclose(found.weights.ids[1:], expected.coef_[0, 1:41], atol=2e-3)
        np.testing.assert_allclose(found.weights.dense, [expected.coef_[0, 41], 0], atol=2e-3)
        assert found.weights.bias == pytest.approx(expected.intercept_[0], abs=2e-3)


def test_a_fit_is_the_same_with_any_number_of_threads(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_fit, "_BLOCK_ROWS", 100)
    files, fits, threads = write(tmp_path, "train", rows(1000, 1)), [], set()

    def recorded(logits: np.ndarray) -> np.ndarray:
        threads.add(threading.current_thread().name)
        return expit(logits)

    monkeypatch.setattr(linear_fit, "expit", recorded)
    for number in (1, 3):
        monkeypatch.setattr(linear_fit, "cores", lambda number=number: number)
        threads.clear()
        fits.append(linear_fit.LinearRows(files, ONE).fit(0, 0.3))
        assert (threading.current_thread().name in threads) == (number == 1) and len(threads) <= number
    one, several = fits
    np.testing.assert_array_equal(one.weights.ids, several.weights.ids)
    assert (one.weights.bias, one.loss, one.iterations) == (several.weights.bias, several.loss, several.iterations)


def test_blocks_with_one_value_a_field_share_their_ones(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(linear_fit, "_BLOCK_ROWS", 100)
    packed = {name: values[:300] for name, values in rows(300, 4).items() if name != "dense"}
    packed["ids"] = packed["ids"][:, :1]
    packed["ids"][250] = 0  # no value
    one_field = FeatureMap.from_sizes(FIELDS[:1])
    first, second, third = linear_fit.LinearRows(write(tmp_path, "train", packed), one_field).blocks()
    assert np.shares_memory(first.ids.data, second.ids.data) and not np.shares_memory(first.ids.data, third.ids.data)
    for number, block in enumerate((first, second, third)):
        ids = packed["ids"][number * 100 : number * 100 + 100]
        np.testing.assert_array_equal(block.ids.toarray()[:, 1:], (ids == np.arange(1, one_field.total_ids)))


def test_a_fit_of_many_rows_ends_where_a_step_gains_less_than_chance(tmp_path, monkeypatch) -> None:
    fitted = linear_fit.LinearRows(write(tmp_path, "train", rows(2000, 3)), ONE)
    exact = fitted.fit(0, 0.3)
    monkeypatch.setattr(linear_fit, "MANY", 2001)
    assert fitted.fit(0, 0.3).iterations == exact.iterations
    monkeypatch.setattr(linear_fit, "MANY", 2000)
    rough = fitted.fit(0, 0.3)
    assert rough.converged and rough.iterations < exact.iterations
    assert rough.loss == pytest.approx(exact.loss, abs=2e-4)


def test_a_fold_holds_out_its_rows(tmp_path: pathlib.Path) -> None:
    fitted = linear_fit.LinearRows(write(tmp_path, "train", rows(1000, 2)), ONE)
    weights = fitted.fit(0, 0.3, fold=1).weights
    parts = [fitted.loss(weights, 0, 1, held_out)[1] for held_out in (False, True)]
    assert sum(parts) == pytest.approx(fitted.loss(weights, 0)[1]) and 0.1 < parts[1] / sum(parts) < 0.3
    others = sum(fitted.loss(weights, 0, fold, held_out=True)[1] for fold in range(linear_fit.FOLDS))
    assert others == pytest.approx(sum(parts))  # each row is held out once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    where = tmp_path_factory.mktemp("linear")
    for name, count in (("train", 3000), ("validation", 1500), ("test", 1500)):
        write(where, name, rows(count, len(name)))
    return where


@pytest.mark.slow
def test_the_model_is_at_its_optimum_whatever_the_seed_and_settings_of_other_optimizers(folder: pathlib.Path) -> None:
    result = trained(folder, ONE)
    variance = result.progress.evaluations[-1]["prior_variance"]
    packed, valid, test = rows(3000, 5), rows(1500, 10), rows(1500, 4)
    theirs = {}
    for power in range(7):
        model = reference(packed, linear.FIRST * linear.RATIO**power, packed["label"][:, 0])
        values = [model.predict_proba(features(part, packed))[:, 1] for part in (valid, test)]
        theirs[metrics.log_loss(valid["label"][:, 0], values[0], valid["weight"][:, 0])] = power, values[1]
    power, expected = theirs[min(theirs)]
    assert variance == pytest.approx(linear.FIRST * linear.RATIO**power)
    ours = predicted(result, [str(folder / "test.parquet")], ONE)[:, 0]
    np.testing.assert_allclose(ours, expected, atol=1e-3)
    assert result.history["stopped"].startswith("L-BFGS converged")
    other = trained(folder, ONE, epochs=1, learning_rate=1.0, batch_size=7)
    np.testing.assert_array_equal(ours, predicted(other, [str(folder / "test.parquet")], ONE)[:, 0])


@pytest.mark.parametrize(("rate", "every"), [(0.0, 3), (-6.0, 1)])
def test_a_large_log_is_searched_by_a_part_of_its_rows_and_fitted_by_all(tmp_path, monkeypatch, rate, every) -> None:
    """Not where the part would have too few clicks."""
    monkeypatch.setattr(linear_fit, "_BLOCK_ROWS", 250)
    monkeypatch.setattr(linear, "SEARCHED_ROWS", 1000)
    monkeypatch.setattr(linear, "SEARCHED_CLICKS", 200)
    monkeypatch.setattr(linear, "FEW", 0)
    for name, count in (("train", 3100), ("validation", 1000), ("test", 500)):
        write(tmp_path, name, rows(count, len(name), rate, weighted=False))
    result = trained(tmp_path, ONE)
    searched = result.progress.evaluations[0]
    assert searched["examples"] / searched["step"] == {3: 4 * 250 + 100, 1: 3100}[every]  # blocks 0, 3, 6, 9, 12
    variance = float(result.progress.stopped.rsplit("prior ", 1)[1])
    power = round(math.log(variance / linear.FIRST, linear.RATIO))
    packed, test = rows(3100, 5, rate, weighted=False), rows(500, 4, rate, weighted=False)
    model = reference(packed, linear.FIRST * linear.RATIO**power, packed["label"][:, 0])
    expected = model.predict_proba(features(test, packed))[:, 1]
    np.testing.assert_allclose(predicted(result, [str(tmp_path / "test.parquet")], ONE)[:, 0], expected, atol=1e-3)


@pytest.mark.slow
def test_the_mean_prediction_of_the_learnt_rows_is_their_click_rate(folder: pathlib.Path) -> None:
    for settings, files in (({}, ["train"]), ({"refit": True}, ["train", "validation"])):
        result = trained(folder, ONE, **settings)
        learnt = [str(folder / f"{name}.parquet") for name in files]
        batches = list(packed_batches(learnt, ONE, 5000, weighted=True))
        weights, labels = (
            np.concatenate(part) for part in zip(*((each["weight"], y) for each, y in batches), strict=True)
        )
        assert metrics.calibration(labels[:, 0], predicted(result, learnt, ONE)[:, 0], weights[:, 0]) == pytest.approx(
            1, abs=1e-3
        )


def test_table_l2_is_the_strength(folder: pathlib.Path) -> None:
    result = trained(folder, ONE, table_l2=0.01)
    packed, test = rows(3000, 5), rows(1500, 4)
    expected = reference(packed, 1 / (0.01 * 3000), packed["label"][:, 0]).predict_proba(features(test, packed))[:, 1]
    np.testing.assert_allclose(predicted(result, [str(folder / "test.parquet")], ONE)[:, 0], expected, atol=1e-3)
    assert {numbers["prior_variance"] for numbers in result.progress.evaluations} == {1 / 30}


@pytest.mark.slow
def test_with_few_clicks_the_training_rows_choose_too(tmp_path: pathlib.Path) -> None:
    for name, count in (("train", 4000), ("validation", 1000), ("test", 20_000)):
        write(tmp_path, name, rows(count, len(name), rate=-3.5, weighted=False))
    result = trained(tmp_path, ONE)
    packed, test = rows(4000, 5, -3.5, weighted=False), rows(20_000, 4, -3.5, weighted=False)
    assert 10 < packed["label"].sum() < 400
    labels = test["label"][:, 0]
    ours = metrics.log_loss(labels, predicted(result, [str(tmp_path / "test.parquet")], ONE)[:, 0])
    theirs = []
    for variance in (0.001, 0.01, 0.1, 1.0):
        model = reference(packed, variance, packed["label"][:, 0])
        theirs.append(metrics.log_loss(labels, model.predict_proba(features(test, packed))[:, 1]))
    assert ours < min(theirs) + 0.002 < sorted(theirs)[2]


def test_the_unit_of_the_weights_does_not_matter(tmp_path: pathlib.Path) -> None:
    packed = {name: rows(count, len(name), rate=-2) for name, count in (("train", 400), ("validation", 100))}
    found = []
    for unit in (1, 1e-30, 1e35):
        for name, values in packed.items():
            write(tmp_path, name, values | {"weight": values["weight"] * np.float32(unit)})
        result = trained(tmp_path, ONE)
        found.append((result.progress.stopped, predicted(result, [str(tmp_path / "train.parquet")], ONE)))
    assert len({stopped for stopped, _ in found}) == 1  # it names the variance of the prior
    for _, probabilities in found[1:]:
        np.testing.assert_allclose(probabilities, found[0][1], rtol=1e-3)


def test_each_task_has_its_own_strength(tmp_path: pathlib.Path) -> None:
    for name in ("train", "validation"):
        packed = rows(2000, len(name), tasks=2)
        packed["label"][:, 1] = np.random.default_rng(len(name)).random(2000) < 0.3  # nothing to learn
        write(tmp_path, name, packed)
    result = trained(tmp_path, MAP)
    assert result.progress.evaluations[-1]["prior_variance"] is None
    variances = [float(text) for text in result.progress.stopped.rsplit("prior ", 1)[1].split(", ")]
    assert variances[1] < variances[0]
    values = predicted(result, [str(tmp_path / "train.parquet")], MAP)
    assert values[:, 1].std() < 0.05 < values[:, 0].std()


def test_a_task_of_one_class_has_its_rate(tmp_path: pathlib.Path) -> None:
    packed = rows(500, 1)
    packed["label"][:] = 0
    fitted = linear_fit.LinearRows(write(tmp_path, "train", packed), ONE).fit(0, 1.0)
    assert not fitted.weights.ids.any() and expit(fitted.weights.bias) == pytest.approx(1e-6)


def test_other_models_and_settings_are_one_line(folder: pathlib.Path) -> None:
    with pytest.raises(
        InputError, match="^training.optimizer: lbfgs trains only linear models, such as lr; use adam for fm$"
    ):
        trained(folder, ONE, Model(name="fm"))
    for key, value in (("warm_start", "latest"), ("fake_negative_weighting", True)):
        with pytest.raises(ValueError, match=f"{key} needs another optimizer than lbfgs"):
            Training(optimizer="lbfgs", **{key: value})


def test_a_baseline_is_trained_to_its_optimum_whatever_the_models_settings() -> None:
    deep = Training(epochs=1, learning_rate=1e-5, refit=True, table_l2=0.1, backend="jax", task_weights={"ctr": 2})
    own = deep.of_baseline("lr")
    assert own == Training(optimizer="lbfgs", refit=True, task_weights={"ctr": 2})
    assert deep.of_baseline("fm") is deep
    weighting = Training(fake_negative_weighting=True)
    assert weighting.of_baseline("lr") is weighting


def test_vectors_and_weighted_values_are_columns_of_the_fit(tmp_path: pathlib.Path) -> None:
    """Compares the blocks with numpy's columns, and the loaded model with the weights."""
    fields = [("site", "categorical", 3), ("tags", "multivalent", 4, 3, "feature", "sum", "", "", True)]
    data = dataclasses.replace(FeatureMap.from_sizes(fields, ("price", "v")), dense_widths=(1, 3))
    random, count = np.random.default_rng(2), 300
    ids = np.concatenate([random.integers(1, 6, (count, 1)), random.integers(6, 12, (count, 3))], axis=1)
    ids[:, 3] *= random.random(count) < 0.5
    weights = random.normal(size=(count, 3)).astype(np.float32) * (ids[:, 1:] > 0)
    dense = random.normal(3, 2, (count, 4)).astype(np.float32)
    label = (random.random((count, 1)) < expit(dense[:, 1:2] - 3 + weights[:, :1])).astype(np.float32)
    with PackedWriter(tmp_path / "part.parquet") as writer:
        writer.write({"ids": ids.astype(np.int32), "dense": dense, "slot_weights": weights, "label": label})
    found = linear_fit.LinearRows([str(tmp_path / "*.parquet")], data)
    (block,) = found.blocks()
    expected = np.zeros((count, data.total_ids))
    for row in range(count):
        expected[row, ids[row, 0]] += 1
        for slot in range(3):
            expected[row, ids[row, 1 + slot]] += weights[row, slot]
    expected[:, 0] = 0
    np.testing.assert_allclose(block.ids.toarray(), expected, atol=1e-6)
    wide = dense.astype(np.float64)
    np.testing.assert_allclose(block.dense, (wide - wide.mean(axis=0)) / wide.std(axis=0), atol=1e-6)
    fit = found.fit(0, 1.0)
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000)
    theirs.fit(np.concatenate([expected, block.dense], axis=1), label[:, 0])
    np.testing.assert_allclose(fit.weights.dense, theirs.coef_[0][data.total_ids :], atol=2e-3)
    model = create("lr", data)
    model({"ids": ids[:1], "dense": dense[:1], "slot_weights": weights[:1]})
    found.load(model, [fit.weights])
    assert found.distance(model, [fit.weights]) < 1e-4


def test_what_is_left_of_a_fit_is_extrapolated_from_the_decreases_of_its_loss() -> None:
    """Each step halves the decrease from 0.1 on, so that the 24th is below 1e-8; a step takes two seconds."""
    progress = linear_fit.FitProgress(1e-8, " on 9 rows")
    began = progress._started
    lines = [progress.step(1 + 0.2 * 0.5**step, began + 2 * step) for step in range(1, 20)]
    assert lines[0] == "Logistic regression: loss 1.1000 on 9 rows after 1 steps in 2 s"
    assert not any("left" in line for line in lines[:5])
    left = [float(line.rpartition("about ")[2].removesuffix(" s left")) for line in lines[8:]]
    expected = [2 * (24 - step) for step in range(9, 20)]
    np.testing.assert_allclose(left, expected, atol=4)
