"""In a notebook progress is one bar, which ends as one line; elsewhere it is lines, as before."""

import html
import logging
import re
import types

import pytest

from ctrpipe import bar
from ctrpipe.bar import with_bar
from ctrpipe.common.errors import InputError
from ctrpipe.common.progress import announce, throttled_announce


class Output:
    """What a cell shows: the newest data of its one display."""

    def __init__(self):
        self.shown = []

    def display(self, data, raw, display_id):
        assert raw and display_id
        return types.SimpleNamespace(update=self.update) if self.update(data, raw) else None

    def update(self, data, raw):
        self.shown.append(data)
        return True

    def newest(self) -> str:
        return html.unescape(self.shown[-1]["text/html"])

    def value(self) -> float | None:
        found = re.search(r'<progress value="([\d.]+)" max="1">', self.shown[-1]["text/html"])
        return float(found[1]) if found else None


@pytest.fixture
def cell(monkeypatch) -> Output:
    """The cell of a kernel, in which this process runs as long as the test does."""
    ipython, output = pytest.importorskip("IPython"), Output()
    monkeypatch.setattr(ipython, "get_ipython", lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setattr("IPython.display.display", output.display)
    monkeypatch.setattr(bar, "DRAWN_EVERY", 0.0)
    return output


def test_a_bar_goes_on_by_steps_and_within_a_step_and_ends_as_a_line(cell, capsys):
    values = []

    @with_bar
    def train():
        tell = throttled_announce(seconds=1000)
        announce("Loading <b>")
        values.append((cell.value(), "<progress></progress>" in cell.newest()))
        announce("Read ...", steps=(1, 4))
        values.append(cell.value())
        tell("3 of 4 parts read")  # too early for a line, not for the bar
        values.append(cell.value())
        announce("Train ...", steps=(2, 4))
        values.append(cell.value())
        announce("model: 100 examples", share=0.5)
        announce("Writing")
        values.append(cell.value())
        return 7

    assert train() == 7
    assert values == [(None, True), 0.25, pytest.approx(1.75 / 4, abs=1e-3), 0.5, pytest.approx(2.5 / 4)]
    assert "<progress" not in cell.newest() and re.search("ctrpipe.train: done in 0 s", cell.newest())
    assert "&lt;b&gt;" in cell.shown[-1]["text/html"] and "3 of 4" not in cell.newest()
    lines = [line.partition("] ")[2] for line in cell.shown[-1]["text/plain"].splitlines()]
    assert lines == ["Loading <b>", "Read ...", "Train ...", "model: 100 examples", "Writing"]
    assert capsys.readouterr() == ("", "")


def test_a_failure_a_quiet_function_and_one_within_another(cell):
    @with_bar
    def quiet():
        return 1

    @with_bar
    def inner():
        announce("inner")

    @with_bar
    def outer():
        inner()
        announce("outer")
        raise InputError("wrong")

    assert quiet() == 1 and cell.shown == []
    with pytest.raises(InputError, match="wrong"):
        outer()
    assert "ctrpipe.outer: stopped after 0 s" in cell.newest() and "ctrpipe.inner" not in cell.newest()
    assert [line.partition("] ")[2] for line in cell.shown[-1]["text/plain"].splitlines()] == ["inner", "outer"]


def test_a_silenced_logger_draws_no_bar(cell):
    @with_bar
    def train():
        announce("Training")
        throttled_announce(seconds=1000)("1 of 2 parts read")

    for name in ("ctrpipe.progress", "ctrpipe"):
        logger = logging.getLogger(name)
        level = logger.level
        logger.setLevel(logging.WARNING)
        train()
        logger.setLevel(level)
    assert cell.shown == []


def test_outside_of_a_notebook_there_are_lines(capsys):
    @with_bar
    def train():
        announce("Training", share=0.5)

    train()
    assert re.fullmatch(r"\[ *\d+\.\ds\] Training\n", capsys.readouterr().err)
