"""Runs the latency benchmark of `ctrpipe bench latency`."""

import contextlib
import datetime
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import text_format

from ctrpipe.common.interrupt import acknowledge_interrupt
from ctrpipe.common.processes import cores
from ctrpipe.serving.latency import papers
from ctrpipe.serving.latency.benchmark import LatencyBenchmark, MeasuredModel, Progress, ceilings
from ctrpipe.serving.latency.compare import compare_servers
from ctrpipe.serving.latency.generators import Generators
from ctrpipe.serving.latency.in_process import loader_call
from ctrpipe.serving.latency.machine import busy, machine, software
from ctrpipe.serving.latency.ratios import near_ceiling, ratios, targets
from ctrpipe.serving.latency.settings import Settings
from ctrpipe.serving.latency.target import ServerTarget, at_url, started
from ctrpipe.serving.layout import find_version
from ctrpipe.serving.server.options import parse_flags
from ctrpipe.serving.server.session_options import for_first_versions, session_config

LOCAL = "local"
_MOST_CALLS = 1024  # that wait in a server of this benchmark: more than it sends at a time


def measure_latency(
    models: Sequence[pathlib.Path],
    log: pathlib.Path | str | None,
    settings: Settings,
    command: Sequence[str],
    target: str = LOCAL,
    grpc: str | None = None,
    flags: Sequence[str] = (),
    baseline: pathlib.Path | None = None,
    progress: Progress = lambda text: None,
    bars: bool = False,
) -> dict[str, Any]:
    """Measures all cells for the first model, and the cells that ratios need for each further model.

    Args:
        models: Runs, folders of models or single versions. A server that already runs must serve the first; the further
            models are then not measured on a server.
        log: Raw rows in the models' format; None: the golden rows from each version's assets.
        settings: The cells and rounds to measure.
        command: The command that starts ctrpipe's server, without flags.
        target: `local`, or the URL of a model on a server that already runs.
        grpc: HOST:PORT of that server's gRPC API.
        flags: More flags for ctrpipe's server. Session flags also apply to the calls in this process.
        baseline: The one-layer Transformer whose latency is the unit of Hiformer's method.
        progress: Called with lines of text about the progress.
        bars: Whether to compare the ratios with the bars of ctrpipe's own server.

    Returns:
        The report. `interrupted` is true if Ctrl-C ended the benchmark early.

    Raises:
        InputError: a model, the log or the server cannot be used.
    """
    there = None if target == LOCAL else at_url(target, grpc)
    config = for_first_versions(session_config(parse_flags(flags)), [find_version(models[0])])
    own = (f"--grpc_max_queued_calls={_MOST_CALLS}", *flags)  # the load is the generators', not what a server refuses
    share = busy()
    report: dict[str, Any] = {
        "benchmark": "latency",
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "interrupted": False,
        "machine": machine(),
        **software(),
        "busy": {"before": share},
        "session": text_format.MessageToString(config, as_one_line=True),
        "settings": settings.model_dump(mode="json"),
        "target": {},
        "ceiling": [],
        "models": [],
        "papers": {},
    }
    progress("loading the models")
    loaded = [
        MeasuredModel(path, log, max(settings.rows), config, settings.history)
        for path in [*models, *([baseline] if baseline else [])]
    ]
    _tell_apart(loaded)
    running: list[LatencyBenchmark] = []
    try:
        with Generators(settings.generators or max(1, cores() // 2), settings.seed) as generators:
            progress("the generators' own ceiling")
            report["ceiling"] = ceilings(loaded[0], settings, generators)
            for index, model in enumerate(loaded[: 1 if there else len(models)]):
                with _server(model.version, there, command, own, progress) as server:
                    report["target"] = report["target"] or server.describe()
                    running.append(LatencyBenchmark(model, server, settings, generators, index == 0, progress))
                    running[-1].run()
        if settings.papers:
            progress("Hiformer's and BERT4CTR's methods")
            report["papers"] = _papers(loaded, loaded[-1].name if baseline else None)
        report["busy"]["after"] = busy()
    except KeyboardInterrupt:
        acknowledge_interrupt()
        report["interrupted"] = True
    for benchmark in running:
        measured = benchmark.as_json()
        measured["ratios"] = ratios(measured["cells"])
        measured["near_ceiling"] = near_ceiling(measured["cells"], report["ceiling"])
        report["models"].append(measured)
    judged = targets(report["models"][0]["ratios"]) if report["models"] else []
    report["targets"] = judged if bars else [{"name": one["name"], "value": one["value"]} for one in judged]
    return report


def measure_beside(
    model: pathlib.Path,
    log: pathlib.Path | str | None,
    settings: Settings,
    command: Sequence[str],
    beside: tuple[str, str | None],
    target: str = LOCAL,
    grpc: str | None = None,
    flags: Sequence[str] = (),
    progress: Progress = lambda text: None,
) -> dict[str, Any]:
    """Measures two servers of the same model side by side; see `compare_servers`.

    Args:
        model, log, settings, command, target, grpc, flags, progress: As in `measure_latency`.
        beside: The URL of the model on the other server, and HOST:PORT of its gRPC API or None.

    Raises:
        InputError: the model, the log or a server cannot be used.
    """
    other = at_url(*beside, "--beside")
    there = None if target == LOCAL else at_url(target, grpc)
    config = for_first_versions(session_config(parse_flags(flags)), [find_version(model)])
    with _server(find_version(model).absolute(), there, command, flags, progress) as server:
        return compare_servers(model, log, settings, (server, other), config, progress)


@contextlib.contextmanager
def _server(
    version: pathlib.Path, there: ServerTarget | None, command: Sequence[str], flags: Sequence[str], progress: Progress
) -> Iterator[ServerTarget]:
    if there:
        yield there
        return
    progress(f"{version.parent.name}: starting the server")
    with started(command, version, flags) as server:
        yield server


def _tell_apart(models: Sequence[MeasuredModel]) -> None:
    """Appends a number to the names of models that share a name."""
    for index, model in enumerate(models):
        count = sum(other.name == model.name for other in models[:index])
        if count:
            model.name = f"{model.name}-{count + 1}"


def _papers(models: Sequence[MeasuredModel], baseline: str | None) -> dict[str, Any]:
    """Measures by the methods of both papers, on packed tensors in this process.

    The models take turns.
    """

    def calls(rows: int, batches: int) -> dict[str, tuple[papers.Predict, list[Any]]]:
        by_model = {}
        for model in models:
            inputs = model.rows.inputs("serving_packed", rows)
            repeated = [inputs[index % len(inputs)] for index in range(batches)]
            by_model[model.name] = (loader_call(model.servable, "serving_packed"), repeated)
        return by_model

    return {
        "hiformer": {
            "batches": papers.HIFORMER_BATCHES,
            "rows": papers.HIFORMER_ROWS,
            "baseline": baseline,
            "models": papers.hiformer(calls(papers.HIFORMER_ROWS, papers.HIFORMER_BATCHES), baseline),
        },
        "bert4ctr": {
            "batches": papers.BERT4CTR_BATCHES,
            "rows": papers.BERT4CTR_ROWS,
            "repeats": papers.BERT4CTR_REPEATS,
            "ms_per_sample": papers.bert4ctr(
                calls(papers.BERT4CTR_ROWS, papers.BERT4CTR_BATCHES), papers.BERT4CTR_ROWS
            ),
        },
    }
