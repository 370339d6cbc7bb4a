"""The reviews' benchmark on a few made-up reviews and a tiny checkpoint; what it measures here means nothing."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from click.testing import CliRunner

from benchmarks.text_serving import quality
from studies import reviews
from tests.text_checkpoint import write_checkpoint

pytestmark = pytest.mark.slow

ROWS = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Reviews whose words say how they end, and a checkpoint."""
    root = tmp_path_factory.mktemp("reviews")
    random = np.random.default_rng(1)
    good = random.random(ROWS) < 0.7
    words = np.where(random.random((ROWS, 6)) < np.where(good, 0.7, 0.3)[:, None], "great soft", "poor thin")
    table = {
        "Clothing ID": random.integers(1, 30, ROWS),
        "Age": random.integers(18, 90, ROWS),
        "Title": [None if number % 9 == 0 else "a title" for number in range(ROWS)],
        "Review Text": [" ".join(line) for line in words],
        "Recommended IND": good.astype(int),
        "Positive Feedback Count": random.poisson(2, ROWS),
        **{f"{name} Name": random.choice(["A", "B", None], ROWS) for name in ("Division", "Department", "Class")},
    }
    pd.DataFrame(table).to_parquet(root / "reviews.parquet")
    write_checkpoint(root / "encoder")
    return root


def run(folder: pathlib.Path, *arguments: str):
    data = ["--data", str(folder / "reviews.parquet"), "--encoder", str(folder / "encoder")]
    return CliRunner().invoke(reviews.main, [*data, "--output", str(folder / "out"), *arguments])


@pytest.mark.large(like="tests/studies/test_claims.py::test_a_claim_is_checked_once_and_then_read")
def test_every_training_is_kept_and_the_models_are_compared(folder, monkeypatch):
    names = ["features_only", "text_only", "bert4ctr"]
    monkeypatch.setattr("benchmarks.harness.reviews.TEXT_LENGTH", 24)
    trained, original = [], reviews.train_one

    def train_one(task, *arguments):
        trained.append((task.model, task.seed))
        if trained == [("features_only", 1), ("text_only", 1)]:
            raise KeyboardInterrupt
        return original(task, *arguments)

    monkeypatch.setattr(reviews, "train_one", train_one)
    assert run(folder, "--models", ",".join(names), "--seeds", "1").exit_code == 130
    done = run(folder, "--models", ",".join(names), "--seeds", "1")
    assert done.exit_code == 0, done.output
    assert trained == [("features_only", 1), ("text_only", 1), ("text_only", 1), ("bert4ctr", 1)]
    models = json.loads((folder / "out" / "reviews.json").read_text())["models"]
    assert list(models) == [*names, "TF-IDF of words and pairs, LR", "features, LR"]
    main = models["bert4ctr"]["test"][0]
    assert main["examples"] == ROWS // 5
    for name, found in models.items():
        if name != "bert4ctr":
            assert found["behind"]["difference"] == pytest.approx(main["auc"] - found["test"][0]["auc"])
    # It starts from the features of features_only, and from a text encoder that has seen each text once.
    work, mark = folder / "out" / "work", "checkpoint/progress.json"
    stages = {path.name.split("-")[0]: json.loads((path / mark).read_text()) for path in (work / "stages").iterdir()}
    alone = json.loads((work / "features_only-1" / mark).read_text())
    assert {**stages["features_only"], "seconds": 0} == {**alone, "seconds": 0}
    assert stages["text_only"]["evaluations"][-1]["examples"] == round(0.7 * ROWS)
    assert models["TF-IDF of words and pairs, LR"]["test"][0]["auc"] > 0.9 > models["features, LR"]["test"][0]["auc"]
    loss = {each["precision"]: each["log_loss"] for each in quality(folder / "out", folder / "encoder", None)}
    before = models["text_only"]["test"][0]["log_loss"]
    assert loss["float32"] == pytest.approx(before, abs=1e-6)
    assert all(1e-6 < abs(loss[name] - before) < 0.05 for name in ("bfloat16", "int8", "int8_weights")), loss


def test_a_reference_never_sees_the_test_labels(folder):
    table = pd.read_parquet(folder / "reviews.parquet")
    before = reviews.references(folder / "reviews.parquet")
    labels = table["Recommended IND"].to_numpy().copy()
    auc = sklearn.metrics.roc_auc_score(labels[-ROWS // 5 :], before["TF-IDF of words and pairs, LR"])
    assert 0.9 < auc < 1
    labels[-ROWS // 5 :] = 1 - labels[-ROWS // 5 :]
    table.assign(**{"Recommended IND": labels}).to_parquet(folder / "other.parquet")
    for name, probabilities in reviews.references(folder / "other.parquet").items():
        np.testing.assert_array_equal(probabilities, before[name])


def test_all_models_have_the_same_seeds(folder):
    tasks = reviews.chosen_tasks(",".join(reviews.TRAININGS), 3, folder / "reviews.parquet", folder / "encoder")
    assert [(task.seed, task.model) for task in tasks] == [
        (seed, model)
        for seed in (1, 2, 3)
        for model in ("features_only", "text_only", "shallow_interaction_1", "bert4ctr")
    ]
    assert all(task.config.seed == task.seed for task in tasks)
    assert next(option for option in reviews.main.params if option.name == "seeds").default == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "bert4ctr,gpt"), "--models: unknown 'gpt'"),
        (("--data", "absent.parquet"), "--data absent.parquet: no such file"),
        (("--encoder", "absent"), "absent"),
    ],
)
def test_a_mistake_is_one_line(folder, tmp_path, arguments, message):
    done = run(folder, *arguments, "--output", str(tmp_path / "new"))
    assert done.exit_code == 2 and message in done.output and "Traceback" not in done.output
