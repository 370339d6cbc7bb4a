"""One worker of a training on several hosts, in its own process: `python -m ctrpipe.pipeline.training.member [FOLDER]`.

Only the chief's process gets FOLDER, with task.json in it, and sends the task to the others. KERAS_BACKEND says on what
they train. process.py describes what this process writes to standard output.
"""

import json
import os
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.training.cluster import read_cluster
from ctrpipe.pipeline.training.process import ENDED, JOINED, LOST, MISTAKE
from ctrpipe.pipeline.training.worker import exit_with_parent, hide_tensorflow

FromChief = Callable[[list[np.ndarray]], list[np.ndarray]]
IsLost = Callable[[Exception], bool]


def main(folder: pathlib.Path | None) -> None:
    threading.Thread(target=exit_with_parent, daemon=True).start()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # a lost worker would be reported in a page of log lines

    def write(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)

    connect, disconnect, is_lost = _of_jax() if os.environ["KERAS_BACKEND"] == "jax" else _of_tensorflow()
    try:
        from_chief = connect()
        from ctrpipe.pipeline.training.train import run_shared_task  # Keras: after the workers are connected

        run_shared_task(folder, from_chief, lambda name: write({JOINED: name}), write)
        write({ENDED: True})
        disconnect()
    except InputError as error:
        write({MISTAKE: str(error)})
        code = 2
    except Exception as error:
        if not is_lost(error):
            raise
        code = LOST
    else:
        code = 0
    sys.stdout.flush()
    os._exit(code)  # at a normal exit it would wait for the other workers, also for a lost one


def _of_tensorflow() -> tuple[Callable[[], FromChief], Callable[[], None], IsLost]:
    """Returns what connects the workers and gives `Learner.from_chief`, what ends it, and what tells a lost one."""
    load_tensorflow()
    # They import TensorFlow, whose start-up lines are only held back where load_tensorflow imports it first.
    import tensorflow as tf

    from ctrpipe.pipeline.training.tensorflow_learner import make_strategy
    from ctrpipe.pipeline.training.worker_group import WorkerGroup

    errors = tf.errors  # the last one where a link is cut: nothing says that the other worker is gone
    lost = (errors.UnavailableError, errors.AbortedError, errors.CancelledError, errors.DeadlineExceededError)

    def connect() -> FromChief:
        return WorkerGroup(make_strategy("multi_worker")).from_chief

    return connect, lambda: None, lambda error: isinstance(error, lost)


def _of_jax() -> tuple[Callable[[], FromChief], Callable[[], None], IsLost]:
    """Returns what `_of_tensorflow` returns, for JAX."""
    hide_tensorflow()
    from ctrpipe.pipeline.training import jax_hosts

    def connect() -> FromChief:
        cluster = read_cluster()
        assert cluster  # or no other worker would have been asked for
        jax_hosts.connect(cluster)
        return jax_hosts.from_chief

    return connect, jax_hosts.disconnect, jax_hosts.is_lost


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None)
