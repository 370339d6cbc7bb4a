"""Runs `ctrpipe bench latency --beside`: two servers of one model, cell by cell, with intervals."""

import dataclasses
import datetime
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from tensorflow.core.protobuf import config_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_text
from ctrpipe.common.interrupt import acknowledge_interrupt
from ctrpipe.common.lines import say
from ctrpipe.common.processes import cores
from ctrpipe.common.terminal import console, print_table
from ctrpipe.serving.latency.benchmark import MeasuredModel, Progress
from ctrpipe.serving.latency.beside import (
    Bodies,
    Pairs,
    Rates,
    Ratio,
    ask_in_turns,
    caller,
    compare_rates,
    ratio_of_percentiles,
    ratio_of_rates,
)
from ctrpipe.serving.latency.generators import Generators
from ctrpipe.serving.latency.load import Endpoint
from ctrpipe.serving.latency.machine import busy, busy_caption, machine, software
from ctrpipe.serving.latency.requests import KINDS
from ctrpipe.serving.latency.settings import Settings
from ctrpipe.serving.latency.target import ServerTarget, compare

JSON = "beside.json"
_TABLE_WIDTH = 130
_PERCENTILES = (50, 90)


@dataclasses.dataclass
class _Cell:
    """A kind of request with a number of rows and of clients, and its measurements."""

    kind: str
    rows: int
    clients: int
    endpoints: tuple[Endpoint, Endpoint]
    bodies: Bodies
    pairs: Pairs | None = None
    rates: Rates | None = None

    def measure(self, settings: Settings, generators: Generators, random: np.random.Generator) -> None:
        if self.clients == 1:
            with caller(self.endpoints[0]) as first, caller(self.endpoints[1]) as second:
                pairs = ask_in_turns((first, second), self.bodies, 2 * settings.seconds, random, 2 * settings.warm_up)
            self.pairs = self.pairs.and_then(pairs) if self.pairs else pairs
            return
        rates = compare_rates(
            self.endpoints, self.bodies, self.clients, 2, settings.seconds, generators, random, settings.warm_up
        )
        self.rates = self.rates.and_then(rates) if self.rates else rates

    def as_json(self, random: np.random.Generator) -> dict[str, Any]:
        """Returns the numbers of both servers, as [first, second], and their ratios with intervals."""
        numbers: dict[str, Any] = {"kind": self.kind, "rows": self.rows, "clients": self.clients}
        if self.pairs:
            both = self.pairs.first, self.pairs.second
            numbers["pairs"] = len(both[0])
            for percentile in _PERCENTILES:
                known = [1000 * float(np.percentile(values, percentile)) if len(values) else None for values in both]
                numbers[f"p{percentile}_ms"] = known
                numbers[f"p{percentile}_ratio"] = _plain(ratio_of_percentiles(self.pairs, percentile, random))
            return numbers | {"errors": list(self.pairs.errors)}
        assert self.rates
        numbers["windows"] = len(self.rates.first)
        numbers["rows_per_s"] = [self.rows * float(rates.mean()) for rates in (self.rates.first, self.rates.second)]
        return numbers | {"rows_per_s_ratio": _plain(ratio_of_rates(self.rates)), "errors": list(self.rates.errors)}


def _plain(ratio: Ratio | None) -> dict[str, float] | None:
    return dataclasses.asdict(ratio) if ratio else None


