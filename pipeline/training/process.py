"""Training in a subprocess: on another Keras backend, or together with the workers of other hosts.

The subprocess writes one JSON object a line to standard output: an evaluation's numbers, JOINED when all workers are
connected, MISTAKE with the message of the InputError that ended it, or ENDED after the training. It exits when its
standard input closes, which also happens when this process is killed.
"""

import json
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.failures import KILLED
from ctrpipe.common.processes import python_command, start_command
from ctrpipe.pipeline.training.cluster import Cluster, read_cluster

Report = Callable[[dict[str, Any]], None]
MISTAKE = "mistake"  # the key of an InputError's message
JOINED = "joined"  # the key of the trained model's name, written when all workers are connected
ENDED = "ended"  # the key of true, written when the training is done; only parting from the other workers is left
LOST = 3  # the exit code of a subprocess that lost another worker
FOLLOW = "python -m ctrpipe.pipeline.training.follow"


def train_with_worker(work: pathlib.Path, backend: str, report: Report | None) -> None:
    """Runs the training of `work`/task.json on another backend.

    Raises:
        InputError: the training failed with a user's mistake, or the process ended with an exit code other than 0.
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
    """Returns TF_CONFIG's workers, or None where `training.distribution` or TF_CONFIG asks for no other worker.

    Args:
        distribution: `training.distribution`.
        backend: The Keras backend on which all of them train.

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
    """Runs the training of `work`/task.json as the chief of all workers.

    Args:
        cluster: The workers.
        work: The training's folder, at the same path for all workers.
        backend: The Keras backend, that of all workers.
        timeout: Seconds within which all workers have to join.
        report: Called with each evaluation's numbers.

    Raises:
        InputError: a worker did not join or was lost, or the training failed with a user's mistake.
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
    """Returns the message for a training of several workers that ended with this exit code.

    The coordination service of TensorFlow and of JAX aborts the process (-6, SIGABRT) where it loses a worker.
    """
    why = "a worker was lost" if code in (LOST, -6) else f"it ended with exit code {code}"
    return (
        f"training with {len(cluster.workers)} workers: {why}; start all of them again, and it goes on from its last "
        "checkpoint"
    )


class TrainingProcess:
    """A module of this package as a subprocess, started by the constructor.

    Args:
        command: The module and its arguments, as for `python -m`.
        backend: The Keras backend.

    Attributes:
        code: The exit code, after `follow`; 0 where the training had ended before. In parting, a worker may take the
            others, which have ended too, for lost.
        joined: The name of the trained model, once all workers are connected.
        timed_out: Whether the process was killed because they were not in time.
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
        """Reads the process's messages until it ends.

        Args:
            report: Called with each evaluation's numbers.
            timeout: Seconds within which all workers have to connect; None for a process without other workers.
            on_timeout: Called before the process is killed after `timeout`.

        Raises:
            InputError: the process ended with a user's mistake.
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
        mistake = None
        ended = False
        try:
            for line in self._process.stdout:
                message = json.loads(line) if line.startswith("{") else {}
                mistake = message.pop(MISTAKE, mistake)
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
            raise InputError(mistake)
