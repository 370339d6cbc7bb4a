"""A report's numbers against scikit-learn, pandas and written-out values, and its summary sentence."""

import json
import pathlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn.metrics

from ctrpipe.common.estimates import calibration_estimate
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.pipeline.report.contents import data_warnings, log_text, slices, span_of_test, splits
from ctrpipe.pipeline.report.measured import gain_curve, interval_of, measure
from ctrpipe.pipeline.report.plots import charts
from ctrpipe.pipeline.report.report import write_report
from ctrpipe.pipeline.report.verdict import verdict
from tests.pipeline.test_report import SUMMARY, Page, run_left

ROWS = 400
Z = 1.959963984540054


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(5)
    score = random.beta(1.5, 4, ROWS)
    frame = pd.DataFrame({"label": (random.random(ROWS) < score).astype(np.float32), "score": score.astype(np.float32)})
    frame["other"] = np.full(ROWS, 0.3, np.float32) + random.normal(0, 0.02, ROWS).astype(np.float32)
    frame["site"] = random.choice(["a", "b", "c"], ROWS, p=[0.5, 0.3, 0.2])
    frame["tags"] = random.choice(["x", "y", "x|y", "x|x"], ROWS)
    return frame


def predictions(frame: pd.DataFrame, folder: pathlib.Path, **more) -> bytes:
    sliced = {name: pa.array(frame[name]).dictionary_encode() for name in ("site", "tags")}
    labels, scores = ({"ctr": frame[name].to_numpy()} for name in ("label", "score"))
    scored = ScoredRows("rows", labels, scores, sliced, separators={"tags": "|"}, **more)
    write_scored(folder / "predictions.parquet", scored, {"baseline_probability": frame["other"].to_numpy()})
    return (folder / "predictions.parquet").read_bytes()


SLICES = {"site": dict.fromkeys("abc", SUMMARY), "tags": dict.fromkeys("xy", SUMMARY)}


@pytest.fixture(scope="module")
def measured(frame, tmp_path_factory) -> dict:
    return measure(predictions(frame, tmp_path_factory.mktemp("scored")), SLICES)


def jackknife(metric, frame: pd.DataFrame) -> list[float]:
    """The 95% interval by leaving out each row in turn."""
    labels, scores = (frame[name].to_numpy(np.float64) for name in ("label", "score"))
    every = np.arange(len(frame))
    left = np.array([metric(labels[every != row], scores[every != row]) for row in every])
    error = np.sqrt((len(frame) - 1) * ((left - left.mean()) ** 2).mean())
    value = metric(labels, scores)
    return [value - Z * error, value + Z * error]


def rig(labels: np.ndarray, scores: np.ndarray) -> float:
    rates = np.full(len(labels), labels.mean())
    return 1 - sklearn.metrics.log_loss(labels, scores) / sklearn.metrics.log_loss(labels, rates)


METRICS = {
    "auc": sklearn.metrics.roc_auc_score,
    "log_loss": sklearn.metrics.log_loss,
    "rig": rig,
    "calibration": lambda labels, scores: scores.sum() / labels.sum(),
}


@pytest.mark.parametrize("name", [name for name in METRICS if name != "calibration"])
def test_an_interval_is_that_of_leaving_out_each_row(frame, measured, name):
    expected = jackknife(METRICS[name], frame)
    half = (expected[1] - expected[0]) / 2
    assert measured["model"][name] == pytest.approx(expected, abs=0.03 * half)


def test_the_interval_of_a_calibration_is_of_its_logarithm(frame, measured):
    low, high = jackknife(lambda labels, scores: np.log(METRICS["calibration"](labels, scores)), frame)
    assert np.log(measured["model"]["calibration"]) == pytest.approx([low, high], abs=0.03 * (high - low))


def test_the_interval_of_a_calibration_of_few_clicks_misses_as_often_above_as_below():
    random = np.random.default_rng(4)
    scores, weights = np.full(2000, 0.015, np.float32), np.ones(2000, np.float32)
    misses = [0, 0]
    for _ in range(1000):
        found = calibration_estimate((random.random(2000) < scores).astype(np.float32), scores, weights)
        low, high = interval_of("calibration", found)
        misses[0] += high < 1
        misses[1] += low > 1
    assert 10 <= misses[0] <= 45 and 10 <= misses[1] <= 45  # of 1,000, 25 each; 35 and 0 with equal distances


