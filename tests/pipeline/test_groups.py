"""The groups of rows from the log to the batches: their numbers, packed files, and batches that keep them together."""

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.estimates import gauc_estimate
from ctrpipe.common.grouped_auc import NO_GROUP, group_aucs, have_both_classes
from ctrpipe.models.base.feature_map import GROUP, FeatureMap
from ctrpipe.pipeline.config import Model, RunConfig, Training
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.training.data import groups_of, packed_batches
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.progress import Progress, measured
from ctrpipe.pipeline.training.stages import train_here
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


@pytest.mark.parametrize(
    ("monitor", "best"), [("gauc", 1), ("auc", 0), ("log_loss", 2), ("auc_minus_log_loss", 0), ("auc_plus_gauc", 2)]
)
def test_the_best_evaluation_is_by_the_monitored_metric(monitor, best):
    evaluations = [
        {"validation_auc": 0.8, "validation_log_loss": 0.44, "validation_gauc": 0.60},
        {"validation_auc": 0.7, "validation_log_loss": 0.45, "validation_gauc": 0.70},
        {"validation_auc": 0.75, "validation_log_loss": 0.4, "validation_gauc": 0.69},
    ]
    progress, training = Progress(learning_rate=0.1), Training(monitor=monitor, patience=9)
    for numbers in evaluations:
        progress.record(training, numbers)
    assert progress.best == best
    assert measured("auc_minus_log_loss", evaluations[0]) == pytest.approx(0.36)
    assert measured("auc_plus_gauc", evaluations[0]) == pytest.approx(1.4)
    for name in ("gauc", "auc_plus_gauc"):
        assert measured(name, {"validation_auc": 0.5}) is None


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


def test_a_group_has_both_classes_exactly_if_its_auc_is_defined():
    random = np.random.default_rng(3)
    found = []
    for labelled in range(1, 9):
        groups, labels = random.integers(0, 4, labelled), random.choice([0.0, 1.0, np.nan], labelled)
        own = groups != NO_GROUP
        found.append(have_both_classes(groups, labels))
        assert found[-1] == (len(group_aucs(groups[own], labels[own], labels[own]).aucs) > 0)
    assert set(found) == {True, False}
    assert have_both_classes(np.array([7]), np.array([0.5]))  # a rate is so many clicks and so many others
    assert not have_both_classes(np.array([NO_GROUP, NO_GROUP]), np.array([0.0, 1.0]))


COMPARING = [
    ({"loss": "softmax", "monitor": "auc"}, "training.loss: softmax compares rows of a group, and no group of the tr"),
    ({"loss": "pairwise_logistic", "monitor": "auc"}, "training.loss: pairwise_logistic compares rows of a group"),
    ({"loss": "jrc"}, "training.loss: jrc compares rows of a group"),
    ({"monitor": "gauc"}, "training.monitor: no group of the validation rows by .* has both classes; monitor auc"),
    ({"monitor": "auc_plus_gauc"}, "training.monitor: no group of the validation rows by .* has both classes"),
]


@pytest.mark.parametrize(("settings", "said"), COMPARING)
def test_groups_of_one_row_are_refused_where_a_group_is_compared(tmp_path, settings, said):
    """Without a pair these losses are 0, and a model stayed as it began."""
    data = FeatureMap.from_sizes([("a", "categorical", 5)])
    files = written(tmp_path, 1 + np.arange(30))
    job = TrainingJob(Model(name="fm"), Training(**settings), data, files, files, 1)
    with pytest.raises(InputError, match=said) as error:
        train_here(job, tmp_path / "work", None)
    assert "by evaluation.group" in str(error.value)
    (tmp_path / "part.parquet").unlink()
    written(tmp_path, 1 + np.arange(30) // 3)
    job.check_groups()


@pytest.mark.parametrize(("settings", "said"), COMPARING)
def test_a_check_says_that_groups_have_no_pair(tmp_path, settings, said):
    for name, per_user in (("alone", 1), ("shared", 4)):
        lines = [f"{int(row % 3 == 0)},u{row // per_user},{row % 7}" for row in range(60)]
        (tmp_path / f"{name}.csv").write_text("click,user,item\n" + "\n".join(lines) + "\n")
    described = {
        "name": "groups",
        "data": {"header": True, "format": "csv", "labels": {"ctr": "click"}, "split": {"by": "order"}},
        "features": [{"columns": ["user", "item"], "kind": "categorical"}],
        "model": {"name": "fm"},
        "training": settings,
        "evaluation": {"group": "user"},
        "calibration": {"method": "platt"},
    }
    config = RunConfig.model_validate(described)
    assert check_log(config, [str(tmp_path / "shared.csv")]).errors == []
    [line] = check_log(config, [str(tmp_path / "alone.csv")]).errors
    assert line.startswith(said.split(" by .*")[0]) and "by user" in line
