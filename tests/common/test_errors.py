"""Errors as text."""

from common.errors import one_line


def test_a_text_of_several_lines_becomes_one():
    assert one_line(ValueError("one\n  two\t three ")) == "one two three"
    assert one_line("one two three", 5) == "one t"
