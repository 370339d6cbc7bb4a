"""The benchmark of quality: its searches, what it keeps, what it compares, and the peers' trainings."""

import dataclasses
import json
import pathlib
import random
import statistics
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
import sklearn.metrics

from benchmarks.harness.quality_sides import (
    L2,
    MODELS,
    STOP,
    Baseline,
    OneHot,
    Ours,
    PeerSide,
    Rows,
    Settings,
    Side,
    Trained,
    Trees,
    trials,
)
from benchmarks.peers.client import ENVIRONMENTS, Peer
from benchmarks.quality import BASELINE, MARGIN, OURS, Result, Trainings, bars, compared, measure, page, table
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import check_hyperparameters
from ctrpipe.pipeline.config import Training
from ctrpipe.transforms.generate import generate

ROOT = pathlib.Path(__file__).parents[2]
SCHEDULE = {"batch_size": 1024, "evaluations_per_epoch": 4, **STOP}


def needs(name: str) -> pytest.MarkDecorator:
    absent = not (ENVIRONMENTS / name / "bin" / "python").exists()
    return pytest.mark.skipif(absent, reason=f"no environment of {name}: run `make peers`")


def parity_rows(folder: pathlib.Path, rows: int = 3000) -> Rows:
    """Clicks where two of three fields agree in parity: nothing for a linear model."""
    draw = np.random.default_rng(5)
    arrays: dict[str, np.ndarray] = {"sizes": np.array([4, 4, 6])}
    for name in ("train", "validation", "test"):
        ids = np.stack([draw.integers(0, size, rows) for size in arrays["sizes"]], axis=1).astype(np.int32)
        clicked = np.where(draw.random(rows) > 0.1, (ids[:, 0] + ids[:, 1]) % 2, draw.random(rows) > 0.5)
        arrays |= {f"{name}_ids": ids, f"{name}_labels": clicked.astype(np.float32)}
    np.savez(folder / "rows.npz", **arrays)
    return Rows(folder / "rows.npz", FeatureMap.from_sizes([("a", "categorical", 4)]), {})


class Fixed:
    """A side whose probabilities are the labels with a noise that its settings name; counts its trainings."""

    models, with_linear = ("lr",), ("lr",)
    schedule: Settings = {}

    def __init__(self, name: str, is_random: bool = True) -> None:
        self.name, self.is_random, self.trained = name, is_random, 0

    def first(self, model: str) -> Settings:
        return {"noise": 2.0}

    def draw(self, model: str, draw: random.Random) -> Settings:
        return {"noise": draw.choice((0.5, 1.0))}

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        self.trained += 1
        labels = rows.split("test")[1]
        noise = np.random.default_rng(seed).random(len(labels))
        return Trained(settings["noise"], 0.5, (labels + settings["noise"] * noise) / 3)


def test_a_search_is_the_same_every_time_and_begins_with_the_sides_own_settings() -> None:
    ours = Ours(SCHEDULE)
    searched = list(trials(ours, "deepfm", 6))
    assert searched[0] == {"model": {}, "training": {}}
    assert searched == list(trials(ours, "deepfm", 6)) and len({json.dumps(one) for one in searched}) == 6
    assert searched[:3] == list(trials(ours, "deepfm", 3))


def undriven(name: str) -> PeerSide:
    """Returns a side whose peer is not started."""
    peer = types.SimpleNamespace(name=name, models=lambda: MODELS)
    return PeerSide(peer, 1, SCHEDULE)  # type: ignore[arg-type]


def test_all_sides_draw_the_same_settings() -> None:
    sides = (Ours(SCHEDULE), *map(undriven, ("fuxictr", "recbole", "deepctr_torch")))
    searched = [list(trials(side, "deepfm", 20))[1:] for side in sides]
    assert len({one["learning_rate"] for one in searched[1]}) == 19
    for ours, theirs, decayed, summed in zip(*searched, strict=True):
        model, training = ours["model"], ours["training"]
        found = {"dim": model["embedding_dim"], "hidden": model["hidden_units"], "dropout": model["dropout"]}
        found |= {"l2": training["table_l2"], "network_l2": training["network_l2"]}
        assert {**found, "learning_rate": training["learning_rate"]} == theirs
        assert L2[0] <= theirs["l2"] <= L2[1] and theirs["l2"] != theirs["network_l2"]
        assert decayed == {key: value for key, value in theirs.items() if key != "network_l2"}
        assert summed == {**theirs, "l2": 512 * theirs["l2"], "network_l2": 512 * theirs["network_l2"]}
    linear = [list(trials(side, "lr", 9))[1:] for side in (OneHot(), undriven("fuxictr"))]
    assert [one["l2"] for one in linear[0]] == [one["l2"] for one in linear[1]]


