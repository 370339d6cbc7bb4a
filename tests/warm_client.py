"""Replaces an interpreter: `python -IS warm_client.py ADDRESS -c CODE ARGUMENTS...`, or `-m MODULE ARGUMENTS...`.

A process of warm_python.py, which has its imports behind it, does what is asked with this one's environment, folder and
streams. This one hands SIGINT and SIGTERM on and ends as that one does, and that one ends where this one is killed.
"""

import json
import os
import signal
import socket
import sys


def main(address: str, words: list[str]) -> int:
    umask = os.umask(0)
    asked = {"words": words, "folder": os.getcwd(), "umask": umask, "environment": dict(os.environ)}
    message = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(message).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(message)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda which, _frame: connection.send(bytes([which])))
        code = int(connection.makefile().read() or 1)
    if code < 0:  # of a signal
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
