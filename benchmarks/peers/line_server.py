"""The server's side of the line protocol: a request a line on stdin, an answer a line on stdout."""

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
        start: Loads what it takes, and returns what answers a request. Called when stdout is no longer what libraries
            print to.
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
