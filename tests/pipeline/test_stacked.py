"""The model `lightgbm`: trees on the out-of-fold weights of a logistic regression."""

import pathlib
import re

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from ctrpipe.models import FeatureMap
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.boosting import grow, not_below_rows
from ctrpipe.pipeline.training.convergence import has_converged
from ctrpipe.pipeline.training.data import packed_batches
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.linear_fit import LinearRows
from ctrpipe.pipeline.training.stacked_rows import StackedRows, out_of_fold
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.packed_files import PackedWriter

pytest.importorskip("lightgbm", exc_type=OSError)  # where there is no libgomp.so.1
# Users of whom most have one row or two: what their weights say of training rows is the rows' own label.
MAP = FeatureMap.from_sizes([("user", "categorical", 3000), ("ad", "categorical", 40)], ("size",))


def write(folder: pathlib.Path, rows: int, seed: int) -> str:
    """Clicks by the ad, and by whether the size is in the middle, which no line says; users say nothing."""
    random = np.random.default_rng(seed)
    user, ad, size = random.integers(0, 3000, rows), random.integers(0, 40, rows), random.normal(size=rows)
    score = np.random.default_rng(1).normal(0, 0.8, 40)[ad] + 2.0 * (np.abs(size) < 0.7) - 2.2
    labels = random.random(rows) < 1 / (1 + np.exp(-score))
    folder.mkdir()
    with PackedWriter(folder / "part.parquet") as writer:
        writer.write(
            {
                "ids": np.stack([3 + user, 3005 + ad], axis=1).astype(np.int32),
                "dense": size[:, None].astype(np.float32),
                "label": labels[:, None].astype(np.float32),
            }
        )
    return f"{folder}/*"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    return [[write(folder / name, rows, seed)] for name, rows, seed in (("a", 4000, 1), ("b", 1500, 2), ("c", 3000, 3))]


def predicted(model, files) -> tuple[np.ndarray, np.ndarray]:
    parts = [(labels[:, 0], np.asarray(model(inputs))[:, 0]) for inputs, labels in packed_batches(files, MAP, 1000)]
    labels, logits = (np.concatenate(part) for part in zip(*parts, strict=True))
    return labels, 1 / (1 + np.exp(-logits))


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    said = []
    result = train(job(files), tmp_path_factory.mktemp("trained"), said.append)
    return result, said


def job(files, **changes) -> TrainingJob:
    return TrainingJob(Model(name="lightgbm", trees=150), Training(**changes), MAP, files[0], files[1], 1)


@pytest.mark.slow
def test_trees_find_what_the_regression_cannot_and_stop_in_time(files, trained, tmp_path):
    result, said = trained
    labels, probabilities = predicted(result.model, files[2])
    linear = train(TrainingJob(Model(name="lr"), Training(optimizer="lbfgs"), MAP, files[0], files[1], 1), tmp_path)
    of_line = roc_auc_score(*predicted(linear.model, files[2]))
    assert roc_auc_score(labels, probabilities) > of_line + 0.05
    assert probabilities.mean() == pytest.approx(labels.mean(), abs=0.03)
    history = result.history
    best = history["evaluations"][history["best"]]
    labels, probabilities = predicted(result.model, files[1])
    assert best["validation_log_loss"] == pytest.approx(log_loss(labels, probabilities), abs=1e-5)
    assert best["validation_auc"] == pytest.approx(roc_auc_score(labels, probabilities), abs=1e-5)
    assert history["stopped"].startswith("log_loss did not improve after ") and has_converged(history)
    assert [each["step"] for each in said] == [each["step"] for each in history["evaluations"]]
    assert {each["model"] for each in said} == {"lr", "lightgbm"}


@pytest.mark.slow
def test_the_boosting_begins_at_the_regression(files, tmp_path):
    model = Model(name="lightgbm", trees=2, rate=0.001)
    small = train(TrainingJob(model, Training(), MAP, files[0], files[1], 1), tmp_path / "trees").model
    linear = TrainingJob(Model(name="lr"), Training(optimizer="lbfgs"), MAP, files[0], files[1], 1)
    [of_trees, of_line] = [predicted(each, files[2])[1] for each in (small, train(linear, tmp_path / "line").model)]
    np.testing.assert_allclose(np.log(of_trees / (1 - of_trees)), np.log(of_line / (1 - of_line)), atol=0.02)
    assert not np.array_equal(of_trees, of_line)


