"""A mistake is one line: in Python, and in a notebook."""

import re

import pytest

import ctrpipe
from ctrpipe.common.errors import InputError
from ctrpipe.mistakes import in_one_line
from tests.ctrpipe.small_log import CONFIG, frame


@in_one_line
def failing(error: Exception) -> None:
    raise error


def test_what_a_user_can_remedy_is_an_input_error():
    wrapped = RuntimeError("worker failed")
    wrapped.__cause__ = InputError("log.tsv: no such file; check the path")
    with pytest.raises(InputError, match="^log.tsv: no such file") as raised:
        failing(wrapped)
    assert raised.value.__cause__ is wrapped
    with pytest.raises(InputError, match="the disk is full; make room"):
        failing(OSError(28, "No space left on device"))
    with pytest.raises(ValueError, match="a defect"):
        failing(ValueError("a defect"))


def test_a_notebook_shows_one_line_without_a_traceback_and_without_secrets(capsys):
    shell = pytest.importorskip("IPython").core.interactiveshell.InteractiveShell()
    shell.colors = "NoColor"
    shell.user_ns.update(ctrpipe=ctrpipe, CONFIG=CONFIG, log=frame(20))
    result = shell.run_cell("ctrpipe.check(CONFIG, log, epochs=2)")
    shown = "".join(capsys.readouterr())
    assert isinstance(result.error_in_exec, InputError)
    assert shown.strip() == "InputError: epochs: no such key; did you mean training__epochs?"
    shell.run_cell("ctrpipe.load('http://user:word@127.0.0.1:1/nothing')")
    shown = "".join(capsys.readouterr()).strip()
    assert shown.startswith("InputError: ") and "\n" not in shown and "word" not in shown
    shell.run_cell("1 / 0")
    assert "Traceback" in "".join(capsys.readouterr())


def test_a_result_and_its_picture_show_themselves_in_a_notebook():
    formatter = pytest.importorskip("IPython").core.interactiveshell.InteractiveShell().display_formatter
    shown, _ = formatter.format(ctrpipe.check(CONFIG, frame(20)))
    assert re.match("<table>.*20 rows read, 0 malformed", shown["text/html"])
    from ctrpipe.common.charts import Bar, BarChart, chart_figure

    bars = [Bar("a", 1.0, (0.5, 1.5)), Bar("b", -1.0)]
    shown, _ = formatter.format(chart_figure([BarChart("title", bars, "label")]))
    assert shown["image/png"].startswith(b"\x89PNG")
