import re

import pytest

from ctrpipe.common.packages import PARTS
from tests.troubleshooting import (
    ROOT,
    Message,
    Note,
    _messages_in,
    cause_and_cure,
    messages,
    notes,
    page,
    topic_of,
    topics,
)


@pytest.fixture(scope="module", name="found")
def found_messages() -> list[Message]:
    """Not while tests are collected, which each test process does: it takes 1.5 s."""
    return messages()


@pytest.mark.slow
def test_the_committed_page_is_what_the_generator_prints():
    written = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert written == page(), "run: .venv/bin/python -m tests.troubleshooting > docs/troubleshooting.md"


@pytest.mark.slow
def test_every_message_has_a_topic_a_cause_and_a_cure(found):
    assert [message for message in found if not topic_of(message)] == []
    assert [message for message in found if not all(cause_and_cure(message))] == []


def test_every_fragment_is_in_a_message_and_every_note_is_shown(found):
    fragments = [fragment for note in notes() for fragment in note.fragments]
    assert [text for text in fragments if not any(text in message.text for message in found)] == []
    shown = {next(note for note in notes() if note.is_for(message)) for message in found}
    assert [note for note in notes() if note not in shown] == []


def test_every_topic_has_messages(found):
    assert [title for title in topics() if not any(topic_of(message) == title for message in found)] == []


def test_no_mistake_in_the_source_is_left_out(found):
    """A plain search finds the same files: each has a message, or passes on messages of others."""
    raising = {
        path.relative_to(ROOT).as_posix()
        for folder in {*PARTS, "ctrpipe"} - {"models"}  # whose mistakes are ValueErrors
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r'raise InputError\(\s*f?["\'][^{]', path.read_text())
    }
    assert raising <= {message.file for message in found} and len(raising) > 10


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ('raise InputError(f"{path}: no such file; check it")', "<path>: no such file; check it"),
        ("raise InputError(f\"{path}: lacks {', '.join(sorted(absent))}\")", "<path>: lacks <absent>"),
        ('raise InputError(f"{p}: {error.strerror or error}!; x")', "<p>: <reason>!; x"),
        ("raise InputError(f\"is {'twice' if a else 'never'} in it\")", "is twice (or: never) in it"),
        ('raise InputError(f"of {len(rows):,} rows")', "of <number> rows"),
        ('CURE = "do this"\nraise InputError(f"{a}: wrong; {CURE}")', "<a>: wrong; do this"),
        ('raise InputError("one; " + "two")', "one; two"),
        ("raise InputError(str(error))", None),
        ('raise InputError(f"{key}: {one_line(error)}")', None),
        ('raise ValueError("outside of the configuration")', None),
    ],
)
def test_a_message_is_read_as_a_template(tmp_path, monkeypatch, code, text):
    monkeypatch.setattr("tests.troubleshooting.ROOT", tmp_path)
    (tmp_path / "module.py").write_text(code)
    assert [message.text for message in _messages_in(tmp_path / "module.py")] == ([text] if text else [])


def test_the_cure_is_the_notes_or_what_the_message_says_last(monkeypatch):
    known = [Note(("is gone",), "It left.", ""), Note(("is late",), "It waits.", "Wait as well.")]
    monkeypatch.setattr("tests.troubleshooting.notes", lambda: known)
    assert cause_and_cure(Message("a.py", "<path>: is gone; look; call it")) == ("It left.", "Call it.")
    assert cause_and_cure(Message("a.py", "<path>: is late; call it")) == ("It waits.", "Wait as well.")
    assert cause_and_cure(Message("a.py", "<path>: is here")) == ("", "")
