"""Joins a chief's training runs from another host: `python -m ctrpipe.pipeline.training.follow`.

Run this module on each TF_CONFIG worker except the chief, which runs `ctrpipe run`. It takes part in the chief's
training runs, one after the other, until it is stopped or no training starts for `--wait` seconds. It needs no
configuration: it reads the chief's files at the same paths, for example on a shared volume.
"""

import sys
import time

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import MISTAKE
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.training.cluster import Cluster, read_cluster
from ctrpipe.pipeline.training.process import LOST, TrainingProcess, explain_exit

RETRY_SECONDS = 1.0


@click.command()
@click.option("--wait", default=3600.0, show_default=True, help="Exit if no training starts for this many seconds.")
@click.option(
    "--backend",
    type=click.Choice(["tensorflow", "jax"]),
    default="tensorflow",
    show_default=True,
    help="The training.backend of the chief's configuration.",
)
@click.option("--trainings", type=click.IntRange(1), help="Exit after this many training runs.")
def main(wait: float, backend: str, trainings: int | None) -> None:
    """Joins the training runs of the chief in TF_CONFIG.

    Exit codes: 0 done; 1 a training failed or lost a worker; 2 wrong usage, or no training began.
    """
    try:
        cluster = _read_own_cluster()
        followed = 0
        while trainings is None or followed < trainings:
            try:
                began = _follow(cluster, backend, wait)
            except InputError as error:
                click.echo(f"ctrpipe: {error}", err=True)
                sys.exit(1)
            if not began:
                break
            followed += 1
        if not followed:
            raise InputError(f"TF_CONFIG: the chief, {cluster.workers[0]}, began no training within {wait:g} seconds")
    except InputError as error:
        click.echo(f"ctrpipe: {error}", err=True)
        sys.exit(MISTAKE)


def _read_own_cluster() -> Cluster:
    """Returns the workers in TF_CONFIG.

    Raises InputError if there are none, or if this worker is the chief.
    """
    cluster = read_cluster()
    if cluster is None:
        raise InputError("TF_CONFIG: names no other worker; it must name all workers and say which of them this is")
    if cluster.is_chief:
        raise InputError(f"TF_CONFIG: {cluster.workers[0]} is the chief; run ctrpipe run here, and this on the others")
    return cluster


def _follow(cluster: Cluster, backend: str, wait: float) -> bool:
    """Takes part in one training run until it ends. Returns False if none starts within `wait` seconds.

    Raises:
        InputError: the training failed or lost a worker.
    """
    end = time.monotonic() + wait
    while True:
        process = TrainingProcess(["ctrpipe.pipeline.training.member"], backend)
        process.follow(None, max(end - time.monotonic(), 0.0))
        if process.timed_out:
            return False
        if process.joined and process.code:
            raise InputError(explain_exit(cluster, process.code))
        if process.joined:
            announce(f"worker {cluster.index}: trained {process.joined} with {cluster.workers[0]}")
            return True
        if process.code != LOST:
            raise InputError(explain_exit(cluster, process.code))
        time.sleep(RETRY_SECONDS)  # the chief exited before the training began, and may be restarted


if __name__ == "__main__":
    main()
