"""One worker's training, in a process of its own: `python -m pipeline.training.member [FOLDER]`.

The chief is given the folder with task.json; it tells the others, which are given none. See process.py for what this
process says.
"""

import json
import os
import pathlib
import sys
import threading
from typing import Any

from common.errors import InputError
from common.libraries import load_tensorflow
from pipeline.training.process import JOINED, LOST, MISTAKE
from pipeline.training.worker import end_with_the_parent


def main(folder: pathlib.Path | None) -> None:
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # a lost worker is one line, not a page
    load_tensorflow()  # without its start-up lines, and so before what imports it
    import tensorflow as tf

    from pipeline.training.tensorflow_learner import make_strategy
    from pipeline.training.train import run_shared_task
    from pipeline.training.worker_group import WorkerGroup

    def say(said: dict[str, Any]) -> None:
        print(json.dumps(said), flush=True)

    try:
        group = WorkerGroup(make_strategy("multi_worker"))
        run_shared_task(folder, group.from_chief, lambda name: say({JOINED: name}), say)
    except InputError as error:
        say({MISTAKE: str(error)})
        code = 2
    except tf.errors.OpError as error:
        if not isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.CancelledError):
            raise
        code = LOST
    else:
        code = 0
    sys.stdout.flush()
    os._exit(code)  # TensorFlow would wait for a worker that is gone


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None)
