"""The page of a study and its curves."""

import html.parser
import re

import pytest

from ctrpipe.pipeline.tune.page import page
from ctrpipe.pipeline.tune.plots import _places, budget_curve
from ctrpipe.pipeline.tune.results import print_summary
from ctrpipe.pipeline.tune.summary import Summary


def trial(number: int, value: float | None, steps: int, rate: float, units: list[int]) -> dict:
    state = "complete" if value is not None else "stopped" if steps else "refused"
    return {
        "number": number,
        "state": state,
        "settings": {"training.learning_rate": rate, "model.hidden_units": units},
        "value": value,
        "auc": value and 1 - value,
        "log_loss": value,
        "further": {} if value is None else {"watch_rmse": 3 * value},
        "p99_ms": None,
        "steps": steps,
        "seconds": 1.0,
        "refused": "p99 of 9.00 ms is above <5> ms" if state == "refused" else None,
        "curve": [],
    }


TRIALS = [
    trial(0, 0.6, 100, 0.01, [8]),
    trial(1, None, 30, 0.001, [16, 8]),
    trial(2, 0.4, 80, 0.1, [16, 8]),
    trial(4, None, 0, 0.02, [8]),
    trial(5, 0.5, 90, 0.03, [8]),
]
REPORT = {
    "name": "small",
    "model": "mlp",
    "objective": "validation_log_loss",
    "p99_limit_ms": None,
    "seed": 1,
    "seconds": 5.0,
    "steps": 300,
    "exhausted": False,
    "space": {"training.learning_rate": {"log": [0.001, 0.1]}, "model.hidden_units": [[8], [16, 8]]},
    "best": TRIALS[2],
    "confirmation": None,
    "further": {},
    "importance": {"training.learning_rate": 0.8, "model.hidden_units": 0.2},
    "trials": TRIALS,
}


def test_the_curve_counts_the_steps_of_stopped_trials():
    spent, values, best = budget_curve(REPORT)
    assert spent == [100, 130, 210, 210, 300]
    assert values == [0.6, None, 0.4, None, 0.5] and best == [0.6, 0.6, 0.4, 0.4, 0.4]
    assert budget_curve({**REPORT, "objective": "validation_auc"})[2] == [0.6, 0.6, 0.6, 0.6, 0.6]


def test_a_value_stands_where_its_axis_has_it():
    heights, ticks = _places([0.001, 0.01, 0.1], {"log": [0.001, 0.1]})
    assert heights == pytest.approx([0, 0.5, 1]) and [text for _, text in ticks][::2] == ["0.001", "0.01", "0.1"]
    assert _places([0.5, 1.0], {"linear": [0, 2]})[0] == pytest.approx([0.25, 0.5])
    heights, ticks = _places([[16, 8], [8]], [[8], [16, 8], [32]])
    assert heights == [0.5, 0.0] and ticks == [(0.0, "8"), (0.5, "16-8"), (1.0, "32")]


def test_the_page_is_one_file_that_needs_no_network():
    text = page(Summary("name: small\n", None, REPORT))
    assert not re.search(r"https?://|<link", text) and text.count("<script") == 1
    assert "The best validation log loss of 5 trials is 0.4000, of trial 2; it has not been confirmed" in text
    assert re.findall(r'<svg [^>]*aria-label="([^"]+)"', text) == [
        "The budget's curve",
        "Importance",
        "Parallel coordinates of the completed trials",
    ]
    rows = _cells(text)
    assert [row[:3] for row in rows if len(row) == 6 and row[0].isdigit()] == [
        ["2", "0.1", "16-8"],
        ["5", "0.03", "8"],
        ["0", "0.01", "8"],
    ]
    assert ["4", "0.02", "8", "p99 of 9.00 ms is above <5> ms"] in rows
    assert "3 trials complete, 1 stopped because they lagged behind, 1 not trained; 300 training steps in 5 s" in text
    assert text.count(">model.<wbr>hidden_units</th>") == 2  # a narrow page, or paper, breaks it there
    assert "name: small" in text


def test_the_metrics_of_further_tasks_are_in_the_tables(tmp_path, capsys):
    report = {**REPORT, "further": {"watch_rmse": "watch RMSE"}}
    text = page(Summary("name: small\n", None, report))
    assert "watch RMSE</th>" in text
    assert [row[5] for row in _cells(text) if len(row) == 7] == ["1.2000", "1.5000", "1.8000"]
    print_summary(Summary("name: small\n", None, report), tmp_path)
    said = capsys.readouterr().out
    assert "watch RMSE" in said and "1.2000" in said


def test_the_page_of_one_trial_says_that_importance_cannot_be_told():
    text = page(Summary("", None, {**REPORT, "trials": TRIALS[:1], "best": TRIALS[0], "importance": None}))
    assert "Too few trials are complete" in text and 'aria-label="Importance"' not in text


def _cells(text: str) -> list[list[str]]:
    rows: list[list[str]] = []

    class Parser(html.parser.HTMLParser):
        inside = False

        def handle_starttag(self, tag, attributes):
            if tag == "tr":
                rows.append([])
            if tag == "td":
                rows[-1].append("")
            self.inside = tag == "td"

        def handle_endtag(self, tag):
            self.inside = False

        def handle_data(self, data):
            if self.inside:
                rows[-1][-1] += data

    Parser().feed(text)
    return rows
