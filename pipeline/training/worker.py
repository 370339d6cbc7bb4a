"""Trains on another Keras backend: `python -m ctrpipe.pipeline.training.worker FOLDER`.

process.py describes the messages on standard output, and when this process exits.
"""

import json
import os
import pathlib
import sys
import threading

from ctrpipe.common import exit_codes
from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import import_keras
from ctrpipe.pipeline.training.process import mistake_message


def main(folder: str) -> None:
    threading.Thread(target=exit_with_parent, daemon=True).start()
    import_keras()
    from ctrpipe.pipeline.training.handover import run_job  # lazy: needs Keras as it was imported

    try:
        run_job(pathlib.Path(folder), lambda numbers: print(json.dumps(numbers), flush=True))
    except InputError as error:
        print(json.dumps(mistake_message(error)), flush=True)
        sys.exit(exit_codes.MISTAKE)


def exit_with_parent() -> None:
    """Exits when standard input closes. The parent process holds it open."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
