"""Measures reading a log from an object store compared with a disk: `python -m benchmarks.stores`."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import cores, on_cores
from benchmarks.harness.preprocess_logs import raw_log
from benchmarks.harness.range_server import range_server
from benchmarks.harness.result_table import Cell, result_table
from benchmarks.harness.store_servers import KEYS, Rule, faulty, make_bucket, s3_server
from benchmarks.harness.turns import alternate, core_seconds, ratios
from ctrpipe.common import stores
from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.config.packaged_configs import find_config
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

TARGET = 1.2  # the largest ratio of the time from the store to the time from disk
FILE_BYTES = 16 << 20  # moto copies a whole object for each range of it
STORE, MOTO = "store", "moto's server"
FAULTS = ("slow_down", "error", "cut", "reset")


class Reading(NamedTuple):
    """The wall time and the CPU time of reading a log, in seconds."""

    seconds: float
    core_seconds: float


def cut_log(log: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes a log as files of whole lines, about FILE_BYTES each."""
    paths: list[pathlib.Path] = []
    with log.open("rb") as source:
        while block := source.read(FILE_BYTES):
            paths.append(folder / f"log_{len(paths)}.tsv")
            paths[-1].write_bytes(block + source.readline())
    return paths


def read(spec: LogSpec, files: list[str], folder: pathlib.Path, processes: int) -> tuple[Reading, str]:
    """Reads, checks, splits and writes a log as a run does. Returns its times and a hash of the files written."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in SPLITS:
        (folder / name).mkdir(parents=True)
    began, used = time.perf_counter(), core_seconds()
    ingest(spec, files, 1, {name: folder / name for name in SPLITS}, folder, Workers(processes=processes))
    taken = Reading(time.perf_counter() - began, core_seconds() - used)
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.parquet")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return taken, digest.hexdigest()


@contextlib.contextmanager
def led_to(port: int) -> Iterator[None]:
    """Sets the environment's S3 endpoint to a local server until the block ends."""
    before = dict(os.environ)
    os.environ.update({**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def table(report: Mapping[str, Any]) -> Table:
    """Returns the table of the sides, and of the store behind each kind of fault."""
    disk, disk_cores = (statistics.median(report[key]["disk"]) for key in ("seconds", "core_seconds"))
    verdict = f"{TARGET} {'met' if report['met'] else 'missed'}"
    rows = [
        {
            "side": side,
            "seconds": statistics.median(report["seconds"][side]),
            "over": report["over_disk"].get(side, {}).get("seconds", 1.0),
            "cores_over": report["over_disk"].get(side, {}).get("core_seconds", 1.0),
            "target": verdict if side == STORE else "",
        }
        for side in report["seconds"]
    ]
    for fault, of_fault in report["faults"].items():
        side, seconds = f"moto, {of_fault['faults']} requests with the fault {fault}", of_fault["seconds"]
        over = {"over": seconds / disk, "cores_over": of_fault["core_seconds"] / disk_cores}
        rows.append({"side": side, "seconds": seconds, **over, "target": ""})
    columns: dict[str, Cell] = {
        "read from": "{side}",
        "rows/s": lambda one: f"{report['rows'] / one['seconds']:,.0f}",
        "seconds over the disk's": "{over:.2f}",
        "readers' core seconds over": "{cores_over:.2f}",
        "target": "{target}",
    }
    sizes = f"{report['rows']:,} rows, {report['threads']} processes, {report['machine']['cpu']}"
    return result_table(sizes, columns, rows)


@Benchmark("benchmarks.stores", table)
@click.option("--rows", type=click.IntRange(1), default=1_000_000, help="Rows of the log.")
@click.option("--threads", type=click.IntRange(1), help="Processes that read. Default: one per core.")
@click.option("--rounds", type=click.IntRange(1), default=3, help="Number of alternating rounds.")
@click.option("--faults/--no-faults", default=True, help="Also read from moto's server, and from it with faults.")
def main(report: Report, rows: int, threads: int | None, rounds: int, faults: bool) -> None:
    """Read a log of Criteo's shape from disk and from servers of S3 on this machine, in alternating rounds.

    The target is for a server that costs next to nothing; moto's, which shares the cores with the readers too, costs as
    much as they do. Ends with an error if one byte of what is written differs. Then reads the log from moto's server
    through a proxy that has a fault in one of ten requests, once for each kind of fault.
    """
    count = threads or cores()
    report.add_load()
    report |= {"rows": rows, "threads": count, "rounds": rounds, "faults": {}}
    spec = load_config(find_config(pathlib.Path("criteo/lr.yaml"))).log_spec
    hashes: set[str] = set()
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_cores(cores()))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = cut_log(raw_log(folder, rows), folder)
        urls = [f"s3://logs/{path.name}" for path in log]

        def taken_by(files: list[str], port: int) -> Reading:
            with led_to(port):
                taken, written = read(spec, files, folder / "payload", count)
            hashes.add(written)
            return taken

        def tell(number: int, results: Mapping[str, Reading]) -> None:
            for side, taken in results.items():
                announce(f"round {number} of {rounds}: {side}: {rows / taken.seconds:,.0f} rows/s")

        port = stack.enter_context(range_server(folder))
        sides = {"disk": lambda: taken_by([str(path) for path in log], port), STORE: lambda: taken_by(urls, port)}
        if faults:
            moto = stack.enter_context(s3_server())
            make_bucket(moto, "logs")
            with led_to(moto):
                for path, url in zip(log, urls, strict=True):
                    stores.write_file(url, path)
            sides[MOTO] = lambda: taken_by(urls, moto)
        results = alternate(sides, rounds, tell)
        for fault in FAULTS if faults else ():
            with faulty(moto, Rule(fault, share=0.1, part="GET")) as proxy:
                taken = taken_by(urls, proxy.port)
                report["faults"][fault] = {**taken._asdict(), "faults": proxy.faults()}
                announce(f"{fault}: {proxy.faults()} of {len(proxy.requests())} requests failed; the same bytes")
    if len(hashes) > 1:
        raise RuntimeError("what is written differs between the disk and the store")
    for key in Reading._fields:
        report[key] = {side: [getattr(taken, key) for taken in of_side] for side, of_side in results.items()}
    over = {
        side: {key: ratios(report[key][side], report[key]["disk"])["median"] for key in Reading._fields}
        for side in results
        if side != "disk"
    }
    report |= {"over_disk": over, "met": over[STORE]["seconds"] <= TARGET, "same_bytes": True}


if __name__ == "__main__":
    main()
