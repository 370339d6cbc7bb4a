"""The server side of the line protocol: each line of JSON on stdin is a request, answered by a line on stdout."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def serve_lines(start: Callable[[], Answer]) -> None:
    """Answers requests until stdin ends.

    Args:
        start: Loads the libraries and returns the function that answers a request. Called after stdout is redirected
            to stderr, where the libraries may print.
    """
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print; stdout is for replies only
    answer = start()
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # one bad request must not end the process
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        # Starts a new line, because a peer's thread may have written half a line to stdout before the redirection.
        print("\n" + json.dumps(reply), file=replies)
