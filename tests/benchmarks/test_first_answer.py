"""The benchmark of first answers on a tiny log: its sides, its rows, its bars, and its report, which it resumes."""

import json
import pathlib

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from benchmarks import first_answer
from benchmarks.harness.first_logs import LOGS, write_few
from ctrpipe.pipeline.draft.page import draft, write_draft
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored

pytest.importorskip("lightgbm", exc_type=OSError)  # where there is no libgomp.so.1
ROWS = 400


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("first") / "few_log.csv"
    write_few(path, ROWS)
    return path


def lines(log: pathlib.Path) -> list[list[str]]:
    return [line.split(",") for line in log.read_text().splitlines()[1:]]


def answers_at_once(calls: list[tuple[str, ...]], labels: np.ndarray, probabilities: np.ndarray):
    """What `ctrpipe init` does, and in place of `ctrpipe run` its predictions of the test rows."""

    def called(*arguments: str) -> None:
        calls.append(arguments)
        if arguments[0] == "init":
            write_draft(draft([arguments[1]])[0], pathlib.Path(arguments[3]))
        else:
            data = pathlib.Path(arguments[3]) / "report_data"
            data.mkdir(parents=True)
            write_scored(data / "predictions.parquet", ScoredRows("log", {"ctr": labels}, {"ctr": probabilities}))

    return called


@pytest.mark.slow
def test_the_command_compares_three_sides_on_the_same_rows_and_resumes(log, tmp_path, monkeypatch):
    clicks = np.array([float(row[-1]) for row in lines(log)], np.float32)
    test = clicks[-len(clicks) // 10 :]
    ours = np.random.default_rng(1).random(len(test)).astype(np.float32)
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(first_answer, "_ctrpipe", answers_at_once(calls, test, ours))
    given = ["--written", "none", "--log", f"mine={log}", "--folder", str(tmp_path / "kept")]
    command = [*given, "--output", str(tmp_path / "report.json")]
    first = CliRunner().invoke(first_answer.main, command)
    assert first.exit_code == 0, first.output
    [found] = json.loads((tmp_path / "report.json").read_text())["logs"].values()
    assert found["rows"] == {"train": 320, "validation": 40, "test": 40} and found["clicks"] == test.sum()
    assert [call[0] for call in calls] == ["init", "run"]
    sides = found["sides"]
    assert sides["ctrpipe"]["auc"] == pytest.approx(roc_auc_score(test, ours))
    assert sides["ctrpipe"]["calibration"] == pytest.approx(ours.mean() / test.mean(), rel=1e-5)
    assert found["best"] == max(("scikit-learn LR", "LightGBM"), key=lambda side: sides[side]["auc"])
    low, high = found["ahead"]
    assert low < sides["ctrpipe"]["auc"] - sides[found["best"]]["auc"] < high
    again = CliRunner().invoke(first_answer.main, command)
    assert again.exit_code == 0 and len(calls) == 2
    assert "mine" in first.output and f"{sides['ctrpipe']['auc']:.4f}" in first.output
    unknown = CliRunner().invoke(first_answer.main, [*command, "--label", "other=y"])
    assert unknown.exit_code != 0


@pytest.mark.slow
def test_the_other_sides_see_the_raw_columns_and_learn_what_they_say(log):
    values = yaml.safe_load(draft([str(log)])[0])
    splits = first_answer.raw_rows(values, log, LOGS["few"])
    rows = lines(log)[-40:]
    test = splits["test"]
    assert set(test.numbers) == {"visits", "age", "spent"} and set(test.categories) == {"city", "plan"}
    assert test.numbers["age"].tolist() == [float(row[2]) for row in rows]
    assert test.categories["city"].tolist() == [row[0] for row in rows]
    assert test.labels.tolist() == [float(row[5]) for row in rows]
    random = np.random.default_rng(2)
    for split, count in (("train", 320), ("validation", 40), ("test", 40)):  # a label that age alone decides
        age = splits[split].numbers["age"].to_numpy()
        labels = (random.random(count) < expit(0.25 * (age - 45))).astype(np.float64)
        splits[split] = first_answer.RawRows(
            splits[split].numbers, splits[split].categories, splits[split].lists, labels
        )
    for side in (first_answer._linear, first_answer._trees):
        assert roc_auc_score(splits["test"].labels, side(splits)) > 0.8


def test_a_bar_is_missed_only_where_the_interval_is_below(log):
    def answered(auc: float, ahead: tuple[float, float], calibration: tuple[float, float]) -> dict:
        ours = {"auc": auc, "calibration": sum(calibration) / 2, "calibration_interval": calibration}
        return {"best": "LightGBM", "ahead": ahead, "sides": {"ctrpipe": ours, "LightGBM": {"auc": 0.7}}}

    answers = {
        "ahead": answered(0.71, (-0.01, 0.03), (0.99, 1.01)),
        "behind, by chance": answered(0.69, (-0.03, 0.01), (0.8, 0.96)),
        "behind": answered(0.6, (-0.12, -0.08), (1.06, 1.2)),
    }
    met = {line["bar"]: line["met"] for line in first_answer.bars(answers)}
    assert met == {
        **{f"{name}: AUC ahead of LightGBM": name != "behind" for name in answers},
        **{f"{name}: calibration": name != "behind" for name in answers},
    }


@pytest.mark.slow
def test_the_other_sides_read_the_columns_of_vectors_lists_forms_and_nested_labels(tmp_path):
    random = np.random.default_rng(2)
    vectors = random.normal(size=(ROWS, 8)).round(4)
    rows = [
        {
            "event": {"click": int(vector[0] + random.normal() > 0.8)},
            "site": f"s{number % 7}",
            "tags": [f"t{number % 5}", f"t{number % 3}"],
            "price": f"${1 + number % 90},{100 + number % 700}.50",
            **{f"emb_{place}": float(value) for place, value in enumerate(vector)},
        }
        for number, vector in enumerate(vectors)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = yaml.safe_load(draft([str(path)])[0])
    assert "derived" in values and values["data"]["labels"] == {"ctr": "event.click"}
    train = first_answer.raw_rows(values, path, None)["train"]
    np.testing.assert_allclose(train.numbers[[f"emb_{place}" for place in range(8)]], vectors[: len(train.labels)])
    assert train.numbers["price"].tolist() == [
        1000.0 * (1 + n % 90) + 100 + n % 700 + 0.5 for n in range(len(train.labels))
    ]
    assert train.labels.tolist() == [row["event"]["click"] for row in rows[: len(train.labels)]]
    assert train.lists["tags"][0] == "t0|t0" and train.categories["site"][3] == "s3"
