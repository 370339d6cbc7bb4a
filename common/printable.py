"""Escape text for a terminal."""


def printable(text: str) -> str:
    """Escapes control characters and line breaks, which a terminal would interpret.

    Messages may quote the contents of a broken file.
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
