"""Benchmarks one model on one server, in rounds that each measure all cells in turn."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tensorflow.core.protobuf import config_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.latency.generators import Generators
from ctrpipe.serving.latency.in_process import Call, Session, loader_call, measure_calls, saved_model_call
from ctrpipe.serving.latency.requests import BODIES, KINDS, RequestRows, read_rows
from ctrpipe.serving.latency.responder import responder, sized
from ctrpipe.serving.latency.sample import LatencySample, summarise
from ctrpipe.serving.latency.settings import Settings
from ctrpipe.serving.latency.target import ServerTarget, compare
from ctrpipe.serving.layout import find_version
from ctrpipe.serving.loader import Servable

Progress = Callable[[str], None]
CEILING_SECONDS, WARM_SECONDS = 0.4, 0.1
ANSWER_BYTES = 12  # of one probability in a response
# The signatures called in this process by `Session.make_callable`, by the call's name in the tables. LOADER uses the
# server's loader, and SAVED_MODEL uses `tf.saved_model.load`.
CALLS = {"call_packed": "serving_packed", "call_examples": "serving_default", "call_raw": "serving_raw"}
LOADER, SAVED_MODEL = "loader_packed", "saved_model_packed"
# The kinds, clients and rows that the ratios need. For further models, only these are measured.
RATIO_KINDS = ("rest_columnar", "grpc_packed")
RATIO_CLIENTS, RATIO_ROWS = 8, 100


class MeasuredModel:
    """A model loaded in this process, and real rows for it.

    Args:
        path: A run, the folder of a model's versions, or a version.
        log: A raw log in the model's format; None: the golden rows from the version's assets.
        most_rows: The largest number of rows in a request.
        config: The session's settings, equal to the server's.
        history: The number of items in every history; None: the histories stay unchanged.

    Raises:
        InputError: the folder contains no model exported by ctrpipe, or the log has no good row.
    """

    def __init__(
        self,
        path: pathlib.Path,
        log: pathlib.Path | str | None,
        most_rows: int,
        config: config_pb2.ConfigProto | None = None,
        history: int | None = None,
    ):
        self.version = find_version(path).absolute()  # a resolved link may have another name
        self.name = self.version.parent.name
        self.task = next(iter(read_log_spec(self.version).data.labels))
        self.config = config
        self.servable = Servable(self.version, config=config)
        self.rows: RequestRows = read_rows(self.version, self.servable, log, most_rows * BODIES, history)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version.name, "path": str(self.version), "rows": self.rows.count}


@dataclasses.dataclass
class Cell:
    """One row of the results table.

    Attributes:
        kind: The kind of request, or of call in this process.
        rows: The number of rows in a request.
        concurrency: The number of clients, of calling threads, or of an open loop's connections.
        measure: Measures for a number of seconds.
        rate: The requests per second of an open loop; None for a closed loop.
        load: The rate relative to the highest rate of a closed loop; None if the rate was given.
        samples: The samples of the completed rounds.
    """

    kind: str
    rows: int
    concurrency: int
    measure: Callable[[float], LatencySample]
    rate: float | None = None
    load: float | None = None
    samples: list[LatencySample] = dataclasses.field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        opened = {"loop": "open", "rate_per_s": self.rate, "load": self.load}
        loop = {"loop": "closed"} if self.rate is None else opened
        about = {"kind": self.kind, "rows": self.rows, "concurrency": self.concurrency, **loop}
        return about | summarise(self.samples, self.rows)


class LatencyBenchmark:
    """Measures one model on one server. After an interrupt, `cells` contains the results so far.

    Args:
        model: The model that the server serves.
        target: The server.
        settings: The cells and rounds to measure.
        generators: The processes that send the load.
        whole: Whether to measure all cells of the settings, or only those that the ratios need.
        progress: Called with lines of text about the progress.
    """

    def __init__(
        self,
        model: MeasuredModel,
        target: ServerTarget,
        settings: Settings,
        generators: Generators,
        whole: bool,
        progress: Progress = lambda text: None,
    ):
        self.cells: list[Cell] = []
        self.skipped: dict[str, str] = {}
        self.differences: dict[str, float] = {}
        self._model, self._target, self._settings = model, target, settings
        self._generators, self._whole, self._progress = generators, whole, progress
        self._bodies: dict[tuple[str, int], list[bytes]] = {}

    def run(self) -> None:
        kinds = [kind for kind in self._settings.kinds if self._whole or kind in RATIO_KINDS]
        answered = [kind for kind in kinds if self._check(kind)]
        if kinds and not answered:
            reasons = "; ".join(f"{kind}: {reason}" for kind, reason in self.skipped.items())
            raise InputError(
                f"http://{self._target.address}{self._target.path}: answers no kind of request ({reasons})"
            )
        closed = list(self._closed_cells(answered))
        self._warm(closed)
        for number in range(self._settings.rounds):
            self._progress(f"{self._model.name}: round {number + 1} of {self._settings.rounds}, {len(closed)} cells")
            for cell in closed:
                cell.samples.append(cell.measure(self._settings.seconds))
                if number == 0:
                    self.cells.append(cell)
        if self._whole and self._settings.open_loop:
            self._run_open(closed)

    def as_json(self) -> dict[str, Any]:
        return {
            **self._model.describe(),
            "largest_difference": self.differences,
            "skipped": self.skipped,
            "cells": [cell.as_json() for cell in self.cells],
        }

    def _check(self, kind: str) -> bool:
        """Returns whether the server's predictions for the kind equal those of the model in this process."""
        try:
            endpoint = self._target.endpoint(kind)
            for rows in self._settings.rows:
                inputs = self._model.rows.inputs(KINDS[kind].signature, rows)[0]
                expected = np.asarray(self._model.servable.run(KINDS[kind].signature, inputs)[self._model.task])
                difference = compare(endpoint, self._body(kind, rows)[0], self._model.task, expected)
                self.differences[kind] = max(difference, self.differences.get(kind, 0.0))
        except InputError as error:
            self.skipped[kind] = str(error)
            self._progress(f"{kind} is left out: {error}")
            return False
        return True

    def _body(self, kind: str, rows: int) -> list[bytes]:
        key = kind, rows
        if key not in self._bodies:
            self._bodies[key] = self._model.rows.bodies(kind, rows, self._target.name)
        return self._bodies[key]

    # Closed loop ----------------------------------------------------------------------------------------------------

    def _closed_cells(self, kinds: Sequence[str]) -> Iterator[Cell]:
        """Yields the cells. Cells that a ratio compares are adjacent, to be measured close in time."""
        session = Session(self._model.version, self._model.config)
        calls = {name: (session.call(signature), signature) for name, signature in CALLS.items()}
        calls[LOADER] = loader_call(self._model.servable, "serving_packed"), "serving_packed"
        if self._whole:
            calls[SAVED_MODEL] = saved_model_call(str(self._model.version), "serving_packed"), "serving_packed"
        for rows in self._settings.rows:
            for clients in self._settings.concurrency:
                if not self._whole and clients > 1 and (rows, clients) != (RATIO_ROWS, RATIO_CLIENTS):
                    continue
                ratio = clients == 1 or (rows, clients) == (RATIO_ROWS, RATIO_CLIENTS)
                cells = [
                    Cell(name, rows, clients, self._call(call, signature, rows, clients))
                    for name, (call, signature) in calls.items()
                    if name == "call_packed" or (name == LOADER and ratio) or (self._whole and clients == 1)
                ]
                cells += [Cell(kind, rows, clients, self._requests(kind, rows, clients)) for kind in kinds]
                yield from sorted(cells, key=lambda cell: cell.kind not in ("call_packed", *RATIO_KINDS))

    def _call(self, call: Call, signature: str, rows: int, threads: int) -> Callable[[float], LatencySample]:
        batches = self._model.rows.inputs(signature, rows)
        return lambda seconds: measure_calls(call, batches, threads, self._settings.warm_up, seconds)

    def _requests(self, kind: str, rows: int, clients: int) -> Callable[[float], LatencySample]:
        endpoint, bodies = self._target.endpoint(kind), self._body(kind, rows)
        return lambda seconds: self._generators.closed(endpoint, bodies, clients, self._settings.warm_up, seconds)

    def _warm(self, cells: Sequence[Cell]) -> None:
        """Runs each kind and number of rows once, uncounted.

        Uses the most clients, because first calls start threads.
        """
        most: dict[tuple[str, int], Cell] = {}
        for cell in cells:
            most[cell.kind, cell.rows] = max(cell, most.get((cell.kind, cell.rows), cell), key=lambda c: c.concurrency)
        self._progress(f"{self._model.name}: warm-up")
        for cell in most.values():
            cell.measure(WARM_SECONDS)

    # Open loop ------------------------------------------------------------------------------------------------------

    def _run_open(self, closed: Sequence[Cell]) -> None:
        plan = self._settings.open_loop
        assert plan
        for kind in plan.kinds:
            for rows in plan.rows:
                reached = [
                    summarise(cell.samples, rows)["requests_per_s"]
                    for cell in closed
                    if (cell.kind, cell.rows) == (kind, rows)
                ]
                if not reached:
                    continue
                given: list[tuple[float, float | None]] = [(rate, None) for rate in plan.rates]
                for rate, load in [*given, *((load * max(reached), load) for load in plan.loads)]:
                    self._progress(f"{self._model.name}: {kind}, {rows} rows, {rate:,.0f} requests/s at Poisson times")
                    cell = Cell(kind, rows, plan.connections, self._arrivals(kind, rows, rate), rate, load)
                    cell.samples.append(cell.measure(plan.seconds))
                    self.cells.append(cell)

    def _arrivals(self, kind: str, rows: int, rate: float) -> Callable[[float], LatencySample]:
        plan = self._settings.open_loop
        assert plan
        endpoint, bodies, most = self._target.endpoint(kind), self._body(kind, rows), plan.connections
        warm_up = self._settings.warm_up
        return lambda seconds: self._generators.open(endpoint, bodies, most, rate, warm_up, seconds)


def ceilings(model: MeasuredModel, settings: Settings, generators: Generators) -> list[dict[str, Any]]:
    """Measures the limit of the load generators.

    The server computes nothing, but its messages have realistic sizes.

    Returns:
        A cell for each kind, number of rows and number of clients, in the format of LatencyBenchmark.as_json.
    """
    cells = []
    for kind in [kind for kind in RATIO_KINDS if kind in settings.kinds]:
        with responder(KINDS[kind].protocol) as endpoint:
            for rows in settings.rows:
                bodies, answers = model.rows.bodies(kind, rows, model.name), sized(endpoint, ANSWER_BYTES * rows)
                for clients in settings.concurrency:
                    sample = generators.closed(answers, bodies, clients, settings.warm_up, CEILING_SECONDS)
                    about = {"kind": kind, "rows": rows, "concurrency": clients, "loop": "closed"}
                    cells.append(about | summarise([sample], rows))
    return cells
