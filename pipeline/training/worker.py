"""A training on another Keras backend, in its own process: `python -m pipeline.training.worker FOLDER`.

process.py describes what it writes to standard output and when it exits.
"""

import json
import os
import pathlib
import sys
import threading
import warnings

from common.errors import InputError
from pipeline.training.process import MISTAKE


def main(folder: str) -> None:
    threading.Thread(target=exit_with_parent, daemon=True).start()
    warnings.filterwarnings("ignore")
    # Keras on JAX imports TensorFlow, where it is installed, only to seed it: two seconds and 470 MB. So TensorFlow is
    # hidden before the next line imports Keras.
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    from pipeline.training.train import run_task

    try:
        run_task(pathlib.Path(folder), lambda numbers: print(json.dumps(numbers), flush=True))
    except InputError as error:
        print(json.dumps({MISTAKE: str(error)}), flush=True)
        sys.exit(MISTAKE)


def exit_with_parent() -> None:
    """Ends this process when its standard input closes, which its parent holds open."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
