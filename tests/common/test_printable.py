"""Text of files in messages."""

import pytest

from ctrpipe.common.printable import excerpt


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("a\tb\nc", r"a\tb\nc"),
        (b"K\xc3\xb6ln", "Köln"),
        (b"K\xf6ln", "K�ln"),
        (b"\x1b[2J", r"\x1b[2J"),
        ("x" * 100, "x" * 100),
        ("x" * 101, "x" * 99 + "…"),
        ("ä".encode() * 5000, "ä" * 99 + "…"),
        ("漢".encode() * 101, "漢" * 99 + "…"),
        ("\t" * 80, r"\t" * 49 + "\\…"),
        (bytes(range(128, 256)), "<128 bytes that are no text>"),
        (b"\0\1\2\3PAR1", "<8 bytes that are no text>"),
        ("", ""),
    ],
)
def test_an_excerpt_is_short_and_has_no_bytes_that_are_no_text(value, shown):
    assert excerpt(value) == shown
    assert len(excerpt(value)) <= 100 and excerpt(value).isprintable()
