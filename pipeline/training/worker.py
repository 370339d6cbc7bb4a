"""A training in a process of its own, for another Keras backend: `python -m pipeline.training.worker FOLDER`.

Writes one JSON line per evaluation; ends when its standard input closes.
"""

import json
import os
import pathlib
import sys
import threading


def main(folder: str) -> None:
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    from pipeline.quiet import load_tensorflow

    load_tensorflow()
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # TensorFlow only reads the examples here
    from pipeline.training.train import run_task

    run_task(pathlib.Path(folder), lambda numbers: print(json.dumps(numbers), flush=True))


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
