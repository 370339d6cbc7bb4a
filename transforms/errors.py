"""The one exception for a user's mistake."""


class InputError(Exception):
    """Wrong usage or input: the command line prints its message as one line and exits with code 2.

    The message says what is wrong, where, and what to do about it.
    """
