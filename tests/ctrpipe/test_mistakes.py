"""A mistake is one line: in Python, and in a notebook."""

import re
import signal
import sys
import threading
import time

import pytest

import ctrpipe
from ctrpipe.common.errors import InputError, Interrupted
from ctrpipe.common.interrupt import AGAIN_AFTER
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


@in_one_line
def run(error: BaseException | None = None) -> None:
    """Named as a function that goes on where it was stopped."""
    if error:
        raise error
    signal.raise_signal(signal.SIGINT)
    time.sleep(60)


@in_one_line
def nested() -> None:
    run()


def test_ctrl_c_is_one_line_that_says_whether_the_call_goes_on():
    handler, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    again = "ctrpipe.run was stopped; repeat the call to continue from here"
    for call in (run, nested):
        with pytest.raises(Interrupted) as raised:
            call()
        assert str(raised.value) == again and isinstance(raised.value, KeyboardInterrupt)
    wrapped = RuntimeError("KeyboardInterrupt [while running 'ParDo']")  # as Beam hands it on
    wrapped.__context__ = KeyboardInterrupt()
    with pytest.raises(Interrupted, match=again):
        run(wrapped)
    with pytest.raises(Interrupted, match="^ctrpipe.failing was stopped$"):
        failing(KeyboardInterrupt())
    time.sleep(2 * AGAIN_AFTER)  # the signal is not sent again to a program that goes on
    assert signal.getsignal(signal.SIGINT) is handler and sys.unraisablehook is hook


def test_a_thread_calls_it_too(capsys):
    errors = []

    def call() -> None:
        try:
            run(KeyboardInterrupt())
        except KeyboardInterrupt as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [type(error) for error in errors] == [Interrupted]


def test_a_notebook_shows_a_stopped_call_as_one_line(capsys):
    shell = pytest.importorskip("IPython").core.interactiveshell.InteractiveShell()
    shell.colors = "NoColor"
    shell.user_ns.update(run=run)
    result = shell.run_cell("run()")
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    shown = "".join(capsys.readouterr()).strip()
    assert shown == "Interrupted: ctrpipe.run was stopped; repeat the call to continue from here"
    assert shell.run_cell("1 + 1").result == 2


def test_a_result_and_its_picture_show_themselves_in_a_notebook():
    formatter = pytest.importorskip("IPython").core.interactiveshell.InteractiveShell().display_formatter
    shown, _ = formatter.format(ctrpipe.check(CONFIG, frame(20)))
    assert re.match("<table>.*20 rows read, 0 malformed", shown["text/html"])
    from ctrpipe.common.charts import Bar, BarChart, chart_figure

    bars = [Bar("a", 1.0, (0.5, 1.5)), Bar("b", -1.0)]
    shown, _ = formatter.format(chart_figure([BarChart("title", bars, "label")]))
    assert shown["image/png"].startswith(b"\x89PNG")
