"""`python -m tests.fuzz.swap`: measures latency while a large new version takes over."""

import pathlib
import sys
import tempfile
import time

import click

from ctrpipe.common.libraries import load_tensorflow
from tests.fuzz.server import NAME, Broken, started, wait_for_version
from tests.fuzz.swap_load import CLIENTS, SLOWER, SwapLoad

AFTER_SECONDS = 2.0  # the old version goes


@click.command()
@click.option("--megabytes", default=500, show_default=True, help="Of variables in each version.")
@click.option("--clients", default=CLIENTS, show_default=True, help="That ask without a pause.")
@click.option("--seconds", default=5.0, show_default=True, help="Before the new version appears.")
@click.option("--server_flag", "flags", multiple=True, help="A flag of the server; repeatable.")
def main(megabytes: int, clients: int, seconds: float, flags: tuple[str, ...]) -> None:
    """Swap two versions of one size under load.

    Exit code 1: a request failed, or p99 during the swap was over 5 times that before.
    """
    load_tensorflow()
    from tests.fuzz.servable import record_warmup, save

    with tempfile.TemporaryDirectory() as folder:
        models = pathlib.Path(folder)
        record_warmup(save(models / NAME / "1", 2.0, megabytes))
        new = save(models / "new", 3.0, megabytes)
        record_warmup(new)
        try:
            with started(models, ["--file_system_poll_wait_seconds=0.2", *flags]) as server:
                with SwapLoad(server, clients) as load:
                    time.sleep(1)
                    began = time.perf_counter()
                    time.sleep(seconds)
                    pushed = time.perf_counter()
                    new.rename(models / NAME / "2")
                    wait_for_version(server, 2)
                    available = time.perf_counter()
                    time.sleep(AFTER_SECONDS)
                    ended = time.perf_counter()
        except Broken as error:
            click.echo(f"FAULT {error}")
            sys.exit(1)
    click.echo(f"{megabytes} MB, available {available - pushed:.1f} s after it appeared; {len(load.answers):,} answers")
    for name, since, until in (("before", began, pushed), ("loading", pushed, available), ("after", available, ended)):
        times = ", ".join(f"p{p:g} {load.seconds(since, until, p) * 1e3:.1f}" for p in (50, 99, 100))
        click.echo(f"{name:8} {times} ms")
    failed = [answer for answer in load.answers if answer[2] != 200]
    before, during = load.seconds(began, pushed, 99), load.seconds(pushed, ended, 99)
    click.echo(f"p99 during the swap {during / before:.1f} times that before, {len(failed)} failed")
    sys.exit(1 if failed or during > SLOWER * before else 0)


if __name__ == "__main__":
    main()
