"""Sweeps: what they train, that they go on where they were cut, and what they say."""

import csv
import json
import math
import pathlib
import re
import types

import numpy as np
import pytest
import scipy.stats
import yaml

import ctrpipe
from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import FirstStage, Model, Training
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored, write_scored
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.sweep import costs as costs_module
from ctrpipe.pipeline.sweep import measure as sweep_measure
from ctrpipe.pipeline.sweep.costs import row_costs
from ctrpipe.pipeline.sweep.page import page
from ctrpipe.pipeline.sweep.plan import Costs, make_plan
from ctrpipe.pipeline.sweep.plots import _first_epoch
from ctrpipe.pipeline.sweep.summary import print_sweep, summarise_sweep, write_sweep
from ctrpipe.pipeline.training import masked_language_model
from ctrpipe.pipeline.training.tensorflow_learner import TensorFlowLearner
from ctrpipe.serving.latency import papers
from ctrpipe.transforms.features.packed_files import PackedReader, packed_files
from tests.e2e.small_run import call, one_line
from tests.models.small_models import ENCODER
from tests.pipeline.test_stages import MAP as TEXT_MAP
from tests.pipeline.test_stages import write as write_texts
from tests.pipeline.test_training import MAP
from tests.pipeline.test_training import write as write_rows

CONFIG = {
    "name": "small",
    "data": {"columns": ["label", "I1..I13", "C1..C26"], "labels": {"ctr": "label"}, "split": {"test": 0.2}},
    "features": [{"kind": "numeric", "columns": ["I2"]}, {"kind": "categorical", "columns": ["C9"], "top_k": 50}],
    "model": {"name": "mlp", "embedding_dim": 4, "hidden_units": [8], "dropout": 0.2},
    "training": {"batch_size": 128, "epochs": 2, "learning_rate": 0.01, "evaluations_per_epoch": 2},
    "evaluation": {"tail": {"columns": ["C9", "I2"], "max_count": 1}},
}
FILE = {
    "name": "rows",
    "config": "config.yaml",
    "set": {"training.epochs": 3},
    "seeds": 2,
    "reference": "base",
    "points": [
        {"name": "base"},
        {"name": "wide", "grid": {"model.hidden_units": [[8], [16, 8]]}},
        {"name": "FM", "set": {"model": {"name": "fm", "embedding_dim": 4}}},
    ],
}


@pytest.fixture
def config(tmp_path) -> pathlib.Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def file(config, /, **changes) -> pathlib.Path:
    path = config.with_name("sweep.yaml")
    path.write_text(yaml.safe_dump({**FILE, **changes}))
    return path


def options(point) -> dict:
    return point.config.model.hyperparameters


def test_a_grid_is_every_combination(config):
    grid = ("model.embedding_dim=2,4", "model.hidden_units=[8],[8,4]", "training.learning_rate=1e-3,0.01")
    plan = make_plan(config, ("model.dropout=0.5",), grid)
    found = [
        (options(p)["embedding_dim"], options(p)["hidden_units"], p.config.training.learning_rate) for p in plan.points
    ]
    assert found == [(d, h, r) for d in (2, 4) for h in ([8], [8, 4]) for r in (0.001, 0.01)]
    assert all(options(point)["dropout"] == 0.5 for point in plan.points)
    assert plan.points[1].name == "embedding_dim=2 hidden_units=8 learning_rate=0.01" and plan.seeds == 3


def test_another_model_keeps_the_options_that_it_has(config):
    plan = make_plan(config, (), ("model.name=mlp,fm,lr",))
    assert [point.config.model.name for point in plan.points] == ["mlp", "fm", "lr"]
    mlp = {key: value for key, value in CONFIG["model"].items() if key != "name"}
    assert [options(point) for point in plan.points] == [mlp, {"embedding_dim": 4}, {}]


def test_a_file_has_rows_that_are_no_product(config):
    plan = make_plan(file(config), ("training.epochs=1",), seeds=1)
    assert [point.name for point in plan.points] == ["base", "wide hidden_units=8", "wide hidden_units=16-8", "FM"]
    assert [point.config.training.epochs for point in plan.points] == [1] * 4  # the command line wins
    assert options(plan.points[3]) == {"embedding_dim": 4} and plan.seeds == 1 and plan.reference == "base"