def test_a_logistic_regressions_penalty_is_that_of_the_others(tmp_path: pathlib.Path) -> None:
    rows = parity_rows(tmp_path, 400)
    by_mean, by_sum = (
        OneHot().train("lr", settings, 1, rows, tmp_path) for settings in ({"l2": 0.05}, {"C": 1 / (0.05 * 400)})
    )
    np.testing.assert_array_equal(by_mean.probabilities, by_sum.probabilities)


@pytest.mark.parametrize("model", MODELS)
def test_what_is_drawn_are_hyperparameters_of_the_model(model: str) -> None:
    for settings in list(trials(Ours(SCHEDULE), model, 5)):
        check_hyperparameters(model, **settings["model"])
        Training(**settings["training"])


def test_ours_has_a_linear_part_beside_a_peer_that_has_one() -> None:
    ours = Ours(SCHEDULE)
    found: dict[str, list[str]] = {}
    for name in ("deepctr_torch", "recbole", "fuxictr"):
        side = undriven(name)
        for model in MODELS:
            drawn = ours.draw(model, random.Random(1))
            alike = ours.alike(drawn, model, side)
            assert alike["training"] == drawn["training"]
            assert {**alike["model"], "use_linear": 0} == {**drawn["model"], "use_linear": 0}
            if alike["model"].get("use_linear"):
                found.setdefault(name, []).append(model)
    both = ["deepfm", "xdeepfm"]
    assert found == {
        "deepctr_torch": ["deepfm", "dcn_v2", "xdeepfm", "autoint"],
        "recbole": [*both, "autoint"],
        "fuxictr": both,
    }
    assert "use_linear" not in ours.alike(ours.draw("fm", random.Random(1)), "fm", undriven("recbole"))["model"]


def test_only_models_whose_papers_add_a_linear_part_have_one() -> None:
    drawn = {model: Ours(SCHEDULE).draw(model, random.Random(1))["model"] for model in MODELS}
    assert {model for model, settings in drawn.items() if settings.get("use_linear")} == {"deepfm", "xdeepfm"}


def test_the_validation_rows_choose_and_a_training_is_kept(tmp_path: pathlib.Path) -> None:
    rows, side = parity_rows(tmp_path, 400), Fixed("ours")
    trainings = Trainings(rows, tmp_path / "kept")
    result = trainings.best(side, "lr", 6, 1, 3)  # type: ignore[arg-type]
    assert result.settings == {"noise": 0.5}
    assert side.trained == 3 + 2  # three settings, and two more seeds of the best one
    labels = rows.split("test")[1]
    expected = [sklearn.metrics.roc_auc_score(labels, values) for values in result.probabilities]
    assert [run["auc"] for run in result.runs] == pytest.approx(expected) and len(expected) == 3
    Trainings(rows, tmp_path / "kept").best(side, "lr", 6, 1, 3)  # type: ignore[arg-type]
    assert side.trained == 5
    certain = Fixed("ours", is_random=False)
    assert len(Trainings(rows, tmp_path / "other").best(certain, "lr", 6, 1, 3).runs) == 1  # type: ignore[arg-type]


class Interrupted(Fixed):
    """A side during whose first training another one in the same folder begins and ends."""

    others: Trainings

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        work.mkdir()
        if seed == 1:
            self.others.get(self, model, settings, 2)  # type: ignore[arg-type]
        assert work.is_dir()
        return super().train(model, settings, seed, rows, work)


def test_trainings_that_share_a_folder_leave_each_others_work_alone(tmp_path: pathlib.Path) -> None:
    rows, side = parity_rows(tmp_path, 400), Interrupted("ours")
    side.others = Trainings(rows, tmp_path / "kept")
    Trainings(rows, tmp_path / "kept").get(side, "lr", {"noise": 0.5}, 1)  # type: ignore[arg-type]
    kept = [path.suffix for path in (tmp_path / "kept").iterdir()]
    assert side.trained == 2 and sorted(kept) == [".json", ".json", ".npy", ".npy"]


