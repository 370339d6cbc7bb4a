"""Trains on another Keras backend: `python -m ctrpipe.pipeline.training.worker FOLDER`.

process.py describes the messages on standard output, and when this process exits.
"""

import json
import os
import pathlib
import sys
import threading
import warnings

from ctrpipe.common import exit_codes
from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.training.process import mistake_message


def main(folder: str) -> None:
    threading.Thread(target=exit_with_parent, daemon=True).start()
    hide_tensorflow()
    from ctrpipe.pipeline.training.handover import run_job  # lazy: imports Keras, after hide_tensorflow

    try:
        run_job(pathlib.Path(folder), lambda numbers: print(json.dumps(numbers), flush=True))
    except InputError as error:
        print(json.dumps(mistake_message(error)), flush=True)
        sys.exit(exit_codes.MISTAKE)


def hide_tensorflow() -> None:
    """Prevents Keras from importing TensorFlow. Call it before Keras is imported.

    On the JAX backend Keras imports an installed TensorFlow only to seed it, which takes two seconds and 470 MB.
    """
    warnings.filterwarnings("ignore")
    sys.modules["tensorflow"] = None  # type: ignore[assignment]


def exit_with_parent() -> None:
    """Exits when standard input closes. The parent process holds it open."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
