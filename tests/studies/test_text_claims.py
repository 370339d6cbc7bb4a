"""BERT4CTR's claims: equal budgets, the logs, the verdicts, and a tiny run."""

import json
import pathlib

import numpy as np
import pyarrow.csv
import pytest
import sklearn.metrics
from click.testing import CliRunner

from benchmarks.harness.verdicts import CANNOT_BE_TOLD, DOES_NOT_HOLD, HOLDS
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.transforms.generate import TextClickModel, generate_kddcup2012
from studies import text_claims
from studies.text_claims import MODELS, WORLD, compare, config_of, make_log

ROWS = 4000


@pytest.mark.parametrize("name", MODELS)
def test_every_model_passes_over_a_text_as_often_and_learns_alike(name):
    config, main = config_of(name, 7), config_of("BERT4CTR", 7)
    stages = config.training.stages
    assert config.training.epochs + max((stage.epochs for stage in stages.values()), default=0) == 9
    assert all(stage.learning_rate is None and stage.batch_size is None for stage in stages.values())
    equal = {"epochs": 0, "stages": {}}
    assert config.training.model_copy(update=equal) == main.training.model_copy(update=equal)
    own, of_main = config.model.hyperparameters, main.model.hyperparameters
    assert all(own[key] == of_main[key] for key in own.keys() & of_main.keys())
    assert config.training.patience >= 9  # no training ends before its budget does


def results(folder: pathlib.Path, strengths: dict[str, tuple[float, float]]) -> dict[str, list[dict]]:
    """Two trainings of each model, given the distance of its test scores between classes and its validation AUC."""
    random = np.random.default_rng(1)
    labels = (random.random(ROWS) < 0.3).astype(np.float32)
    noise = random.normal(size=ROWS)
    runs: dict[str, list[dict]] = {}
    for name, (strength, validation) in strengths.items():
        for seed in (1, 2):
            scores = strength * labels + noise + 0.02 * random.normal(size=ROWS)
            probabilities = 1 / (1 + np.exp(-scores))
            path = folder / f"{name}-{seed}.parquet"
            write_scored(path, ScoredRows("rows", {"ctr": labels}, {"ctr": probabilities}))
            auc = sklearn.metrics.roc_auc_score(labels, probabilities)
            test = {"auc": auc, "rig": 0.1, "log_loss": 0.5}
            run = {"test": test, "validation": {"auc": validation}, "costs": None, "predictions": str(path)}
            runs.setdefault(name, []).append(run)
    return runs


def test_with_interplay_a_gain_is_claimed_over_every_other_model(tmp_path):
    strengths = {"LR": (0.5, 0.6), "NumBERT": (1.0, 0.7), "MLP": (1.5, 0.65), "BERT4CTR": (1.0, 0.7)}
    compared = compare(1.0, results(tmp_path, strengths))
    models = compared["models"]
    assert [models[name]["verdict"] for name in ("LR", "NumBERT", "MLP")] == [HOLDS, CANNOT_BE_TOLD, DOES_NOT_HOLD]
    assert {models[name]["said"] for name in ("LR", "NumBERT", "MLP")} == {"gain"}
    ahead = np.mean(models["BERT4CTR"]["auc"]) - np.mean(models["LR"]["auc"])
    assert models["LR"]["behind"]["difference"] == pytest.approx(ahead, abs=1e-6) and ahead > 0.1
    assert models["LR"]["behind"]["seeds"] == (2, 2)
    assert "verdict" not in models["BERT4CTR"]


@pytest.mark.parametrize(("strength", "expected"), [(1.0, HOLDS), (1.3, DOES_NOT_HOLD)])
def test_without_interplay_no_gain_is_claimed_over_the_best_by_validation(tmp_path, strength, expected):
    strengths = {"MLP": (2.0, 0.6), "NumBERT": (1.0, 0.7), "BERT4CTR": (strength, 0.7)}
    compared = compare(0.0, results(tmp_path, strengths))
    assert compared["best_of_the_others"] == "NumBERT"
    assert (compared["models"]["NumBERT"]["said"], compared["models"]["NumBERT"]["verdict"]) == ("no gain", expected)
    assert "verdict" not in compared["models"]["MLP"] and compared["models"]["MLP"]["behind"]["difference"] < 0


