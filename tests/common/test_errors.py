"""Errors as text."""

import pytest

from ctrpipe.common.errors import one_line, without_secrets


def test_a_text_of_several_lines_becomes_one():
    assert one_line(ValueError("one\n  two\t three ")) == "one two three"
    assert one_line("one two three", 5) == "one t"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ann:s3cret@host:8501/v1: no answer", "http://***@host:8501/v1: no answer"),
        ("https://glpat-x@host/a?b=1&access_token=s3cret&c=2", "https://***@host/a?b=1&access_token=***&c=2"),
        ("- --s3_secret_access_key=s3cret\n- --runner=x", "- --s3_secret_access_key=***\n- --runner=x"),
        ("'--password=s3cret', '--region=eu'", "'--password=***', '--region=eu'"),
        ("--token-file /run/token: no such file", "--token-file /run/token: no such file"),
        ("hf://owner/name@4f3e1c0: mail ann@host", "hf://owner/name@4f3e1c0: mail ann@host"),
        ("http://host/v1/models/ctr: not a URL", "http://host/v1/models/ctr: not a URL"),
    ],
)
def test_a_text_is_shown_without_what_is_secret(text, shown):
    assert without_secrets(text) == shown
