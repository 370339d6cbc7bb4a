"""Worker process of a distributed training run: `python -m ctrpipe.pipeline.training.member [FOLDER]`.

Only the chief's process gets FOLDER, which contains the job. It sends the job to the other workers. The environment
variable KERAS_BACKEND names the backend. process.py describes the messages on standard output.
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
from ctrpipe.common.libraries import hide_tensorflow, load_tensorflow
from ctrpipe.pipeline.training.cluster import read_cluster
from ctrpipe.pipeline.training.process import ENDED, JOINED, LOST, mistake_message
from ctrpipe.pipeline.training.worker import exit_with_parent

FromChief = Callable[[list[np.ndarray]], list[np.ndarray]]
IsLost = Callable[[Exception], bool]


def main(folder: pathlib.Path | None) -> None:
    threading.Thread(target=exit_with_parent, daemon=True).start()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # hides the page of log lines about a lost worker

    def write(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)

    connect, disconnect, is_lost = _of_jax() if os.environ["KERAS_BACKEND"] == "jax" else _of_tensorflow()
    try:
        from_chief = connect()
        # Lazy: Keras takes 4 s, and the hosts connect before it is imported.
        from ctrpipe.pipeline.training.handover import run_shared_job

        run_shared_job(folder, from_chief, lambda name: write({JOINED: name}), write)
        write({ENDED: True})
        disconnect()
    except InputError as error:
        write(mistake_message(error))
        code = 2
    except Exception as error:
        if not is_lost(error):
            raise
        code = LOST
    else:
        code = 0
    sys.stdout.flush()
    os._exit(code)  # a normal exit would wait for the other workers, even for a lost one


def _of_tensorflow() -> tuple[Callable[[], FromChief], Callable[[], None], IsLost]:
    """Returns three functions: connect (returns `Learner.from_chief`), disconnect, and is_lost for an error."""
    load_tensorflow()
    # Lazy: takes 4 s, and load_tensorflow, which comes first, suppresses the start-up lines.
    import tensorflow as tf

    from ctrpipe.pipeline.training.tensorflow_learner import make_strategy
    from ctrpipe.pipeline.training.worker_group import WorkerGroup

    errors = tf.errors  # DeadlineExceededError means a cut link: nothing reports that the other worker is gone
    lost = (errors.UnavailableError, errors.AbortedError, errors.CancelledError, errors.DeadlineExceededError)

    def connect() -> FromChief:
        return WorkerGroup(make_strategy("multi_worker")).from_chief

    return connect, lambda: None, lambda error: isinstance(error, lost)


def _of_jax() -> tuple[Callable[[], FromChief], Callable[[], None], IsLost]:
    """Returns the functions of `_of_tensorflow` for JAX."""
    hide_tensorflow()
    from ctrpipe.pipeline.training import jax_hosts  # lazy: JAX takes 0.5 s, and TensorFlow does not need it

    def connect() -> FromChief:
        cluster = read_cluster()
        assert cluster  # this process is started only if TF_CONFIG names other workers
        jax_hosts.connect(cluster)
        return jax_hosts.from_chief

    return connect, jax_hosts.disconnect, jax_hosts.is_lost


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None)
