"""`python -m pipeline.training.follow`: every worker of TF_CONFIG but the chief, which runs `ctrpipe run`.

Trains with the chief whatever the chief trains, one model after the other, until it is stopped or nothing comes any
more. It needs the chief's files at the same paths, as on a volume that both mount, and no configuration.
"""

import sys
import time

import click

from common.errors import InputError
from common.exit_codes import MISTAKE
from common.progress import announce
from pipeline.training.cluster import Cluster, read_cluster
from pipeline.training.process import LOST, TrainingProcess, ended

AGAIN_SECONDS = 1.0


@click.command()
@click.option("--wait", default=3600.0, show_default=True, help="Ends when no training has begun for so many seconds.")
@click.option("--trainings", type=click.IntRange(1), help="Ends after so many.")
def main(wait: float, trainings: int | None) -> None:
    """Trains with the chief of TF_CONFIG.

    Exit codes: 0 done; 1 a training failed or lost a worker; 2 wrong usage, or no training began.
    """
    try:
        cluster = _here()
        followed = 0
        while trainings is None or followed < trainings:
            try:
                began = _follow(cluster, wait)
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


def _here() -> Cluster:
    cluster = read_cluster()
    if cluster is None:
        raise InputError("TF_CONFIG: names no other worker; it has to name all of them, and which of them this is")
    if cluster.is_chief:
        raise InputError(f"TF_CONFIG: {cluster.workers[0]} is the chief; run ctrpipe run here, and this on the others")
    return cluster


def _follow(cluster: Cluster, wait: float) -> bool:
    """Follows one training from its beginning to its end; returns False where none has begun."""
    end = time.monotonic() + wait
    while True:
        process = TrainingProcess(["pipeline.training.member"], "tensorflow")
        process.follow(None, max(end - time.monotonic(), 0.0))
        if process.late:
            return False
        if process.joined and process.code:
            raise InputError(ended(cluster, process.code))
        if process.joined:
            announce(f"worker {cluster.index}: trained {process.joined} with {cluster.workers[0]}")
            return True
        if process.code != LOST:
            raise InputError(ended(cluster, process.code))
        time.sleep(AGAIN_SECONDS)  # the chief gave up, or was restarted


if __name__ == "__main__":
    main()