def test_long_fits_and_boostings_say_where_they_are(files, monkeypatch):
    said: list[str] = []
    for module in ("boosting", "linear_fit"):
        monkeypatch.setattr(f"ctrpipe.pipeline.training.{module}.throttled_announce", lambda: said.append)
    rows = LinearRows(files[0], MAP)
    rows.fit(0, 0.3)
    rows.fit(0, 0.3, None, 0.0, 2)
    [(_, labels)] = packed_batches(files[0], MAP, 10_000)
    begin = log_loss(labels[:, 0], np.full(len(labels), labels.mean()))  # a fit begins at the base rate
    found = re.fullmatch(r"Logistic regression: loss (0\.\d{4}) on 4,000 rows after 1 steps in \d+ s", said[0])
    assert found and float(found[1]) < begin
    assert " on 4,000 rows, part 3 of 5 left out, after " in said[-1] and said[-1].endswith(" s left")
    del said[:]
    ensemble = job(files).served_learner().network.trees
    values = np.stack([np.arange(400.0), np.zeros(400)], axis=1)  # the last column is the regression's logit
    labels = np.random.default_rng(1).random(400) < values[:, 0] / 400
    data = StackedRows(values, labels.astype(np.float32), None).dataset()
    grow(ensemble, data, None, 5, 1, {"min_data_in_leaf": 5}, 1)  # fewer rows than LightGBM's default
    assert [text.partition(" trees")[0] for text in said] == [f"Boosting: {tree} of at most 5" for tree in range(1, 6)]
    assert said[-1].endswith(" s, at most 0 s left")


def test_a_rows_own_label_does_not_betray_itself_through_a_rare_value(files):
    """The weight of a user without another row is 0 out of fold, and follows the label in a fit of all rows."""
    this, rows = job(files), LinearRows(files[0], MAP)
    network = this.served_learner().network
    whole = rows.fit(0, 0.3)
    train = out_of_fold(this, rows, files[0], network, whole, 0.3)
    [(inputs, labels)] = packed_batches(files[0], MAP, 10_000)
    users = inputs["ids"][:, 0]
    alone = np.bincount(users)[users] == 1
    assert alone.sum() > 500 and not train.values[alone, 1].any() and train.values[~alone, 1].any()
    np.testing.assert_array_equal(train.labels, labels[:, 0])
    served = np.asarray(network.values(inputs))  # with the whole fit
    assert (np.sign(served[alone, 1]) == np.where(labels[alone, 0] > 0.5, 1, -1)).all()
    np.testing.assert_allclose(served[:, -1], np.asarray(network(inputs))[:, 0], atol=1e-4)


@pytest.mark.slow
def test_the_same_seed_grows_the_same_trees_and_a_refit_learns_the_newest_rows(files, trained, tmp_path):
    first = trained[0].model.get_weights()
    again = train(job(files), tmp_path / "again")
    assert all(np.array_equal(one, other) for one, other in zip(first, again.model.get_weights(), strict=True))
    refit = train(job(files, refit=True), tmp_path / "refit")
    assert refit.history["evaluations"] == again.history["evaluations"]
    before, after = (log_loss(*predicted(each.model, files[1])) for each in (again, refit))
    assert after < before - 0.001


def test_weights_that_sum_to_one_leave_the_trees_their_splits():
    random = np.random.default_rng(0)
    values = random.random((400, 2)).astype(np.float32)
    values[:, -1] = 0  # the logit at which the trees begin
    labels = (values[:, 0] > 0.5).astype(np.float32)
    weights = random.random(400).astype(np.float32)
    small = StackedRows(values, labels, weights / weights.sum()).dataset().construct()
    np.testing.assert_allclose(small.get_weight(), weights / weights.mean(), rtol=1e-5)
    impressions = np.array([1000, 3000], np.float32)
    assert not_below_rows(impressions) is impressions and not_below_rows(None) is None