def test_the_baseline_has_intervals_and_is_behind(frame, measured):
    assert measured["uncalibrated"] == dict.fromkeys(METRICS)
    labels = frame["label"]
    apart = sklearn.metrics.roc_auc_score(labels, frame["score"]) - sklearn.metrics.roc_auc_score(
        labels, frame["other"]
    )
    assert measured["ahead"]["difference"] == pytest.approx(apart)
    low, high = measured["ahead"]["interval"]
    assert 0 < low < apart < high and measured["ahead"]["verdict"] == "better"
    assert measured["baseline"]["auc"][0] < 0.5 < measured["baseline"]["auc"][1]


def test_the_cost_of_a_slice_is_its_share_of_the_log_loss_also_of_lists(frame, measured):
    lost = -np.log(np.where(frame["label"] > 0, frame["score"], 1 - frame["score"].astype(np.float64)))
    costs = pd.Series(lost).groupby(frame["site"]).sum() / lost.sum()
    assert {value: one["cost"] for value, one in measured["slices"]["site"].items()} == pytest.approx(dict(costs))
    for tag, one in measured["slices"]["tags"].items():
        rows = frame["tags"].str.split("|").map(lambda tags, tag=tag: tag in tags)
        assert one["cost"] == pytest.approx(lost[rows].sum() / lost.sum())
        low, high = one["auc"]
        assert low < sklearn.metrics.roc_auc_score(frame["label"][rows], frame["score"][rows]) < high
        low, high = one["calibration"]
        assert low < frame["score"][rows].sum() / frame["label"][rows].sum() < high
    order = [(one["column"], one["value"], one["cost"]) for one in slices({"slices": SLICES}, measured)]
    assert [cost for *_, cost in order] == sorted((cost for *_, cost in order), reverse=True)
    assert [value for column, value, _ in order if column == "site"] == list(costs.sort_values(ascending=False).index)


def test_weights_count_as_rows_in_the_cost_and_in_the_gain(frame, tmp_path):
    weights = np.random.default_rng(1).integers(1, 4, ROWS).astype(np.float32)
    found = measure(predictions(frame, tmp_path, weights=weights), SLICES)
    repeated = frame.loc[frame.index.repeat(weights.astype(int))]
    lost = -np.log(np.where(repeated["label"] > 0, repeated["score"], 1 - repeated["score"].astype(np.float64)))
    cost = lost[repeated["site"] == "a"].sum() / lost.sum()
    assert found["slices"]["site"]["a"]["cost"] == pytest.approx(cost, rel=1e-5)
    ranked = repeated.sort_values("score", ascending=False)["label"].to_numpy()
    top = len(ranked) // 10
    assert found["top"] == pytest.approx(ranked[:top].sum() / ranked.sum(), abs=2 / float(ranked.sum()))


def test_the_gain_is_the_share_of_clicks_of_the_rows_so_far():
    labels, scores = np.array([1, 0, 1, 0, 0], np.float32), np.array([0.9, 0.8, 0.7, 0.7, 0.1])
    rows, clicks = gain_curve(labels, scores, np.ones(5))
    assert rows.tolist() == [0, 0.2, 0.4, 0.8, 1] and clicks.tolist() == [0, 0.5, 0.5, 1, 1]
    rows, clicks = gain_curve(labels, scores, np.array([1, 1, 3, 1, 4.0]))
    assert rows.tolist() == [0, 0.1, 0.2, 0.6, 1] and clicks.tolist() == [0, 0.25, 0.25, 1, 1]
    # The area between the gain and the diagonal, divided by the area of a perfect ranking, is 2 AUC - 1.
    random = np.random.default_rng(2)
    labels, scores = (random.random(200) < 0.3).astype(np.float32), random.random(200).round(2)
    area = np.trapezoid(*gain_curve(labels, scores, np.ones(200))[::-1]) - 0.5
    auc = sklearn.metrics.roc_auc_score(labels, scores)
    assert area / ((1 - labels.mean()) / 2) == pytest.approx(2 * auc - 1)


def test_rows_of_one_class_or_of_a_perfect_ranking_have_no_interval(frame, tmp_path):
    found = measure(predictions(frame[frame["label"] == 0], tmp_path), SLICES)
    assert found["model"]["auc"] is found["model"]["rig"] is found["model"]["calibration"] is found["top"] is None
    assert found["ahead"] is None and found["model"]["log_loss"] is not None
    perfect = frame.assign(score=np.where(frame["label"] > 0, 0.9, 0.1).astype(np.float32))
    assert measure(predictions(perfect, tmp_path), {})["model"]["auc"] is None


