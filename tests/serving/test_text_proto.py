"""A configuration's text proto: the message, or one line."""

import os
import subprocess
import sys

import pytest
from google.protobuf import wrappers_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.serving.text_proto import read_text_proto


def test_a_file_fills_the_message(tmp_path):
    file = tmp_path / "value"
    file.write_text("value: 7  # a comment\n")
    assert read_text_proto(file, wrappers_pb2.Int64Value()).value == 7


@pytest.mark.parametrize("content", [b"valeu: 7", b"value: seven", b"value: 7 }", b"\xff\xfe"])
def test_a_mistake_is_one_line_with_an_example(tmp_path, content):
    file = tmp_path / "value"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_text_proto(file, wrappers_pb2.Int64Value(), "value: 7")
    text = str(caught.value)
    assert text.startswith(f"{file}: ") and text.endswith("; it is, for example, value: 7") and "\n" not in text


def test_an_empty_file_is_refused_and_a_comment_is_not(tmp_path):
    file = tmp_path / "value"
    file.touch()
    with pytest.raises(InputError, match="value: an empty file, which TensorFlow Serving cannot read; write a comment"):
        read_text_proto(file, wrappers_pb2.Int64Value())
    for text in ("# nothing is set", "\n"):
        file.write_text(text)
        assert read_text_proto(file, wrappers_pb2.Int64Value()).value == 0


@pytest.mark.timeout(20)
def test_a_pipe_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: a named pipe, which may never end; put a file in its place$"):
        read_text_proto(tmp_path / "pipe", wrappers_pb2.Int64Value())


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent: cannot be read \(No such file or directory\)$"):
        read_text_proto(tmp_path / "absent", wrappers_pb2.Int64Value())


def test_it_imports_no_tensorflow():
    code = "import sys, ctrpipe.serving.text_proto; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