class LuckyOnce(Fixed):
    """A side whose lowest noise has the lowest log loss with the first seed alone."""

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        trained = super().train(model, settings, seed, rows, work)
        return dataclasses.replace(trained, log_loss=trained.log_loss + (seed > 1 and settings["noise"] == 0.5))


def test_the_mean_over_the_seeds_chooses_among_the_finalists(tmp_path: pathlib.Path) -> None:
    rows = parity_rows(tmp_path, 400)
    by_one, by_mean = (
        Trainings(rows, tmp_path / str(finalists)).best(LuckyOnce("ours"), "lr", 6, finalists, 3)  # type: ignore[arg-type]
        for finalists in (1, 6)
    )
    assert (by_one.settings, by_mean.settings) == ({"noise": 0.5}, {"noise": 1.0})


def test_ours_is_trained_with_the_settings_that_were_chosen_for_a_peer(tmp_path: pathlib.Path) -> None:
    rows = parity_rows(tmp_path, 400)
    ours, averaged, peer = FixedOurs("ours"), FixedOurs("ours_averaged"), Worse("recbole")
    trainings = Trainings(rows, tmp_path / "kept")
    mine, also, theirs = measure([ours, averaged, peer], ["lr"], trainings, 6, 1, 3)  # type: ignore[list-item]
    assert (mine.settings, theirs.settings) == ({"noise": 0.5}, {"noise": 1.0}) and theirs.trial > 0
    assert mine.ours_alike is None and also.ours_alike is None
    alike = theirs.ours_alike
    assert alike is not None and (alike.side, len(alike.runs)) == ("ours", 3)
    assert alike.settings == {"noise": 1.0, "as": ["lr", "recbole"]}
    assert averaged.trained == 5  # as alone
    without = list(measure([peer], ["lr"], trainings, 6, 1, 3))  # type: ignore[list-item]
    defaults = list(measure([ours, peer], ["lr"], trainings, 1, 1, 3))  # type: ignore[list-item]
    assert [result.ours_alike for result in (*without, *defaults)] == [None] * 3


class FixedOurs(Fixed, Ours):
    """Ours, as Fixed draws and trains it."""

    def alike(self, settings: Settings, model: str, other: Side) -> Settings:
        return {**settings, "as": [model, other.name]}


class Worse(Fixed):
    """A side that the validation rows rank the other way round, its defaults last."""

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        trained = super().train(model, settings, seed, rows, work)
        return dataclasses.replace(trained, log_loss=abs(1 - settings["noise"]))


def scored(side: str, model: str, labels: np.ndarray, noise: float, seeds: int) -> Result:
    runs, values = [], []
    for seed in range(seeds):
        values.append((labels + noise * np.random.default_rng(seed).normal(size=len(labels))).astype(np.float32))
        auc = float(sklearn.metrics.roc_auc_score(labels, values[-1]))
        runs.append({"auc": auc, "log_loss": 0.5, "seconds": 1.0})
    return Result(side, model, {}, runs, values)


def test_ours_is_compared_with_the_same_model_and_the_best_of_ours_with_trees() -> None:
    labels = (np.random.default_rng(0).random(500) < 0.3).astype(np.float32)
    noises = {("ours", "lr"): 1.0, ("ours_averaged", "lr"): 0.3, ("recbole", "lr"): 2.0, ("ours", "fm"): 0.5}
    noises |= {("lightgbm", "trees"): 0.4}
    results = [scored(*names, labels, noise, 3) for names, noise in noises.items()]
    results[2] = dataclasses.replace(results[2], ours_alike=scored("ours", "lr", labels, 2.0, 3))
    ours_lr, averaged, peer_lr, ours_fm, trees = values = compared(results, labels)
    assert peer_lr["alike"]["difference"] == 0 and not any("alike" in value for value in values if value != peer_lr)
    assert "ahead" not in ours_lr and "ahead" not in ours_fm and list(averaged["ahead"]) == ["ours"]
    for name, ours in (("ours", ours_lr), ("ours_averaged", averaged)):
        expected = statistics.fmean(ours["auc"]) - statistics.fmean(peer_lr["auc"])
        assert peer_lr["ahead"][name]["difference"] == pytest.approx(expected) and expected > 0
    assert peer_lr["ahead"]["ours"]["seeds"] == (3, 3)
    assert {name: ahead["model"] for name, ahead in trees["ahead"].items()} == {"ours": "fm", "ours_averaged": "lr"}
    lines = {line["bar"]: line["met"] for line in bars(values)}
    assert lines == {
        "ours, lr against recbole": True,
        "ours, our best against their best": False,
        "ours_averaged, lr against recbole": True,
        "ours_averaged, our best against their best": True,
    }
    printed = table(values, "title")
    assert [str(column.header) for column in printed.columns][6:10:2] == ["ours ahead, AUC", "ours_averaged ahead, AUC"]
    assert [cell != "" for cell in printed.columns[8].cells] == [False, False, True, False, True]
    assert str(printed.columns[10].header) == "ours ahead, same settings"
    assert list(printed.columns[10].cells) == ["", "", "+0.0000", "", ""]
    rows = {"train": 1000, "validation": 50, "test": 500}
    shown = page({"rows": rows, "trials": 8, "results": values, "bars": bars(values)}).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown if line.startswith("| ")]
    assert cells[0] == [str(column.header) for column in printed.columns][:-1]
    assert [line[:-1] for line in zip(*(column.cells for column in printed.columns), strict=True)] == [
        tuple(line) for line in cells[1:]
    ]
    assert shown[0] == "1,000 training rows, 50 to choose by, 500 to test; 8 trials a model."
    assert shown[-1].startswith("- Missed, 1 of 4: ours, our best against their best (-")


