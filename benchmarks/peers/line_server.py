"""The server's side of the line protocol: a line of JSON on stdin is a request, one on stdout its answer."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def serve_lines(start: Callable[[], Answer]) -> None:
    """Answers the requests on stdin until it ends.

    Args:
        start: Loads the libraries, and returns the function that answers a request. Called once stdout is redirected,
            so that what libraries print goes to stderr.
    """
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print; stdout is for replies
    answer = start()
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # one bad request should not end the process
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        # Starts a new line: a thread of a peer may have written half a line to stdout before it was redirected.
        print("\n" + json.dumps(reply), file=replies)
