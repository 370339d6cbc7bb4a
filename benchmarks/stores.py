"""Measures reading a log from an object store beside a disk: `python -m benchmarks.stores`."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.command import busy, busy_caption, command, cores, finish, machine, on_cores, output_option
from benchmarks.harness.preprocess_logs import raw_log
from benchmarks.harness.store_servers import KEYS, Rule, faulty, make_bucket, s3_server
from ctrpipe.common import stores
from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.config.packaged_configs import find_config
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

TARGET = 1.2  # the most that reading from the store may cost beside reading from disk
FILE_BYTES = 16 << 20  # moto copies a whole object for each range of it
FAULTS = ("slow_down", "error", "cut", "reset")


def cut_log(log: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes a log as files of whole lines, about FILE_BYTES each."""
    paths: list[pathlib.Path] = []
    with log.open("rb") as source:
        while block := source.read(FILE_BYTES):
            paths.append(folder / f"log_{len(paths)}.tsv")
            paths[-1].write_bytes(block + source.readline())
    return paths


def read(spec: LogSpec, files: list[str], folder: pathlib.Path, processes: int) -> tuple[float, str]:
    """Reads, checks, splits and writes a log as a run does. Returns the seconds and a hash of what was written."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in SPLITS:
        (folder / name).mkdir(parents=True)
    began = time.perf_counter()
    ingest(spec, files, 1, {name: folder / name for name in SPLITS}, folder, Workers(processes=processes))
    seconds = time.perf_counter() - began
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.parquet")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return seconds, digest.hexdigest()


@contextlib.contextmanager
def stored(files: list[pathlib.Path]) -> Iterator[tuple[int, list[str]]]:
    """Yields the port of a server of S3 that has the files, and their URLs. The environment leads to the server."""
    before = dict(os.environ)
    with s3_server() as port:
        make_bucket(port, "logs")
        os.environ.update({**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1"})
        try:
            urls = [f"s3://logs/{path.name}" for path in files]
            for path, url in zip(files, urls, strict=True):
                stores.write_file(url, path)
            yield port, urls
        finally:
            os.environ.clear()
            os.environ.update(before)


@command("benchmarks.stores")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, help="Rows of the log.")
@click.option("--threads", type=click.IntRange(1), help="Processes that read. Default: one per core.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Number of alternating rounds.")
@click.option("--faults/--no-faults", default=True, help="Also read through a proxy with faults.")
@output_option("stores")
def main(rows: int, threads: int | None, rounds: int, faults: bool, output: pathlib.Path) -> None:
    """Read a log of Criteo's shape from disk and from a server of S3 on this machine, in alternating rounds.

    The server shares the cores with the readers. Ends with an error if one byte of what is written differs. Then reads
    the log through a proxy that has a fault in one of ten requests, once for each kind of fault.
    """
    count, share = threads or cores(), busy()
    spec = load_config(find_config(pathlib.Path("criteo/lr.yaml"))).log_spec
    with tempfile.TemporaryDirectory() as name, on_cores(cores()):
        folder = pathlib.Path(name)
        log = cut_log(raw_log(folder, rows), folder)
        with stored(log) as (port, urls):
            sides = {"disk": [str(path) for path in log], "store": urls}
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            hashes = set()
            for index in range(rounds):
                for side, files in sides.items():
                    taken, written = read(spec, files, folder / "payload", count)
                    seconds[side].append(taken)
                    hashes.add(written)
                    announce(f"round {index + 1} of {rounds}: {side}: {rows / taken:,.0f} rows/s")
            with_faults = {}
            for fault in FAULTS if faults else ():
                with faulty(port, Rule(fault, share=0.1, part="GET")) as proxy:
                    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
                    taken, written = read(spec, urls, folder / "payload", count)
                    hashes.add(written)
                    with_faults[fault] = {"seconds": taken, "faults": proxy.faults()}
                    announce(f"{fault}: {proxy.faults()} of {len(proxy.requests())} requests failed; the same bytes")
    if len(hashes) > 1:
        raise RuntimeError("what is written differs between the disk and the store")
    ratio = statistics.median(a / b for a, b in zip(seconds["store"], seconds["disk"], strict=True))
    report: dict[str, Any] = {"benchmark": "stores", "machine": machine(), "rows": rows, "threads": count}
    report |= {"rounds": rounds, "busy": share, "seconds": seconds, "store_over_disk": ratio, "met": ratio <= TARGET}
    report |= {"faults": with_faults, "same_bytes": True}
    table = Table(title=f"{rows:,} rows, {count} processes, {report['machine']['cpu']}", caption=busy_caption(share))
    for name in ("read from", "rows/s", "seconds beside disk", "target"):
        table.add_column(name, justify="left" if name == "read from" else "right")
    for side, taken_by_round in seconds.items():
        own = f"{ratio:.2f}" if side == "store" else "1"
        speed = rows / statistics.median(taken_by_round)
        table.add_row(
            side, f"{speed:,.0f}", own, f"{TARGET} {'met' if report['met'] else 'missed'}" * (side == "store")
        )
    for fault, found in with_faults.items():
        label = f"store, {found['faults']} requests with the fault {fault}"
        beside = found["seconds"] / statistics.median(seconds["disk"])
        table.add_row(label, f"{rows / found['seconds']:,.0f}", f"{beside:.2f}", "")
    finish(report, output, table)


if __name__ == "__main__":
    main()
