"""The gate table against the decision that TFMA takes, on eight rows whose metrics can be worked out by hand."""

import dataclasses
import functools
import math
import pathlib

import numpy as np
import pytest
import scipy.stats
import tensorflow_model_analysis as tfma

from ctrpipe.common import metrics
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.config import Gates
from ctrpipe.pipeline.evaluation.evaluate import evaluate, last_blessed_probabilities
from ctrpipe.pipeline.evaluation.gates import read_gates
from ctrpipe.pipeline.evaluation.judge import judge
from tests.pipeline import scored_log

pytestmark = pytest.mark.slow

LABELS = [1, 1, 1, 0, 0, 0, 0, 0]
GOOD = [0.9, 0.8, 0.3, 0.2, 0.1, 0.4, 0.05, 0.15]
WORSE = [0.2, 0.8, 0.3, 0.9, 0.1, 0.4, 0.05, 0.15]  # the first click and the first row without one change places
GOOD_AUC = 14 / 15  # of 15 pairs only (0.3, 0.4) is in the wrong order
WORSE_AUC = 10 / 15  # of the pairs, (0.2, 0.4) and those with 0.9 are wrong too
CALIBRATION = 2.9 / 3
SITES = [b"a", b"a", b"a", b"a", b"a", None, b"a", b"alone"]
REVERSED = [1 - score for score in GOOD]  # calibrated on average, and far worse than 3/8 for every row
COLUMNS = {"label": LABELS, "good": GOOD, "worse": WORSE, "reversed": REVERSED, "site": SITES}


