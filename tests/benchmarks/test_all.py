"""Results compared with targets and an earlier run, and the lines about benchmarks that were not run."""

import json
import sys

import pytest
from click.testing import CliRunner

from benchmarks import all as module
from benchmarks.all import Done, compared, main, markdown, page, read_before, report_of, run_step, section
from benchmarks.harness import printed_sections
from benchmarks.harness.steps import STEPS, Ratio, Step
from ctrpipe.common.errors import InputError

FAST = Ratio("ours over <theirs>", 3.0, target=2.0)
SMALL = Ratio("bytes over theirs", 0.6, at_most=True, target=0.5)


def before(**values: float) -> dict:
    return {"benchmark": "all", "ratios": [{"name": name, "value": value} for name, value in values.items()]}


@pytest.mark.parametrize(
    ("ratio", "former", "slower"),
    [
        (Ratio("a", 3.0), 3.7, False),
        (Ratio("a", 3.0), 3.8, True),  # 1.25 times 3 is 3.75
        (Ratio("a", 3.0, at_most=True), 2.5, False),
        (Ratio("a", 3.0, at_most=True), 2.3, True),
        (Ratio("a", 3.0), None, None),
    ],
)
def test_a_ratio_that_is_worse_by_more_than_a_quarter_is_a_slow_down(ratio, former, slower):
    [found] = compared([Done("x", 1.0, 0.0, (ratio,))], before(a=former) if former else {})
    assert (found["before"], found["slower"]) == (former, slower)


def test_targets_are_met_from_the_right_side():
    assert (FAST.met, SMALL.met, Ratio("none", 1.0).met) == (True, False, None)


def test_the_pages_have_every_ratio_and_every_reason():
    done = [Done("train", 60.0, 0.05, (FAST, SMALL)), Done("memory", reason="no fuxictr here; make peers")]
    report = report_of(
        done, {**before(**{FAST.name: 4.0}), "machine": {"cpu": "C", "cores": 8}, "busy": 0.0, "date": "D"}
    )
    text, html = markdown(report), page(report)
    assert "| train | ours over <theirs> | 3 | at least 2: met | 4: slower |" in text
    assert "| train | bytes over theirs | 0.6 | at most 0.5: missed |  |" in text
    assert "- `memory` was not run: no fuxictr here; make peers" in text and "Before: D, C, 8 cores" in text
    assert "ours over &lt;theirs&gt;" in html and "<theirs>" not in html and "memory was not run: no fuxictr" in html
    assert "http://" not in html and "https://" not in html


def step(program: str, minutes: float = 1.0, peers: tuple[str, ...] = ()) -> Step:
    return Step("x", (sys.executable, "-c", program), minutes, peers, lambda report: [Ratio("r", report["r"])])


def test_a_step_is_measured_or_says_why_not(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ENVIRONMENTS", tmp_path / "none")
    assert run_step(step("print('{\"r\": 2.5}')"), 5, tmp_path).ratios == (Ratio("r", 2.5),)
    assert "failed: " in run_step(step("print('{}')"), 5, tmp_path).reason
    assert "no room" in run_step(step("raise SystemExit('no room')"), 5, tmp_path).reason
    assert run_step(step("1 / 0", minutes=5), 4, tmp_path).reason == "it takes about 5 minutes, and 4 are left"
    assert run_step(step("1 / 0", peers=("fuxictr",)), 5, tmp_path).reason == "no fuxictr here; make peers"


def test_the_command_writes_pages_and_goes_on_after_a_failure(tmp_path, monkeypatch):
    chosen = [STEPS[0].name, STEPS[1].name]
    found = iter([Done(chosen[0], reason="failed: x"), Done(chosen[1], 1.0, 0.0, (FAST,))])
    monkeypatch.setattr(module, "run_step", lambda *_: next(found))
    monkeypatch.setattr(module, "LAST_RUN", tmp_path / "last_run.json")
    page = tmp_path / "measured.md"
    page.write_text(printed_sections.PAGE.read_text())
    monkeypatch.setattr(printed_sections, "PAGE", page)
    arguments = [*(f"--only={name}" for name in chosen), "--folder", str(tmp_path / "all"), "--keep"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    report = json.loads(done.output.splitlines()[-1])
    assert [one["name"] for one in report["steps"]] == chosen and report["ratios"][0]["value"] == 3.0
    assert read_before(None) == report == json.loads((tmp_path / "all" / "all.json").read_text())
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"all.json", "all.md", "all.html"}
    assert printed_sections.read_section("all") == section(report)
    assert f"| {chosen[1]} | {FAST.name} | 3 | at least 2: met |\n\n- `{chosen[0]}` was not run" in page.read_text()


def test_the_documents_have_the_section_of_the_run_that_is_kept():
    assert printed_sections.read_section("all") == section(json.loads(module.LAST_RUN.read_text()))


@pytest.mark.parametrize("contents", ["{", '{"benchmark": "train"}', '{"benchmark": "all", "ratios": [{}]}', "[]"])
def test_a_file_that_is_no_report_is_one_line(contents, tmp_path):
    path = tmp_path / "report.json"
    path.write_text(contents)
    with pytest.raises(InputError, match="--against .*: no report of this command"):
        read_before(path)
    assert CliRunner().invoke(main, ["--against", str(path)]).exit_code == 2


def test_reports_are_read_as_their_benchmarks_write_them():
    """A report of each kind, with the fields that the benchmarks' own tests look at."""
    reports = {
        "preprocess": {"ratios": [{"peer": "fuxictr", "rows": 2000, "ratio": 5.0, "target": 3.0}]},
        "train": {"models": [{"model": "fm"}, {"model": "x", "peer": "p", "ratio": {"median": 2.0}, "target": None}]},
        "memory": {"lines": [{"name": "a CIN", "value": 0.4, "target": 0.5, "unit": "", "met": True}]},
        "tables": {
            "rows": [10, 1000],
            "results": [{"optimizer": "adam", "zipf": None, "ratio": {"median": 1.5}, "target": None}],
        },
        "reader": {
            "readers": [
                {"name": "gzip, one", "rows_per_s": {"median": 2.0}},
                {"name": "packed", "rows_per_s": {"median": 9.0}},
            ]
        },
        "score": {"claims": [{"against": "model", "workers": None, "ratio": {"median": 0.8}, "target": 0.5}]},
        "latency": {"targets": [{"name": "p50", "value": 1.2, "at_most": True, "target": 1.6}]},
        "text_cost": {
            "measured": [
                {"features": 57, "bert4ctr over shallow_interaction_n": 1.1, "numbert over bert4ctr": 5.0},
            ]
        },
        "text_serving": {"sharing": [{"candidates": 10, "cpu_gain": 6.0}]},
        "candidates": {"models": [{"model": "din", "over": {"serving_raw": 0.4}, "target": 0.5}]},
        "parity": {"limit": 1e-4, "pairs": [{"difference": 2e-5}, {"difference": 5e-5}]},
    }
    expected = {
        "preprocess": [5.0],
        "train": [2.0],
        "memory": [0.4],
        "tables": [1.5],
        "reader": [4.5],
        "score": [0.8],
        "latency": [1.2],
        "text_cost": [1.1, 5.0],
        "text_serving": [6.0],
        "candidates": [0.4],
        "parity": [0.5],
    }
    for one in STEPS:
        name = one.name.removesuffix("_stock").removesuffix("_growth")
        assert [ratio.value for ratio in one.ratios(reports[name])] == pytest.approx(expected[name]), name
