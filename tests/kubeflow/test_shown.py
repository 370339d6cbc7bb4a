"""What Kubeflow's pages draw, from rows with weights, rates, missing labels, or one class only."""

import json

import numpy as np
import pytest
import sklearn.metrics
from kfp.dsl import ClassificationMetrics
from tfx.types import standard_artifacts

from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.pipeline.kubeflow import shown


def drawn(folder, labels, probabilities, weights=None):
    labels, probabilities = {"click": np.array(labels, float)}, {"click": np.array(probabilities, float)}
    weights = None if weights is None else np.array(weights, float)
    write_scored(folder / "rows.parquet", ScoredRows("rows", labels, probabilities, weights=weights))
    found = shown.classification(folder / "rows.parquet")
    json.dumps(found, allow_nan=False)  # Kubeflow reads JSON without infinities
    return found


def matrix(found):
    return [row["row"] for row in found["confusionMatrix"]["rows"]]


def test_a_long_curve_keeps_its_shape_in_few_points(tmp_path):
    random = np.random.default_rng(0)
    labels = (random.random(20_000) < 0.02).astype(float)
    scores = np.clip(random.beta(1, 40, 20_000) + 0.1 * labels * random.random(20_000), 0, 1).astype(np.float32)
    points = drawn(tmp_path, labels, scores)["confidenceMetrics"]
    rates = [[point[name] for point in points] for name in ("falsePositiveRate", "recall")]
    assert 50 < len(points) <= 102 and rates[0][0] == rates[1][0] == 0 and rates[0][-1] == rates[1][-1] == 1
    assert sklearn.metrics.auc(*rates) == pytest.approx(sklearn.metrics.roc_auc_score(labels, scores), abs=2e-3)


def test_rows_count_by_their_weights_and_rows_without_a_label_do_not(tmp_path):
    found = drawn(tmp_path, [1, 0, 0, np.nan], [0.9, 0.8, 0.1, 0.9], [1, 3, 6, 100])
    assert found["threshold"] == pytest.approx(0.1)
    assert matrix(found) == [[0.0, 9.0], [0.0, 1.0]]  # 0.1 is at the rate of clicks
    single = drawn(tmp_path, [1, 0, 0, 0] + [0] * 6, [0.9, 0.8, 0.8, 0.8] + [0.1] * 6)
    assert single["confidenceMetrics"] == found["confidenceMetrics"] and matrix(single) == matrix(found)


@pytest.mark.parametrize("label", [0, 1])
def test_without_rows_of_both_classes_there_is_a_matrix_and_no_curve(tmp_path, label):
    found = drawn(tmp_path, [label] * 3, [0.2, 0.3, 0.4])
    assert "confidenceMetrics" not in found and sum(map(sum, matrix(found))) == 3


def test_the_metadata_is_what_kfps_own_class_writes(tmp_path):
    found = drawn(tmp_path, [0, 1, 0, 1], [0.125, 0.25, 0.5, 0.75])
    expected = ClassificationMetrics(metadata={"threshold": 0.5})
    expected.log_roc_curve([0, 0, 0.5, 0.5, 1], [0, 0.5, 0.5, 1, 1], [1, 0.75, 0.5, 0.25, 0.125])
    expected.log_confusion_matrix(["no click", "click"], [[1, 1], [1, 1]])
    assert found == expected.metadata


def test_a_data_set_has_the_rows_of_its_own_splits(tmp_path):
    (tmp_path / "counts.json").write_text('{"rows": {"train": 8, "validation": 1, "test": 2}}')
    examples = standard_artifacts.Examples()
    assert shown.of_artifact(examples, [tmp_path]) == {}  # whose splits are not known
    examples.split_names = '["test"]'
    assert shown.of_artifact(examples, [tmp_path / "none", tmp_path]) == {"rows_test": 2}
    assert shown.of_artifact(examples, [tmp_path / "none"]) == {}
    assert shown.of_artifact(standard_artifacts.Schema(), [tmp_path]) == {}


def test_a_version_is_where_it_was_pushed_in_a_store_too(tmp_path):
    model = standard_artifacts.PushedModel()
    assert shown.of_artifact(model, []) == {}  # a blocked model
    model.set_string_custom_property("pushed_version", "17")
    model.set_string_custom_property("pushed_destination", "/root/.cache/models/ctr/17")
    assert shown.of_artifact(model, [])["pushed_to"] == "/root/.cache/models/ctr/17"
    assert shown.of_artifact(model, [], "s3://b/runs/a/models/ctr") == {
        "version": "17",
        "pushed_to": "s3://b/runs/a/models/ctr/17",
    }


def test_without_event_files_no_viewer_is_offered(tmp_path):
    shown.keep_tensorboard(tmp_path / "absent", tmp_path / "logs", "s3://b/logs", tmp_path / "out" / "viewers.json")
    assert json.loads((tmp_path / "out" / "viewers.json").read_text()) == {"outputs": []}


@pytest.mark.parametrize("uri", ["minio://mlpipeline/v2/artifacts/a", "s3://mlpipeline/v2/artifacts/a", "gs://b/a"])
def test_tensorboard_is_told_a_url_that_it_reads(tmp_path, uri):
    (tmp_path / "work" / "tensorboard").mkdir(parents=True)
    (tmp_path / "work" / "tensorboard" / "events.out.tfevents.1.1").write_bytes(b"event")
    shown.keep_tensorboard(tmp_path / "work", tmp_path / "logs", uri, tmp_path / "viewers.json")
    [viewer] = json.loads((tmp_path / "viewers.json").read_text())["outputs"]
    assert viewer == {"type": "tensorboard", "source": uri.replace("minio://", "s3://")}
    assert (tmp_path / "logs" / "tensorboard" / "events.out.tfevents.1.1").read_bytes() == b"event"