def log_loss(scores: list[float]) -> float:
    return -sum(math.log(p if y else 1 - p) for y, p in zip(LABELS, scores, strict=True)) / len(LABELS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A payload that holds both models' scores, and two models that give them back."""
    root = tmp_path_factory.mktemp("gates")
    run = scored_log.config(COLUMNS, {"ctr": "label"})
    scored_log.write(root / "payload", run, COLUMNS)
    for name in ("good", "worse", "reversed"):
        scored_log.save(root / name, {"ctr": name})
    return root


def decide(folder: pathlib.Path, work: pathlib.Path, model: str, last_blessed: str | None, gates: dict) -> tuple:
    """Whether the model is blessed, the metrics that TFMA finds failing, and the rows of the gate table."""
    plain = {"max_drop": {"auc": 0.001}, "max_drop_confidence": None}
    run = scored_log.config(COLUMNS, {"ctr": "label"}, ("site",), plain | gates)
    last = folder / last_blessed if last_blessed else None
    files = list((folder / "payload").iterdir())
    blessed = judge(folder / model, last, files, scored_log.gates_of(run), work, Workers(processes=1))
    result = tfma.load_validation_result(str(work))
    failing = [failure.metric_key.name for part in result.metric_validations_per_slice for failure in part.failures]
    assert blessed == result.validation_ok
    _, scored, _ = evaluate(work, None, files, run.log_spec, run.evaluation, "rows")
    return blessed, sorted(failing), read_gates(work, run.gates, scored, last_of(work))


def last_of(work: pathlib.Path) -> list[np.ndarray]:
    """The last blessed model's predictions, if there is one."""
    found = last_blessed_probabilities(work, "ctr")
    return [] if found is None else [found]


def failed(rows: list[dict]) -> list[tuple[str, str]]:
    return [(row["metric"], row["bound"]) for row in rows if not row["passed"]]


def test_a_first_model_is_blessed_where_no_bound_is_set(folder, tmp_path):
    blessed, failing, [row] = decide(folder, tmp_path, "good", None, {})
    assert blessed and not failing
    assert row["passed"] and row["value"] is None and row["reason"] == "no model has been blessed before"


def test_bounds_that_hold_and_an_equal_model_pass(folder, tmp_path):
    bounds = {
        "auc": {"min": GOOD_AUC - 0.001, "max": GOOD_AUC + 0.001},
        "log_loss": {"min": log_loss(GOOD) - 0.001, "max": log_loss(GOOD) + 0.001},
        "auc_minus_log_loss": {"min": GOOD_AUC - log_loss(GOOD) - 0.001, "max": GOOD_AUC - log_loss(GOOD) + 0.001},
        "calibration": {"min": min(CALIBRATION, 1) - 0.001, "max": max(CALIBRATION, 1) + 0.001},
    }
    gates = {**bounds, "max_drop": {"auc": 0.0, "log_loss": 0.0}}
    blessed, failing, rows = decide(folder, tmp_path, "good", "good", gates)
    assert blessed and not failing and not failed(rows)
    found = [(row["metric"], row["kind"], row["value"]) for row in rows]
    values = {"auc": GOOD_AUC, "log_loss": log_loss(GOOD), "calibration": CALIBRATION}
    values["auc_minus_log_loss"] = GOOD_AUC - log_loss(GOOD)
    expected = [(name, "absolute", pytest.approx(values[name], abs=1e-6)) for name in bounds for _ in ("min", "max")]
    assert found == expected + [("auc", "change", 0.0), ("log_loss", "change", 0.0)]


def test_a_model_worse_than_the_base_rate_is_blocked_by_default(folder, tmp_path):
    entropy = -(3 / 8 * math.log(3 / 8) + 5 / 8 * math.log(5 / 8))
    default = Gates().model_dump(exclude={"max_drop"}) | {"max_drop": {}}
    for model, scores, passes in (("reversed", REVERSED, False), ("good", GOOD, True)):
        blessed, failing, [row] = decide(folder, tmp_path / model, model, None, default)
        assert blessed == row["passed"] == passes and failing == ([] if passes else ["rig"])
        assert (row["metric"], row["bound"]) == ("rig", "at least 0")
        assert row["value"] == pytest.approx(1 - log_loss(scores) / entropy, abs=1e-6)
    assert decide(folder, tmp_path / "lifted", "reversed", None, {**default, "rig": None}) == (True, [], [])


def test_a_limit_on_what_the_test_rows_do_not_define_blocks(folder, tmp_path):
    run = scored_log.config(COLUMNS, {"ctr": "label"}, (), {"rig": {"min": 0}, "max_drop": {}})
    files = scored_log.write(tmp_path / "payload", run, {**COLUMNS, "label": [0] * 8})
    judge(folder / "good", None, files, scored_log.gates_of(run), tmp_path / "judged", Workers(processes=1))
    _, scored, _ = evaluate(tmp_path / "judged", None, files, run.log_spec, run.evaluation, "rows")
    [row] = read_gates(tmp_path / "judged", run.gates, scored, [])
    assert not row["passed"] and row["value"] is None
    assert row["reason"] == "not defined on these test rows: all of them have the same label"


def test_a_slice_of_one_row_does_not_block(folder, tmp_path):
    # The AUC of the one row on the site `alone` is 0 and its calibration undefined.
    gates = {"auc": {"min": 0.9}, "calibration": {"min": 0.9, "max": 1.1}, "max_drop": {"auc": -0.2}}
    blessed, failing, _ = decide(folder, tmp_path, "good", "worse", gates)
    assert blessed and not failing
    found = tfma.load_eval_result(str(tmp_path), model_name=tfma.CANDIDATE_KEY).get_metrics_for_all_slices()
    assert found[(("site", "alone"),)]["auc"] == {"doubleValue": 0.0}


def test_each_bound_that_is_missed_is_a_row_that_failed(folder, tmp_path):
    gates = {
        "auc": {"min": GOOD_AUC + 0.001},
        "log_loss": {"min": 0.1, "max": log_loss(GOOD) - 0.001},
        "auc_minus_log_loss": {"min": 0.62},
        "calibration": {"min": CALIBRATION + 0.001, "max": 1.5},
    }
    blessed, failing, rows = decide(folder, tmp_path, "good", None, gates)
    assert not blessed and failing == ["auc", "calibration", "log_loss"]
    expected = [("auc", "at least 0.934333"), ("log_loss", "at most 0.322202")]
    expected += [("auc_minus_log_loss", "at least 0.62"), ("calibration", "at least 0.967667")]
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
    assert not blessed and failing == ["log_loss"]
    assert [row["passed"] for row in rows] == [True, False]
    assert rows[1]["value"] == pytest.approx(worse_by, abs=1e-6)


def test_a_better_model_passes(folder, tmp_path):
    blessed, failing, rows = decide(folder, tmp_path, "good", "worse", {"max_drop": {"auc": -0.2, "log_loss": -0.1}})
    assert blessed and not failing and not failed(rows)
    assert rows[0]["value"] == pytest.approx(WORSE_AUC - GOOD_AUC, abs=1e-6)


# Intervals and slices ------------------------------------------------------------------------------------------------

ROWS = 3000


def many_rows() -> dict[str, list]:
    """Clicks drawn from `good`, which noise makes `noisy` and `bad`; site `b` has twice as many as that."""
    random = np.random.default_rng(5)
    logits = random.normal(-1, 1.2, ROWS)
    site = random.choice([b"a", b"b", b"rare"], ROWS, p=[0.6, 0.38, 0.02])
    scores = {name: sigmoid(logits + noise * random.normal(size=ROWS)) for name, noise in NOISE.items()}
    clicks = random.random(ROWS) < np.where(site == b"b", np.minimum(2 * scores["good"], 1), scores["good"])
    return {"label": clicks.astype(float).tolist(), **{k: v.tolist() for k, v in scores.items()}, "site": site.tolist()}


NOISE = {"good": 0.0, "noisy": 0.4, "bad": 1.0}


def sigmoid(values: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-values))).astype(np.float32).astype(float)


