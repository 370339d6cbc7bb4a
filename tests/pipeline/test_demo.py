"""The demo's log, whose truth is known, and what a run prints at its end."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder

from ctrpipe.pipeline.commands.demo_run import CLICK_MODEL
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.pipeline.report.summary import print_summary
from ctrpipe.transforms.generate import generate

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
ROWS, TRAINING = 40_000, 28_000


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The demo's log with the true probability of each row, and `best_auc` as `generate` returned it."""
    generated = generate("criteo", ROWS, 1, tmp_path_factory.mktemp("demo") / "log.tsv", click_model=CLICK_MODEL)
    table = pd.read_csv(generated.path, sep="\t", header=None, names=NAMES, dtype=str, keep_default_na=False)
    table["probability"] = pd.read_parquet(generated.truth_path)["probability"]
    table.attrs["best_auc"] = generated.best_auc
    return table.assign(label=table["label"].astype(int))


def one_hot_auc(features: pd.DataFrame, rows: pd.DataFrame) -> float:
    """The test AUC of a logistic regression on the columns' values."""
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=10).fit(features[:TRAINING])
    linear = LogisticRegression(C=0.3, max_iter=300)
    linear.fit(encoder.transform(features[:TRAINING]), rows["label"][:TRAINING])
    test = slice(ROWS - ROWS // 5, ROWS)
    return float(roc_auc_score(rows["label"][test], linear.decision_function(encoder.transform(features[test]))))


@pytest.mark.slow
def test_the_best_possible_auc_is_that_of_the_true_probabilities(rows: pd.DataFrame) -> None:
    assert rows.attrs["best_auc"] == pytest.approx(roc_auc_score(rows["label"], rows["probability"]), abs=1e-12)
    assert rows["label"].mean() == pytest.approx(rows["probability"].mean(), abs=0.008)  # four standard errors


@pytest.mark.slow
def test_columns_alone_do_not_show_what_their_pairs_do(rows: pd.DataFrame) -> None:
    columns = rows[[name for name in NAMES[14:] if rows[name].nunique() < 1000]]
    crossed = columns.assign(**{a + b: rows[a] + "|" + rows[b] for a, b in CLICK_MODEL.pairs or ()})
    alone, in_pairs = one_hot_auc(columns, rows), one_hot_auc(crossed, rows)
    assert alone < 0.69 and in_pairs > alone + 0.1
    assert in_pairs < rows.attrs["best_auc"]


def finished_run(folder: pathlib.Path, model: np.ndarray, baseline: np.ndarray, labels: np.ndarray) -> None:
    """Writes the files of a run that print_summary reads."""
    (folder / "report_data").mkdir()
    write_scored(
        folder / "report_data" / "predictions.parquet",
        ScoredRows("rows", {"ctr": labels}, {"ctr": model}),
        {"baseline_probability": baseline},
    )
    (folder / "report_data" / "gates.json").write_text("[]")
    losses = [{"validation_log_loss": loss} for loss in (0.6, 0.5, 0.45)]
    history = {"evaluations": losses, "best": 2, "stopped": "all 3 epochs done"}
    (folder / "report_data" / "history.json").write_text(json.dumps(history))
    anomaly = {"column": "shop", "split": "test", "text": "every value is missing"}
    (folder / "report_data" / "statistics.json").write_text(
        json.dumps({"splits": {"test": {"rows": 600, "span": ["day_2.csv", "day_10.csv"]}}, "anomalies": [anomaly]})
    )
    summary = {"auc": 0.5, "log_loss": 0.5, "rig": 0.1, "calibration": 1.0}
    metrics = {
        **summary,
        "examples": len(labels),
        "tail": None,
        "uncalibrated": None,
        "baseline": {"name": "lr", **summary},
    }
    metrics |= {"blessed": True, "model_version": "1", "drift_breached": False}
    (folder / "metrics.json").write_text(json.dumps(metrics))


def delong(labels: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """The difference of two AUCs and its standard error, by DeLong's definition over pairs of rows."""

    def right(values: np.ndarray) -> np.ndarray:
        above = values[labels == 1][:, None] - values[labels == 0][None, :]
        return np.where(above > 0, 1.0, np.where(above < 0, 0.0, 0.5))

    apart = right(second) - right(first)
    clicks, others = apart.mean(axis=1), apart.mean(axis=0)
    variance = clicks.var(ddof=1) / len(clicks) + others.var(ddof=1) / len(others)
    return float(apart.mean()), float(variance**0.5)


@pytest.mark.parametrize("better", [True, False])
def test_the_last_table_has_the_difference_to_the_baseline_and_a_verdict(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture, better: bool
) -> None:
    random = np.random.default_rng(3)
    labels = (random.random(600) < 0.3).astype(np.float32)
    baseline = random.random(600).astype(np.float32)
    model = (0.4 * better * labels + random.random(600)).astype(np.float32) / 2
    finished_run(tmp_path, model, baseline, labels)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    metrics |= {"converged": better, "baseline": {**metrics["baseline"], "converged": not better}}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    print_summary(tmp_path, load_config(ROOT / "configs" / "demo.yaml"))
    printed = " ".join(capsys.readouterr().out.split())
    difference, error = delong(labels, baseline, model)
    interval = f"{difference - 1.959964 * error:+.4f} .. {difference + 1.959964 * error:+.4f}"
    assert f"│ ahead of lr, 95% │ {interval} │" in printed
    words = "better than that of lr" if better else "does not differ significantly from that of lr"
    assert (
        f"attention_net: AUC {words} ({difference:+.4f}, 95% {interval}) over the rows of these training runs alone"
        in printed
    )
    assert "Note: the validation log loss was still falling when the epochs ended, from 0.5000 to 0.4500" in printed
    assert "Column: shop, test rows: every value is missing" in printed
    assert "Split: test 600 rows, day_2.csv to day_10.csv" in printed
    assert "one seed on each side, and another seed may reverse it" in printed
    unconverged = "the baseline lr" if better else "attention_net"
    assert f"reverse it. Not converged when the epochs ended: {unconverged} " in printed + " "
