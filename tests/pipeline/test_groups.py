"""The groups of rows from the log to the batches: their numbers, packed files, and batches that keep them together."""

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.estimates import gauc_estimate
from ctrpipe.common.grouped_auc import NO_GROUP, group_aucs
from ctrpipe.models.base.feature_map import GROUP, FeatureMap
from ctrpipe.pipeline.config import Training
from ctrpipe.pipeline.training.data import groups_of, packed_batches
from ctrpipe.pipeline.training.progress import Progress, measured
from ctrpipe.pipeline.training.validation import validation_metrics
from ctrpipe.transforms.features.packed_files import PackedWriter, by_group
from ctrpipe.transforms.log.groups import group_numbers


def test_a_value_has_one_number_in_every_part_and_type_and_a_missing_one_none():
    users = [b"ann", None, b"bob", b"ann", b""]
    first = group_numbers(pa.array(users, pa.binary()))
    second = group_numbers(pa.chunked_array([pa.array(users[2:], pa.binary()).dictionary_encode()]))
    assert first[0] == first[3] == second[1] and first[2] == second[0] != first[0]
    assert first[1] == first[4] == second[2] == NO_GROUP and first.dtype == np.int64


def written(folder, groups: np.ndarray) -> list[str]:
    rows = len(groups)
    halves = groups.astype("<i8").view("<i4").reshape(-1, 2)
    labels = (np.arange(rows) % 3 == 0).astype(np.float32)[:, None]
    ids = (1 + np.arange(rows) % 5).astype(np.int32)[:, None]
    with PackedWriter(folder / "part.parquet") as writer:
        writer.write({"ids": ids, "label": labels, GROUP: halves})
    return [str(folder / "*.parquet")]


def test_packed_rows_keep_their_groups_and_batches_keep_groups_together(tmp_path):
    random = np.random.default_rng(0)
    groups = random.integers(-(2**62), 2**62, 50)[random.integers(0, 50, 600)]
    files = written(tmp_path, groups)
    np.testing.assert_array_equal(groups_of(files), groups)
    data = FeatureMap.from_sizes([("a", "categorical", 3)])
    plain = list(packed_batches(files, data, 100, shuffle_seed=1))
    assert all(set(inputs) == {"ids"} for inputs, _ in plain)
    grouped = list(packed_batches(files, data, 100, shuffle_seed=1, grouped=True))
    found = np.concatenate([inputs[GROUP] for inputs, _ in grouped])
    numbers = np.ascontiguousarray(found).view("<i8")[:, 0]
    np.testing.assert_array_equal(np.sort(numbers), np.sort(groups))
    assert np.count_nonzero(np.diff(numbers)) + 1 == len(np.unique(groups))  # each in one piece
    assert not np.array_equal(numbers, groups[np.argsort(groups, kind="stable")])  # in an order by chance


def test_groups_keep_the_place_of_their_first_row():
    assert by_group(np.array([3, 0, 2, 1]), np.array([7, 8, 7, 9])).tolist() == [3, 0, 2, 1]
    assert by_group(np.array([0, 1, 2, 3]), np.array([7, 8, 7, 9])).tolist() == [0, 2, 1, 3]


def test_gauc_is_a_metric_of_the_validation_rows_and_leaves_rows_without_a_group_out():
    random = np.random.default_rng(1)
    labels, scores = random.integers(0, 2, (40, 1)).astype(np.float32), random.random((40, 1)).astype(np.float32)
    groups = random.integers(1, 5, 40)
    groups[::4] = NO_GROUP
    own = groups != NO_GROUP
    expected = group_aucs(groups[own], labels[own, 0], scores[own, 0], None, "clicks").value
    found = validation_metrics(labels, scores, None, ("ctr",), groups, "clicks")
    assert found["validation_gauc"] == pytest.approx(expected)
    assert "validation_gauc" not in validation_metrics(labels, scores, None, ("ctr",))


@pytest.mark.parametrize(("monitor", "best"), [("gauc", 1), ("auc", 0), ("log_loss", 2), ("auc_minus_log_loss", 0)])
def test_the_best_evaluation_is_by_the_monitored_metric(monitor, best):
    evaluations = [
        {"validation_auc": 0.8, "validation_log_loss": 0.5, "validation_gauc": 0.60},
        {"validation_auc": 0.7, "validation_log_loss": 0.45, "validation_gauc": 0.70},
        {"validation_auc": 0.6, "validation_log_loss": 0.4, "validation_gauc": 0.65},
    ]
    progress, training = Progress(learning_rate=0.1), Training(monitor=monitor, patience=9)
    for numbers in evaluations:
        progress.record(training, numbers)
    assert progress.best == best
    assert measured("auc_minus_log_loss", evaluations[0]) == pytest.approx(0.3)
    assert measured("gauc", {"validation_auc": 0.5}) is None


def test_the_published_training_lowers_the_rate_at_each_evaluation_without_a_gain():
    """Learning rate times .1 at every evaluation without a gain, the end at the second: FuxiCTR's rule."""
    training = Training(monitor="auc", patience=2, plateau={"factor": 0.1, "patience": 1}, gradient_clip_norm=10)
    progress, rates = Progress(learning_rate=1e-3), []
    for auc in (0.7, 0.69, 0.71, 0.70, 0.705):
        progress.record(training, {"validation_auc": auc, "validation_log_loss": 0.5})
        rates.append(progress.learning_rate)
    np.testing.assert_allclose(rates, [1e-3, 1e-4, 1e-4, 1e-5, 1e-5])
    assert progress.stopped == "auc did not improve for 2 evaluations" and progress.best == 2


def test_two_models_on_the_same_groups_have_comparable_parts():
    random = np.random.default_rng(2)
    groups, labels = random.integers(1, 9, 300), random.integers(0, 2, 300).astype(np.float32)
    one, other = (gauc_estimate(groups, labels, random.random(300) + shift * labels) for shift in (0.1, 0.5))
    difference = other.minus(one)
    assert difference.value == pytest.approx(other.value - one.value)
    assert 0 < difference.standard_error < one.standard_error + other.standard_error
    assert gauc_estimate(np.ones(4, np.int64), np.array([0, 1, 0, 1.0]), np.arange(4.0)) is None  # one group