def test_the_page_shows_the_numbers_of_its_rows(frame, measured, tmp_path):
    run_left(tmp_path)
    data = tmp_path / "report_data"
    predictions(frame, data)
    metrics = json.loads((tmp_path / "metrics.json").read_text()) | {
        "slices": SLICES,
        "baseline": {"name": "lr", **SUMMARY},
    }
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    (data / "config.yaml").write_text("name: mine\nmodel: {name: deepfm}\ndata: {split: {by: time}}\n")
    text = " ".join(" ".join(Page(write_report(tmp_path).read_text(encoding="utf-8")).texts).split())
    assert "mine: deepfm" in text and "Divided by time." in text and "1 January 2026" in text
    low, high = measured["model"]["auc"]
    assert f"AUC 0.7500 {low:.4f} to {high:.4f} lr: 0.7500" in text
    assert f"Clicks in the top 10% {measured['top']:.4f}" in text
    assert f"site a {measured['slices']['site']['a']['cost']:.2%} 4,000" in text


GATES = [
    {"metric": "auc", "bound": "at least 0.7", "passed": True, "reason": "0.6 is below 0.7"},
    {"metric": "rig", "bound": "at least 0", "passed": True, "reason": "-0.1 is below 0"},
]
BLESSED = {"auc": 0.75, "calibration": 1.05, "blessed": True, "model_version": "12", "baseline": {"name": "lr"}}


def words(metrics=BLESSED, gates=GATES, ahead=None, auc=(0.7, 0.8), calibration=(1.01, 1.09)) -> str:
    ahead = {"difference": sum(ahead) / 2, "interval": ahead} if ahead else None
    return verdict("fm", metrics, gates, {"model": {"auc": auc, "calibration": calibration}, "ahead": ahead})


def test_the_verdict_says_what_became_of_the_model_and_how_good_it_is():
    start = "fm passed 2 gates and is pushed as version 12: its AUC is 0.7500 (95% 0.7000 to 0.8000), "
    end = ", and it predicts 5.0% more clicks than were observed."
    assert words(ahead=(0.01, 0.02)) == f"{start}0.0100 to 0.0200 above that of the baseline lr{end}"
    assert words(ahead=(-0.02, -0.01)) == f"{start}0.0100 to 0.0200 below that of the baseline lr{end}"
    assert words(ahead=(-0.02, 0.01)) == f"{start}not shown to differ from that of the baseline lr{end}"
    assert words() == start.removesuffix(", ") + end


def test_the_verdict_on_a_blocked_model_names_the_gate_and_on_few_rows_what_is_not_known():
    failed = [{**gate, "passed": False} for gate in GATES]
    blocked = {**BLESSED, "blessed": False, "model_version": None, "calibration": 0.5}
    assert words(blocked, [GATES[0], failed[1]]).startswith(
        "fm is blocked by 1 gate of 2 and not pushed (rig: -0.1 is below 0): its AUC"
    )
    assert "(auc: 0.6 is below 0.7; and 1 other): its" in words(blocked, failed)
    assert words(blocked, failed, calibration=None).endswith("it predicts 50.0% fewer clicks than were observed.")
    within = "it predicts 1.050 times the observed clicks, a difference within chance."
    assert words(calibration=(0.9, 1.2)).endswith(within)
    none = {**BLESSED, "auc": None, "calibration": None, "model_version": None}
    assert words(none, []) == "fm had no gate to pass: its AUC is not defined on these test rows."


FILES = ["/logs/day_2.csv", "/logs/day_10.csv"]


def of_splits(spans: dict[str, list[str]], times: dict | None = None) -> list[list[str]]:
    parts = {name: {"rows": 8, "positives": 2, "span": span} for name, span in spans.items()}
    found = splits({"splits": parts, "times": times or {}})
    assert {part["rate"] for part in found} == {0.25}
    return [part["span"] for part in found]


def test_trainings_one_after_another_have_a_chart_each(tmp_path):
    run_left(tmp_path, keeps=False)
    losses = {"train_loss": 0.6, "validation_log_loss": 0.5, "validation_auc": 0.7}
    evaluations = [{**losses, "examples": examples} for examples in (100, 200, 50, 90, 130)]
    history = {"evaluations": evaluations, "best": 3, "stopped": "done"}
    of_parts = charts((tmp_path / "report_data" / "predictions.parquet").read_bytes(), history)
    found = {title: chart for title, chart in of_parts.items() if title.startswith("Training: ")}
    assert list(found) == [f"Training: {name}, part {part} of 2" for part in (1, 2) for name in ("log loss", "AUC")]
    first, second = found["Training: AUC, part 1 of 2"], found["Training: AUC, part 2 of 2"]
    assert [first.lines[0].xs, first.mark] == [[100, 200], None]
    assert [second.lines[0].xs, second.mark] == [[50, 90, 130], 90]


