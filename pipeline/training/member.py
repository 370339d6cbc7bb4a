"""One worker of a training on several hosts, in its own process: `python -m pipeline.training.member [FOLDER]`.

Only the chief's process gets FOLDER, with task.json in it, and sends the task to the others. process.py describes what
this process writes to standard output.
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
from pipeline.training.worker import exit_with_parent


def main(folder: pathlib.Path | None) -> None:
    threading.Thread(target=exit_with_parent, daemon=True).start()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow would report a lost worker in a page of log lines
    load_tensorflow()
    # They import TensorFlow, whose start-up lines are only held back where load_tensorflow imports it first.
    import tensorflow as tf

    from pipeline.training.tensorflow_learner import make_strategy
    from pipeline.training.train import run_shared_task
    from pipeline.training.worker_group import WorkerGroup

    def write(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)

    try:
        group = WorkerGroup(make_strategy("multi_worker"))
        run_shared_task(folder, group.from_chief, lambda name: write({JOINED: name}), write)
    except InputError as error:
        write({MISTAKE: str(error)})
        code = 2
    except tf.errors.OpError as error:
        errors = tf.errors  # the last one where a link is cut: nothing says that the other worker is gone
        if not isinstance(
            error,
            errors.UnavailableError | errors.AbortedError | errors.CancelledError | errors.DeadlineExceededError,
        ):
            raise
        code = LOST
    else:
        code = 0
    sys.stdout.flush()
    os._exit(code)  # at a normal exit TensorFlow waits for the other workers, also for a lost one


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None)
