"""A run with several seeds: which training runs it makes, which it keeps, and what it reports about all of them."""

import dataclasses
import json
import pathlib
import re
from typing import Any
from unittest.mock import ANY

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics

import ctrpipe
from ctrpipe.common.errors import InputError, NotFiniteError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.components import seed_trainings
from ctrpipe.pipeline.components.seed_trainings import SeedSettings, SideSettings, train_seeds
from ctrpipe.pipeline.components.trainer_settings import TrainerInputs, TrainerSettings
from ctrpipe.pipeline.config import Model, RunConfig, Training
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.pipeline.evaluation.seeds import Seeds, SeedSide, SeedTraining, read_seeds, write_seeds
from ctrpipe.pipeline.report.report import write_report
from ctrpipe.pipeline.report.seeds import seeds_verdict, spread
from ctrpipe.pipeline.report.summary import print_summary
from ctrpipe.pipeline.run.graph import create_pipeline
from ctrpipe.pipeline.run.inputs import RunInputs
from ctrpipe.pipeline.run.seeds import all_seeds
from tests.e2e.small_run import call
from tests.pipeline.test_demo import finished_run
from tests.pipeline.test_report import run_left
from tests.small_config import SMALL, joined

LABELS = np.array([0, 1, 0, 1, 1, 0], np.float32)


def configured(**evaluation: Any) -> RunConfig:
    return RunConfig.model_validate(joined(SMALL, {"model": {"name": "fm"}, "evaluation": evaluation}))


def nodes_of(folder: pathlib.Path, config: RunConfig) -> dict[str, Any]:
    inputs = RunInputs((), "", {}, folder, "")
    return {node.id: node for node in create_pipeline(config, inputs).components}


# --- The graph.


@pytest.mark.slow
def test_one_seed_leaves_the_graph_as_it_is_and_more_add_one_node(tmp_path: pathlib.Path) -> None:
    one, three = (nodes_of(tmp_path, configured(baseline={"name": "deepfm"}, seeds=seeds)) for seeds in (1, 3))
    assert three.keys() - one.keys() == {"SeedTrainings"}
    assert "seeds" not in one["GatedEvaluator"].inputs
    assert three["Trainer"] in three["SeedTrainings"].upstream_nodes  # the model that is pushed is the first one
    assert three["GatedEvaluator"].inputs["seeds"].producer_component_id == "SeedTrainings"
    for name in one.keys() - {"GatedEvaluator"}:  # comes from the cache of a run with one seed
        assert one[name].exec_properties == three[name].exec_properties
    given = SeedSettings.model_validate_json(three["SeedTrainings"].exec_properties["settings"])
    assert given.baseline is not None
    for node, side in (("Trainer", given.model), ("Trainer.baseline", given.baseline)):
        own = TrainerSettings.model_validate_json(one[node].exec_properties["settings"])
        assert (own.seed, side.name) == (1, own.model.name)
        assert [each.seed for each in side.trainers] == [2, 3]
        assert len({each.work for each in (own, *side.trainers)}) == 3  # a checkpoint of its own
        for each in side.trainers:
            apart = ("seed", "work", "training_fingerprint")
            assert each.model_dump(exclude=set(apart)) == own.model_dump(exclude=set(apart))


def test_the_seed_after_the_last_one_is_the_first_one(tmp_path: pathlib.Path) -> None:
    config = configured(seeds=3).model_copy(update={"seed": 2**31 - 2})
    given = SeedSettings.model_validate_json(nodes_of(tmp_path, config)["SeedTrainings"].exec_properties["settings"])
    assert [each.seed for each in given.model.trainers] == [2**31 - 1, 0]


def test_a_side_of_l_bfgs_is_trained_once(tmp_path: pathlib.Path) -> None:
    node = nodes_of(tmp_path, configured(baseline={"name": "lr"}, seeds=3))["SeedTrainings"]
    given = SeedSettings.model_validate_json(node.exec_properties["settings"])
    assert given.baseline == SideSettings(name="lr", trainers=[]) and len(given.model.trainers) == 2
    alone = nodes_of(tmp_path, configured(seeds=2))["SeedTrainings"]
    assert SeedSettings.model_validate_json(alone.exec_properties["settings"]).baseline is None


@pytest.mark.parametrize("seeds", [0, -1, 1.5])
def test_a_number_of_seeds_is_whole_and_at_least_one(seeds: float) -> None:
    with pytest.raises(ValueError, match=r"evaluation\.seeds"):
        configured(seeds=seeds)