def test_fits_of_a_regression_are_shown_by_their_prior_and_the_trees_single_evaluation_is_not(tmp_path):
    run_left(tmp_path, keeps=False)
    losses = {"train_loss": 0.6, "validation_log_loss": 0.5}
    fits = [(100, 0.01, 0.6), (200, 1.0, 0.65), (300, 0.1, 0.7)]
    evaluations = [{**losses, "examples": at, "prior_variance": of, "validation_auc": auc} for at, of, auc in fits]
    trees = {**losses, "examples": 50, "validation_auc": 0.72}
    history = {"evaluations": [*evaluations, trees], "best": 3, "stopped": "done"}
    found = charts((tmp_path / "report_data" / "predictions.parquet").read_bytes(), history)
    titles = [title for title in found if title.startswith("Training: ")]
    assert titles == [f"Training: {name} (regression)" for name in ("log loss", "AUC")]
    chart = found[titles[1]]
    assert [chart.lines[0].xs, chart.lines[0].ys] == [[-2, -1, 0], [0.6, 0.7, 0.65]]
    assert chart.labels[0] == "variance of the prior, log10" and chart.mark is None
    of_regression = {"evaluations": evaluations, "best": 2, "stopped": "done"}
    alone = charts((tmp_path / "report_data" / "predictions.parquet").read_bytes(), of_regression)
    assert alone["Training: AUC (regression)"].mark == -1


def test_splits_have_their_times_or_else_their_files():
    times = {
        "at": {"train": ["2026-01-01 00:00", "2026-01-07 10:00"], "test": ["2026-01-07 10:00", "2026-01-08 00:00"]}
    }
    by_time = {"train": ["2026-01-01", "2026-01-06"], "test": ["2026-01-07", "2026-01-08"]}
    assert of_splits(by_time, times) == list(by_time.values())
    by_order = {"train": [FILES[0], FILES[0]], "test": [FILES[0], FILES[1]]}
    assert of_splits(by_order) == [["day_2.csv"] * 2, ["day_2.csv", "day_10.csv"]]
    assert of_splits(by_order, times) == list(times["at"].values())
    assert of_splits({"train": FILES[:1] * 2, "test": FILES[:1] * 2}) == [[], []]  # one file says nothing
    by_hash = {"train": [], "test": []}
    assert of_splits(by_hash) == [[], []] and of_splits(by_hash, times) == list(times["at"].values())
    test = {"name": "test", "span": ["a", "b"]}
    assert span_of_test([{"name": "train", "span": ["c"]}, test]) == "a to b"
    assert span_of_test([{**test, "span": ["a", "a"]}]) == "a" and span_of_test([{**test, "span": []}]) == ""


def test_columns_with_anomalies_and_many_malformed_rows_are_warned_of():
    anomalies = [{"column": name, "split": "train", "text": "odd"} for name in "aabcdef"]
    whole = {"splits": {"train": {"rows": 80}, "test": {"rows": 19}}, "anomalies": [], "dead_letters": {"rows": 0}}
    assert data_warnings(whole) == []
    assert data_warnings({**whole, "anomalies": anomalies[:3]}) == ["look at the columns a, b: the page Data says why"]
    [text] = data_warnings({**whole, "anomalies": anomalies})
    assert text == "look at the columns a, b, c, d, e and 1 more: the page Data says why"
    copies = {"column": "all columns", "split": "all", "text": "30.0% are copies"}
    texts = ["all rows: 30.0% are copies", "look at the columns a, b: the page Data says why"]
    assert data_warnings({**whole, "anomalies": [*anomalies[:3], copies]}) == texts
    [text] = data_warnings({**whole, "dead_letters": {"rows": 1}})
    assert text == "1 of 100 rows are malformed and left out: the page Data says why"
    assert data_warnings({**whole, "splits": {"train": {"rows": 100}}, "dead_letters": {"rows": 1}}) == []


def test_a_log_is_named_by_its_files():
    names = [f"/logs/day_{number}.csv" for number in range(5)]
    said = [log_text([{"path": path} for path in names[:count]]) for count in (1, 3, 5)]
    assert said == ["day_0.csv", "day_0.csv, day_1.csv, day_2.csv", "day_0.csv to day_4.csv, 5 files"]
