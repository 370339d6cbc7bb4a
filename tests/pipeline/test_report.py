"""The report of a run whose names and values are hostile, and of a folder that is not as a run leaves it."""

import functools
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import sklearn.metrics

from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.common.pages import SCRIPT
from ctrpipe.pipeline.report import explanation, plots
from ctrpipe.pipeline.report.explanation import explanation_charts, explanation_page, tokens_of_maps
from ctrpipe.pipeline.report.plots import precision_recall_curve
from ctrpipe.pipeline.report.report import MEASURED, PLOTS, write_report
from tests.e2e.small_run import call, one_line

HOSTILE = ["<script>alert(1)</script>", "{{ x }}", "{% raw %}", '"><img src=http://evil/>', "é ☃ \u202e", "a&b", "'"]
SUMMARY = {
    "auc": 0.75,
    "log_loss": 0.5,
    "rig": 0.1,
    "calibration": 1.01,
    "ece": 0.02,
    "ece_if_calibrated": 0.01,
    "examples": 4000,
}
NO_METRIC = {**dict.fromkeys(SUMMARY), "examples": 1}
VOID = {"meta", "img", "br", "hr", "link", "input"}


@functools.cache
def drawn(name: str, how: Callable[..., str]) -> dict[str, bytes]:
    """The charts and numbers of `run_left`, which take ten times as long as the rest of its report, by their file.

    how: what draws a chart now. It is not called here; charts of the files that leave drawing out are kept apart.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_report(run_left(pathlib.Path(folder), name, keeps=False))
        return {file: (pathlib.Path(folder) / "report_data" / file).read_bytes() for file in (PLOTS, MEASURED)}


def run_left(folder: pathlib.Path, name: str = "C9", keeps: bool = True) -> pathlib.Path:
    """A folder as `ctrpipe run` leaves it; `name` stands wherever a user's text may. `keeps`: with its charts."""
    data = folder / "report_data"
    data.mkdir(parents=True)
    slices = {name: {name: SUMMARY, "none": NO_METRIC, **{text: SUMMARY for text in HOSTILE}}}
    metrics = {**SUMMARY, "blessed": True, "model_version": "123", "slices": slices, "tasks": {"ctr": SUMMARY}}
    metrics["baseline"] = {"name": name, **SUMMARY, "auc": None, "rig": None}
    gate = {"metric": name, "kind": "change", "bound": name, "value": None, "passed": False, "reason": name}
    column = {"name": name, "kind": "categorical", "missing_rate": 0.5, "unique": 9, "mean": None}
    column["top"] = [[text, 7] for text in [name, *HOSTILE]]
    statistics = {
        "splits": {"train": {"rows": 4000, "positives": 1000, "rate": 0.25, "span": ["day_2.csv", "day_10.csv"]}},
        "columns": [column],
        "anomalies": [{"column": name, "split": "train", "text": name}],
        "dead_letters": {"rows": 1, "reasons": {name: 1}},
    }
    moved = [{"value": text, "share": 0.5, "other": 0.25} for text in [name, *HOSTILE]]
    side = {"name": "new", "rows": 4000, "rejected": 1, "rate": 0.125}
    apart = {"column": name, "measure": "infinity_norm", "distance": 0.25, "threshold": 0.1, "breached": True}
    apart |= {"missing": 0.0, "other_missing": 0.5, "text": name, "moved": moved}
    absent = {**apart, "distance": None, "breached": False, "text": "", "moved": []}
    comparison = {"kind": "skew", "breached": True, "log": side, "other": side, "columns": [apart, absent]}
    drift = {"breached": True, "comparisons": [comparison, {**comparison, "kind": "drift", "breached": False}]}
    lineage = {
        "config_hash": "c0ffee",
        "code_version": "beef",
        "data": [{"path": name, "bytes": 5, "sha256": "00"}],
        **dict.fromkeys(("schema", "transform_graph", "model"), name),
        "versions": {"keras": "3"},
        "created": "2026-01-01",
    }
    evaluation = {"examples": 100, "train_loss": 0.6, "validation_log_loss": 0.5, "validation_auc": 0.7}
    history = {"evaluations": [evaluation, {**evaluation, "examples": 200}], "best": 1, "stopped": name}
    random = np.random.default_rng(0)
    scores = random.random(500).astype(np.float32)
    predictions = {"label": (random.random(500) < scores).astype(np.float32), "probability": scores}
    pa.parquet.write_table(pa.table(predictions), data / "predictions.parquet")
    (data / "config.yaml").write_text(f"name: {name}\n", encoding="utf-8")
    (folder / "metrics.json").write_text(json.dumps(metrics))
    written = {"gates": [gate], "history": history, "statistics": statistics, "lineage": lineage, "drift": drift}
    written["seconds"] = {name: 1.25}
    for file, value in written.items():
        (data / f"{file}.json").write_text(json.dumps(value))
    if keeps:
        for file, content in drawn(name, plots.chart_svg).items():
            (data / file).write_bytes(content)
    return folder