@pytest.mark.parametrize(
    ("settings", "grid", "message"),
    [
        ((), (), "give --grid"),
        ((), ("model.dropout",), "expected KEY=VALUE"),
        ((), ("model.dropout=",), "expected KEY=VALUE"),
        ((), ("model.dropout=[0.1",), "not valid YAML"),
        ((), ("data.max_bad_row_rate=0.1,0.2",), "only model and training may differ"),
        ((), ("modell.top_k=1,2",), "between points; did you mean model.top_k[?]"),
        ((), ("training.epoch=1,2",), "training.epoch: unknown key"),
        ((), ("model.name=mlp,mlpp",), "did you mean 'mlp'"),
        (("model.dropout=0.1",), ("model.dropout=0.2,0.3",), "leave one of the two out"),
        (("model={name: mlp}",), ("model.dropout=0.2,0.3",), "--set model: the sweep varies model.dropout; leave"),
        ((), ("model.dropout=0.2,0.2",), "there are two of dropout=0.2"),
    ],
)
def test_a_mistake_in_a_grid_is_one_line(config, settings, grid, message):
    with pytest.raises(InputError, match=message) as error:
        make_plan(config, settings, grid)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "bass"}, "there is no point 'bass'"),
        ({"points": []}, "points: .*at least 1 item"),
        ({"pionts": 1}, "pionts: Extra inputs"),
        ({"points": [{"name": "a"}, {"name": "a"}]}, "there are two of a"),
        ({"config": "absent.yaml"}, "cannot read"),
        ({"points": [{"name": "seeds", "set": {"seed": 2}}]}, "point 'seeds': seed: only model and training"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(config, changes, message):
    with pytest.raises(InputError, match=message):
        make_plan(file(config, **changes))


def test_a_file_s_points_hold_for_another_configuration(config):
    other = config.with_name("other.yaml")
    other.write_text(yaml.safe_dump({**CONFIG, "name": "other", "seed": 7}))
    plan = make_plan(file(config), config=other)
    assert plan.base.name == "other" and {point.config.seed for point in plan.points} == {7}
    assert [point.name for point in plan.points] == [point.name for point in make_plan(file(config)).points]


def test_numbers_are_packed_for_all_points_where_one_reads_them(config):
    plain = make_plan(config, (), ("model.name=text_only,bert4ctr",)).base
    assert plain.log_spec.written_columns == []
    plan = make_plan(config, (), ("model.name=text_only,numbert",))
    assert plan.base.log_spec.written_columns == ["I2"]
    assert [point.config.log_spec.written_columns for point in plan.points] == [[], ["I2"]]


def test_a_file_takes_no_grid(config):
    with pytest.raises(InputError, match="has its points already"):
        make_plan(file(config), (), ("model.dropout=0.1,0.2",))


def result(auc: float, log_loss: float, latency: float | None = None) -> dict:
    test = {"auc": auc, "log_loss": log_loss, "rig": 0.1, "normalised_log_loss": 0.9, "calibration": 1.0}
    return {
        "training": {"evaluations_per_epoch": 2},
        "evaluations": [{"examples": 5, "train_loss": 0.6}, {"examples": 10, "train_loss": 0.5}] * 2,
        "predictions": None,
        "tail": None,
        "costs": None,
        "validation": {"auc": auc - 0.1, "log_loss": 1 - log_loss},  # what is best on test rows is worst on these
        "test": test,
        "tasks": {"ctr": test},
        "parameters": 10,
        "parameters_without_embeddings": 4,
        "train_samples_per_second": 100.0,
        "latency_ms": latency,
        "examples_trained": 5,
        "seed": 1,
        "seconds": 1.0,
    }


@pytest.mark.slow
def test_the_summary_has_means_spreads_and_the_best_by_validation(config, tmp_path, capsys):
    plan = make_plan(file(config))
    numbers = np.array([[0.70, 0.72], [0.75, 0.74], [0.60, 0.66], [0.71, 0.71]])
    results = {
        point.name: [result(auc, 1 - auc, 2.0 * (index + 1)) for auc in numbers[index]]
        for index, point in enumerate(plan.points)
    }
    summary = summarise_sweep(plan, results)
    for point, expected in zip(summary["points"], numbers, strict=True):
        assert point["metrics"]["auc"]["mean"] == pytest.approx(expected.mean())
        assert point["metrics"]["auc"]["std"] == pytest.approx(expected.std(ddof=1))
        assert point["auc_difference"] == pytest.approx(expected.mean() - 0.71)
        assert point["log_loss_ratio"] == pytest.approx((1 - expected.mean()) / 0.29)
    assert [point["latency_ratio"] for point in summary["points"]] == [1, 2, 3, 4]
    # validation log loss is 1 - test log loss here: the point with the lowest is the worst on the test rows
    assert summary["best"] == "wide hidden_units=16-8"
    write_sweep(summary, tmp_path)
    print_sweep(summary)
    printed = capsys.readouterr().out
    assert "Best by validation log loss: wide hidden_units=16-8" in printed
    assert "0.7100 ± 0.0141" in printed and "+0.0350" in printed
    assert json.loads((tmp_path / "sweep.json").read_text()) == summary
    with open(tmp_path / "sweep.csv") as lines:
        rows = list(csv.DictReader(lines))
    assert [float(row["auc"]) for row in rows] == numbers.reshape(-1).tolist()
    assert rows[2]["model.hidden_units"] == "[8]" and rows[0]["model.hidden_units"] == ""
    for name in ("sweep.svg", "loss.svg"):
        assert (tmp_path / name).read_text().startswith("<svg")
    page = (tmp_path / "sweep.html").read_text()
    assert "wide hidden_units=16-8 is the best of 4 points by validation log loss." in page
    assert "0.7100<small>± 0.0141</small>" in page and page.count("<tr>") == 5 and "Differences in AUC" not in page
    assert _first_epoch(results["base"]) == [(5, 0.6), (10, 0.5)]


def test_the_differences_of_many_points_are_corrected_for_their_number(config, tmp_path, capsys):
    random = np.random.default_rng(0)
    labels, tail = (random.random(3000) < 0.4).astype(np.float32), np.arange(3000) % 3 == 0
    plan = make_plan(config, (), ("model.embedding_dim=2,4,6,8",), seeds=1)
    results = {}
    for index, point in enumerate(plan.points):
        scores = 0.05 * index * labels + random.random(3000)
        path, run = tmp_path / f"{index}.parquet", result(0.7, 0.3)
        write_scored(path, ScoredRows("log", {"ctr": labels}, {"ctr": scores}, {}, tail, {}))
        results[point.name] = [{**run, "predictions": str(path), "tail": {**run["test"], "examples": 1000}}]
    summary = summarise_sweep(plan, results)
    reference, *points = summary["points"]
    assert reference["tested"] == {} and "t" not in points[0]
    for name in ("auc", "tail_auc"):
        tested = [point["tested"][name] for point in points]
        plain = [2 * scipy.stats.norm.sf(abs(one["t"])) for one in tested]
        order = np.argsort(plain)
        steps = np.maximum.accumulate(np.array(plain)[order] * [3, 2, 1])
        assert [tested[place]["p"] for place in order] == pytest.approx(np.minimum(steps, 1))
        assert {one["corrected_for"] for one in tested} == {3}
        quantile = scipy.stats.norm.ppf(1 - 0.05 / 6)
        for one in tested:
            low, high = one["interval"]
            assert (high - low) / 2 == pytest.approx(quantile * one["standard_error"])
            assert (one["verdict"] == "better") == (one["p"] < 0.05)
    print_sweep(summary)
    printed = capsys.readouterr().out
    assert "corrected for 3 differences (Holm, Bonferroni)" in printed and "shards" not in printed
    text = page(summary)
    assert "corrected for 3 differences (Holm, Bonferroni)" in text
    for point in points:
        difference, (low, high) = (point["tested"]["auc"][key] for key in ("difference", "interval"))
        tip = f"difference, {point['name']}: {difference:+.5f}, 95% {low:+.5f} to {high:+.5f}"
        assert f"<title>{tip}</title>" in text and f"{difference:+.4f}<small>{low:+.4f} to {high:+.4f}" in text


def test_the_tasks_after_the_first_have_columns_of_their_own(config, tmp_path, capsys):
    plan = make_plan(config, (), ("model.embedding_dim=2,4",), seeds=2)
    errors = iter((3.0, 5.0, 7.0, 7.5))
    results = {}
    for point in plan.points:
        runs = [result(0.7, 0.3) for _ in range(2)]
        for run in runs:
            run["tasks"] |= {"like": {"auc": 0.6, "log_loss": 0.2}, "watch_time": {"rmse": next(errors), "mae": 1.0}}
        results[point.name] = runs
    summary = summarise_sweep(plan, results)
    found = [point["metrics"]["watch_time_rmse"]["mean"] for point in summary["points"]]
    assert found == [4.0, 7.25]
    write_sweep(summary, tmp_path)
    with open(tmp_path / "sweep.csv") as lines:
        assert [row["watch_time_rmse"] for row in csv.DictReader(lines)] == ["3.0", "5.0", "7.0", "7.5"]
    print_sweep(summary)
    printed = capsys.readouterr().out
    for text in (printed, page(summary)):
        assert re.search(r"7\.2500( |<small>)± 0\.3536", text) and "0.6000" in text
    assert ">test watch_time RMSE</th>" in page(summary) and ">test like AUC</th>" in page(summary)


def test_what_could_not_be_measured_stays_empty(config):
    plan = make_plan(config, (), ("model.embedding_dim=2,4",), seeds=1)
    summary = summarise_sweep(plan, {point.name: [result(0.7, 0.3)] for point in plan.points})
    found = summary["points"][0]["metrics"]
    assert found["latency_ms"] == found["tail_auc"] == {"mean": None, "std": None}
    assert found["auc"] == {"mean": 0.7, "std": None} and summary["points"][1]["tested"] == {}


def test_all_points_have_one_folder_for_first_stages_they_share(config, tmp_path, monkeypatch):

    plan = make_plan(file(config))
    folders = []

    def stop(job, work):
        folders.append((work, job.shared_stages))
        raise InterruptedError

    monkeypatch.setattr(sweep_measure, "train", stop)
    log = TransformedLog([], [], [], None, tmp_path, None, tmp_path)
    for key in ("a", "b"):
        with pytest.raises(InterruptedError):
            sweep_measure.train_and_measure(plan.base, log, plan.latency, None, tmp_path / "work", key)
    assert folders == [(tmp_path / "work" / key, str(tmp_path / "work" / "stages")) for key in ("a", "b")]


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> pathlib.Path:
    """A finished sweep of two points and two seeds, cut once between the first and the second training."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    assert call("generate", "--rows", 2000, "--output", folder / "log.tsv")[0] == 0
    original, trained = sweep_measure.train_and_measure, []

    def cut(*arguments):
        if len(trained) == 1:
            raise KeyboardInterrupt
        trained.append(arguments)
        return original(*arguments)

    sweep_measure.train_and_measure = cut
    try:
        code, output = call(*command(folder))
    finally:
        sweep_measure.train_and_measure = original
    assert code == 130 and "repeat the command to continue" in output
    assert len(list((folder / "out" / "results").glob("*.json"))) == 1
    first = {path: path.stat().st_mtime_ns for path in (folder / "out" / "results").iterdir()}
    code, output = call(*command(folder))
    assert code == 0, output
    assert "3 training runs to do; 1 are already done" in output and "Transform: from cache" in output
    assert "[3/3] embedding_dim=4, seed 2" in output and "0 min 00 s left" in output
    assert {path: path.stat().st_mtime_ns for path in first} == first
    return folder


def command(folder: pathlib.Path) -> list:
    data = ["--data", folder / "log.tsv", "--output", folder / "out", "--seeds", 2, "--latency", "--costs"]
    return ["sweep", folder / "config.yaml", *data, "--grid", "model.embedding_dim=2,4"]


@pytest.mark.slow
def test_a_sweep_trains_and_measures_every_point(done):
    summary = json.loads((done / "out" / "sweep.json").read_text())
    assert [point["name"] for point in summary["points"]] == ["embedding_dim=2", "embedding_dim=4"]
    for point, dim in zip(summary["points"], (2, 4), strict=True):
        assert point["model"]["embedding_dim"] == dim and [run["seed"] for run in point["runs"]] == [1, 2]
        run = point["runs"][0]
        # two fields -> 8 -> 1, weights and biases
        assert run["parameters_without_embeddings"] == 2 * dim * 8 + 8 + 8 + 1
        assert (run["parameters"] - run["parameters_without_embeddings"]) % dim == 0
        test = run["test"]
        assert test["examples"] == 400 and test == run["tasks"]["ctr"]
        assert test["normalised_log_loss"] == pytest.approx(1 - test["rig"])
        assert run["latency_ms"] > 0 and run["train_samples_per_second"] > 0
        for kind in ("training", "inference"):
            assert 0 < run["costs"][kind]["median"] <= run["costs"][kind]["p90"] <= run["costs"][kind]["p95"]
            assert point["metrics"][f"{kind}_ms_p90"]["mean"] > 0
        scored = read_scored(pathlib.Path(run["predictions"]))
        assert metrics.auc(scored.labels["ctr"], scored.probabilities["ctr"]) == test["auc"]
        assert 0 < scored.tail.sum() == run["tail"]["examples"] < 400
        assert metrics.rig(scored.labels["ctr"][scored.tail], scored.probabilities["ctr"][scored.tail]) == (
            pytest.approx(run["tail"]["rig"])
        )
        assert run["model"]["embedding_dim"] == dim and run["training"]["epochs"] == 2
        assert point["runs"][0]["test"]["auc"] != point["runs"][1]["test"]["auc"]
    assert not (done / "out" / "work").exists()


@pytest.mark.slow
def test_a_sweep_keeps_its_models_on_demand(done, tmp_path):
    data = ["--data", done / "log.tsv", "--output", tmp_path / "out", "--seeds", 1]
    command = ["sweep", done / "config.yaml", *data, "--grid", "model.embedding_dim=2,4"]
    assert call(*command[:-1], "model.embedding_dim=2")[0] == 0
    code, output = call(*command, "--keep-models")
    assert code == 0 and "2 training runs to do" in output  # the one that is done has left no model
    assert "0 training runs to do" in call(*command, "--keep-models")[1]
    for point in json.loads((tmp_path / "out" / "sweep.json").read_text())["points"]:
        [run] = point["runs"]
        model = ctrpipe.load(run["kept_model"])
        assert model.keras.table.dim == point["model"]["embedding_dim"]
        assert model.keras.count_params() >= run["parameters"]
        [packed] = (tmp_path / "out" / "tfx").rglob("transformed_examples/*/Split-test")
        [(inputs, _)] = PackedReader(packed_files(packed), 1 << 20)
        answers = 1 / (1 + np.exp(-np.asarray(model.keras(inputs))[:, 0]))
        np.testing.assert_allclose(
            read_scored(pathlib.Path(run["predictions"])).probabilities["ctr"], answers, atol=1e-6
        )
        with pytest.raises(InputError, match="a sweep keeps no SavedModel"):
            model.predict({"I2": [1.0]})


@pytest.mark.slow
def test_a_run_in_the_same_folder_shares_the_transform_and_has_the_same_metrics(done):
    out = done / "out"
    run = json.loads((out / "sweep.json").read_text())["points"][1]["runs"][0]
    code, output = call("run", done / "config.yaml", "--data", done / "log.tsv", "--output", out)
    assert code in (0, 1) and "Transform: from cache" in output
    found = json.loads((out / "metrics.json").read_text())
    for name in ("auc", "log_loss", "examples"):
        assert math.isclose(found[name], run["test"][name], rel_tol=1e-5), name
    assert math.isclose(found["tail"]["auc"], run["tail"]["auc"], rel_tol=1e-5)
    assert f"Tail: {found['tail']['examples']} of 400 test rows, C9 x I2" in output
    # The run's rows are the sweep's: the same model, and others.
    other = json.loads((out / "sweep.json").read_text())["points"][0]["runs"][1]
    code, output = call("compare", out, run["predictions"], other["predictions"])
    assert code == 0 and "Tail" in output, output


@pytest.mark.slow
def test_a_finished_sweep_trains_nothing_and_a_larger_one_only_what_is_new(done):
    without_costs = [value for value in command(done)[:-1] if value != "--costs"]
    code, output = call(*without_costs, "model.embedding_dim=4,3", "--set", "training.epochs=2")
    assert code == 0 and "2 training runs to do; 2 are already done" in output, output
    code, output = call(*command(done))
    assert code == 0 and "0 training runs to do; 4 are already done" in output


@pytest.mark.large(like="tests/pipeline/test_sweep.py::test_a_training_costs_what_all_its_stages_cost")
@pytest.mark.slow
def test_costs_are_measured_once_and_need_no_training(done):
    without = [value for value in command(done) if value != "--costs"]
    code, output = call(*without)
    assert code == 0 and "0 training runs to do; 4 are already done" in output, output
    assert json.loads((done / "out" / "sweep.json").read_text())["points"][0]["runs"][0]["costs"] is None
    file = next((done / "out" / "results").glob("costs-*.json"))
    before = file.stat().st_mtime_ns
    code, output = call(*command(done))
    assert code == 0 and "Costs:" not in output and file.stat().st_mtime_ns == before
    for each in (done / "out" / "results").glob("costs-*.json"):
        each.unlink()
    code, output = call(*command(done))
    assert code == 0 and "0 training runs to do" in output, output
    for what in ("inference", "training"):
        assert f"Costs: {what}, 20 of 20 repeats of 2 models" in output


@pytest.mark.slow
def test_models_are_measured_in_turn_and_trained_where_this_process_can(config, tmp_path, monkeypatch):
    monkeypatch.setattr(papers, "BERT4CTR_REPEATS", 2)
    plan = make_plan(config, (), ("training.backend=tensorflow,jax", "training.precision=float32,mixed_bfloat16"))
    files = [write_rows(tmp_path / "rows", 60, 1)]
    calls = []
    for name in ("fit", "predict"):
        original = getattr(TensorFlowLearner, name)

        def noted(learner, batches, original=original, name=name):
            calls.append((name, id(learner)))
            return original(learner, batches)

        monkeypatch.setattr(TensorFlowLearner, name, noted)
    points = {point.name: point.config for point in plan.points}
    log = TransformedLog(files, files, files, MAP, tmp_path, None, tmp_path)
    found = row_costs(points, log, Costs(batch_size=50, batches=2))
    assert set(found) == set(points)
    for name, costs in found.items():
        assert set(costs["inference"]) == {"average", "median", "p90", "p95"} and costs["inference"]["median"] > 0
        assert (costs["training"] is None) == ("jax" in name)
    # Two repeats that count and two that do not, of two batches each.
    predicted, fitted = ([learner for what, learner in calls if what == name] for name in ("predict", "fit"))
    assert len(predicted) == 4 * 4 * 2 and len(set(predicted)) == 4
    assert len(fitted) == 2 * 4 * 2 and len(set(fitted)) == 2
    assert predicted[-16:] == 2 * [learner for learner in dict.fromkeys(predicted) for _ in range(2)]


@pytest.mark.slow
def test_an_impossible_point_stops_everything_in_one_line(done, tmp_path):
    start = ["sweep", done / "config.yaml", "--data", done / "log.tsv", "--output", tmp_path / "new"]
    one_line(*call(*start, "--grid", "model.embedding_dim=4,-1"), "point 'embedding_dim=-1'")
    one_line(*call(*start, "--grid", "model.hidden_units=8,[16]"), "point 'hidden_units=8'")
    one_line(*call("sweep", done / "config.yaml", "--grid", "model.dropout=0.1,0.2"), "give --data PATH")
    assert not (tmp_path / "new" / "tfx").exists()


class Clock:
    """Time that passes as the stages say: a batch takes as long as the model that it trains."""

    def __init__(self) -> None:
        self.now = 0.0
        self.batches: dict[str, int] = {}

    def passes(self, name: str, seconds: float, rising: float = 0.0) -> None:
        """Adds `seconds` and, a batch for batch, `rising` more."""
        done = self.batches[name] = self.batches.get(name, 0) + 1
        self.now += seconds + rising * done


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(papers, "time", types.SimpleNamespace(perf_counter=lambda: clock.now))
    seconds = {
        "TextOnly": (3.0, 0.01),
        "FeaturesOnly": (0.5, 0.0),
        "BERT4CTR": (7.0, -0.01),
        "CascadingNNGBDT": (2.0, 0.0),
    }

    def fit(learner, batches):
        name = type(learner.network).__name__
        clock.passes(f"{name} {id(learner)}", *seconds[name])

    monkeypatch.setattr(TensorFlowLearner, "fit", fit)
    monkeypatch.setattr(TensorFlowLearner, "predict", lambda *_: clock.passes("predict", 0.25))
    monkeypatch.setattr(masked_language_model, "train_batch", lambda *_: clock.passes("language", 5.0))
    monkeypatch.setattr(costs_module, "learn_trees", lambda *_: clock.passes("trees", 20.0))
    monkeypatch.setattr(costs_module, "with_encoder", lambda model, text: model)
    return clock


def costs_of_texts(config, folder: pathlib.Path) -> dict:
    """Returns the costs of models with a text, which have one stage or several."""
    files = [write_texts(folder / "texts", 100, 1)]
    language = {"masked_language_model": FirstStage(), "features_only": FirstStage()}
    options = {**ENCODER, "hidden_units": [4], "embedding_dim": 4}
    models = {
        "two steps": ("bert4ctr", {**options, "token_dim": 4, "token_ffn": 4}, language),
        "one step": ("bert4ctr", options, {key: FirstStage(skip=True) for key in ("text_only", "features_only")}),
        "cascade": ("cascading_nn_gbdt", {**options, "trees": 2}, {}),
        "text": ("text_only", ENCODER, {}),
    }
    base = make_plan(config, (), ("model.dropout=0.1",)).base
    points = {
        name: base.model_copy(
            update={"model": Model(name=model, **given), "training": Training(stages=stages, plateau=None)}
        )
        for name, (model, given, stages) in models.items()
    }
    log = TransformedLog(files, files, files, TEXT_MAP, folder, None, folder)
    return row_costs(points, log, Costs(batch_size=50, batches=2))


@pytest.mark.large(like="tests/pipeline/test_sweep.py::test_a_training_costs_what_all_its_stages_cost")
@pytest.mark.slow
def test_each_stage_of_a_training_is_timed(config, tmp_path, monkeypatch):
    pytest.importorskip("lightgbm", exc_type=OSError)  # where there is no libgomp.so.1
    monkeypatch.setattr(papers, "BERT4CTR_REPEATS", 2)
    monkeypatch.setattr(costs_module, "with_encoder", lambda model, text: model)
    found = costs_of_texts(config, tmp_path)
    assert set(found["two steps"]["training_parts"]) > {"masked_language_model", "text_only", "features_only"}
    assert "trees" in found["cascade"]["training_parts"]
    for costs in found.values():
        averages = [part["average"] for part in costs["training_parts"].values()]
        assert min(averages) > 0 and costs["training"]["average"] == pytest.approx(sum(averages))


@pytest.mark.slow
def test_a_training_costs_what_all_its_stages_cost(config, tmp_path, clock):
    found = costs_of_texts(config, tmp_path)
    # A repeat is two batches of 50 rows; two repeats that do not count come before, so it begins with batch 5.
    text = 3.0 + 0.01 * np.arange(5, 45).reshape(20, 2).mean(axis=1)
    expected = {
        "two steps": {"masked_language_model": 5.0, "text_only": text, "features_only": 0.5, "bert4ctr": 10.0 - text},
        "one step": {"bert4ctr": 10.0 - text},
        "cascade": {"text_only": text, "cascading_nn_gbdt": 2.0, "trees": 20.0 / 2},
        "text": {"text_only": text},
    }
    for name, parts in expected.items():
        assert list(found[name]["training_parts"]) == list(parts)
        ms = {stage: 1000 / 50 * (np.zeros(20) + seconds) for stage, seconds in parts.items()}
        for stage, each in [*ms.items(), (None, sum(ms.values()))]:
            got = found[name]["training_parts"][stage] if stage else found[name]["training"]
            expected_numbers = [each.mean(), np.median(each), sorted(each)[17], sorted(each)[18]]
            assert [got[key] for key in ("average", "median", "p90", "p95")] == pytest.approx(expected_numbers), stage
        assert found[name]["inference"]["p95"] == pytest.approx(1000 / 50 * 0.25)
    # Percentiles do not add up. The sum is the same in all repeats: all its percentiles are (5 + 10 + .5) s / 50 rows.
    assert found["two steps"]["training"]["p95"] == pytest.approx(310)


def test_the_printed_costs_show_their_parts(config, capsys):
    plan = make_plan(file(config))
    stages = {"text_only": 1.25, "bert4ctr": 2.5}
    of = lambda ms: dict.fromkeys(("average", "median", "p90", "p95"), ms)  # noqa: E731
    costs = {
        "training": of(3.75),
        "inference": of(0.5),
        "training_parts": {stage: of(ms) for stage, ms in stages.items()},
    }
    results = {point.name: [{**result(0.7, 0.3), "costs": costs}] * 2 for point in plan.points}
    print_sweep(summarise_sweep(plan, results))
    lines = [line.replace("\u2502", " ").split() for line in capsys.readouterr().out.splitlines()]
    for first, numbers in {"base": [3.75] * 4 + [0.5] * 4, "text_only": [1.25] * 4, "bert4ctr": [2.5] * 4}.items():
        assert [first, *(f"{number:.3f}" for number in numbers)] in lines
