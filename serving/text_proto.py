"""Reads text protos, such as TF Serving's configuration files, with one-line errors."""

import pathlib
from typing import Any

from google.protobuf import text_format

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import check_ends
from ctrpipe.common.store_folders import fetch_file
from ctrpipe.common.store_names import with_urls

_MOST_BYTES = 64 << 20


def read_text_proto(path: pathlib.Path | str, message: Any, example: str = "") -> Any:
    """Reads a text proto into a message and returns the message.

    Args:
        path: The file, or its URL in a store.
        message: An empty message of the file's type.
        example: A valid text to show in errors.

    Raises:
        InputError: the file cannot be read, is not a regular file, is empty, or is not a message of that type; the
            error names the line. An empty file is a valid text proto, but TensorFlow Serving cannot read it, because it
            maps the file into memory. StoreError: the object does not exist, or the store refuses the request or does
            not answer.
    """
    if isinstance(path, str):
        try:
            return read_text_proto(fetch_file(path), message, example)
        except InputError as error:
            raise type(error)(with_urls(str(error))) from error
    advice = f"; it is, for example, {example}" if example else ""
    check_ends([path], _MOST_BYTES)
    try:
        text = path.read_text()
        if not text:
            raise InputError(
                f"{path}: an empty file, which TensorFlow Serving cannot read; write a comment, # nothing is set"
            )
        return text_format.Parse(text, message)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}){advice}") from error
    except text_format.ParseError as error:
        reason = one_line(error)
        raise InputError(
            f"{path}: Error parsing text-format {message.DESCRIPTOR.full_name}: line {reason}{advice}"
        ) from error
