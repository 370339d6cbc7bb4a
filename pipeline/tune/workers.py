"""Worker processes that train trials. Only the process that started them talks to the study."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.processes import child_process, cores
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.transformed_log import TransformedLog

REPORT, RESULT, MISTAKE = "report", "result", "mistake"
Message = tuple[str, Any]


def serve_trials(log: TransformedLog, stages: pathlib.Path, threads: int, connection: Connection) -> None:
    """Trains the trials that the connection sends until it is closed.

    Each message contains a configuration and the folder of its checkpoint. The worker replies with reports, then with a
    result or a mistake. A report contains an evaluation's metrics; the answer to it says whether to stop.
    """
    # TensorFlow reads these when it is imported. All workers together have one thread per core.
    os.environ |= {"TF_NUM_INTRAOP_THREADS": str(threads), "TF_NUM_INTEROP_THREADS": "1"}
    load_tensorflow()
    from ctrpipe.pipeline.tune.trial import train_trial  # lazy: Keras takes 4 s, and the threads are set before

    def judge(numbers: dict[str, Any]) -> bool:
        connection.send((REPORT, numbers))
        return bool(connection.recv())

    with contextlib.suppress(EOFError):
        while True:
            config, work = connection.recv()
            try:
                message: Message = (RESULT, train_trial(config, log, work, stages, judge))
            except InputError as error:
                message = (MISTAKE, str(error))
            connection.send(message)


@contextlib.contextmanager
def started(count: int, log: TransformedLog, work: pathlib.Path) -> Iterator[list[Connection]]:
    """Runs workers until the block ends, and yields a connection to each.

    Args:
        count: The number of workers.
        log: The transformed log.
        work: A folder. Each worker keeps first stages in its own subfolder, because only one process may train a stage.
    """
    threads = max(1, cores() // count)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(child_process(serve_trials, log, work / f"stages-{index}", threads))
            for index in range(count)
        ]


def send(connection: Connection, config: RunConfig, work: pathlib.Path) -> None:
    """Sends a trial to an idle worker."""
    connection.send((config, work))


def receive(connection: Connection) -> Message:
    """Returns a worker's next message.

    Raises:
        InputError: the worker has ended, or training failed with a user's mistake.
    """
    try:
        kind, value = connection.recv()
    except (EOFError, ConnectionResetError) as error:
        raise InputError(
            "a worker of the study was killed, probably because memory ran out; give fewer --workers and repeat the "
            "command to resume"
        ) from error
    if kind == MISTAKE:
        raise InputError(value)
    return kind, value