class FixedBaseline(Fixed):
    """The default baseline, as Fixed trains it."""

    def __init__(self) -> None:
        super().__init__(Baseline.name, is_random=False)


def test_the_baseline_of_a_run_is_trained_once_without_a_search_and_stands_beside_the_peers_lr(
    tmp_path: pathlib.Path,
) -> None:
    rows, baseline, peer = parity_rows(tmp_path, 400), FixedBaseline(), Worse("recbole")
    trainings = Trainings(rows, tmp_path / "kept")
    sides: Any = [FixedOurs("ours"), baseline, peer]
    results = list(measure(sides, ["lr"], trainings, 6, 3, 3))
    assert [result.side for result in results] == ["ours", BASELINE, "recbole"]
    assert baseline.trained == 1 and results[1].settings == {"noise": 2.0} and results[1].ours_alike is None
    labels = rows.split("test")[1]
    trees = scored("lightgbm", "trees", labels, 0.4, 1)
    ours, ours_default, theirs, of_trees = values = compared([*results, trees], labels)
    assert "ahead" not in ours and list(ours_default["ahead"]) == ["ours"]
    expected = statistics.fmean(ours_default["auc"]) - statistics.fmean(theirs["auc"])
    assert theirs["ahead"][BASELINE]["difference"] == pytest.approx(expected)
    assert list(of_trees["ahead"]) == ["ours"]  # no model but lr is compared with it
    lines = [line["bar"] for line in bars(values)]
    assert lines == ["ours, lr against recbole", "ours, our best against their best", "baseline, lr against recbole"]
    assert "baseline ahead, AUC" in [str(column.header) for column in table(values, "").columns]


def test_ours_averaged_differs_from_ours_in_the_average_alone() -> None:
    plain, averaged = Ours(SCHEDULE), Ours(SCHEDULE, 4)
    assert (plain.name, averaged.name) == OURS
    assert averaged.schedule == {**plain.schedule, "averaged_evaluations": 4}
    assert list(trials(plain, "fm", 5)) == list(trials(averaged, "fm", 5))


@pytest.mark.parametrize(("behind", "met"), [(0.9 * MARGIN, True), (1.1 * MARGIN, False)])
def test_the_bar_allows_a_margin(behind: float, met: bool) -> None:
    ahead: dict[str, Any] = {"model": "fm", "difference": -behind}
    [line] = bars([{"side": "recbole", "model": "fm", "auc": [0.7], "ahead": {"ours": ahead}}])
    assert line == {"bar": "ours, fm against recbole", "ahead": -behind, "met": met}


def test_test_rows_of_one_class_are_refused() -> None:
    one_class = np.zeros(10, np.float32)
    result = Result("ours", "lr", {}, [{"auc": 0.5, "log_loss": 0.1, "seconds": 1}], [np.zeros(10)])
    with pytest.raises(InputError, match="two clicks"):
        compared([result, Result("recbole", "lr", {}, result.runs, result.probabilities)], one_class)


