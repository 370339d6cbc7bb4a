"""Measures what `calibration` adds to the latency of one-row requests, for each calibration method.

    python -m benchmarks.calibrated_latency [--config criteo/dcn_v2.yaml] [--by C1,C9] [--requests 4000]

`ctrpipe serve` serves a version without calibration and one with each method, each on its own server. One client sends
the same row to all servers in turn, over REST (row JSON of the raw columns) and gRPC (packed tensors). The ratio is the
median over the turns of the calibrated latency over the uncalibrated one. The bar is 1.03.
"""

import contextlib
import http.client
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click
import grpc
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import folder_option
from benchmarks.harness.result_table import Cell, result_table
from benchmarks.harness.turns import in_turn, milliseconds, ratio
from ctrpipe.common.errors import InputError
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.run.run import run
from ctrpipe.serving.layout import find_version
from ctrpipe.transforms.generate import generate

BAR = 1.03  # maximum ratio of the latency with calibration to that without
NONE = "none"
# Two epochs and no gate suffice: only the served graph is measured.
SETTINGS = ("training.refit=false", "training.epochs=2", "evaluation.baseline=null", "gates={rig: null}")
KINDS = ("rest_row", "grpc_packed")

Ask = Callable[[], bytes]


def calibrations(by: str) -> dict[str, str]:
    """Returns the `calibration` setting of each method by name; `by` is a list of columns."""
    of_all = {method: f"{{method: {method}}}" for method in ("platt", "beta", "isotonic", "histogram")}
    by_value = {f"{method}, by {by}": f"{{method: {method}, by: [{by}]}}" for method in ("platt", "isotonic")}
    return {NONE: "null", **of_all, **by_value}


def make_versions(config: str, by: str, rows: int, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the folder of each method's versions; repeated runs come from the cache."""
    log = folder / f"log-{rows}.tsv"
    if not log.exists():
        generate("criteo", rows, 0, log)
    bases = {}
    for number, (name, value) in enumerate(calibrations(by).items()):
        announce(f"Calibration: {name}")
        loaded = load_config(configs_folder() / config, (*SETTINGS, f"calibration={value}"))
        output = folder / str(number)
        run(loaded, [str(log)], output)
        bases[name] = output / "models" / loaded.serving.model_name
    return bases


def rest(address: str, path: str, body: bytes, stack: contextlib.ExitStack) -> Ask:
    """Returns a function that sends the body on one persistent connection and returns the response."""
    host, _, port = address.rpartition(":")
    connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=60)))

    def ask() -> bytes:
        connection.request("POST", path, body)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise InputError(f"HTTP {response.status}: {answer[:200].decode('utf-8', 'replace')}")
        return answer

    return ask


def make_calls(
    targets: Mapping[str, Any], version: pathlib.Path, log: pathlib.Path, stack: contextlib.ExitStack
) -> dict[str, dict[str, Ask]]:
    """Returns, by kind of request, a function that calls each server, keyed by the server's name."""
    # These import TensorFlow, which `run` has already loaded.
    from ctrpipe.serving.latency.grpc_load import OPTIONS
    from ctrpipe.serving.latency.requests import read_rows
    from ctrpipe.serving.loader import Servable

    with contextlib.closing(Servable(version)) as servable:
        rows = read_rows(version, servable, log, 1)
    calls: dict[str, dict[str, Ask]] = {}
    for kind in KINDS:
        calls[kind] = {}
        for name, target in targets.items():
            endpoint, body = target.endpoint(kind), rows.bodies(kind, 1, target.name)[0]
            if endpoint.protocol == "rest":
                calls[kind][name] = rest(endpoint.address, endpoint.path, body, stack)
            else:
                channel = stack.enter_context(grpc.insecure_channel(endpoint.address, OPTIONS))
                method = channel.unary_unary(endpoint.path)
                calls[kind][name] = lambda method=method, body=body: method(body)  # type: ignore[misc]
    return calls


def measure(calls: Mapping[str, Mapping[str, Ask]], requests: int) -> list[dict[str, Any]]:
    """Returns the milliseconds per response of each kind and method, and the ratio to no calibration."""
    results = []
    for kind, by_name in calls.items():
        for ask in by_name.values():
            for _ in range(requests // 20):
                ask()
        times = in_turn(dict(by_name), requests)
        for name, each in times.items():
            over = ratio(each, times[NONE], "seconds")
            results.append({"kind": kind, "calibration": name, "ms": milliseconds(each)["ms"], "over": over})
    return results


def table(report: Mapping[str, Any]) -> Table:
    """Returns a table with a row for each method and two columns for each kind of request."""
    by_method: dict[str, dict[str, Any]] = {}
    for result in report["results"]:
        by_method.setdefault(result["calibration"], {"calibration": result["calibration"]})[result["kind"]] = result
    columns: dict[str, Cell] = {"calibration": "{calibration}"}
    for kind in KINDS:
        columns |= {f"{kind}, ms": f"{{{kind}[ms]:.3f}}", f"{kind} over none": f"{{{kind}[over]:.3f}}"}
    outcome = "met" if report["met"] else "MISSED"
    return result_table(
        f"one row, {report['requests']:,} answers of each; bar {BAR}: {outcome}", columns, by_method.values()
    )


@Benchmark("benchmarks.calibrated_latency", table)
@click.option("--config", default="criteo/dcn_v2.yaml", help="Configuration in configs/ for Criteo's format.")
@click.option("--by", default="C1,C9", help="Columns of the calibration by value.")
@click.option("--rows", type=click.IntRange(1000), default=20_000, help="Rows of the generated log.")
@click.option("--requests", type=click.IntRange(20), default=4000, help="Requests of each kind to each server.")
@folder_option("calibrated_latency")
def main(report: Report, config: str, by: str, rows: int, requests: int, folder: pathlib.Path) -> None:
    """Measure the latency of one-row requests with and without a calibration, over REST and gRPC.

    Prints a table of milliseconds and ratios, and writes the report as JSON.
    """
    report.add_load()
    folder.mkdir(parents=True, exist_ok=True)
    bases = make_versions(config, by, rows, folder)
    from ctrpipe.serving.latency.target import started  # imports TensorFlow, which `run` has loaded

    with contextlib.ExitStack() as stack:
        targets = {
            name: stack.enter_context(started((sys.executable, "-m", "ctrpipe", "serve"), base))
            for name, base in bases.items()
        }
        calls = make_calls(targets, find_version(bases[NONE]), folder / f"log-{rows}.tsv", stack)
        results = measure(calls, requests)
    worst = max(result["over"] for result in results)
    report |= {"requests": requests, "results": results, "worst": worst, "met": worst <= BAR}


if __name__ == "__main__":
    main()
