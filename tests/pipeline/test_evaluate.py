"""Evaluation of a servable on a payload: predictions, metrics by slice, what TFMA writes, and the blessing."""

import collections
import pathlib
import types

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tfx.components.pusher import executor as pusher
from tfx.types import standard_artifacts

from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.components.examples_for_inference import write_examples
from ctrpipe.pipeline.components.gated_evaluator import EvaluatorSettings, GatedEvaluator
from ctrpipe.pipeline.config import Evaluation, Model, Tail
from ctrpipe.pipeline.evaluation.artifact import SCORED, read_gate_table, read_metrics
from ctrpipe.pipeline.evaluation.evaluate import evaluate
from ctrpipe.pipeline.evaluation.gates import read_gates
from ctrpipe.pipeline.evaluation.judge import PREDICTIONS, judge
from ctrpipe.pipeline.evaluation.predictions import predict
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored, write_scored
from ctrpipe.pipeline.evaluation.seeds import Seeds, SeedSide, SeedTraining, write_seeds
from ctrpipe.pipeline.evaluation.tail import tail_rows
from ctrpipe.transforms.log.payload import payload_files, read_payload
from tests.pipeline import scored_log

TASKS = {"ctr": "click", "cvr": "order"}
ALONE = Workers(processes=1)


def random_log(rows: int = 600) -> dict[str, list]:
    """Two labels, a column with each task's answer, and two columns to slice by, with missing values."""
    random = np.random.default_rng(3)
    answers = random.random((2, rows)).round(3)
    labels = (random.random((2, rows)) < answers * 0.6 + 0.1).astype(float)
    sites = random.choice(np.array([b"news", "caf\u00e9".encode(), "\u65e5\u672c".encode(), None], object), rows)
    hours = random.choice(np.array([1.0, 2.5, None], object), rows)
    columns = {"click": labels[0], "order": labels[1], "p": answers[0], "q": answers[1], "site": sites, "hour": hours}
    return {name: list(values) for name, values in columns.items()}


@pytest.fixture(scope="module")
def log() -> dict[str, list]:
    return random_log()


@pytest.fixture(scope="module")
def judged(tmp_path_factory, log) -> pathlib.Path:
    """A payload of three parts and its evaluation; the last blessed model answers what the other does for `cvr`."""
    root = tmp_path_factory.mktemp("judged")
    run = scored_log.config(log, TASKS, ("site", "hour"), {"max_drop": {}})
    files = scored_log.write(root / "payload", run, log, parts=3)
    model = scored_log.save(root / "model", {"ctr": "p", "cvr": "q"})
    last = scored_log.save(root / "last", {"ctr": "q"})
    assert judge(model, last, files, scored_log.gates_of(run), root / "evaluation", ALONE, baseline=last)
    return root


def rows_where(log: dict[str, list], column: str, value: object) -> np.ndarray:
    return np.array([each == value for each in log[column]])


