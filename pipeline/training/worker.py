"""A training in a process of its own, for another Keras backend: `python -m pipeline.training.worker FOLDER`.

Writes one JSON line per evaluation, or for the user's mistake that ended it; ends when its standard input closes.
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
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    warnings.filterwarnings("ignore")
    # Keras imports TensorFlow, where it is installed, only to seed it: two seconds and 470 MB.
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    from pipeline.training.train import run_task  # now that Keras finds no TensorFlow

    try:
        run_task(pathlib.Path(folder), lambda numbers: print(json.dumps(numbers), flush=True))
    except InputError as error:
        print(json.dumps({MISTAKE: str(error)}), flush=True)
        sys.exit(MISTAKE)


def end_with_the_parent() -> None:
    """Ends this process when its standard input closes."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
