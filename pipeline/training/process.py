"""Training in a subprocess: on another Keras backend, or together with the workers of other hosts.

The subprocess writes one JSON object per line to standard output: the metrics of an evaluation, JOINED when all workers
are connected, MISTAKE with the message of the InputError that ended it, or ENDED after the training. It exits when its
standard input closes. This also happens when the parent process is killed.
"""

import json
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from ctrpipe.common.errors import InputError, NotFiniteError
from ctrpipe.common.failures import KILLED
from ctrpipe.common.processes import python_command, start_command
from ctrpipe.pipeline.training.cluster import Cluster, read_cluster

Report = Callable[[dict[str, Any]], None]
MISTAKE = "mistake"  # key: the message of an InputError
NOT_FINITE = "not_finite"  # key, next to MISTAKE: the arguments of a NotFiniteError
JOINED = "joined"  # key: the name of the trained model, written when all workers are connected
ENDED = "ended"  # key: true, written when training is done and only disconnecting from the other workers is left
LOST = 3  # exit code of a subprocess that lost another worker
FOLLOW = "python -m ctrpipe.pipeline.training.follow"


def train_with_worker(work: pathlib.Path, backend: str, report: Report | None) -> None:
    """Runs the training job in `work` on another backend.

    Raises:
        InputError: the training failed because of a user's mistake, or the process exited with a code other than 0.
    """
    process = TrainingProcess(["ctrpipe.pipeline.training.worker", str(work)], backend)
    process.follow(report)
    if process.code == -signal.SIGKILL:
        raise InputError(
            f"training on {backend}: {KILLED}; close other programs, or give it more memory, and run again"
        )
    if process.code:
        raise InputError(f"training on {backend} ended with exit code {process.code}; see the lines above")


def other_workers(distribution: str, backend: str) -> Cluster | None:
    """Returns the workers in TF_CONFIG, or None if the training runs on this host only.

    Args:
        distribution: `training.distribution`.
        backend: The Keras backend of all workers.

    Raises:
        InputError: TF_CONFIG is invalid, or absent for multi_worker, or this worker is not the chief.
    """
    if distribution not in ("auto", "multi_worker"):
        return None
    cluster = read_cluster()
    if cluster is None and distribution == "multi_worker":
        raise InputError("training.distribution: multi_worker needs a TF_CONFIG that names the workers")
    if cluster and not cluster.is_chief:
        raise InputError(
            f"TF_CONFIG: this is {cluster.workers[cluster.index]}, and {cluster.workers[0]} is the chief, which alone "
            f"runs this command; run {FOLLOW} --backend {backend} here"
        )
    return cluster


def train_with_others(
    cluster: Cluster, work: pathlib.Path, backend: str, timeout: float, report: Report | None
) -> None:
    """Runs the training job in `work` as the chief of all workers.

    Args:
        cluster: The workers.
        work: The work folder of the training, at the same path for all workers.
        backend: The Keras backend of all workers.
        timeout: Seconds within which all workers must join.
        report: Called with the metrics of each evaluation.

    Raises:
        InputError: a worker did not join or was lost, or the training failed because of a user's mistake.
    """
    process = TrainingProcess(["ctrpipe.pipeline.training.member", str(work)], backend)
    unreachable: list[str] = []
    process.follow(report, timeout, lambda: unreachable.extend(cluster.unreachable()))
    if process.timed_out:
        raise InputError(
            f"TF_CONFIG: {', '.join(unreachable) or 'a worker'} did not join the training within {timeout:g} seconds; "
            f"run {FOLLOW} --backend {backend} there, or raise training.worker_timeout_seconds"
        )
    if process.code:
        raise InputError(explain_exit(cluster, process.code))


def explain_exit(cluster: Cluster, code: int) -> str:
    """Returns the error message for a distributed training run that ended with this exit code.

    The coordination service of TensorFlow and of JAX aborts the process (-6, SIGABRT) if it loses a worker.
    """
    why = "a worker was lost" if code in (LOST, -6) else f"it ended with exit code {code}"
    return (
        f"training with {len(cluster.workers)} workers: {why}; start all of them again to resume from the last "
        "checkpoint"
    )


def mistake_message(error: InputError) -> dict[str, Any]:
    """Returns the message about the InputError that ends a subprocess."""
    return {MISTAKE: str(error), **({NOT_FINITE: error.args} if isinstance(error, NotFiniteError) else {})}


class TrainingProcess:
    """A module of this package as a subprocess, started by the constructor.

    Args:
        command: The module and its arguments, as for `python -m`.
        backend: The Keras backend.

    Attributes:
        code: The exit code, set by `follow`. It is 0 if the training had ended, because a worker that disconnects may
            report other finished workers as lost.
        joined: The name of the trained model, once all workers are connected.
        timed_out: Whether the process was killed because the workers did not connect in time.
    """

    def __init__(self, command: list[str], backend: str):
        self.code = 0
        self.joined = ""
        self.timed_out = False
        module, *arguments = command
        code = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        self._process = start_command(
            python_command(code, *arguments),
            env={**os.environ, "KERAS_BACKEND": backend},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def follow(
        self, report: Report | None, timeout: float | None = None, on_timeout: Callable[[], None] | None = None
    ) -> None:
        """Reads the messages of the process until it ends.

        Args:
            report: Called with the metrics of each evaluation.
            timeout: Seconds within which all workers must connect; None for a process without other workers.
            on_timeout: Called after `timeout`, before the process is killed.

        Raises:
            InputError: the process ended because of a user's mistake.
        """

        def kill_unless_joined() -> None:
            if on_timeout:
                on_timeout()
            self.timed_out = not self.joined
            if self.timed_out:
                self._process.kill()

        assert self._process.stdout and self._process.stdin
        timer = threading.Timer(timeout, kill_unless_joined) if timeout is not None else None
        if timer:
            timer.daemon = True
            timer.start()
        mistake = figure = None
        ended = False
        try:
            for line in self._process.stdout:
                message = json.loads(line) if line.startswith("{") else {}
                mistake = message.pop(MISTAKE, mistake)
                figure = message.pop(NOT_FINITE, figure)
                self.joined = message.pop(JOINED, self.joined)
                ended = message.pop(ENDED, ended)
                if timer and self.joined:
                    timer.cancel()
                if report and message:
                    report(message)
            code = self._process.wait()
            self.code = 0 if ended else code
        finally:
            if timer:
                timer.cancel()
            self._process.stdin.close()
            self._process.wait()
        if mistake:
            raise NotFiniteError(*figure) if figure else InputError(mistake)
