"""Text protos of the configuration: a file -> a message, or one line that says what is wrong with it."""

import pathlib
from typing import Any

from google.protobuf import text_format

from common.errors import InputError, one_line


def read_text_proto(path: pathlib.Path, message: Any, example: str = "") -> Any:
    """Fills the message from a text proto.

    Args:
        path: The file.
        message: An empty message, which is returned.
        example: A right text, for the error.

    Raises:
        InputError: the file cannot be read, or has a mistake, whose line is named.
    """
    advice = f"; it is, for example, {example}" if example else ""
    try:
        return text_format.Parse(path.read_text(), message)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}){advice}") from error
    except text_format.ParseError as error:
        reason = one_line(error)
        raise InputError(
            f"{path}: Error parsing text-format {message.DESCRIPTOR.full_name}: line {reason}{advice}"
        ) from error