MANY = many_rows()


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("many")
    run = scored_log.config(MANY, {"ctr": "label"})
    scored_log.write(root / "payload", run, MANY)
    for name in NOISE:
        scored_log.save(root / name, {"ctr": name})
    return root


def table(folder: pathlib.Path, work: pathlib.Path, model: str, last: str | None, gates: dict) -> list[dict]:
    run = scored_log.config(MANY, {"ctr": "label"}, ("site",), gates)
    files = list((folder / "payload").iterdir())
    judge(folder / model, folder / last if last else None, files, scored_log.gates_of(run), work, Workers(processes=1))
    _, scored, _ = evaluate(work, None, files, run.log_spec, run.evaluation, "rows")
    return read_gates(work, run.gates, scored, last_of(work))


@functools.cache
def bootstrap(metric, *models: str) -> np.ndarray:
    """A metric of 500 draws of the rows with replacement; of two models, the first's less the second's."""
    random = np.random.default_rng(0)
    labels, scores = np.array(MANY["label"]), [np.array(MANY[model]) for model in models]
    draws = (random.integers(ROWS, size=ROWS) for _ in range(500))
    found = [[metric(labels[draw], each[draw]) for each in scores] for draw in draws]
    return np.array(found) @ [1, -1][: len(models)]


def auc_minus_log_loss(labels: np.ndarray, scores: np.ndarray) -> float:
    return metrics.auc(labels, scores) - metrics.log_loss(labels, scores)


@pytest.mark.parametrize(
    ("metric", "function", "side", "beyond", "passes"),
    [
        ("auc", metrics.auc, "min", -0.1, True),
        ("auc", metrics.auc, "min", 0.1, False),
        pytest.param("log_loss", metrics.log_loss, "max", 0.1, True, marks=pytest.mark.large),
        ("log_loss", metrics.log_loss, "max", -0.1, False),
        ("auc_minus_log_loss", auc_minus_log_loss, "min", 0.1, False),
        pytest.param("auc_minus_log_loss", auc_minus_log_loss, "min", -0.1, True, marks=pytest.mark.large),
        ("calibration", metrics.calibration, "min", 0.1, False),
    ],
)
def test_a_limit_with_confidence_is_kept_by_the_worst_that_chance_makes_of_the_metric(
    many, tmp_path, metric, function, side, beyond, passes
):
    """The limit lies outside the interval, by a tenth of its width."""
    ends = dict(zip(("min", "max"), np.quantile(bootstrap(function, "noisy"), [0.05, 0.95]), strict=True))
    limit = ends[side] + beyond * (ends["max"] - ends["min"])
    gates = {metric: {side: float(limit), "confidence": 0.95}, "max_drop": {}}
    [row] = table(many, tmp_path, "noisy", None, gates)
    assert row["passed"] == passes and "with 95% confidence" in row["reason"], row


def test_limits_of_gauc_are_kept_by_the_worst_that_chance_makes_of_the_users(many, tmp_path):
    run = scored_log.config(MANY, {"ctr": "label"}, (), {"max_drop": {}})
    files = list((many / "payload").iterdir())
    judge(many / "noisy", many / "good", files, scored_log.gates_of(run), tmp_path, Workers(processes=1))
    _, scored, _ = evaluate(tmp_path, None, files, run.log_spec, run.evaluation, "rows")
    last = last_of(tmp_path)
    random = np.random.default_rng(5)
    users = random.integers(1, 61, ROWS)

    def of_gates(gates: dict, groups: np.ndarray) -> list[dict]:
        grouped = dataclasses.replace(scored, groups=groups, group_weight="impressions")
        return read_gates(tmp_path, Gates.model_validate({"rig": None, "max_drop": {}, **gates}), grouped, last)

    labels, every = np.array(MANY["label"]), [users == user for user in range(1, 61)]
    noisy, good = (
        np.array([[metrics.auc(labels[own], np.array(MANY[model])[own]), own.sum()] for own in every])
        for model in ("noisy", "good")
    )
    value, better = (np.average(side[:, 0], weights=side[:, 1]) for side in (noisy, good))
    draws = (noisy[random.integers(60, size=60)] for _ in range(1000))
    least = np.quantile([np.average(draw[:, 0], weights=draw[:, 1]) for draw in draws], 0.05)
    for limit, passes in ((least + 0.25 * (value - least), False), (least - 0.25 * (value - least), True)):
        [row] = of_gates({"gauc": {"min": float(limit), "confidence": 0.95}}, users)
        assert row["passed"] == passes and row["value"] == pytest.approx(value)
        [row] = of_gates({"gauc": {"min": float(limit)}}, users)
        assert row["passed"]
    for drop, passes in ((better - value - 1e-6, False), (better - value + 1e-6, True)):
        [row] = of_gates({"max_drop": {"gauc": float(drop)}, "max_drop_confidence": None}, users)
        assert row["passed"] == passes and row["value"] == pytest.approx(better - value)
    alone, limits = np.arange(1, ROWS + 1), {"gauc": {"min": 0.5}, "max_drop": {"gauc": 0.0}}
    for confidence, passes in ((None, [False, False]), (0.95, [False, True])):
        rows = of_gates({**limits, "max_drop_confidence": confidence}, alone)
        assert [row["passed"] for row in rows] == passes
        assert all("fewer than two groups have rows of both classes" in row["reason"] for row in rows)


