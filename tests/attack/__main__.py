"""`python -m tests.attack`: what a client can do to an open port. Each attack has a bound on its cost."""

import contextlib
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator

import click

from ctrpipe.common.libraries import load_tensorflow
from tests.attack.target import Target, started_target
from tests.fuzz.server import Broken, external


@click.command()
@click.option("--url", default=None, metavar="http://HOST:PORT", help="A server that serves tests.fuzz.servable.")
@click.option("--grpc_address", default=None, metavar="HOST:PORT", help="Its gRPC API.")
@click.option("--server_flag", "flags", multiple=True, help="A flag of our own server; repeatable.")
@click.option("--only", "names", multiple=True, help="The name of an attack, or its beginning; repeatable.")
@click.option("--short", is_flag=True, help="The sizes of `make test`: seconds in place of minutes.")
@click.option("--list", "listed", is_flag=True, help="Name the attacks, and end.")
def main(
    url: str | None, grpc_address: str | None, flags: tuple[str, ...], names: tuple[str, ...], short: bool, listed: bool
) -> None:
    """Attack `ctrpipe serve`, or the server at --url. Prints what each attack measured, and its bound.

    Exit code 1: a figure is above its bound, or the server ended or wrote a traceback.
    """
    load_tensorflow()
    from tests.attack.attacks import ATTACKS

    chosen = [attack for attack in ATTACKS if not names or attack.__name__.startswith(names)]
    if listed:
        for attack in chosen:
            click.echo(f"{attack.__name__:32} {(attack.__doc__ or '').splitlines()[0]}")
        return
    failed = []
    with _target(url, grpc_address, flags, not short) as target:
        for attack in chosen:
            began = time.monotonic()
            try:
                measures = attack(target)
                target.server.check()
            except (AssertionError, OSError) as error:
                click.echo(f"{attack.__name__}: FAULT {error}")
                failed.append(attack.__name__)
                if isinstance(error, Broken):
                    break
                continue
            for measure in measures:
                click.echo(f"{attack.__name__}: {measure}")
            click.echo(
                f"{attack.__name__}: {f'{time.monotonic() - began:.1f} s' if measures else 'not for this server'}"
            )
            if not all(measure.met for measure in measures):
                failed.append(attack.__name__)
    kept = f"{len(chosen) - len(failed)} of {len(chosen)} attacks kept their bounds"
    click.echo(f"{kept}; not {', '.join(failed)}" if failed else kept)
    sys.exit(1 if failed else 0)


@contextlib.contextmanager
def _target(url: str | None, grpc_address: str | None, flags: tuple[str, ...], long: bool) -> Iterator[Target]:
    if url:
        yield Target(external(url, grpc_address), long)
        return
    with tempfile.TemporaryDirectory() as folder, started_target(pathlib.Path(folder), long, flags) as target:
        yield target


if __name__ == "__main__":
    main()