def explained(name: str) -> dict:
    """What `ctrpipe explain` writes of a run with two columns. One of them has this name."""

    def loss(value: float) -> dict:
        return {"value": value, "interval": [value - 0.125, value + 0.125]}

    columns = [{"name": name, "columns": [name], "auc": loss(0.5), "log_loss": loss(0.25)}]
    columns.append({"name": "d", "columns": ["d"], "auc": loss(-0.5), "log_loss": loss(-0.25)})
    pair = {"first": name, "second": "d", "complementarity": -0.0625, "chance": [-0.5, 0.5], "z": 3.5, "picked": 0.75}
    pair |= {"strength": 0.0312, "interplay": {"bits": 0.25, "p_value": 0.01}}
    pair["interaction"] = {"first": name, "second": "d", "auc": loss(0.5), "log_loss": loss(0.125)}
    layer = {"queries": [name, "d"], "tokens": [name, "d"], "ranks": []}
    layer |= {"heads": [[[0.875, 0.125], [0.5, 0.5]]], "picked": [[1.0, 0.0], [0.25, 0.75]]}
    values = {"first": name, "first_value": name, "second": "d", "second_value": name, "rows": 321}
    values |= dict.fromkeys(("complementarity", "rate_of_first", "rate_of_second", "rate_of_both"), 0.375)
    added = [{"name": name, "value": [name], "logit": 1.5, "error": None}]
    added += [{"name": f"d{number}", "value": [None], "logit": -0.25, "error": 0.125} for number in range(13)]
    row = {"why": "most wrong", "label": 0.0, "probability": 0.9, "logit": 2.25, "baseline": 3.75, "columns": added}
    whole = {"model": name, "run": None, "task": name, "rows": 2000, "slice": None, "auc": 0.7531, "log_loss": 0.4321}
    agreement = {"first": "complementarity", "second": "permutation", "pairs": 3, "spearman": 0.6789}
    whole |= {"counted_rows": 54321, "rank_correlations": [agreement]}
    lists = {"columns": columns, "pairs": [pair], "attention": [layer], "values": [values]}
    lists["words"] = [{"layer": 2, "query": name, "words": [{"word": name, "count": 987, "attention": 2.125}]}]
    lists["picked_by_complementarity"] = [{"complementarity": 0.5, "rows": part, "picked": 0.75} for part in (0.5, 1.0)]
    return whole | lists | {"stored_rows": [{**row, "method": "shapley", "tokens": [], "jumps": None}]}


