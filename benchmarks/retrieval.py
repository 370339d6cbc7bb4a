"""Measures the exact index of items inside a version: `python -m benchmarks.retrieval DIR/1`."""

import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.command import (
    busy,
    busy_caption,
    command,
    finish,
    machine,
    output_option,
    positive_numbers,
    spread,
)
from common.errors import InputError
from common.libraries import load_tensorflow
from common.progress import announce

TOP, SEED = 100, 1


def measure(version: pathlib.Path, items: int, calls: int) -> dict[str, Any]:
    """Returns the size of a version with that many random items, the seconds to write it, and ms of a call in it.

    A call is of one user: the golden row. `user` is that of the user's vector alone, made in turn with `retrieve`.

    Raises:
        InputError: the version has no towers.
    """
    from serving.assets import GoldenRows
    from serving.export import USER_VECTORS, VECTORS
    from serving.layout import Asset, asset_path
    from serving.loader import Servable
    from serving.retrieval import RETRIEVE, add_index

    plain = Servable(version)
    if USER_VECTORS not in plain.signatures:
        raise InputError(f"{version}: the model has no towers; give a version of two_tower")
    golden = GoldenRows.load(asset_path(version, Asset.GOLDEN))
    user = {name: golden.raw[name][:1] for name in plain.signatures[USER_VECTORS].inputs}
    width = plain.run(USER_VECTORS, user)[VECTORS].shape[1]
    plain.close()
    vectors = np.random.default_rng(SEED).normal(size=(items, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    names = np.array([b"%d" % number for number in range(items)], object)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "1"
        began = time.perf_counter()
        add_index(version, names, vectors, min(TOP, items), path)
        written = time.perf_counter() - began
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        servable = Servable(path)
        try:
            found = servable.run(RETRIEVE, user)
            products = servable.run(USER_VECTORS, user)[VECTORS] @ vectors.T
            best = -np.sort(-products, axis=1)[:, : min(TOP, items)]
            if not np.allclose(found["scores"], best, atol=1e-5):
                raise RuntimeError(f"{items:,} items: the index does not answer the largest products")
            times = _in_turn(servable.run, user, (RETRIEVE, USER_VECTORS), calls)
        finally:
            servable.close()
    return {"items": items, "write_s": written, "bytes": size, "retrieve_ms": times[0], "user_ms": times[1]}


def _in_turn(
    run: Callable[..., Any], inputs: Mapping[str, np.ndarray], signatures: tuple[str, ...], calls: int
) -> list[dict[str, float]]:
    """Returns the spread of the milliseconds of each signature's calls."""
    taken: list[list[float]] = [[] for _ in signatures]
    for _ in range(calls):
        for times, signature in zip(taken, signatures, strict=True):
            began = time.perf_counter()
            run(signature, inputs)
            times.append(1000 * (time.perf_counter() - began))
    return [spread(times) for times in taken]


@command("benchmarks.retrieval")
@click.argument("version", type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False))
@click.option("--items", default="10000,100000,1000000", help="Numbers of items.")
@click.option("--calls", type=click.IntRange(1), default=100, help="Calls of each number of items.")
@output_option("retrieval")
def main(version: pathlib.Path, items: str, calls: int, output: pathlib.Path) -> None:
    """Time `serving_retrieve` of one user in the loader of TF Serving, for the 100 best of so many random items.

    VERSION is a version's folder of a two_tower. The index is exact, which every size checks: recall@100 is 1. Prints a
    table, writes JSON, and prints it as the last line.
    """
    sizes = positive_numbers("--items", items)
    share = busy()
    load_tensorflow()
    results = []
    for size in sizes:
        results.append(measure(version, size, calls))
        announce(f"{size:,} items")
    report = {"benchmark": "retrieval", "machine": machine(), "busy": share, "calls": calls, "results": results}
    table = Table(title=f"One user's {TOP} best items, exact", caption=busy_caption(share))
    for name in ("items", "version, MiB", "written in s", "ms, median", "ms, least", "user's vector alone, ms"):
        table.add_column(name, justify="right")
    for one in results:
        cells = [f"{one['items']:,}", f"{one['bytes'] / 2**20:,.0f}", f"{one['write_s']:.1f}"]
        cells += [f"{one['retrieve_ms'][key]:.2f}" for key in ("median", "min")]
        table.add_row(*cells, f"{one['user_ms']['median']:.2f}")
    finish(report, output, table)


if __name__ == "__main__":
    main()
