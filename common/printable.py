"""Text that a terminal prints as it stands."""


def printable(text: str) -> str:
    """Returns the text as one line without control characters, which a terminal would obey.

    A message may quote what a broken file contains.
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