class Page(html.parser.HTMLParser):
    """The page's tags, texts and addresses; raises where a tag is not closed."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize(
    "name", [*(pytest.param(one, marks=pytest.mark.large) for one in HOSTILE[:2]), "".join(HOSTILE)]
)
def test_hostile_names_and_values_are_shown_as_they_are(tmp_path, name):
    data = run_left(tmp_path, name) / "report_data"
    (data / "explanation.json").write_text(json.dumps(explained(name)))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    page = Page(text)
    shown = "\n".join(page.texts)
    assert shown.count(name) >= 15
    assert all(value in shown for value in HOSTILE)
    assert not page.tags & {"img", "link", "iframe", "object", "form", "base", "image", "b"}
    assert not [attribute for attribute in page.attributes if attribute.startswith("on")]
    assert set(re.findall(r"url\(.", text)) == {"url(#"} and "@import" not in text
    assert text.count("<script>") == 1 and SCRIPT.read_text() in page.texts
    assert {address[0] for address in page.addresses} == {"#"} and "svg" in page.tags


def test_values_and_metrics_that_there_are_not_are_a_dash(tmp_path):
    page = Page(write_report(run_left(tmp_path)).read_text(encoding="utf-8"))
    row = page.texts.index("none")
    assert page.texts[row : row + 9] == ["none", "-", "1", "-", "-", "-", "-", "-", "-"]
    row = page.texts.index("C9 (baseline)")
    expected = ["C9 (baseline)", "-", "0.5000", "-", "1.0100", "0.0200", "0.0100", "4,000"]
    assert page.texts[row : row + 8] == expected


def test_a_calibrated_model_stands_beside_itself_before_the_calibration(tmp_path):
    run_left(tmp_path)
    assert "uncalibrated" not in Page(write_report(tmp_path).read_text(encoding="utf-8")).texts
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    metrics["uncalibrated"] = {**SUMMARY, "calibration": 1.2345}
    metrics["calibration_choice"] = {"ctr": {"text": "platt: <it> lowers the log loss"}}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    texts = Page(write_report(tmp_path).read_text(encoding="utf-8")).texts
    row = texts.index("uncalibrated")
    assert texts[row : row + 5] == ["uncalibrated", "0.7500", "0.5000", "0.1000", "1.2345"]
    assert "Calibration of ctr: platt: <it> lowers the log loss" in texts


def test_the_roc_curve_of_rates_is_that_of_each_impression():
    random = np.random.default_rng(2)
    scores, shown = random.random(200).round(1), random.integers(1, 9, 200)
    clicked = random.binomial(shown, 0.1 + 0.5 * scores)
    single = np.repeat(np.tile([1, 0], 200), np.stack([clicked, shown - clicked], axis=1).ravel())
    each = np.repeat(scores, shown)
    found = metrics.roc_points(clicked / shown, scores, shown)
    np.testing.assert_allclose(found, metrics.roc_points(single, each, np.ones(len(each))), atol=1e-12)


def test_the_roc_curve_is_scikit_learns():
    random = np.random.default_rng(1)
    labels = (random.random(300) < 0.3).astype(np.float32)
    for scores in (random.random(300), random.random(300).round(1), np.zeros(300)):
        for weights in (np.ones(300), random.integers(1, 4, 300)):
            expected = sklearn.metrics.roc_curve(labels, scores, sample_weight=weights)
            np.testing.assert_allclose(metrics.roc_points(labels, scores, weights), expected, rtol=1e-15)


def test_the_curve_of_precision_and_recall_is_scikit_learns():
    random = np.random.default_rng(1)
    labels = (random.random(300) < 0.3).astype(np.float32)
    for scores in (random.random(300), random.random(300).round(1), np.zeros(300)):
        for weights in (np.ones(300), random.integers(1, 4, 300)):
            precision, recall, _ = sklearn.metrics.precision_recall_curve(labels, scores, sample_weight=weights)
            expected = [recall[-2::-1], precision[-2::-1]]  # without its last point, which no score has
            np.testing.assert_allclose(precision_recall_curve(labels, scores, weights), expected, rtol=1e-12)


def test_one_class_on_the_test_rows_has_no_roc(tmp_path):
    run_left(tmp_path)
    table = pa.table({"label": np.zeros(9, np.float32), "probability": np.full(9, 0.5, np.float32)})
    pa.parquet.write_table(table, tmp_path / "report_data" / "predictions.parquet")
    texts = Page(write_report(tmp_path).read_text(encoding="utf-8")).texts
    assert "ROC" not in texts and "Precision and recall" not in texts and "Calibration" in texts


def test_a_blocked_model_and_a_baseline_that_was_not_trained(tmp_path):
    run_left(tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    metrics |= {"blessed": False, "model_version": None, "baseline": None, "slices": {}}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    texts = Page(write_report(tmp_path).read_text(encoding="utf-8")).texts
    assert any(text.startswith("the model is blocked by 1 gate of 1 and not pushed (C9: C9): ") for text in texts)
    assert any(text.startswith("No slices are configured") for text in texts)
    assert not [text for text in texts if "baseline" in text or "pushed as" in text]


def test_drift_and_skew_have_a_section_where_they_were_looked_for(tmp_path):
    run_left(tmp_path)
    texts = Page(write_report(tmp_path).read_text(encoding="utf-8")).texts
    assert "Drift and skew" in texts and {"breach", "no breach"} <= set(texts)
    assert any("4,000 rows, a sample of 12.50% of them, 1 malformed" in text for text in texts)
    place = next(place for place, text in enumerate(texts) if text.startswith(" (50.00%, 25.00%); "))
    assert texts[place - 1] == "C9"  # in an element of its own, which keeps names written from right to left apart
    (tmp_path / "report_data" / "drift.json").unlink()
    assert "Drift and skew" not in Page(write_report(tmp_path).read_text(encoding="utf-8")).texts


def test_statistics_of_a_sample_say_so(tmp_path):
    run_left(tmp_path)
    file = tmp_path / "report_data" / "statistics.json"
    statistics = json.loads(file.read_text())
    said = {
        None: "From a sample of 25.00% of the rows",
        1000: "Counted in 1,000 of 4,000 rows.",
        4000: "all 4,000 rows",
    }
    for rows, text in said.items():
        file.write_text(json.dumps({**statistics, **({} if rows is None else {"counted_rows": rows})}))
        texts = " ".join(Page(write_report(tmp_path).read_text(encoding="utf-8")).texts)
        assert [other in texts for other in said.values()] == [other == text for other in said.values()]


def test_the_page_begins_with_what_deserves_a_look(tmp_path):
    folder = run_left(tmp_path)
    history = json.loads((folder / "report_data" / "history.json").read_text())
    history["evaluations"][1]["validation_log_loss"] = 0.4
    (folder / "report_data" / "history.json").write_text(json.dumps({**history, "stopped": "all 2 epochs done"}))
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({**metrics, "rig": -0.25}))
    page = " ".join(Page(write_report(folder).read_text()).texts)
    assert "The model is worse than the base rate: its RIG is -0.2500" in page
    assert "The validation log loss was still falling when the epochs ended, from 0.5000 to 0.4000" in page


FILES = ["gates.json", "history.json", "statistics.json", "lineage.json", "config.yaml", "predictions.parquet"]


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_one_line_and_the_old_report_stays(tmp_path, file):
    run_left(tmp_path)
    version = tmp_path / "models" / "ctr" / "7"
    version.mkdir(parents=True)
    for named in (tmp_path, version.parent):
        assert call("report", named) == (0, f"Written: {tmp_path}/report.html\n")
    before = (tmp_path / "report.html").read_bytes()
    (tmp_path / "report_data" / file).unlink()
    one_line(*call("report", tmp_path), f"{file}: cannot be read (No such file or directory); run `ctrpipe run` again")
    assert (tmp_path / "report.html").read_bytes() == before
    (tmp_path / "report_data" / file).mkdir()
    one_line(*call("report", tmp_path), f"{file}: cannot be read (Is a directory)")


@pytest.mark.parametrize("file", ["metrics.json", *(f"report_data/{name}" for name in [*FILES, "drift.json"])])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"17", b'{"slices": 3}'])
def test_a_damaged_file_is_one_line(tmp_path, file, content):
    run_left(tmp_path)
    (tmp_path / file).write_bytes(content)
    code, output = call("report", tmp_path)
    if code == 0:  # any text is a configuration, and no gate need be set
        assert (content == b"[]" and file in ("report_data/gates.json", "report_data/drift.json")) or (
            file.endswith(".yaml") and content != b"\xff\xfe"
        )
        return
    one_line(code, output, str(tmp_path))
    assert "run" in output and not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("metrics.json", "auc", "high"),
        ("metrics.json", "slices", {"C9": {"a": {}}}),
        ("report_data/history.json", "best", 99),
        ("report_data/history.json", "evaluations", [{}]),
        ("report_data/statistics.json", "splits", None),
        ("report_data/lineage.json", "data", [{}]),
        ("report_data/drift.json", "comparisons", [{}]),
    ],
)
def test_a_value_that_is_not_what_a_run_writes_is_one_line(tmp_path, file, key, value):
    run_left(tmp_path)
    content = json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text(json.dumps({**content, key: value}))
    one_line(*call("report", tmp_path), "not as `ctrpipe run` leaves it")


def test_folders_without_a_run_are_one_line(tmp_path):
    one_line(*call("report", tmp_path), "no finished run here")
    one_line(*call("report", tmp_path / "absent"), "no finished run here")
    (tmp_path / "file").touch()
    one_line(*call("report", tmp_path / "file"), "no finished run here")
    run_left(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "report_data")
    one_line(*call("report", tmp_path / "run"), "history.json: cannot be read")


def test_a_report_that_cannot_be_written_is_one_line(tmp_path):
    run_left(tmp_path)
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InputError, match="report.html: cannot be written"):
        write_report(tmp_path)


def charts(report: pathlib.Path) -> list[str]:
    """The charts of a report, in their order: calibration, ROC, precision and recall, gain, scores, loss and AUC."""
    return re.findall("<svg.*?</svg>", report.read_text(encoding="utf-8"), re.DOTALL)


def test_plots_are_drawn_again_only_where_what_they_show_has_changed(tmp_path):
    data = run_left(tmp_path) / "report_data"
    first = charts(write_report(tmp_path))
    assert len(first) == len(set(first)) == 7
    kept = json.loads((data / "plots.json").read_text())
    roc, calibration = kept["plots"]["ROC"], kept["plots"]["Calibration"]
    kept["plots"] |= {"ROC": calibration, "Calibration": roc}  # stands for a drawing that only keeping can give
    (data / "plots.json").write_text(json.dumps(kept))
    assert charts(write_report(tmp_path)) == [first[1], first[0], *first[2:]]
    history = json.loads((data / "history.json").read_text())
    history["evaluations"][0]["train_loss"] = 0.9
    (data / "history.json").write_text(json.dumps(history))
    changed = charts(write_report(tmp_path))
    assert changed[5] != first[5] and changed[:5] + changed[6:] == first[:5] + first[6:]
    table = pa.table({"label": np.array([0, 1], np.float32), "probability": np.array([0.25, 0.5], np.float32)})
    pa.parquet.write_table(table, data / "predictions.parquet")
    assert not {*charts(write_report(tmp_path))[:5]} & {*first}


IN_TEST_ALL = [pytest.param(content, marks=pytest.mark.large) for content in (b"", b"{")]  # no JSON either


@pytest.mark.parametrize("content", [*IN_TEST_ALL, b"\xff", b"[]", b"{}"])
def test_kept_plots_that_are_damaged_are_drawn_again(tmp_path, content):
    data = run_left(tmp_path) / "report_data"
    before = write_report(tmp_path).read_bytes()
    (data / "plots.json").write_bytes(content)
    assert write_report(tmp_path).read_bytes() == before


def test_a_report_with_kept_plots_imports_no_library_for_drawing_or_arrays(tmp_path):
    write_report(run_left(tmp_path))
    script = "import sys\nfrom ctrpipe.pipeline.cli import main\nmain(['report', sys.argv[1]], standalone_mode=False)\n"
    script += "assert not {'matplotlib', 'numpy', 'pyarrow', 'pandas', 'tensorflow'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)


def test_plots_that_cannot_be_kept_are_one_line(tmp_path):
    run_left(tmp_path, keeps=False)
    (tmp_path / "report_data" / "plots.json").mkdir()
    (tmp_path / "report_data" / "plots.json" / "file").touch()
    one_line(*call("report", tmp_path), "plots.json: cannot be written (Is a directory)")


def test_the_pages_of_an_explanation_appear_where_there_is_one(tmp_path):
    data = run_left(tmp_path) / "report_data"
    pages = {"#importance", "#pairs", "#attention", "#rows"}
    assert not pages & {*Page(write_report(tmp_path).read_text()).addresses}
    (data / "explanation.json").write_text(json.dumps(explained("C9")))
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    texts = page.texts
    assert pages <= {*page.addresses} and {"Layer 1", "Head 1", "Picked", "Need each other"} <= {*texts}
    assert "C9 C9 and d C9" in texts  # of a former release; a later one says `where`
    assert {"C9: +0.25000", "C9 = C9: +1.50000", "2 others: -0.50000"} <= {*texts}
    assert {"C9 x d: -0.0625 bits", "C9 x d: +0.0312 in the model's own measure"} <= {*texts}
    assert {"C9 x C9: +0.875 attention", "d x C9: +0.25 share of rows and heads"} <= {*texts}
    assert {"2.1250", "987", "Picked, by complementarity"} <= {*texts}
    x, y = "share of the data, the most complementary first", "share that attention picks"
    assert f"pairs of values: {x} 0.5, {y} 0.75" in texts
    assert "most wrong: probability 0.9000, not clicked" in texts
    assert "Shapley values: logit +2.2500, of the baseline +3.7500" in texts


@pytest.mark.parametrize("name", ["C9", HOSTILE[0]])
def test_an_explanation_has_a_page_of_its_own(name):
    page = Page(explanation_page(explained(name)))
    assert {"#importance", "#pairs", "#attention", "#rows"} <= {*page.addresses} and "script" in page.tags
    assert f"The model uses 1 of 2 columns visibly; the log loss rises most without {name} (+0.2500)." in page.texts
    assert {f"{name}: +0.25000", f"{name} x d: -0.0625 bits"} <= {*page.texts}


def test_the_page_of_an_explanation_names_the_run_and_says_whether_pairs_are_beyond_chance():
    of_run = {**explained("C9"), "model": "runs/a/tfx/artifacts/Trainer/model/8/Format-Serving", "run": "runs/a"}
    texts = Page(explanation_page(of_run)).texts
    assert "runs/a" in texts and of_run["model"] not in texts
    assert any("54,321 rows. 1 of 1 pairs act together beyond chance." in text for text in texts)
    of_run["pairs"][0]["interplay"]["p_value"] = 0.5
    assert any("0 of 1 pairs act together" in text for text in Page(explanation_page(of_run)).texts)
    del of_run["pairs"][0]["interplay"]  # as an earlier version wrote it
    for pairs in (of_run["pairs"], []):  # a model of one column has no pair
        texts = Page(explanation_page({**of_run, "pairs": pairs})).texts
        assert any("54,321 rows." in text for text in texts) and not any("act together" in text for text in texts)


def test_the_attention_maps_of_a_page_have_few_enough_cells_together(monkeypatch):
    tokens = {maps: tokens_of_maps(maps) for maps in (0, 1, 3, 27, 60, 400)}
    assert tokens == {0: 50, 1: 50, 3: 28, 27: 9, 60: 6, 400: 6}
    monkeypatch.setattr(explanation, "MOST_CELLS", 100)
    names = [f"d{number}" for number in range(9)]
    rows = [[0.5] * 9] * 9
    layer = {"queries": names, "tokens": names, "ranks": [], "heads": [rows], "picked": rows}
    charts = explanation_charts({**explained("C9"), "attention": [layer]})
    assert charts["attention"][0]["Head 1"].count(" attention</title>") == 7 * 7  # of 2 maps


def test_an_explanation_in_which_no_column_matters_says_so():
    nothing = explained("C9")
    for column in nothing["columns"]:
        column["log_loss"]["interval"] = [-0.1, 0.1]
    assert "None of 2 columns visibly lowers the log loss on these rows." in Page(explanation_page(nothing)).texts


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"columns": 3}', '{"columns": []}'])
def test_a_damaged_explanation_is_one_line(tmp_path, content):
    (run_left(tmp_path) / "report_data" / "explanation.json").write_text(content)
    code, output = call("report", tmp_path)
    one_line(code, output, "explanation.json: damaged")
    assert "run `ctrpipe explain` again, or remove it" in output
