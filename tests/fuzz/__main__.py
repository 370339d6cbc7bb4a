"""`python -m tests.fuzz`: many thousand broken requests to a server, which must neither crash nor grow."""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import click

from ctrpipe.common.libraries import load_tensorflow
from tests.fuzz.rounds import Outcome
from tests.fuzz.server import Broken, Server, Usage, external, started

ROUND = 250  # examples: a REST one is a connection with four requests on average
WARM_UP = 0.2  # of the requests, before memory is compared
GROWTH = 0.05
SETTLE_SECONDS = 12.0  # a refused connection stays open for two, so that its client reads the answer; memory is tidied
SPARE_THREADS, SPARE_FILES = 8, 8


@click.command()
@click.option("--requests", default=100_000, show_default=True, help="Fuzzed REST requests.")
@click.option("--grpc", "calls", default=10_000, show_default=True, help="Fuzzed gRPC calls.")
@click.option("--seed", default=None, type=int, help="Of the first round; default: by the clock. Printed with a fault.")
@click.option("--minutes", default=30.0, show_default=True, help="No round starts after so long.")
@click.option("--workers", default=2, show_default=True, help="Processes that send.")
@click.option("--url", default=None, metavar="http://HOST:PORT", help="A server that serves tests.fuzz.servable.")
@click.option("--grpc_address", default=None, metavar="HOST:PORT", help="Its gRPC API.")
@click.option("--server_flag", "flags", multiple=True, help="A flag of our own server; repeatable.")
def main(
    requests: int,
    calls: int,
    seed: int | None,
    minutes: float,
    workers: int,
    url: str | None,
    grpc_address: str | None,
    flags: tuple[str, ...],
) -> None:
    """Fuzz `ctrpipe serve`, or the server at --url, over REST and gRPC.

    Every example is a connection or a call, then a right request that must be answered rightly. A fault is printed with
    its seed and the smallest example that shows it; exit code 1.
    """
    load_tensorflow()
    seed = int(time.time()) if seed is None else seed
    click.echo(f"Seeds from {seed} on")
    run = _Run(seed, time.monotonic() + 60 * minutes, workers)
    try:
        with _server(url, grpc_address, flags) as server:
            run.against(server, requests, calls)
    except Broken as error:
        run.faults.append(str(error))
    for fault in run.faults:
        click.echo(f"FAULT {fault}")
    sys.exit(1 if run.faults else 0)


@contextlib.contextmanager
def _server(url: str | None, grpc_address: str | None, flags: tuple[str, ...]) -> Iterator[Server]:
    if url:
        yield external(url, grpc_address)
        return
    from tests.fuzz.servable import NAME, record_warmup, save

    with tempfile.TemporaryDirectory() as folder:
        record_warmup(save(pathlib.Path(folder) / NAME / "1"))
        with started(pathlib.Path(folder), flags) as server:
            yield server


class _Run:
    """All rounds against one server.

    Args:
        seed: Of the first round.
        end: By the monotonic clock; no round starts after it.
        workers: Processes that send.
    """

    def __init__(self, seed: int, end: float, workers: int):
        self.faults: list[str] = []
        self._seed = seed
        self._end = end
        self._workers = workers

    def against(self, server: Server, requests: int, calls: int) -> None:
        """Warms the server up with a share of the requests, then sends the rest and compares its memory."""
        from tests.fuzz.attacks import gzip_bombs, slow_clients
        from tests.fuzz.grpc_calls import grpc_round
        from tests.fuzz.rest import rest_round

        context = multiprocessing.get_context("spawn")
        before: Usage | None = None
        with concurrent.futures.ProcessPoolExecutor(self._workers, context, load_tensorflow) as pool:
            for share in (WARM_UP, 1 - WARM_UP):
                self._rounds(pool, "REST", rest_round, server.rest, server, round(requests * share))
                if server.grpc:
                    self._rounds(pool, "gRPC", grpc_round, server.grpc, server, round(calls * share))
                self._attack("gzip bombs", lambda: f"{gzip_bombs(server.rest)} refused")
                self._attack(
                    "slow clients", lambda: f"the last of them dropped after {slow_clients(server.rest):.0f} s"
                )
                server.check()
                time.sleep(SETTLE_SECONDS)
                usage = server.usage()
                click.echo(f"{'after the warm-up' if before is None else 'at the end'}: {usage or 'not our process'}")
                before = before or usage
        if before and usage:
            self._compare(before, usage)

    def _rounds(
        self,
        pool: concurrent.futures.Executor,
        what: str,
        play: Callable[..., Outcome],
        address: object,
        server: Server,
        wanted: int,
    ) -> None:
        """Runs rounds until the requests are sent, time is up, or a fault is found."""
        began, sent, slowest = time.monotonic(), 0, 0.0
        answers: collections.Counter = collections.Counter()
        running: set[concurrent.futures.Future[Outcome]] = set()
        while not self.faults:
            while len(running) < self._workers and sent < wanted and time.monotonic() < self._end:
                running.add(pool.submit(play, address, self._seed, ROUND))
                self._seed += 1
            if not running:
                break
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for outcome in (future.result() for future in done):
                sent += outcome.requests
                answers.update(outcome.answers)
                slowest = max(slowest, outcome.slowest)
                if outcome.fault:
                    self.faults.append(f"{what}, seed {outcome.seed}: {outcome.fault}")
            server.check()
        concurrent.futures.wait(running)
        counts = ", ".join(f"{answer} {count:,}" for answer, count in sorted(answers.items()))
        click.echo(f"{what}: {sent:,} in {time.monotonic() - began:.0f} s, the slowest {slowest:.1f} s: {counts}")
        if sent < wanted and not self.faults:
            self.faults.append(f"{what}: only {sent:,} of {wanted:,} requests in the time that --minutes gives")

    def _attack(self, name: str, attack: Callable[[], str]) -> None:
        if self.faults:
            return
        try:
            click.echo(f"{name}: {attack()}")
        except (AssertionError, OSError) as error:
            self.faults.append(f"{name}: {error}")

    def _compare(self, before: Usage, after: Usage) -> None:
        growth = after.megabytes / before.megabytes - 1
        click.echo(
            f"memory {growth:+.1%}, threads {after.threads - before.threads:+}, files {after.files - before.files:+}"
        )
        if growth >= GROWTH:
            self.faults.append(f"memory grew by {growth:.1%} from {before} to {after}")
        if after.threads > before.threads + SPARE_THREADS or after.files > before.files + SPARE_FILES:
            self.faults.append(f"threads or files grew from {before} to {after}")


if __name__ == "__main__":
    main()
