"""Writes report.html, one file that works offline, from the results in a run's folder."""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import jinja2

from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.pages import template
from ctrpipe.pipeline.report.contents import (
    cards,
    columns,
    data_warnings,
    log_text,
    settings_of,
    slices,
    span_of_test,
    splits,
)
from ctrpipe.pipeline.report.notes import notes
from ctrpipe.pipeline.report.numbers import NUMBER_METRICS, number_rows
from ctrpipe.pipeline.report.verdict import verdict
from ctrpipe.serving.layout import run_of

PLOTS, EXPLANATION, EXPLANATION_PLOTS = "plots.json", "explanation.json", "explanation_plots.json"
MEASURED = "measured.json"  # the numbers of the page that are not in metrics.json
SECTIONS = "sections.json"  # of hooks, as HTML
FOLDER = pathlib.Path(__file__).parent
TRAINING = "Training: "  # prefix of the titles of training charts


def write_report(directory: pathlib.Path) -> pathlib.Path:
    """Writes report.html of a run and returns its path.

    Args:
        directory: The run's folder, the folder of the model that it pushed, or its version.

    Raises:
        InputError: there is no finished run in the folder, its results are incomplete or damaged, or the folder cannot
            be written.
    """
    directory = run_of(directory)
    if not (directory / "metrics.json").exists():
        raise InputError(f"{directory}: no finished run here (metrics.json is absent); run `ctrpipe run` first")
    data = directory / "report_data"
    try:
        text = _render(directory / "metrics.json", data)
    except (jinja2.UndefinedError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = one_line(error, 200)
        raise InputError(f"{data}: not as `ctrpipe run` leaves it ({reason}); run it again") from error
    path = directory / "report.html"
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    return path


def _render(metrics: pathlib.Path, data: pathlib.Path) -> str:
    history = _read_json(data / "history.json")
    known = _read_json(metrics)
    plots = _plots(data, history)
    explanation = _explanation(data) if (data / EXPLANATION).exists() else None
    of_run = {"tail": None, "uncalibrated": None, "calibration_choice": None, "tasks": {}, **known}
    gates, lineage = _read_json(data / "gates.json"), {"parent": None, **_read_json(data / "lineage.json")}
    statistics = _read_json(data / "statistics.json")
    drift = _read_json(data / "drift.json") if (data / "drift.json").exists() else None
    seeds = _seeds(metrics.parent) if (metrics.parent / "seeds.json").exists() else None
    measured = _measured(data, of_run["slices"])
    if seeds and seeds["ahead"]:
        measured["ahead"] = seeds["ahead"]
    parts = splits(statistics)
    config = _read(data / "config.yaml").decode("utf-8")
    settings = settings_of(config)
    model = str(_at(settings, "model", "name") or "the model")
    return template("report.html.jinja", FOLDER).render(
        name=str(settings.get("name") or metrics.parent.resolve().name),
        model=model,
        verdict=verdict(model, of_run, gates, measured),
        warnings=[*notes(known, history), *data_warnings(statistics), *_drift_warning(drift)],
        log=log_text(lineage["data"]),
        divided=_at(settings, "data", "split", "by"),
        cards=list(cards(of_run, measured)),
        metrics=of_run,
        measured=measured,
        numbers=number_rows("model", known),
        number_metrics=list(NUMBER_METRICS.values()),
        seeds=seeds,
        gates=gates,
        history=history,
        statistics={"counted_rows": None, **statistics},
        splits=parts,
        times=span_of_test(parts),
        columns=columns(statistics),
        slices=slices(of_run, measured),
        drift=drift,
        lineage=lineage,
        seconds=_read_json(data / "seconds.json") if (data / "seconds.json").exists() else None,
        config=config,
        plots={title: plot for title, plot in plots.items() if not title.startswith(TRAINING)},
        training={title.removeprefix(TRAINING): plot for title, plot in plots.items() if title.startswith(TRAINING)},
        sections=_read_json(data / SECTIONS) if (data / SECTIONS).exists() else {},
        **(explanation or {"explanation": None}),
    )


def _at(settings: dict[str, Any], *keys: str) -> Any:
    """Returns a setting of config.yaml by its keys; None if it is missing."""
    value: Any = settings
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _drift_warning(drift: dict[str, Any] | None) -> list[str]:
    return ["the training rows are unlike another log: see Drift and skew"] if drift and drift["breached"] else []


def _seeds(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the sides of a run with several seeds, each with its training runs and their means, and the verdict."""
    # Lazy: numpy and pyarrow take 0.3 s to import.
    from ctrpipe.pipeline.evaluation.seeds import read_seeds
    from ctrpipe.pipeline.report.seeds import METRICS, seeds_verdict, spread

    seeds = read_seeds(folder)
    assert seeds is not None
    sides = [seeds.model, *([seeds.baseline] if seeds.baseline else [])]
    shown = [{"name": side.name, "trainings": side.trainings, "spread": spread(side)} for side in sides]
    ahead = seeds.difference["auc"] if seeds.difference else None
    return {"metrics": METRICS, "sides": shown, "verdict": seeds_verdict(seeds), "ahead": ahead}


def _explanation(data: pathlib.Path) -> dict[str, Any]:
    """Returns the contents of explanation.json, and its charts."""
    path = data / EXPLANATION
    try:
        explanation = json.loads(_read(path))

        def draw() -> dict[str, Any]:
            from ctrpipe.pipeline.report.explanation import explanation_charts  # lazy: numpy takes 0.1 s to import

            return explanation_charts(explanation)

        key = [explanation, stage_version("ctrpipe.pipeline.report.explanation")]
        return {"explanation": explanation, "charts": _kept(data / EXPLANATION_PLOTS, json.dumps(key).encode(), draw)}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = one_line(error, 100)
        raise InputError(f"{path}: damaged ({reason}); run `ctrpipe explain` again, or remove it") from error


def _read(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); run `ctrpipe run` again") from error


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(_read(path))
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error}); run `ctrpipe run` again") from error


def _plots(data: pathlib.Path, history: dict[str, Any]) -> dict[str, str]:
    """Returns the charts of predictions and history by title, as SVG."""
    predictions = _read(data / "predictions.parquet")

    def draw() -> dict[str, str]:
        # Lazy: numpy and pyarrow take 0.4 s to import.
        from ctrpipe.pipeline.report.plots import draw_plots

        return draw_plots(predictions, history)

    drawn_from = json.dumps([history, stage_version("ctrpipe.pipeline.report.plots")]).encode()
    return _kept(data / PLOTS, predictions + drawn_from, draw)


def _measured(data: pathlib.Path, slices: dict[str, Any]) -> dict[str, Any]:
    """Returns the numbers that need the test rows: see `measure`."""
    predictions = _read(data / "predictions.parquet")

    def count() -> dict[str, Any]:
        # Lazy: numpy and pyarrow take 0.5 s to import.
        from ctrpipe.pipeline.report.measured import measure

        return measure(predictions, slices)

    counted_from = json.dumps([slices, stage_version("ctrpipe.pipeline.report.measured")]).encode()
    return _kept(data / MEASURED, predictions + counted_from, count)


def _kept(path: pathlib.Path, drawn_from: bytes, draw: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns a cached result if it was made from the same data by the same code; computes it otherwise.

    Drawing and counting take longer than the rest of the report.
    """
    digest = hashlib.sha256(drawn_from).hexdigest()
    kept = _kept_charts(path)
    if kept.get("drawn_from") == digest:
        return dict(kept["plots"])
    plots = draw()
    try:
        write_json(path, {"drawn_from": digest, "plots": plots})
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error
    return plots


def _kept_charts(path: pathlib.Path) -> dict[str, Any]:
    """Returns the contents of a file of stored charts, or {} if it is missing or damaged."""
    try:
        kept = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