def compare_servers(
    model: pathlib.Path,
    log: pathlib.Path | str | None,
    settings: Settings,
    servers: tuple[ServerTarget, ServerTarget],
    config: config_pb2.ConfigProto | None = None,
    progress: Progress = lambda text: None,
) -> dict[str, Any]:
    """Measures two servers of the same model.

    One client sends each request to both, one after the other, in random order. Several clients load one server for a
    window, then the other, in random order.

    Args:
        model: The folder of the served model, or of one version.
        log: Raw rows in the model's format; None: the golden rows from the version's assets.
        settings: Kinds, rows, clients, rounds and seconds. The open loop and the papers' methods are not used.
        servers: The servers.
        config: The session settings of the reference calls in this process.
        progress: Called with lines of text about the progress.

    Returns:
        The report. A ratio is the first server's number over the second's. `interrupted` is true if Ctrl-C ended the
        measurement early.

    Raises:
        InputError: the model or a server cannot be used, or both servers answer no common kind of request.
    """
    random = np.random.default_rng(settings.seed)
    report: dict[str, Any] = {
        "benchmark": "latency_beside",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "interrupted": False,
        "machine": machine(),
        **software(),
        "busy": {"before": busy()},
        "settings": settings.model_dump(mode="json"),
        "servers": [server.describe() for server in servers],
        "skipped": {},
        "cells": [],
    }
    progress("loading the model")
    measured = MeasuredModel(model, log, max(settings.rows), config, settings.history)
    report["model"] = measured.describe()
    kinds = [kind for kind in settings.kinds if _is_answered(kind, measured, servers, settings, report, progress)]
    if not kinds:
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in report["skipped"].items())
        raise InputError(f"no kind of request is answered by both servers ({reasons})")
    cells = list(_cells(kinds, measured, servers, settings))
    try:
        with Generators(settings.generators or max(1, cores() // 2), settings.seed) as generators:
            for number in range(settings.rounds):
                progress(f"round {number + 1} of {settings.rounds}, {len(cells)} cells")
                for index in random.permutation(len(cells)):
                    cells[index].measure(settings, generators, random)
        report["busy"]["after"] = busy()
    except KeyboardInterrupt:
        acknowledge_interrupt()
        report["interrupted"] = True
    report["cells"] = [cell.as_json(random) for cell in cells if cell.pairs or cell.rates]
    return report


def _is_answered(
    kind: str,
    model: MeasuredModel,
    servers: Sequence[ServerTarget],
    settings: Settings,
    report: dict[str, Any],
    progress: Progress,
) -> bool:
    """Returns whether both servers return the probabilities of the model in this process."""
    signature = KINDS[kind].signature
    for server in servers:
        try:
            for rows in settings.rows:
                inputs = model.rows.inputs(signature, rows)[0]
                expected = np.asarray(model.servable.run(signature, inputs)[model.task])
                body = model.rows.bodies(kind, rows, server.name)[0]
                compare(server.endpoint(kind), body, model.task, expected)
        except InputError as error:
            report["skipped"][kind] = f"http://{server.address}: {error}"
            progress(f"{kind} is left out: {report['skipped'][kind]}")
            return False
    return True


def _cells(
    kinds: Sequence[str], model: MeasuredModel, servers: tuple[ServerTarget, ServerTarget], settings: Settings
) -> Iterator[_Cell]:
    for kind in kinds:
        endpoints = servers[0].endpoint(kind), servers[1].endpoint(kind)
        for rows in settings.rows:
            bodies = (model.rows.bodies(kind, rows, servers[0].name), model.rows.bodies(kind, rows, servers[1].name))
            for clients in settings.concurrency:
                yield _Cell(kind, rows, clients, endpoints, bodies)


# The report -----------------------------------------------------------------------------------------------------------


def write_comparison(report: dict[str, Any], folder: pathlib.Path) -> pathlib.Path:
    """Writes beside.json and returns its path.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / JSON, json.dumps(report, indent=1) + "\n")
    except OSError as error:
        raise InputError(f"--output {folder}: cannot write: {error.strerror}") from error
    return folder / JSON


def show_comparison(report: dict[str, Any]) -> None:
    """Prints the table of all cells."""
    terminal = console(_TABLE_WIDTH)
    names = [server["url"] for server in report["servers"]]
    table = Table(title=f"{names[0]} over {names[1]}", caption=busy_caption(max(report["busy"].values())))
    table.add_column("kind")
    for name in ("rows", "clients", "first", "second", "p50, 95%", "p90, 95%", "rows/s, 95%", "errors"):
        table.add_column(name, justify="right")
    for cell in report["cells"]:
        numbers = cell.get("p50_ms") or cell["rows_per_s"]
        unit = "ms" if "p50_ms" in cell else "rows/s"
        row = [cell["kind"], f"{cell['rows']:,}", str(cell["clients"])]
        row += ["-" if value is None else f"{value:,.2f} {unit}" for value in numbers]
        row += [_interval(cell.get(key)) for key in ("p50_ratio", "p90_ratio", "rows_per_s_ratio")]
        table.add_row(*row, " and ".join(f"{sum(errors.values()):,}" for errors in cell["errors"]))
    print_table(terminal, table)
    for kind, reason in report["skipped"].items():
        say(f"{kind} was not measured: {reason}")
    if report["interrupted"]:
        say("Interrupted: these are the finished rounds.")


def _interval(ratio: dict[str, float] | None) -> str:
    return "" if ratio is None else f"{ratio['value']:.2f} ({ratio['low']:.2f} .. {ratio['high']:.2f})"


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of the report that the command prints last."""
    return {key: report[key] for key in ("benchmark", "interrupted", "cells")} | {"busy": max(report["busy"].values())}
