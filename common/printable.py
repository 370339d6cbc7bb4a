"""Escape and shorten text for a terminal."""

MOST_SHOWN = 100  # characters of a file's contents in a message
_BINARY_SHARE = 0.1  # of characters that cannot be printed, from which a value is no text


def printable(text: str) -> str:
    """Escapes control characters and line breaks, which a terminal would interpret.

    Messages may quote the contents of a broken file.
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def excerpt(value: bytes | str, most: int = MOST_SHOWN) -> str:
    """Returns the beginning of a value or a row of a file for a message, without unprintable characters.

    Args:
        value: The text; bytes are UTF-8, and may contain invalid ones.
        most: Maximum number of characters.
    """
    start = value[: 4 * most]  # a character has up to four bytes
    text = start.decode("utf-8", "replace") if isinstance(start, bytes) else start
    unusual = sum(not sign.isprintable() and sign not in "\t\n\r" or sign == "\ufffd" for sign in text)
    if unusual > max(2, _BINARY_SHARE * len(text)):
        return f"<{len(value):,} bytes that are no text>"
    shown = printable(text)
    return shown if len(shown) <= most and len(start) == len(value) else f"{shown[: most - 1]}…"