@pytest.mark.slow
def test_tfma_s_metrics_of_each_slice_are_those_of_its_rows(judged, log):
    found = tfma.load_eval_result(str(judged / "evaluation"), model_name=tfma.CANDIDATE_KEY)
    slices = {(): np.ones(600, bool)}
    for name, value in (
        ("site", "news"),
        ("site", "caf\u00e9"),
        ("site", "\u65e5\u672c"),
        ("hour", 1.0),
        ("hour", 2.5),
    ):
        stored = value.encode() if isinstance(value, str) else value
        slices[((name, value),)] = rows_where(log, name, stored)
    by_slice = found.get_metrics_for_all_slices()
    assert set(by_slice) == set(slices)  # a missing value is in the slice of all rows alone
    for key, rows in slices.items():
        label, score = np.array(log["click"])[rows], np.array(log["p"], np.float32)[rows]
        values = {name: value["doubleValue"] for name, value in by_slice[key].items()}
        assert values["example_count"] == rows.sum() > 100
        assert values["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(label, score), abs=1e-9)
        assert values["log_loss"] == pytest.approx(metrics.log_loss(label, score), abs=1e-9)
        assert values["rig"] == pytest.approx(metrics.rig(label, score), abs=1e-9)
        assert values["calibration"] == pytest.approx(metrics.calibration(label, score), abs=1e-9)


def test_tfma_compares_with_the_last_blessed_model_slice_by_slice(judged, log):
    last = tfma.load_eval_result(str(judged / "evaluation"), model_name=tfma.BASELINE_KEY)
    new = tfma.load_eval_result(str(judged / "evaluation"), model_name=tfma.CANDIDATE_KEY)
    for key, name in (((), None), ((("site", "news"),), b"news")):
        rows = np.ones(600, bool) if name is None else rows_where(log, "site", name)
        expected = metrics.auc(np.array(log["click"])[rows], np.array(log["q"], np.float32)[rows])
        values = last.get_metrics_for_all_slices()[key]
        assert values["auc"]["doubleValue"] == pytest.approx(expected, abs=1e-9)
        changed = new.get_metrics_for_all_slices()[key]
        difference = changed["auc"]["doubleValue"] - expected
        assert changed["auc_diff"]["doubleValue"] == pytest.approx(difference, abs=1e-9)


def test_metrics_json_has_all_tasks_and_the_slices_with_their_missing_values(judged, log):
    run = scored_log.config(log, TASKS)
    files = payload_files(judged / "payload")
    slices = Evaluation(slices=["site", "hour"])
    found, scored, others = evaluate(judged / "evaluation", "lr", files, run.log_spec, slices, "these")
    click, order = np.array(log["click"]), np.array(log["order"])
    p, q = np.array(log["p"], np.float32), np.array(log["q"], np.float32)
    assert found["tasks"] == {"ctr": metrics.summarise(click, p), "cvr": metrics.summarise(order, q)}
    assert found["auc"] == metrics.auc(click, p) != found["tasks"]["cvr"]["auc"]
    of_baseline = metrics.summarise(click, q)
    assert found["baseline"] == {"name": "lr", **of_baseline, "tasks": {"ctr": of_baseline}}
    for name, values in (
        ("site", {"news": b"news", "caf\u00e9": "caf\u00e9".encode(), "\u65e5\u672c": "\u65e5\u672c".encode()}),
        ("hour", {"1": 1.0, "2.5": 2.5}),
    ):
        parts = {shown: rows_where(log, name, value) for shown, value in {**values, "(missing)": None}.items()}
        expected = {shown: metrics.summarise(click[rows], p[rows]) for shown, rows in parts.items()}
        assert found["slices"][name] == expected
        sizes = [value["examples"] for value in found["slices"][name].values()]
        assert sizes == sorted(sizes, reverse=True)
    assert found["tail"] is None and scored.tail is None and scored.rows == "these"
    assert list(scored.labels) == list(scored.probabilities) == ["ctr", "cvr"]
    for found_values, values in ((scored.labels, (click, order)), (scored.probabilities, (p, q))):
        for each, expected in zip(found_values.values(), values, strict=True):
            np.testing.assert_array_equal(each, expected)
    hours = ["(missing)" if value is None else f"{value:g}" for value in log["hour"]]
    assert scored.slices["hour"].to_pylist() == hours
    np.testing.assert_array_equal(others["baseline_probability"], q)


@pytest.mark.slow
def test_rows_without_a_label_count_for_the_other_task(tmp_path, log, judged):
    """In TFMA, metrics.json and the gates, with a row of either task missing."""
    click = [None if row % 5 == 0 else value for row, value in enumerate(log["click"])]
    order = [None if row % 5 in (1, 2) else value for row, value in enumerate(log["order"])]
    some = {**log, "click": click, "order": order}
    limits = {"auc": {"min": 0.5, "confidence": 0.9}, "max_drop": {"auc": 0.99}, "max_drop_confidence": 0.9}
    run = scored_log.config(some, TASKS, ("site",), limits)
    files = scored_log.write(tmp_path / "payload", run, some, parts=2)
    last = judged / "last"
    assert judge(judged / "model", last, files, scored_log.gates_of(run), tmp_path / "evaluation", ALONE)
    found, scored, _ = evaluate(tmp_path / "evaluation", None, files, run.log_spec, run.evaluation, "these")
    p, q = np.array(log["p"], np.float32), np.array(log["q"], np.float32)
    clicked, ordered = np.array(click, float), np.array(order, float)
    known, of_order = ~np.isnan(clicked), ~np.isnan(ordered)
    assert found["tasks"]["ctr"] == metrics.summarise(clicked[known], p[known]) and found["examples"] == 480
    assert found["tasks"]["cvr"] == metrics.summarise(ordered[of_order], q[of_order])
    news = known & rows_where(log, "site", b"news")
    assert found["slices"]["site"]["news"] == metrics.summarise(clicked[news], p[news])
    of_tfma = tfma.load_eval_result(str(tmp_path / "evaluation"), model_name=tfma.CANDIDATE_KEY)
    values = of_tfma.get_metrics_for_all_slices()[()]
    assert values["example_count"]["doubleValue"] == 480
    assert values["auc"]["doubleValue"] == pytest.approx(sklearn.metrics.roc_auc_score(clicked[known], p[known]))
    write_scored(tmp_path / "scored.parquet", scored)
    again = read_scored(tmp_path / "scored.parquet").labelled("cvr")
    np.testing.assert_array_equal(again.labels["cvr"], ordered[of_order])
    assert len(again.slices["site"]) == len(again) == of_order.sum()
    gates = read_gates(tmp_path / "evaluation", run.gates, scored, [q])
    assert [gate["passed"] for gate in gates] == [True, True]
    assert gates[1]["value"] == pytest.approx(metrics.auc(clicked, q) - metrics.auc(clicked, p))


@pytest.mark.slow
def test_rows_are_weighed_by_tfma_in_metrics_json_and_in_the_predictions(tmp_path, log, judged):
    weights = np.random.default_rng(9).integers(0, 4, 600).astype(np.float32)
    run = scored_log.config({**log, "w": []}, TASKS, ("site",), {"max_drop": {}}, weight="w")
    files = scored_log.write(tmp_path / "payload", run, {**log, "w": list(weights)}, parts=2)
    judge(judged / "model", judged / "last", files, scored_log.gates_of(run), tmp_path, ALONE, baseline=judged / "last")
    found, scored, _ = evaluate(tmp_path, "lr", files, run.log_spec, run.evaluation, "these")
    click, p, q = np.array(log["click"]), np.array(log["p"], np.float32), np.array(log["q"], np.float32)
    news = rows_where(log, "site", b"news")
    assert found["tasks"]["ctr"] == metrics.summarise(click, p, weights)
    assert found["slices"]["site"]["news"] == metrics.summarise(click[news], p[news], weights[news])
    of_baseline = metrics.summarise(click, q, weights)
    assert found["baseline"] == {"name": "lr", **of_baseline, "tasks": {"ctr": of_baseline}}
    by_slice = tfma.load_eval_result(str(tmp_path), model_name=tfma.CANDIDATE_KEY).get_metrics_for_all_slices()
    for key, rows in (((), np.ones(600, bool)), ((("site", "news"),), news)):
        values = {name: value["doubleValue"] for name, value in by_slice[key].items()}
        assert values["example_count"] == weights[rows].sum()
        for name in ("auc", "log_loss", "rig", "calibration"):
            expected = getattr(metrics, name)(click[rows], p[rows], weights[rows])
            assert values[name] == pytest.approx(expected, abs=1e-9)
    write_scored(tmp_path / "scored.parquet", scored)
    np.testing.assert_array_equal(read_scored(tmp_path / "scored.parquet").weights, weights)


@pytest.mark.slow
def test_a_column_without_any_value_gives_no_slice(tmp_path, monkeypatch):
    # As in a notebook, where Beam would import its interactive runner, which pandas 3 has made impossible.
    monkeypatch.setattr("IPython.get_ipython", lambda: types.SimpleNamespace(config={}, execution_count=1))
    log = {"label": [0.0, 1.0], "p": [0.2, 0.8], "site": [None, None]}
    run = scored_log.config({**log, "site": [b""]}, {"ctr": "label"}, ("site",))
    files = scored_log.write(tmp_path / "payload", run, log)
    model = scored_log.save(tmp_path / "model", {"ctr": "p"})
    assert judge(model, None, files, scored_log.gates_of(run), tmp_path / "evaluation", ALONE)
    assert set(tfma.load_eval_result(str(tmp_path / "evaluation")).get_metrics_for_all_slices()) == {()}


@pytest.mark.slow
def test_tfma_slices_by_the_most_frequent_values_only(tmp_path, judged, log, monkeypatch):
    monkeypatch.setattr("ctrpipe.pipeline.evaluation.judge.MAX_SLICES", 2)
    run = scored_log.config(log, TASKS, ("site", "hour"))
    assert judge(judged / "model", None, payload_files(judged / "payload"), scored_log.gates_of(run), tmp_path, ALONE)
    values = [value for value in log["site"] if value is not None]
    counts = {value.decode(): values.count(value) for value in set(values)}
    kept = sorted(counts, key=lambda value: (-counts[value], value))[:2]
    found = tfma.load_eval_result(str(tmp_path)).get_metrics_for_all_slices()
    assert set(found) == {(), *((("site", value),) for value in kept), (("hour", 1.0),), (("hour", 2.5),)}
    assert [found[(("site", value),)]["example_count"]["doubleValue"] for value in kept] == [counts[v] for v in kept]


def test_only_the_most_frequent_values_of_a_slice_are_shown(tmp_path):
    values = [f"v{number:02}".encode() for number in range(25) for _ in range(1 + (number >= 20))]
    log = {"label": [0.0, 1.0] * 15, "p": [0.5] * 30, "site": values}
    run = scored_log.config(log, {"ctr": "label"})
    files = scored_log.write(tmp_path / "payload", run, log)
    predict({"candidate": scored_log.save(tmp_path / "model", {"ctr": "p"})}, files, [], tmp_path / PREDICTIONS, ALONE)
    found, *_ = evaluate(tmp_path, None, files, run.log_spec, Evaluation(slices=["site"]), "")
    # Those that come twice, then those that come first by name.
    assert list(found["slices"]["site"]) == [f"v{number:02}" for number in [*range(20, 25), *range(15)]]
    assert found["baseline"] is None


def test_predictions_lie_beside_the_rows_that_they_are_for(tmp_path, judged, log, monkeypatch):
    monkeypatch.setattr("ctrpipe.pipeline.evaluation.predictions.CHUNK_ROWS", 7)
    beam = Workers(beam_args=("--direct_running_mode=in_memory",))
    files = payload_files(judged / "payload")
    written = predict({"a": judged / "model", "b": judged / "last"}, files, ["site", "hour"], tmp_path, beam)
    assert [path.name for path in written] == [path.name for path in files]
    rows = [row for batch in read_payload(written) for row in batch.to_pylist()]
    assert list(rows[0]) == ["site", "hour", "a.ctr", "a.cvr", "b.ctr"]
    assert [(row["site"], row["hour"]) for row in rows] == list(zip(log["site"], log["hour"], strict=True))
    np.testing.assert_array_equal([row["a.ctr"] for row in rows], np.array(log["p"], np.float32))
    np.testing.assert_array_equal([row["a.cvr"] for row in rows], np.array(log["q"], np.float32))
    np.testing.assert_array_equal([row["b.ctr"] for row in rows], np.array(log["q"], np.float32))


# The Tail slice ---------------------------------------------------------------------------------------------------


def random_rows(rows: int, seed: int) -> dict[str, list]:
    """Combinations of a site, a page and an hour, each with missing values. Some combinations come once, some often."""
    random = np.random.default_rng(seed)
    sites = random.choice(np.array([b"", b"a", b"b", "\u65e5".encode(), None], object), rows)
    pages = np.array([b"%d" % value if value else None for value in random.geometric(0.1, rows) - 1], object)
    hours = random.choice(np.array([1.0, 2.0, None], object), rows)
    clicks, scores = random.integers(0, 2, rows).astype(float), random.random(rows).round(3)
    columns = {"click": clicks, "p": scores, "site": sites, "page": pages, "hour": hours}
    return {name: list(values) for name, values in columns.items()}


@pytest.mark.parametrize("columns", [("site",), ("page", "site"), ("hour", "site", "page")])
@pytest.mark.parametrize("max_count", [0, 2, 300])
def test_the_tail_is_what_a_loop_over_the_training_rows_says(tmp_path, columns, max_count):
    train, test = random_rows(900, 1), random_rows(400, 2)
    run = scored_log.config(train, {"ctr": "click"})
    parts = scored_log.write(tmp_path / "train", run, train, parts=20)  # more than there are groups of them
    files = scored_log.write(tmp_path / "test", run, test, parts=2)
    counts = collections.Counter(zip(*(train[name] for name in columns), strict=True))
    expected = [counts[values] <= max_count for values in zip(*(test[name] for name in columns), strict=True)]
    for workers in (ALONE, Workers(beam_args=("--direct_running_mode=in_memory",))):
        assert tail_rows(files, parts, columns, max_count, workers).tolist() == expected


def test_combinations_are_told_apart_where_their_texts_joined_are_not(tmp_path):
    train = {"click": [0.0, 1.0], "site": [b"ab", b"a"], "page": [b"c", b""]}
    test = {"click": [0.0, 1.0, 1.0], "site": [b"a", b"ab", b"a"], "page": [b"bc", b"c", None]}
    run = scored_log.config(train, {"ctr": "click"})
    parts = [scored_log.write(tmp_path / name, run, log) for name, log in (("train", train), ("test", test))]
    assert tail_rows(parts[1], parts[0], ["site", "page"], 0, ALONE).tolist() == [True, False, True]


@pytest.mark.slow
def test_the_tail_has_metrics_of_its_own_for_people_and_in_tfma(tmp_path, judged):
    train, test = random_rows(900, 1), random_rows(400, 2)
    tail = Tail(columns=["page", "site"], max_count=2)
    run = scored_log.config(train, {"ctr": "click"}, ("site",), tail=tail)
    parts = scored_log.write(tmp_path / "train", run, train)
    files = scored_log.write(tmp_path / "test", run, test, parts=2)
    model = scored_log.save(tmp_path / "model", {"ctr": "p"})
    assert judge(model, None, files, scored_log.gates_of(run), tmp_path / "judged", ALONE, tail=(tail, parts))
    rare = tail_rows(files, parts, tail.columns, 2, ALONE)
    label, score = np.array(test["click"]), np.array(test["p"], np.float32)
    expected = metrics.summarise(label[rare], score[rare])
    assert 50 < expected["examples"] < 350
    by_slice = tfma.load_eval_result(str(tmp_path / "judged")).get_metrics_for_all_slices()
    values = {name: value["doubleValue"] for name, value in by_slice[(("_tail", "yes"),)].items()}
    for name in ("auc", "log_loss", "rig", "calibration"):
        assert values[name] == pytest.approx(expected[name], abs=1e-9)
    assert values["example_count"] == expected["examples"]
    found, scored, _ = evaluate(tmp_path / "judged", None, files, run.log_spec, run.evaluation, "")
    assert found["tail"] == {"columns": ["page", "site"], "max_count": 2, **expected}
    np.testing.assert_array_equal(scored.tail, rare)


# A last blessed model that was trained on another log -------------------------------------------------------------


def test_a_column_that_the_log_no_longer_has_is_missing_to_an_earlier_model(tmp_path, judged):
    inputs = {"gone": tf.float32, "page": tf.string}
    earlier = scored_log.save(tmp_path / "earlier", {"ctr": "gone"}, inputs)
    [first, *_] = predict({"earlier": earlier}, payload_files(judged / "payload"), [], tmp_path / "out", ALONE)
    assert {row["earlier.ctr"] for batch in read_payload([first]) for row in batch.to_pylist()} == {-1.0}


@pytest.mark.parametrize(
    "answers, inputs, complaint",
    [
        ({"ctr": "p"}, {"p": tf.float32, "site": tf.float32}, "takes the column site as a number, .* it is text"),
        ({"ctr": "p"}, {"p": tf.float32, "hour": tf.string}, "takes the column hour as text, .* it is a number"),
        ({"like": "p"}, {"p": tf.float32}, "has no task ctr"),
    ],
)
def test_an_earlier_model_that_cannot_be_compared_is_named(tmp_path, judged, log, answers, inputs, complaint):
    earlier = scored_log.save(tmp_path / "earlier", answers, inputs)
    files, gates = payload_files(judged / "payload"), scored_log.gates_of(scored_log.config(log, TASKS))
    with pytest.raises(InputError, match=f"earlier: this model {complaint}"):
        judge(judged / "model", earlier, files, gates, tmp_path / "evaluation", ALONE)


# The component ---------------------------------------------------------------------------------------------------


def artifact(kind: type, path: pathlib.Path, id: int = 0):
    found = kind()
    found.uri, found.id = str(path), id
    return found


def bless(
    judged: pathlib.Path,
    work: pathlib.Path,
    log: dict[str, list],
    gates: dict,
    last: str | None,
    retrained: list[pathlib.Path] | None = None,
    seeds: pathlib.Path | None = None,
    **hooked: dict[str, str],
):
    """The component's blessing of a model, given the last pushed one."""
    run = scored_log.config(log, TASKS, ("site",), gates)
    (work / "beside").mkdir()
    (work / "beside" / "Format-Serving").symlink_to(judged / "last")
    for name in ("model", "last"):
        (work / name).mkdir()
        if name != "last" or last:  # as LastBlessedModel leaves it
            (work / name / "Format-Serving").symlink_to(judged / (last or "model" if name == "last" else "model"))
    (work / "examples").mkdir()
    (work / "examples" / "Split-test").symlink_to(judged / "payload")
    blessing = artifact(standard_artifacts.ModelBlessing, work / "blessing")
    evaluation = run.evaluation.model_copy(update={"baseline": Model(name="lr")})
    settings = EvaluatorSettings(
        spec=run.log_spec, gates=run.gates, evaluation=evaluation, rows="these", retrained=retrained or [], **hooked
    )
    GatedEvaluator.test_call(
        examples=artifact(standard_artifacts.Examples, work / "examples"),
        model=artifact(standard_artifacts.Model, work / "model", 5),
        last_blessed=artifact(standard_artifacts.Model, work / "last", 6),
        evaluation=artifact(standard_artifacts.ModelEvaluation, work / "evaluation"),
        blessing=blessing,
        baseline=artifact(standard_artifacts.Model, work / "beside", 7),
        seeds=artifact(standard_artifacts.ModelEvaluation, seeds) if seeds else None,
        settings=settings.model_dump_json(),
        workers=ALONE.to_json(),
        code_version="1",
    )
    return blessing


@pytest.mark.slow
def test_a_blessing_is_one_that_pusher_accepts(tmp_path, judged, log):
    blessing = bless(judged, tmp_path, log, {"auc": {"min": 0.5}}, None)
    assert [path.name for path in (tmp_path / "blessing").iterdir()] == ["BLESSED"]
    assert blessing.get_int_custom_property("blessed") == 1
    assert blessing.get_string_custom_property("current_model") == str(tmp_path / "model")
    assert blessing.get_int_custom_property("current_model_id") == 5
    assert not blessing.has_custom_property("baseline_model")
    assert pusher.Executor().CheckBlessing({"model_blessing": [blessing]})
    assert tfma.load_eval_result(str(tmp_path / "evaluation")).slicing_metrics


def clicks_in_the_news(rows) -> float:
    """A metric of a package, which is of this file as far as the test is concerned."""
    return float(rows.probabilities[(rows.slices["site"] == "news") & (rows.labels == 1)].sum())


def too_few_clicks(rows) -> str | None:
    assert rows.last is None and rows.metrics["hooks"]["in_news"] > 0
    return f"only {rows.labels.sum():.0f}\nclicks" if rows.metrics["auc"] >= 0.5 else None


@pytest.mark.slow
def test_an_evaluation_holds_all_that_a_report_says_of_the_models(tmp_path, judged, log, monkeypatch):
    hooked = {"metrics": {"in_news": f"{__name__}:clicks_in_the_news"}, "gates": {"few": f"{__name__}:too_few_clicks"}}
    monkeypatch.setattr("ctrpipe.common.hooks.names", lambda kind: hooked.get(kind, {}))
    named = {"hook_metrics": {"in_news": "1"}, "hook_gates": {"few": "1"}}
    blessing = bless(judged, tmp_path, log, {"auc": {"min": 0.5}, "max_drop": {}}, None, **named)
    found = read_metrics(tmp_path / "evaluation")
    click, p, q = np.array(log["click"]), np.array(log["p"], np.float32), np.array(log["q"], np.float32)
    news = rows_where(log, "site", b"news")
    assert found["tasks"]["ctr"] == metrics.summarise(click, p)
    assert found["slices"]["site"]["news"] == metrics.summarise(click[news], p[news])
    of_baseline = metrics.summarise(click, q)
    ended = {"stopped": None, "converged": None}
    in_news = {side: values[news & (click == 1)].astype(float).sum() for side, values in (("p", p), ("q", q))}
    of_hooks = {"in_news": pytest.approx(in_news["q"])}
    expected = {"name": "lr", **of_baseline, "tasks": {"ctr": of_baseline}, "hooks": of_hooks, **ended}
    assert found["baseline"] == expected
    assert found["hooks"] == {"in_news": pytest.approx(in_news["p"])}
    gate, of_package = read_gate_table(tmp_path / "evaluation")
    assert (of_package["metric"], of_package["passed"]) == ("few", False)
    assert of_package["reason"] == f"only {click.sum():.0f} clicks"
    assert blessing.get_int_custom_property("blessed") == 0  # no other gate has failed
    assert gate["bound"] == "at least 0.5" and gate["passed"] and gate["value"] == pytest.approx(found["auc"])
    scored = read_scored(tmp_path / "evaluation" / SCORED)
    assert scored.rows == "these"
    np.testing.assert_array_equal(scored.probabilities["ctr"], p)


@pytest.mark.slow
def test_a_refusal_is_one_that_pusher_heeds(tmp_path, judged, log):
    # Of the earlier versions one is gone, and one has another task.
    other = scored_log.save(tmp_path / "other", {"like": "p"}, {"p": tf.float32})
    earlier = [judged / "model", tmp_path / "gone", other, judged / "last"]
    click, p = np.array(log["click"], np.float32), np.array(log["p"], np.float32)
    seed = SeedTraining(2, {}, "converged", True, "2.parquet")
    write_seeds(tmp_path, Seeds("ctr", SeedSide("lr", (seed,))))
    write_scored(tmp_path / "2.parquet", ScoredRows("these", {"ctr": click}, {"ctr": p}))
    blessing = bless(judged, tmp_path, log, {"max_drop": {"log_loss": -1.0}}, "last", earlier, tmp_path)
    [gate] = read_gate_table(tmp_path / "evaluation")
    assert "noise of 5 training runs and a stated one of" in gate["reason"]
    assert not (tmp_path / "evaluation" / "retrained").exists()
    assert [path.name for path in (tmp_path / "blessing").iterdir()] == ["NOT_BLESSED"]
    assert blessing.get_int_custom_property("blessed") == 0
    assert blessing.get_string_custom_property("baseline_model") == str(tmp_path / "last")
    assert blessing.get_int_custom_property("baseline_model_id") == 6
    assert not pusher.Executor().CheckBlessing({"model_blessing": [blessing]})


def test_bulk_inferrer_gets_the_rows_of_the_payload(tmp_path, judged, log):
    write_examples(judged / "payload", tmp_path / "Split-test")
    [file] = (tmp_path / "Split-test").iterdir()
    examples = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file), "GZIP")]
    for name in ("click", "hour", "p"):
        values = [example.features.feature[name].float_list.value[:] for example in examples]
        np.testing.assert_array_equal(
            [value[0] if value else np.nan for value in values], np.array(log[name], np.float32)
        )
    sites = [example.features.feature["site"].bytes_list.value[:] for example in examples]
    assert sites == [[] if site is None else [site] for site in log["site"]]
