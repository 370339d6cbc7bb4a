"""Messages are wrapped between words on a terminal, and left whole in a file or a pipe."""

import io
import pathlib

import pytest

from ctrpipe.common import lines
from ctrpipe.common.lines import fitted, say
from ctrpipe.common.packages import PARTS

ROOT = pathlib.Path(__file__).parents[2]
PATH = "runs/a-folder-with-a-long-name/that-must-stay-whole/because-it-is-copied.json"  # 77 characters


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("", ""),
        ("one two three four five six seven eight nine", "one two three four five six seven eight\n  nine"),
        (
            "[  12.5s] attention_net: 8,400 examples, loss 0.5447, log loss 0.5231",
            "[  12.5s] attention_net: 8,400 examples,\n          loss 0.5447, log loss 0.5231",
        ),
        (
            "Note:   the epochs ended while the validation loss fell",
            "Note:   the epochs ended while the\n        validation loss fell",
        ),
        ("  3 x a price that is not a number at all, here", "  3 x a price that is not a number at\n  all, here"),
        (f"Written: {PATH}", f"Written:\n         {PATH}"),
        ("first\nsecond", "first\nsecond"),
    ],
)
def test_a_line_too_long_for_the_terminal_is_broken_between_words(text, shown):
    assert fitted(text, Terminal()) == shown
    assert fitted(text, io.StringIO()) == text  # a file or a pipe has each line whole


def test_say_writes_to_the_current_stdout_or_stderr(monkeypatch, capsys):
    say("a" * 30 + " " + "b" * 30)
    say("lost", err=True)
    assert capsys.readouterr() == ("a" * 30 + " " + "b" * 30 + "\n", "lost\n")
    monkeypatch.setattr(lines.sys, "stdout", terminal := Terminal())
    say("a" * 30 + " " + "b" * 30)
    assert terminal.getvalue() == "a" * 30 + "\n  " + "b" * 30 + "\n"


def test_no_module_uses_soft_wrap_which_breaks_lines_within_words():
    files = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    assert len(files) > 300
    assert [path.name for path in files if "soft_wrap" in path.read_text()] == []