@pytest.mark.slow
def test_a_log_is_several_with_the_same_words_and_is_made_once(tmp_path):
    glob, about = make_log(1.0, 2 * WORLD, tmp_path)
    training = tmp_path / "raw" / "training.txt"
    parts = []
    for seed in (text_claims.FIRST_SEED, text_claims.FIRST_SEED + 1):
        model = TextClickModel(interplay=1.0, base_rate=0.3)
        parts.append(generate_kddcup2012(WORLD, seed, tmp_path / str(seed), click_model=model))
    assert training.read_bytes() == b"".join(part.path.read_bytes() for part in parts)
    first, second = ((part.path.parent / "title.txt").read_bytes() for part in parts)
    assert first == second == (tmp_path / "raw" / "title.txt").read_bytes()
    lines = pyarrow.csv.read_csv(
        training, pyarrow.csv.ReadOptions(autogenerate_column_names=True), pyarrow.csv.ParseOptions(delimiter="\t")
    )
    assert sum(about["clicks"].values()) == sum(lines["f0"].to_pylist()) == sum(part.positives for part in parts)
    assert about["clicks"]["3_test"] / about["rows"] == pytest.approx(0.5 * 0.3, abs=0.02)
    assert about["best_auc"] == pytest.approx(np.mean([part.best_auc for part in parts]))

    written = training.stat().st_mtime_ns
    assert make_log(1.0, 2 * WORLD, tmp_path) == (glob, about)
    assert training.stat().st_mtime_ns == written


def run(folder: pathlib.Path, *arguments: str):
    sizes = ["--interplay", "0", "--lines", str(WORLD), "--seeds", "2", "--epochs", "1", "--model", "LR"]
    places = ["--folder", str(folder), "--output", str(folder / "claims.json")]
    return CliRunner().invoke(text_claims.main, [*sizes, *places, *arguments])


def test_lines_that_are_no_multiple_are_a_mistake(tmp_path):
    done = run(tmp_path, "--lines", str(WORLD + 1))
    assert done.exit_code == 2 and "--lines should be a multiple of 2,000. Received: 2,001" in done.output


@pytest.mark.large(like="tests/studies/test_claims.py::test_a_claim_is_checked_once_and_then_read")
@pytest.mark.slow
def test_trainings_are_kept_and_all_stages_count(tmp_path, monkeypatch):
    from ctrpipe.pipeline.sweep import measure

    trained, original = [], measure.train_and_measure

    def train_and_measure(config, *arguments):
        trained.append((config.model.name, config.seed))
        if len(trained) == 2:
            raise KeyboardInterrupt
        return original(config, *arguments)

    monkeypatch.setattr(measure, "train_and_measure", train_and_measure)
    assert run(tmp_path).exit_code == 130
    done = run(tmp_path)
    assert done.exit_code == 0, done.output
    assert trained == [("lr", 1), ("bert4ctr", 1), ("bert4ctr", 1), ("lr", 2), ("bert4ctr", 2)]
    [log] = json.loads((tmp_path / "claims.json").read_text())["logs"]
    assert list(log["models"]) == ["LR", "BERT4CTR"]
    assert all(len(model["auc"]) == 2 for model in log["models"].values())
    assert log["models"][log["best_of_the_others"]]["said"] == "no gain"
    costs = {name: model["costs"] for name, model in log["models"].items()}
    assert set(costs["BERT4CTR"]["training_parts"]) == {"text_only", "features_only", "bert4ctr"}
    assert set(costs["LR"]["training_parts"]) == {"lr"}
    parts = sum(part["average"] for part in costs["BERT4CTR"]["training_parts"].values())
    assert costs["BERT4CTR"]["training"]["average"] == pytest.approx(parts)
