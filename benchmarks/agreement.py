"""Compares the answers of a model on two devices: `python -m benchmarks.agreement --device gpu`.

Both sides start from the same seed and read the same batches. Without training only the forward pass can differ; after
some steps the gradients and the optimizer can, too. A recent GPU rounds the factors of float32 products to TF32, as
both backends allow by default. --exact forbids it; only the order of the sums then differs.
"""

import contextlib
import math
import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
import numpy as np
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import chosen_names, cores, device_option, shape_options
from benchmarks.harness.ours import BACKENDS, Ours
from benchmarks.harness.result_table import Cell, result_table
from benchmarks.harness.settings import MODELS, Shape, our_options
from benchmarks.peers.line_process import ProcessError
from ctrpipe.common.errors import one_line
from ctrpipe.common.progress import announce

# Largest difference of an untrained model's logit: sums in another order, and TF32's 11 bits of a factor.
EXACT_TARGET, TF32_TARGET = 1e-4, 5e-3


def compare(
    sides: Sequence[Ours], model: str, shape: Shape, steps: int, rows: int, exact: bool = False
) -> dict[str, Any]:
    """Returns the largest differences of the logits, before and after `steps` training steps, and both losses.

    Raises:
        ProcessError: A side failed.
    """
    with ThreadPoolExecutor(len(sides)) as pool:
        options = our_options(model, None, shape)
        asked = [pool.submit(side.answers, model, options, shape, steps, rows, exact) for side in sides]
        here, there = (future.result() for future in asked)
    before, after = (
        float(np.max(np.abs(np.subtract(here[key], there[key])), initial=0.0)) for key in ("logits", "trained_logits")
    )
    return {"logit_difference": before, "trained_logit_difference": after, "losses": [here["loss"], there["loss"]]}


def compare_all(
    models: Sequence[str],
    backend: str,
    device: str,
    shape: Shape,
    steps: int,
    rows: int,
    workers: int,
    exact: bool = False,
) -> list[dict[str, Any]]:
    """Returns one result for each model, in order; a model that fails has a `reason`.

    Compiling dominates, so `workers` pairs of processes compare models at once.
    """
    threads = max(1, cores() // (2 * workers))
    pairs: queue.SimpleQueue[tuple[Ours, ...]] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        for _ in range(workers):
            pairs.put(tuple(stack.enter_context(Ours(backend, threads, device=each)) for each in ("cpu", device)))

        def one(model: str) -> dict[str, Any]:
            pair = pairs.get()
            try:
                result = compare(pair, model, shape, steps, rows, exact)
            except ProcessError as error:
                result = {"reason": one_line(error, 200)}
            finally:
                pairs.put(pair)
            announce(f"{model}: {_said(result)}")
            return {"model": model, **result}

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(one, models))


def _said(result: dict[str, Any]) -> str:
    if "reason" in result:
        return f"failed: {result['reason']}"
    return f"{result['logit_difference']:.1e}, trained {result['trained_logit_difference']:.1e}"


def is_met(result: dict[str, Any], target: float) -> bool:
    """Returns whether the untrained logits agree and both losses are finite."""
    return (
        "reason" not in result
        and result["logit_difference"] <= target
        and all(math.isfinite(loss) for loss in result["losses"])
    )


def table(report: Mapping[str, Any]) -> Table:
    def difference(key: str) -> Cell:
        return lambda one: f"failed: {one['reason']}" if "reason" in one else f"{one[key]:.1e}"

    columns: dict[str, Cell] = {
        "model": "{model}",
        "untrained": difference("logit_difference"),
        f"after {report['steps']} steps": difference("trained_logit_difference"),
        f"at most {report['target']:g}": lambda one: "met" if is_met(one, report["target"]) else "missed",
    }
    return result_table(f"largest difference of a logit, {report['device']} beside cpu", columns, report["results"])


@Benchmark("benchmarks.agreement", table)
@click.option("--models", metavar="A,B", help="Registry names. Default: all without a text.")
@click.option("--backend", type=click.Choice(BACKENDS), default="jax", help="Backend of both sides.")
@click.option("--steps", type=click.IntRange(1), default=5, help="Training steps.")
@click.option("--rows", type=click.IntRange(1), default=512, help="Rows that are predicted, and rows of a batch.")
@click.option("--workers", type=click.IntRange(1), default=1, help="Models compared at once.")
@click.option("--exact", is_flag=True, help="Forbid TF32 on a GPU.")
@shape_options
@click.option("--ids", type=click.IntRange(2), default=1000, help="Ids in each field.")
@device_option
def main(
    report: Report,
    models: str | None,
    backend: str,
    steps: int,
    rows: int,
    workers: int,
    exact: bool,
    fields: int,
    dim: int,
    threads: int | None,
    ids: int,
    device: str,
) -> None:
    """Compare each model's logits on a device with its logits on the CPU, before and after training steps.

    Prints a table, writes JSON, and prints the JSON on the last line.
    """
    names = chosen_names("--models", models, MODELS) if models else MODELS
    shape = Shape(fields, ids, dim, batch=rows)
    report |= {"backend": backend, "device": device, "steps": steps, "rows": rows, "exact": exact}
    report |= {"target": EXACT_TARGET if exact else TF32_TARGET, "results": []}
    report.write()
    report["results"] = compare_all(names, backend, device, shape, steps, rows, workers, exact)


if __name__ == "__main__":
    main()