def test_the_option_is_a_key_of_the_configuration(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def run(config: RunConfig, *others: Any) -> dict[str, Any]:
        given.append(config.evaluation.seeds)
        return {"blessed": True, "drift_breached": None}

    monkeypatch.setattr("ctrpipe.pipeline.run.run.run", run)
    monkeypatch.setattr("ctrpipe.pipeline.report.summary.print_summary", lambda *arguments: None)
    (tmp_path / "config.yaml").write_text(json.dumps({**SMALL, "evaluation": {"seeds": 4}}))
    (tmp_path / "log.csv").write_text("click\n1\n")
    command = ("run", tmp_path / "config.yaml", "--data", tmp_path / "log.csv", "--output", tmp_path / "out")
    assert call(*command)[0] == call(*command, "--seeds", 3)[0] == 0
    assert ctrpipe.run(SMALL, tmp_path / "log.csv", tmp_path / "out", seeds=2).seeds is None
    ctrpipe.run(SMALL, tmp_path / "log.csv", tmp_path / "out")
    assert given == [4, 3, 2, 1]
    assert call(*command, "--seeds", 0)[0] == 2


# --- The trainings, with a trainer that answers at once.


@dataclasses.dataclass
class Trainer:
    """What stands for training and prediction: each seed has its own probabilities."""

    trained: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    cut_at: int | None = None
    wrong: float = 0.0

    def train(self, given: TrainerSettings, inputs: Any, folder: pathlib.Path, code: str) -> dict[str, Any]:
        if given.seed == self.cut_at:
            raise KeyboardInterrupt
        self.trained.append((given.model.name, given.seed))
        folder.mkdir(parents=True, exist_ok=True)
        given.work.mkdir(parents=True, exist_ok=True)  # the checkpoint
        return {"evaluations": [{"validation_log_loss": 0.5}], "stopped": f"as seed {given.seed} was"}

    def predict(self, models: Any, files: Any, columns: list[str], folder: pathlib.Path, workers: Any) -> list[Any]:
        values = probabilities(self.trained[-1][1])
        values[0] += self.wrong
        folder.mkdir(exist_ok=True)
        table = pa.table({"click": LABELS, "seed.ctr": values})
        assert [*columns] == ["click"] and list(models) == ["seed"]
        pq.write_table(table, folder / "part.parquet")
        return [folder / "part.parquet"]


def probabilities(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(len(LABELS)).astype(np.float32)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    found = Trainer()
    monkeypatch.setattr(seed_trainings, "train_and_export", found.train)
    monkeypatch.setattr(seed_trainings, "predict", found.predict)
    return found


def settings(folder: pathlib.Path, seeds: int, baseline: str | None = "lr") -> SeedSettings:
    def trainer(name: str, seed: int) -> TrainerSettings:
        return TrainerSettings(
            spec=configured().log_spec,
            model=Model(name=name),
            training=Training(),
            seed=seed,
            warmup_requests=1,
            position={},
            encoder_precision="float32",
            calibration=None,
            explains=False,
            work=folder / "tfx" / f"{name}-{seed}",
            parent=None,
            training_fingerprint="",
        )

    side = SideSettings(name="fm", trainers=[trainer("fm", seed) for seed in range(8, 7 + seeds)])
    other = baseline and SideSettings(
        name=baseline, trainers=[] if baseline == "lr" else [trainer(baseline, seed) for seed in range(8, 7 + seeds)]
    )
    return SeedSettings(seeds=seeds, task="ctr", model=side, baseline=other, rows="these")


def trained(folder: pathlib.Path, given: SeedSettings, code: str = "1") -> Seeds:
    inputs = TrainerInputs(folder, folder, folder, {})
    train_seeds(given, inputs, folder / "artifact", Workers(), code)
    found = read_seeds(folder / "artifact")
    assert found is not None
    return found


@pytest.fixture
def payload(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "Split-test").mkdir()
    (tmp_path / "Split-test" / "part.parquet").touch()
    return tmp_path


def test_each_seed_is_scored_on_the_test_rows(
    trainer: Trainer, payload: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    found = trained(payload, settings(payload, 3, "deepfm"))
    assert trainer.trained == [("fm", 8), ("fm", 9), ("deepfm", 8), ("deepfm", 9)]
    said = capsys.readouterr().err
    for line in ("seed 2 of 3: fm ...", "seed 3 of 3: fm ...", "seed 3 of 3: deepfm (baseline) ..."):
        assert line in said
    assert found.task == "ctr" and found.difference is None and found.baseline is not None
    for side in (found.model, found.baseline):
        assert [each.seed for each in side.trainings] == [8, 9]
        for training, scored in zip(side.trainings, side.read_scores(payload / "artifact"), strict=True):
            np.testing.assert_array_equal(scored.probabilities["ctr"], probabilities(training.seed))
            auc = sklearn.metrics.roc_auc_score(LABELS, probabilities(training.seed))
            assert training.metrics["auc"] == pytest.approx(auc)
            assert training.stopped == f"as seed {training.seed} was" and scored.rows == "these"
    left = {path.name for path in (payload / "artifact").iterdir()}
    assert left == {"seeds.json", "scores"}
    assert {path.name for path in (payload / "tfx").iterdir()} == {"seeds"}  # the checkpoints are gone


def test_a_finished_training_is_not_trained_again(
    trainer: Trainer, payload: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    trainer.cut_at = 9
    with pytest.raises(KeyboardInterrupt):
        trained(payload, settings(payload, 3))
    trainer.cut_at = None
    trained(payload, settings(payload, 3))
    assert trainer.trained == [("fm", 8), ("fm", 9)]
    said = capsys.readouterr().err
    assert "seed 2 of 3: fm, trained before" in said
    assert "lr (baseline): one training run, because L-BFGS ends at the same weights with every seed" in said
    assert len(trained(payload, settings(payload, 4)).model.trainings) == 3
    assert trainer.trained[2:] == [("fm", 10)]
    trained(payload, settings(payload, 2, None), code="2")  # other code may train otherwise
    assert trainer.trained[3:] == [("fm", 8)]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_prediction_that_is_not_finite_ends_the_run_and_is_not_kept(
    trainer: Trainer, payload: pathlib.Path, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    monkeypatch.setattr("ctrpipe.transforms.log.outliers.find_outlier", lambda *arguments: None)
    trainer.wrong = wrong
    with pytest.raises(NotFiniteError, match="fm"):
        trained(payload, settings(payload, 2))
    trainer.wrong = 0.0
    trained(payload, settings(payload, 2))
    assert trainer.trained == [("fm", 8)] * 2


# --- All trainings in one file.


def drawn(seeds: int, strength: float, first: int) -> list[np.ndarray]:
    random = np.random.default_rng(first)
    labels = rows()
    return [(strength * labels + random.random(len(labels)) * 2).astype(np.float32) / 4 for _ in range(seeds)]


def rows() -> np.ndarray:
    return (np.random.default_rng(0).random(800) < 0.3).astype(np.float32)


def left_by_nodes(folder: pathlib.Path, model: list[np.ndarray], baseline: list[np.ndarray] | None) -> None:
    """Writes what GatedEvaluator leaves of the first training of each side, and SeedTrainings of the others."""
    (folder / "artifact" / "scores").mkdir(parents=True)
    own = {} if baseline is None else {"baseline_probability": baseline[0]}
    write_scored(folder / "scored.parquet", ScoredRows("these", {"ctr": rows()}, {"ctr": model[0]}), own)
    sides = {}
    for side, values in (("model", model), ("baseline", baseline)):
        trainings = []
        for seed, each in enumerate((values or [])[1:], 8):
            scores = f"scores/{side}-{seed}.parquet"
            write_scored(folder / "artifact" / scores, ScoredRows("these", {"ctr": rows()}, {"ctr": each}))
            metrics = {"auc": auc(each), "log_loss": 0.5, "rig": None, "calibration": 1.0}
            trainings.append(SeedTraining(seed, metrics, "all 3 epochs done", False, scores))
        sides[side] = SeedSide({"model": "fm", "baseline": "lr"}[side], tuple(trainings))
    write_seeds(folder / "artifact", Seeds("ctr", sides["model"], None if baseline is None else sides["baseline"]))


def auc(probabilities: np.ndarray) -> float:
    return float(sklearn.metrics.roc_auc_score(rows(), probabilities))


ENDS = {side: {"stopped": "converged", "converged": True} for side in ("model", "baseline")}


def gathered(folder: pathlib.Path) -> Seeds:
    (folder / "report_data").mkdir(exist_ok=True)
    return all_seeds(7, folder / "artifact", folder / "scored.parquet", ENDS, folder / "report_data")


def placements(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """DeLong's shares of each click and of each other row, by the definition over pairs."""
    clicked = rows() == 1
    above = probabilities[clicked][:, None] - probabilities[~clicked][None, :]
    right = np.where(above > 0, 1.0, np.where(above < 0, 0.0, 0.5))
    return right.mean(axis=1), right.mean(axis=0)


def covariance(first: np.ndarray, second: np.ndarray) -> float:
    pairs = zip(placements(first), placements(second), strict=True)
    return sum(float(np.cov(one, other)[0, 1]) / len(one) for one, other in pairs)


def test_every_task_has_its_metrics_and_its_difference(tmp_path: pathlib.Path) -> None:
    random = np.random.default_rng(3)
    orders = np.where(rows() == 1, random.random(800) < 0.4, np.nan).astype(np.float32)  # known after a click alone
    none = np.zeros(800, np.float32)  # a task of one class
    seconds = random.gamma(2, 5, 800).astype(np.float32)
    labels = {"ctr": rows(), "order": orders, "return": none, "seconds": seconds}
    values = {
        side: [
            {task: random.random(800).astype(np.float32) * 0.5 + 0.3 * np.nan_to_num(labels[task]) for task in labels}
        ]
        for side in ("model", "model-2", "baseline")
    }
    [baseline] = values["baseline"]
    others = {
        f"baseline_probability{end}": baseline[task]
        for task, end in zip(labels, ("", ".order", ".return", ".seconds"), strict=True)
    }
    (tmp_path / "artifact" / "scores").mkdir(parents=True)
    model, other = (ScoredRows("these", labels, values[name][0], numbers=("seconds",)) for name in ("model", "model-2"))
    write_scored(tmp_path / "scored.parquet", model, others)
    write_scored(tmp_path / "artifact" / "scores" / "2.parquet", other)
    second = SeedTraining(8, {"auc": 0.5}, "converged", True, "scores/2.parquet", {"order": {"auc": 0.6}})
    write_seeds(tmp_path / "artifact", Seeds("ctr", SeedSide("mmoe", (second,)), SeedSide("lr", ())))
    found = gathered(tmp_path)
    assert found.baseline is not None and found.differences is not None
    clicked = rows() == 1
    expected = {
        side: sklearn.metrics.roc_auc_score(orders[clicked], values[side][0]["order"][clicked]) for side in values
    }
    own = found.model.trainings[0]
    assert own.tasks["order"]["auc"] == pytest.approx(expected["model"]) and own.metrics == own.tasks["ctr"]
    assert found.baseline.trainings[0].tasks["order"]["auc"] == pytest.approx(expected["baseline"])
    assert own.tasks["return"]["auc"] is None and list(found.differences) == ["ctr", "order", "seconds"]
    mean = (expected["model"] + expected["model-2"]) / 2
    assert found.differences["order"]["auc"]["difference"] == pytest.approx(mean - expected["baseline"])
    assert found.difference == found.differences["ctr"]
    rmse = {side: np.sqrt(np.mean((values[side][0]["seconds"].astype(float) - seconds) ** 2)) for side in values}
    mean = (rmse["model"] + rmse["model-2"]) / 2
    assert found.differences["seconds"]["rmse"]["difference"] == pytest.approx(mean - rmse["baseline"])
    assert "; RMSE of seconds " in seeds_verdict(found)
    assert "; AUC of order " in seeds_verdict(found) and "return" not in seeds_verdict(found)
    write_seeds(tmp_path, found)
    assert read_seeds(tmp_path) == dataclasses.replace(found, difference=ANY, differences=ANY)


def test_a_baseline_that_depends_on_no_seed_leaves_the_noise_of_the_models_trainings(tmp_path: pathlib.Path) -> None:
    model, [baseline] = drawn(3, 0.6, 1), drawn(1, 0.3, 2)
    left_by_nodes(tmp_path, model, [baseline])
    found = gathered(tmp_path)
    assert found.baseline is not None and found.difference is not None
    assert [[each.seed for each in side.trainings] for side in (found.model, found.baseline)] == [[7, 8, 9], [7]]
    assert [each.metrics["auc"] for each in found.model.trainings] == pytest.approx([auc(each) for each in model])
    compared = found.difference["auc"]
    values = [auc(each) for each in model]
    assert compared["difference"] == pytest.approx(np.mean(values) - auc(baseline))
    assert list(compared["seeds"]) == [1, 3]
    assert compared["seeds_error"] == pytest.approx((np.var(values, ddof=1) / 3) ** 0.5)
    within = np.mean([covariance(model[one], model[other]) for one, other in ((0, 1), (0, 2), (1, 2))])
    between = np.mean([covariance(each, baseline) for each in model])
    assert compared["rows_error"] ** 2 == pytest.approx(within + covariance(baseline, baseline) - 2 * between)
    for side in (found.model, found.baseline):
        for training, scored in zip(side.trainings, side.read_scores(tmp_path), strict=True):
            assert training.metrics["auc"] == pytest.approx(auc(scored.probabilities["ctr"]))
    text = seeds_verdict(found)
    assert "fm: AUC better than that of lr (+" in text and "over rows and seeds (3 and 1)" in text
    assert (
        "(3 and 1); the baseline lr has one training run, because L-BFGS ends at the same weights with every seed."
        in text
    )
    assert text.endswith("Not converged when the epochs ended: fm (2 of 3)")
    assert spread(found.model)["auc"] == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert spread(found.model)["rig"] == (None, None) and spread(found.baseline)["auc"] == (auc(baseline), None)


def test_two_sides_that_depend_on_no_seed_have_no_noise_of_trainings(tmp_path: pathlib.Path) -> None:
    left_by_nodes(tmp_path, drawn(1, 0.6, 1), drawn(1, 0.3, 2))
    found = gathered(tmp_path)
    assert found.difference is not None and found.difference["auc"]["seeds_error"] == 0
    assert "over rows and seeds (1 and 1)" in seeds_verdict(found) and "reverse it" not in seeds_verdict(found)


def test_without_a_baseline_there_is_no_verdict(tmp_path: pathlib.Path) -> None:
    left_by_nodes(tmp_path, drawn(2, 0.6, 1), None)
    found = gathered(tmp_path)
    assert found.baseline is None and found.difference is None and seeds_verdict(found) == ""
    assert len(found.model.trainings) == 2


def test_the_end_of_the_run_says_the_verdict_over_rows_and_seeds(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    model, baseline = drawn(3, 0.6, 1), drawn(3, 0.3, 2)
    left_by_nodes(tmp_path, model, baseline)
    finished_run(tmp_path, model[0], baseline[0], rows())
    found = gathered(tmp_path)
    write_seeds(tmp_path, found)
    print_summary(tmp_path, configured(baseline={"name": "lr"}, seeds=3))
    printed = " ".join(capsys.readouterr().out.split())
    for name, values in (("fm", model), ("lr", baseline)):
        aucs = [auc(each) for each in values]
        assert f"{name}, mean of 3 │ {np.mean(aucs):.4f} │" in printed
        assert f"{name}, deviation │ {np.std(aucs, ddof=1):.4f} │" in printed
    assert found.difference is not None
    low, high = found.difference["auc"]["interval"]
    assert f"ahead of lr, 95% │ {low:+.4f} .. {high:+.4f} │" in printed
    assert "over rows and seeds (3 and 3)" in printed and "rows alone" not in printed


def test_the_report_lists_every_training_and_the_verdict(tmp_path: pathlib.Path) -> None:
    run_left(tmp_path / "run")
    assert "Training runs with other seeds" not in write_report(tmp_path / "run").read_text()
    left_by_nodes(tmp_path, drawn(2, 0.6, 1), drawn(2, 0.3, 2))
    summary = dict.fromkeys(("auc", "log_loss", "rig", "calibration"), 0.625)
    trainings = tuple(SeedTraining(seed, summary, "<b>over</b>", True, "") for seed in (7, 8))
    found = gathered(tmp_path)
    sides = SeedSide("<i>fm</i>", trainings), SeedSide("lr", trainings)
    write_seeds(tmp_path / "run", Seeds("ctr", *sides, json.loads(json.dumps(found.difference))))
    page = write_report(tmp_path / "run").read_text()
    assert "&lt;i&gt;fm&lt;/i&gt;: AUC" in page and "over rows and seeds (2 and 2)" in page and "<i>fm" not in page
    assert len(re.findall(r"<td>[78]</td>(<td class=\"n\">0\.6250</td>){4}<td class=\"long\">&lt;b&gt;over", page)) == 4
    (tmp_path / "run" / "seeds.json").write_text("{")
    with pytest.raises(InputError, match=r"seeds\.json: damaged \(.*\); run `ctrpipe run --seeds` again"):
        write_report(tmp_path / "run")
