"""The page and the tables of a latency benchmark, of a report that is written out here."""

import copy
import html.parser
import json

import pytest

from ctrpipe.common.terminal import console
from ctrpipe.serving.latency import report as reports
from ctrpipe.serving.latency.report import page, show, tables, write

CELL = {
    **{"kind": "rest_columnar", "loop": "closed", "rows": 100, "concurrency": 8, "rate_per_s": None},
    **{"p50_ms": 1.5, "p90_ms": 2.25, "p95_ms": 3.125, "p99_ms": 1234.0, "p99.9_ms": None},
    **{"rows_per_s": 4500.4, "requests": 1800, "errors": {}},
}
OPEN = {**CELL, "loop": "open", "rate_per_s": 128.0, "rows": 1, "errors": {"a <timeout>": 3}}
REPORT = {
    "started": "2026-11-28T01:02:03+00:00",
    "interrupted": True,
    "busy": {"before": 0.75},
    "target": {"server": "ctrpipe", "url": "http://127.0.0.1:1/v1/models/ctr", "grpc": None, "flags": ["--x=1"]},
    "session": None,
    "machine": {"cpu": "A <CPU>", "cores": 2},
    "versions": {"tensorflow": "2.21", "ctrpipe": "0.3"},
    "models": [
        {
            **{"name": "ctr", "version": "7", "cells": [CELL, OPEN], "ratios": {"p50 of rest": 2.5}},
            **{"skipped": {"rest_b64": "no signature"}, "near_ceiling": ["rest_row"]},
        }
    ],
    **{"ceiling": [CELL], "papers": None, "targets": [{"name": "p50", "value": 2.5}], "settings": {"rounds": 1}},
}
WARNINGS = [
    "Other work took 75% of the machine's cores: these numbers are no comparison.",
    "rest_b64 of ctr was not measured: no signature",
    "The generators may be the limit of ctr's rest_row",
    "Interrupted: these are the cells that were done.",
]


class Page(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        if data.strip():
            self.texts.append(" ".join(data.split()))


@pytest.fixture(scope="module")
def text() -> str:
    return page(copy.deepcopy(REPORT))


def test_the_page_has_the_design_of_all_pages_and_its_warnings_first(text):
    shown = Page(text)
    assert "ctrpipe bench latency, 28 November 2026, 01:02 UTC" in shown.texts
    assert "Latency of ctr" in shown.texts and "Content-Security-Policy" in text  # of common/base.html.jinja
    warned = [f"{line[0].upper()}{line[1:].rstrip('.')}." for line in WARNINGS]
    places = [shown.texts.index(line) for line in (*warned, "Server")]
    assert places == sorted(places)
    assert "A <CPU>, 2 cores" in shown.texts and "--x=1" in shown.texts
    assert shown.tags.count("svg") == 3 and "http://" not in text.replace("http://127.0.0.1:1/", "").replace(
        "http://www.w3.org", ""
    )


def test_the_page_has_a_row_for_each_cell(text):
    texts = Page(text).texts
    first = texts.index("closed") - 1
    assert texts[first : first + 12] == [
        *("rest_columnar", "closed", "100", "8", "1.50", "2.25", "3.12", "1,234", "-", "4,500", "1,800", "0")
    ]
    opened = texts.index("open, 128/s")
    assert texts[opened - 1] == "rest_columnar" and "3 a <timeout>" in texts
    assert {"100", "1,000"} <= set(texts) and "mathdefault" not in text  # plain numbers at the axes


def test_a_narrow_terminal_has_fewer_columns_and_a_wide_one_all(monkeypatch, capsys):
    monkeypatch.setattr(reports, "console", lambda width: console(80))
    show(REPORT)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[: lines.index("Its flags: --x=1")])) <= 80 and lines[-4:] == WARNINGS
    [row] = [line for line in lines if "128/s" in line]
    assert row.replace("│", " ").split() == ["rest_columnar,", "128/s", "1", "8", "1.50", "3.12", "1,234", "4,500"]
    wide = next(iter(tables(REPORT)))
    assert [column.header for column in wide.columns][-3:] == ["rows/s", "requests", "errors"]


def test_both_files_are_written(tmp_path):
    paths = write(copy.deepcopy(REPORT), tmp_path / "new")
    assert [path.name for path in paths] == ["latency.json", "latency.html"]
    assert json.loads(paths[0].read_text()) == REPORT
