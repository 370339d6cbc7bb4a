"""The gate table against the decision that TFMA takes, on eight rows whose metrics can be worked out by hand."""

import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_types
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts
from tfx.utils import json_utils, proto_utils

from models import metrics
from pipeline import exact_auc
from pipeline.components.gated_evaluator import Executor
from pipeline.config import RunConfig
from pipeline.gates import read_gates
from pipeline.graph import eval_config

LABELS = [1, 1, 1, 0, 0, 0, 0, 0]
GOOD = [0.9, 0.8, 0.3, 0.2, 0.1, 0.4, 0.05, 0.15]
WORSE = [0.2, 0.8, 0.3, 0.9, 0.1, 0.4, 0.05, 0.15]  # the first click and the first row without one change places
GOOD_AUC = 14 / 15  # of 15 pairs only (0.3, 0.4) is in the wrong order
WORSE_AUC = 10 / 15  # of the pairs, (0.2, 0.4) and those with 0.9 are wrong too
CALIBRATION = 2.9 / 3


def log_loss(scores: list[float]) -> float:
    return -sum(math.log(p if y else 1 - p) for y, p in zip(LABELS, scores, strict=True)) / len(LABELS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Examples that hold both models' scores, and two models that give them back."""
    root = tmp_path_factory.mktemp("gates")
    (root / "examples" / "Split-test").mkdir(parents=True)
    file = root / "examples" / "Split-test" / "data_tfrecord-00000-of-00001.gz"
    with tf.io.TFRecordWriter(str(file), "GZIP") as writer:
        for row in zip(LABELS, GOOD, WORSE, strict=True):
            example = tf.train.Example()
            for name, value in zip(("label", "good", "worse"), row, strict=True):
                example.features.feature[name].float_list.value.append(value)
            writer.write(example.SerializeToString())
    for name in ("good", "worse"):
        module = tf.Module()
        spec = {name: tf.io.FixedLenFeature([], tf.float32)}
        module.score = tf.function(
            lambda examples, name=name, spec=spec: {"ctr": tf.io.parse_example(examples, spec)[name]},
            input_signature=[tf.TensorSpec([None], tf.string, name="examples")],
        )
        tf.saved_model.save(module, str(root / name / "Format-Serving"), {"serving_default": module.score})
    (root / "none").mkdir()  # what LastBlessedModel leaves when nothing has been blessed
    return root


def decide(folder: pathlib.Path, work: pathlib.Path, model: str, last_blessed: str, gates: dict) -> tuple:
    """Whether TFMA blesses, the metrics that TFMA finds failing, and the rows of the gate table."""
    values = {"name": "gates", "data": {"columns": ["label", "n"], "labels": {"ctr": "label"}}, "gates": gates}
    values |= {"features": [{"kind": "numeric", "columns": ["n"]}], "model": {"name": "lr"}}
    config = RunConfig.model_validate(values)

    def artifact(kind, path):
        found = kind()
        found.uri = str(path)
        return found

    examples = artifact(standard_artifacts.Examples, folder / "examples")
    examples.split_names = '["test"]'
    context = BaseBeamExecutor.Context(["--direct_running_mode=in_memory"], str(work / "tmp"), "1")
    Executor(context).Do(
        {
            "examples": [examples],
            "model": [artifact(standard_artifacts.Model, folder / model)],
            "baseline_model": [artifact(standard_artifacts.Model, folder / last_blessed)],
        },
        {
            "evaluation": [artifact(standard_artifacts.ModelEvaluation, work / "evaluation")],
            "blessing": [artifact(standard_artifacts.ModelBlessing, work / "blessing")],
        },
        {
            "eval_config": proto_utils.proto_to_json(eval_config(config)),
            "example_splits": json_utils.dumps(["test"]),
            "fairness_indicator_thresholds": "null",
        },
    )
    result = tfma.load_validation_result(str(work / "evaluation"))
    failing = [failure.metric_key.name for part in result.metric_validations_per_slice for failure in part.failures]
    blessed = (work / "blessing" / "BLESSED").exists()
    assert blessed == result.validation_ok
    return blessed, sorted(failing), read_gates(work / "evaluation", config.gates)


def failed(rows: list[dict]) -> list[tuple[str, str]]:
    return [(row["metric"], row["bound"]) for row in rows if not row["passed"]]


def test_a_first_model_is_blessed_where_no_bound_is_set(folder, tmp_path):
    blessed, failing, [row] = decide(folder, tmp_path, "good", "none", {})
    assert blessed and not failing
    assert row["passed"] and row["value"] is None and row["reason"] == "no model has been blessed before"


def test_bounds_that_hold_and_an_equal_model_pass(folder, tmp_path):
    bounds = {
        "auc": {"min": GOOD_AUC - 0.001, "max": GOOD_AUC + 0.001},
        "log_loss": {"min": log_loss(GOOD) - 0.001, "max": log_loss(GOOD) + 0.001},
        "calibration": {"min": CALIBRATION - 0.001, "max": CALIBRATION + 0.001},
    }
    gates = {**bounds, "max_drop": {"auc": 0.0, "log_loss": 0.0}}
    blessed, failing, rows = decide(folder, tmp_path, "good", "good", gates)
    assert blessed and not failing and not failed(rows)
    found = [(row["metric"], row["kind"], row["value"]) for row in rows]
    values = {"auc": GOOD_AUC, "log_loss": log_loss(GOOD), "calibration": CALIBRATION}
    expected = [(name, "absolute", pytest.approx(values[name], abs=1e-6)) for name in bounds for _ in ("min", "max")]
    assert found == expected + [("auc", "change", 0.0), ("log_loss", "change", 0.0)]


def test_each_bound_that_is_missed_is_a_row_that_failed(folder, tmp_path):
    gates = {
        "auc": {"min": GOOD_AUC + 0.001},
        "log_loss": {"min": 0.1, "max": log_loss(GOOD) - 0.001},
        "calibration": {"min": CALIBRATION + 0.001, "max": 1.5},
    }
    blessed, failing, rows = decide(folder, tmp_path, "good", "none", gates)
    assert not blessed and failing == ["auc", "binary_crossentropy", "calibration"]
    expected = [("auc", "at least 0.934333"), ("log_loss", "at most 0.322202"), ("calibration", "at least 0.967667")]
    assert failed(rows) == expected
    assert rows[0]["reason"] == "0.9333 is not at least 0.934333"


def test_a_model_worse_than_the_last_blessed_one_is_blocked(folder, tmp_path):
    blessed, failing, [row] = decide(folder, tmp_path, "worse", "good", {})
    assert not blessed and failing == ["auc"]
    assert not row["passed"] and row["value"] == pytest.approx(GOOD_AUC - WORSE_AUC, abs=1e-6)
    assert row["reason"] == "0.2667 is not at most 0.001 worse than the last blessed model"


def test_each_metric_has_its_own_permitted_drop(folder, tmp_path):
    worse_by = log_loss(WORSE) - log_loss(GOOD)
    gates = {"max_drop": {"auc": GOOD_AUC - WORSE_AUC + 1e-6, "log_loss": worse_by - 0.001}}
    blessed, failing, rows = decide(folder, tmp_path, "worse", "good", gates)
    assert not blessed and failing == ["binary_crossentropy"]
    assert [row["passed"] for row in rows] == [True, False]
    assert rows[1]["value"] == pytest.approx(worse_by, abs=1e-6)


def test_a_better_model_passes(folder, tmp_path):
    blessed, failing, rows = decide(folder, tmp_path, "good", "worse", {"max_drop": {"auc": -0.2, "log_loss": -0.1}})
    assert blessed and not failing and not failed(rows)
    assert rows[0]["value"] == pytest.approx(WORSE_AUC - GOOD_AUC, abs=1e-6)


def test_auc_tells_apart_what_lies_closer_than_any_grid_and_halves_ties():
    random = np.random.default_rng(1)
    labels = (random.random(3000) < 0.3).astype(float)
    scores = np.float32(1e-3 + 1e-6 * (labels + random.normal(size=3000)).round(2))
    key = metric_types.MetricKey("auc")
    combiner = exact_auc._ExactAUC(key, None)

    def accumulate(part: slice) -> list:
        found = combiner.create_accumulator()
        for label, score in zip(labels[part], scores[part], strict=True):
            inputs = metric_types.StandardMetricInputs({"labels": np.array([label]), "predictions": np.array([score])})
            found = combiner.add_input(found, inputs)
        return found

    parts = [combiner.compact(accumulate(slice(0, 700))), accumulate(slice(700, 701)), accumulate(slice(701, 3000))]
    found = combiner.extract_output(combiner.merge_accumulators(parts))[key]
    assert found == pytest.approx(metrics.auc(labels, scores), abs=1e-12) and 0.6 < found < 0.9
    assert combiner.extract_output(combiner.create_accumulator()) == {key: 0.0}