def test_a_drop_blocks_only_where_a_paired_test_is_sure_of_it(many, tmp_path):
    drawn = bootstrap(metrics.auc, "good", "noisy")
    assert np.quantile(drawn, 0.05) > 0  # over rows alone the test is sure that `noisy` is worse
    sure, above = float(np.quantile(drawn, 0.05)), float(drawn.mean())
    for number, (drop, passes) in enumerate([(0.8 * sure, False), ((sure + above) / 2, True)]):
        gates = {"max_drop": {"auc": drop}, "max_drop_confidence": 0.95, "training_noise": {"auc": 0.0}}
        [row] = table(many, tmp_path / str(number), "noisy", "good", gates)
        assert row["passed"] == passes and row["value"] == pytest.approx(above, rel=0.05)
    plain = {"max_drop": {"auc": (sure + above) / 2}, "max_drop_confidence": None}
    [row] = table(many, tmp_path / "plain", "noisy", "good", plain)
    assert not row["passed"]  # without a confidence chance blocks it
    [row] = table(many, tmp_path / "bad", "bad", "good", {"max_drop": {"log_loss": 0.001}, "max_drop_confidence": 0.99})
    assert not row["passed"]


def test_the_default_gate_counts_the_noise_of_trainings_too(many, tmp_path):
    """A drop that a test of the rows alone is sure of is one that another seed may have made."""
    rows_alone = bootstrap(metrics.auc, "good", "noisy").std()
    for number, (noise, passes) in enumerate([(0.0, False), (2 * rows_alone, True)]):
        [row] = table(many, tmp_path / str(number), "noisy", "good", {"training_noise": {"auc": noise}})
        assert row["passed"] == passes and "with 95% confidence" in row["reason"], row
        error = float(row["reason"].split("standard error ")[1].split(" ")[0])
        assert error == pytest.approx(math.sqrt(rows_alone**2 + 2 * noise**2), rel=0.1)


def test_a_slice_blocks_only_where_its_interval_is_outside_the_limit(many, tmp_path):
    labels, scores, sites = np.array(MANY["label"]), np.array(MANY["good"]), np.array(MANY["site"])
    of_b = scores[sites == b"b"].sum() / labels[sites == b"b"].sum()
    rows, clicks = int((sites == b"b").sum()), int(labels[sites == b"b"].sum())
    level = 1 - 0.05 / 3  # there are three sites
    rate = scipy.stats.binomtest(clicks, rows).proportion_ci(level).low
    most = scores[sites == b"b"].mean() / rate  # the largest calibration that the clicks of `b` allow
    assert of_b < 0.8 and most < 1
    for number, (max_error, passes) in enumerate([(1 - most + 0.01, True), (1 - most - 0.01, False)]):
        bounds = {"slices": ["site"], "max_error": float(max_error), "min_clicks": 1}
        [row] = table(many, tmp_path / str(number), "good", None, {"calibration": bounds, "max_drop": {}})
        assert row["passed"] == passes and row["value"] == pytest.approx(of_b)
        assert f"site is b ({rows:,} rows, {clicks:,} clicks)" in row["reason"]
        assert f"to {most:.4f}, of the largest of 3 values" in row["reason"]
    alone = {"slices": ["site"], "max_error": 0.01, "min_clicks": 2500}
    [row] = table(many, tmp_path / "none", "good", None, {"calibration": alone, "max_drop": {}})
    assert row["passed"] and row["reason"] == "no site has 2,500 clicks"
