"""Trials in processes of their own, a core or more each. The process that started them asks and tells the study."""

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
    """Trains what the connection sends until it is closed, and answers with a report, a result or a mistake.

    A message is a configuration and the folder of its checkpoint. A report is an evaluation's numbers; its answer says
    whether to stop.
    """
    # Read by TensorFlow when it is imported: the pools of all workers together have a thread a core.
    os.environ |= {"TF_NUM_INTRAOP_THREADS": str(threads), "TF_NUM_INTEROP_THREADS": "1"}
    load_tensorflow()
    from ctrpipe.pipeline.tune.trial import train_trial  # Keras: 3 s, after the threads are set

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
        work: A folder; each worker keeps first stages in one of its own below it, as only one may train a stage.
    """
    threads = max(1, cores() // count)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(child_process(serve_trials, log, work / f"stages-{index}", threads))
            for index in range(count)
        ]


def send(connection: Connection, config: RunConfig, work: pathlib.Path) -> None:
    """Gives an idle worker a trial."""
    connection.send((config, work))


def receive(connection: Connection) -> Message:
    """Returns a worker's next message.

    Raises:
        InputError: the worker has ended, or the training failed with a user's mistake.
    """
    try:
        kind, value = connection.recv()
    except (EOFError, ConnectionResetError) as error:
        raise InputError(
            "a worker of the study ended, as the system ends one where memory runs out; give fewer --workers, and the "
            "same command goes on"
        ) from error
    if kind == MISTAKE:
        raise InputError(value)
    return kind, value
