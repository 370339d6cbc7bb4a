"""Processes that train for this one: on another Keras backend, or together with the workers of other hosts.

Such a process says one JSON object a line: an evaluation's numbers, that all workers have joined, or the user's mistake
that ended it. It ends when its standard input closes: also when this process is killed.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from common.errors import InputError
from common.processes import start_command
from pipeline.training.cluster import Cluster, read_cluster

Report = Callable[[dict[str, Any]], None]
MISTAKE = "mistake"  # under this name a process hands an InputError's text back
JOINED = "joined"  # and under this one, which model it trains, once it has found the others
LOST = 3  # its exit code where it has lost one of them
FOLLOW = "python -m pipeline.training.follow"


def train_with_worker(work: pathlib.Path, backend: str, report: Report | None) -> None:
    """Has `work`/task.json trained on another backend.

    Raises:
        InputError: what the process said, or that it ended.
    """
    process = TrainingProcess(["pipeline.training.worker", str(work)], backend)
    process.follow(report)
    if process.code:
        raise InputError(f"training on {backend} ended with exit code {process.code}; see the lines above")


def other_workers(distribution: str) -> Cluster | None:
    """TF_CONFIG's workers, where `training.distribution` has them train together and this is their chief.

    Raises:
        InputError: a wrong TF_CONFIG, or none for multi_worker; this is not the chief.
    """
    if distribution not in ("auto", "multi_worker"):
        return None
    cluster = read_cluster()
    if cluster is None and distribution == "multi_worker":
        raise InputError("training.distribution: multi_worker needs a TF_CONFIG that names the workers")
    if cluster and not cluster.is_chief:
        raise InputError(
            f"TF_CONFIG: this is {cluster.workers[cluster.index]}, and {cluster.workers[0]} is the chief, which alone "
            f"runs this command; run {FOLLOW} here"
        )
    return cluster


def train_with_others(cluster: Cluster, work: pathlib.Path, timeout: float, report: Report | None) -> None:
    """Has `work`/task.json trained by all workers, of which this is the chief.

    Args:
        cluster: All of them.
        work: The others see it at the same path.
        timeout: Seconds in which all have to join.
        report: Called with each evaluation's numbers.

    Raises:
        InputError: a worker did not come or was lost, or what the process said.
    """
    process = TrainingProcess(["pipeline.training.member", str(work)], "tensorflow")
    silent: list[str] = []
    process.follow(report, timeout, lambda: silent.extend(cluster.silent()))
    if process.late:
        raise InputError(
            f"TF_CONFIG: {', '.join(silent) or 'a worker'} did not join the training within {timeout:g} seconds; run "
            f"{FOLLOW} there, or raise training.worker_timeout_seconds"
        )
    if process.code:
        raise InputError(ended(cluster, process.code))


def ended(cluster: Cluster, code: int) -> str:
    """Returns why a training of several workers ended, and what to do."""
    why = "a worker was lost" if code in (LOST, -6) else f"it ended with exit code {code}"
    return (
        f"training with {len(cluster.workers)} workers: {why}; start all of them again, and it goes on from its last "
        "checkpoint"
    )


class TrainingProcess:
    """`python -m` of a module of this package, started at once.

    Attributes:
        code: The exit code, when it has ended.
        joined: The model that it trains with others, once it has found them.
        late: Whether it was killed because it had not found them in time.
    """

    def __init__(self, command: list[str], backend: str):
        self.code = 0
        self.joined = ""
        self.late = False
        root = str(pathlib.Path(__file__).parents[2])
        self._process = start_command(
            [sys.executable, "-m", *command],
            env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": root},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def follow(
        self, report: Report | None, timeout: float | None = None, when_late: Callable[[], None] | None = None
    ) -> None:
        """Waits for its end.

        Args:
            report: Called with each evaluation's numbers.
            timeout: Seconds in which it has to join the others; None: it joins nobody.
            when_late: Called before it is killed for that.

        Raises:
            InputError: that of the process.
        """

        def give_up() -> None:
            if when_late:
                when_late()
            self.late = not self.joined
            if self.late:
                self._process.kill()

        assert self._process.stdout and self._process.stdin
        timer = threading.Timer(timeout, give_up) if timeout is not None else None
        if timer:
            timer.daemon = True
            timer.start()
        mistake = None
        try:
            for line in self._process.stdout:
                said = json.loads(line) if line.startswith("{") else {}
                mistake = said.pop(MISTAKE, mistake)
                self.joined = said.pop(JOINED, self.joined)
                if timer and self.joined:
                    timer.cancel()
                if report and said:
                    report(said)
            self.code = self._process.wait()
        finally:
            if timer:
                timer.cancel()
            self._process.stdin.close()
            self._process.wait()
        if mistake:
            raise InputError(mistake)
