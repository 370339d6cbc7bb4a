"""What holds for every command: help, mistakes and interrupts."""

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from pipeline.cli import main
from pipeline.commands.options import BLOCKED, INTERRUPTED
from pipeline.interrupt import interrupts_kept
from tests.e2e.small_run import ROOT, call, one_line
from transforms.errors import InputError, causes

COMMANDS = """
    bench compare compile demo drift generate label models predict prepare report run score serve submit sweep
    tune-serving
""".split()


def test_the_commands_are_these():
    assert sorted(main.commands) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option_with_a_text(command):
    code, output = call(command, "--help")
    assert code == 0 and re.match(f"(?i)usage: (main|ctrpipe) {command} ", output)
    for parameter in main.commands[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[0] in output
    assert main.commands[command].help


def test_the_readme_names_every_command_model_and_exit_code():
    from models.registry import available

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    models = text.partition("## Models")[2].partition("Each has a file")[0]
    without_text = sorted(model.name for model in available() if not model.needs_text)
    assert sorted(re.findall("`([a-z0-9_]+)`", models)) == without_text
    assert [model.name for model in available() if f"`{model.name}`" not in text] == []
    assert set(re.findall("ctrpipe ([a-z-]+)", text)) >= set(COMMANDS) - {"demo"} and "make demo" in text
    codes = " ".join(text.partition("Exit codes: ")[2].split())[:200]
    assert all(f"{code} " in codes for code in (0, BLOCKED, 2, INTERRUPTED))


def test_usage_mistakes_are_exit_code_2_without_a_traceback(tmp_path):
    for arguments in (["walk"], ["run"], ["score", "--model", "x"], ["predict", "--rows", "0"], ["run", "--speed"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2 and "Error: " in result.output and "Traceback" not in result.output


def test_mistakes_of_the_commands_that_write_files(tmp_path):
    (tmp_path / "file").touch()
    one_line(*call("generate", "--rows", 0, "--output", tmp_path / "log"), "rows should be a whole number")
    one_line(*call("generate", "--output", tmp_path / "absent" / "log"), "does not exist")
    one_line(*call("demo", "--output", tmp_path / "file"), "a file is in the way of the output folder")
    one_line(
        *call("demo", "--output", tmp_path / "o", "--config", tmp_path / "absent"), "cannot read the configuration"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def raising(monkeypatch, error: BaseException, *command: str) -> tuple[int, str]:
    def fail(**arguments):
        raise error

    command = command or ("report", "anywhere")
    monkeypatch.setattr(main.commands[command[0]], "callback", fail)
    return call(*command)


def test_an_input_error_is_one_line_and_exit_code_2(monkeypatch):
    assert raising(monkeypatch, InputError("what, where")) == (2, "ctrpipe: what, where\n")
    quoted = InputError("the header is é\x1b[2J\n\t")
    assert raising(monkeypatch, quoted) == (2, "ctrpipe: the header is é\\x1b[2J\\n\\t\n")


def test_an_interrupt_is_one_line_and_exit_code_130(monkeypatch):
    expected = (130, "ctrpipe: interrupted\n")
    assert raising(monkeypatch, KeyboardInterrupt()) == expected
    wrapped = RuntimeError("KeyboardInterrupt [while running 'ParDo']")  # as Beam hands it on
    wrapped.__context__ = KeyboardInterrupt()
    assert raising(monkeypatch, wrapped) == expected


def test_an_interrupted_command_that_would_resume_says_so(monkeypatch):
    expected = (130, "ctrpipe: interrupted; the same command again goes on from here\n")
    assert raising(monkeypatch, KeyboardInterrupt(), "demo") == expected


# JAX has a callback of the garbage collector: there Python prints what is raised, and goes on.
INTERRUPTED_IN_A_CALLBACK = """
import gc, signal, sys, time
from pipeline.cli import main

def callback(phase, details):
    gc.callbacks.remove(callback)
    signal.raise_signal(signal.Signals[sys.argv[1]])

@main.command()
def collect():
    gc.callbacks.append(callback)
    gc.collect()
    time.sleep(20)

signal.signal(signal.SIGINT, getattr(signal, sys.argv[2]))
signal.signal(signal.SIGTERM, signal.default_int_handler)
main(["collect"])
"""


# Where SIGINT is ignored it is a server's SIGTERM.
@pytest.mark.parametrize(("number", "interrupt"), [("SIGINT", "default_int_handler"), ("SIGTERM", "SIG_IGN")])
def test_an_interrupt_in_a_callback_of_the_garbage_collector_is_not_lost(number, interrupt):
    command = [sys.executable, "-c", INTERRUPTED_IN_A_CALLBACK, number, interrupt]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.stderr == "ctrpipe: interrupted\n"
    assert result.returncode == INTERRUPTED


def test_an_error_that_python_ignores_is_still_shown(monkeypatch):
    class Finalized:
        def __del__(self):
            raise ValueError("not an interrupt")

    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: shown.append(str(found.exc_value)))
    with interrupts_kept():
        Finalized()
    assert shown == ["not an interrupt"]


def test_other_errors_are_not_hidden(monkeypatch):
    ring = RuntimeError("a bug")
    ring.__cause__ = ring
    with pytest.raises(AssertionError, match="a bug"):
        raising(monkeypatch, ring)


def test_causes_come_nearest_first_and_end():
    first, second, third = KeyError("1"), ValueError("2"), OSError("3")
    first.__context__, second.__cause__, third.__context__ = second, third, first
    assert list(causes(first)) == [first, second, third]
    assert list(causes(None)) == []
