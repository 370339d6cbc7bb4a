"""`python -m tests.fuzz.soak`: steady load on the server, whose memory must not grow."""

import pathlib
import sys
import tempfile

import click

from ctrpipe.common.libraries import load_tensorflow
from tests.fuzz.server import Broken, started


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="With the warm-up minute.")
@click.option("--rate", default=100.0, show_default=True, help="Requests a second of each client.")
@click.option("--clients", default=2, show_default=True, help="Over REST, and as many over gRPC.")
@click.option("--server_flag", "flags", multiple=True, help="A flag of the server; repeatable.")
def main(minutes: float, rate: float, clients: int, flags: tuple[str, ...]) -> None:
    """Ask `ctrpipe serve` at a steady rate over REST and gRPC on loopback, and watch its memory.

    Exit code 1: a wrong answer, a traceback in its log, or 5 % more memory at the end than after the first minute.
    """
    if minutes <= 1:
        raise click.UsageError("--minutes: more than one, which is the warm-up")
    load_tensorflow()
    from tests.fuzz.servable import NAME, record_warmup, save
    from tests.fuzz.steady_load import soak

    try:
        with tempfile.TemporaryDirectory() as folder:
            record_warmup(save(pathlib.Path(folder) / NAME / "1"))
            with started(pathlib.Path(folder), flags) as server:
                faults = soak(server, 60 * minutes, rate, clients)
    except Broken as error:
        faults = [str(error)]
    for fault in faults:
        click.echo(f"FAULT {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