def test_trees_learn_what_no_column_shows(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("lightgbm", exc_type=OSError)  # where there is no libgomp.so.1
    rows = parity_rows(tmp_path)
    trained = Trees(1).train("trees", {"learning_rate": 0.2}, 1, rows, tmp_path / "work")
    assert sklearn.metrics.roc_auc_score(rows.split("test")[1], trained.probabilities) > 0.9
    assert 0.15 < trained.log_loss < 0.35  # 5% of the labels are wrong: 0.199 at best


@pytest.mark.large(like="tests/benchmarks/test_quality.py::test_the_validation_rows_choose_and_a_training_is_kept")
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in ("deepctr_torch", "recbole")])
def test_a_peer_is_trained_to_its_best_validation_result(name: str, tmp_path: pathlib.Path) -> None:
    rows = parity_rows(tmp_path)
    labels = rows.split("test")[1]
    settings = {"dim": 4, "hidden": (16,), "dropout": 0.0, "l2": 0.0, "learning_rate": 0.02}
    with Peer(name) as peer:
        side = PeerSide(peer, 1, SCHEDULE)
        networks = {"deepfm", "dcn_v2", "xdeepfm", "autoint"}
        assert set(side.models) >= networks
        if name == "deepctr_torch":  # RecBole's side names the weights of fewer models
            weights = {model: peer.shapes(model, sizes=[4, 4, 6], dim=4, hidden=(8,)) for model in networks}
            assert {model for model in networks if "linear" in weights[model]} == set(side.with_linear)
        again = [side.train("deepfm", settings, 1, rows, tmp_path / "work") for _ in range(2)]
        np.testing.assert_array_equal(again[0].probabilities, again[1].probabilities)
        assert sklearn.metrics.roc_auc_score(labels, again[0].probabilities) > 0.9
        decayed = side.train("deepfm", {**settings, "l2": 10.0}, 1, rows, tmp_path / "work")
        assert decayed.log_loss > again[0].log_loss + 0.2
        if name == "deepctr_torch":
            shrunk = side.train("deepfm", {**settings, "network_l2": 512.0}, 1, rows, tmp_path / "work")
            assert np.abs(shrunk.probabilities - again[0].probabilities).max() > 0.01
        if name == "recbole":  # whose evaluations at this rate and batch go up and down
            noisy = {**settings, "learning_rate": 0.1}
            constant, falling = (
                PeerSide(peer, 1, {**SCHEDULE, "batch_size": 32, "plateau": plateau}).train(
                    "deepfm", noisy, 1, rows, tmp_path / "work"
                )
                for plateau in (None, SCHEDULE["plateau"])
            )
            assert falling.log_loss < constant.log_loss - 0.001
        other = side.train("deepfm", {**settings, "dropout": 0.5}, 1, rows, tmp_path / "work")
        assert np.abs(other.probabilities - again[0].probabilities).max() > 0.01


@pytest.mark.large(like="tests/studies/test_claims.py::test_a_claim_is_checked_once_and_then_read")
@pytest.mark.slow
def test_the_command_goes_on_where_it_was_stopped_and_trains_anew_with_another_patience(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log.tsv"
    generate("criteo", 1500, 1, log)
    output = tmp_path / "quality.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.quality",
        "--data",
        str(log),
        "--models",
        "lr",
        "--seeds",
        "2",
        "--threads",
        "1",
    ]
    command += ["--threads", "1", "--sides", "ours,lightgbm,scikit-learn"]
    command += ["--folder", str(tmp_path / "kept"), "--output", str(output)]
    done = subprocess.run([*command, "--trials", "1"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text())
    assert report == json.loads(done.stdout.splitlines()[-1])
    assert report["rows"] == {"train": 1050, "validation": 150, "test": 300}
    assert [(each["side"], len(each["auc"])) for each in report["results"]] == [
        ("ours", 2),
        ("scikit-learn", 1),
        ("lightgbm", 2),
    ]
    assert output.with_suffix(".md").read_text() == page(report)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept" / "trainings").glob("*.json")}
    assert len(kept) == 5
    again = subprocess.run([*command, "--trials", "1"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0 and json.loads(again.stdout.splitlines()[-1]) == report
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "kept" / "trainings").glob("*.json")}
    command += ["--trials", "1", "--patience", "1"]
    other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert other.returncode == 0, other.stderr
    kept_now = {path.name for path in (tmp_path / "kept" / "trainings").glob("*.json")}
    assert len(kept_now) == 5 + 2  # of networks alone
    assert json.loads(output.read_text())["patience"] == 1
