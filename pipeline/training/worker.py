"""A training on another Keras backend, in its own process: `python -m ctrpipe.pipeline.training.worker FOLDER`.

process.py describes what it writes to standard output and when it exits.
"""

import json
import os
import pathlib
import sys
import threading
import warnings

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.training.process import MISTAKE


def main(folder: str) -> None:
    threading.Thread(target=exit_with_parent, daemon=True).start()
    hide_tensorflow()
    from ctrpipe.pipeline.training.train import run_task

    try:
        run_task(pathlib.Path(folder), lambda numbers: print(json.dumps(numbers), flush=True))
    except InputError as error:
        print(json.dumps({MISTAKE: str(error)}), flush=True)
        sys.exit(MISTAKE)


def hide_tensorflow() -> None:
    """Makes Keras do without TensorFlow, before it is imported.

    On JAX it imports TensorFlow, where that is installed, only to seed it: two seconds and 470 MB.
    """
    warnings.filterwarnings("ignore")
    sys.modules["tensorflow"] = None  # type: ignore[assignment]


def exit_with_parent() -> None:
    """Ends this process when its standard input closes, which its parent holds open."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
