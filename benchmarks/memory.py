"""Measures the peak memory of training a large CIN, beside FuxiCTR's: `python -m benchmarks.memory`."""

import dataclasses
import pathlib
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.command import (
    command,
    cores,
    finish,
    machine,
    on_cores,
    output_option,
    positive_numbers,
    shape_options,
)
from benchmarks.harness.ours import BACKENDS, Ours
from benchmarks.harness.settings import Shape, peer_options
from benchmarks.peers.client import Peer
from benchmarks.train import peer_version
from common.progress import announce

TARGET = 0.5  # ours over the peer's
PEER = "fuxictr"
MIB = 2**20


def used(reply: dict[str, int]) -> int:
    """Returns the peak bytes of a process, less those that it held with only its libraries loaded."""
    return reply["peak_bytes"] - reply["baseline_bytes"]


def result(ours: dict[str, int], theirs: dict[str, int]) -> dict[str, Any]:
    """Returns both sides' bytes, ours over theirs, and whether that meets the target."""
    ratio = used(ours) / used(theirs)
    sides = {"ours": ours | {"used_bytes": used(ours)}, "theirs": theirs | {"used_bytes": used(theirs)}}
    return sides | {"ratio": ratio, "target": TARGET, "met": ratio <= TARGET}


def table(report: dict[str, Any]) -> Table:
    result_table = Table(title=f"Peak memory of training, CIN {report['maps']}, batch {report['shape']['batch']}")
    for name in ("side", "MiB", "ratio", "target", ""):
        result_table.add_column(name, justify="left" if name in ("side", "") else "right")
    result_table.add_row(f"ours ({report['backend']})", f"{report['ours']['used_bytes'] / MIB:,.0f}")
    numbers = (f"{report['ratio']:.2f}", f"{report['target']:.1f}", "met" if report["met"] else "missed")
    result_table.add_row(f"{PEER} {report['peers'][PEER]}", f"{report['theirs']['used_bytes'] / MIB:,.0f}", *numbers)
    return result_table


@command("benchmarks.memory")
@click.option("--backend", type=click.Choice(BACKENDS), default="tensorflow", help="Ours.")
@click.option("--maps", default="200,200,200", help="Feature maps of each layer.")
@click.option("--batch", type=click.IntRange(1), default=4096, help="Rows in a step.")
@shape_options
@click.option("--ids", type=click.IntRange(2), default=5000, help="Ids in each field.")
@click.option("--peer-python", type=click.Path(path_type=pathlib.Path), help="Interpreter that has FuxiCTR installed.")
@output_option("memory")
def main(
    backend: str,
    maps: str,
    batch: int,
    fields: int,
    ids: int,
    dim: int,
    threads: int | None,
    peer_python: pathlib.Path | None,
    output: pathlib.Path,
) -> None:
    """Measure the peak memory of training the CIN alone, ours and FuxiCTR's (`make peers`), on the CPU.

    Each side builds the model and takes two steps of Adam in a new process. Counted is the largest resident memory
    less that of the process with its libraries loaded: weights, optimizer state, batches, and all that a step needs.
    Prints a table, writes JSON, and prints it as the last line.
    """
    shape, sizes = Shape(fields, ids, dim, batch), positive_numbers("--maps", maps)
    threads = threads or cores()
    report: dict[str, Any] = {"benchmark": "memory", "machine": machine(), "shape": dataclasses.asdict(shape)}
    report |= {"maps": sizes, "threads": threads, "peers": {PEER: peer_version(PEER)}}
    peer = Peer(PEER, peer_python)
    with on_cores(threads):
        with Ours(backend, threads) as ours:
            report |= ours.about()
        announce(f"cin {maps}, batch {batch}: ours ({backend})")
        # No activation between the layers on either side: FuxiCTR's CIN has none.
        mine = Ours(backend, threads).memory("cin", {"maps": sizes, "embedding_dim": dim}, shape)
        announce(f"cin {maps}, batch {batch}: {PEER}")
        theirs = peer.memory("cin", batch, threads, **{**peer_options(shape), "cin": sizes})
    report |= result(mine, theirs)
    finish(report, output, table(report))


if __name__ == "__main__":
    main()
