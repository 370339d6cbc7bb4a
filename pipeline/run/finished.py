"""The description of a finished run that hooks receive, and the calls of the hooks after a run."""

import dataclasses
import html
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_folder, write_json
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.config.hooks import Hooks

EXPORTS = "exports"  # the folder of the exports, in the run's folder


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A finished run.

    Attributes:
        name: Its name.
        folder: Its folder, with report.html, metrics.json and report_data/.
        config: Its configuration.
        metrics: The contents of metrics.json: `auc`, `log_loss`, `rig`, `blessed` and others.
        history: A mapping for each evaluation of the training, with `step`, `train_loss`, `validation_auc` and others.
        version: The folder of the pushed SavedModel; None if a gate blocked the model, or it is in a store.
        columns: The columns of a request to the model, each with its kind.
    """

    name: str
    folder: pathlib.Path
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    history: tuple[Mapping[str, Any], ...]
    version: pathlib.Path | None
    columns: Mapping[str, str]


def finished_run(config: RunConfig, folder: pathlib.Path, metrics: Mapping[str, object]) -> FinishedRun:
    """Returns the description of a finished run that its hooks receive."""
    history = json.loads((folder / "report_data" / "history.json").read_text())
    pushed = folder / "models" / config.serving.model_name / str(metrics["model_version"])
    return FinishedRun(
        name=config.name,
        folder=folder,
        config=config.model_dump(mode="json"),
        metrics=metrics,
        history=tuple(history.get("evaluations", ())),
        version=pushed if pushed.is_dir() else None,
        columns={column: feature.kind for column, feature in config.feature_by_column.items()},
    )


def check_hooks(named: Hooks) -> dict[str, str]:
    """Returns a hash of the code of each hook that a configuration names, by kind and name.

    Raises:
        InputError: a hook is not installed, or cannot be imported.
    """
    return {f"{kind}/{name}": hooks.version(kind, name) for kind, name in named.named}


def write_sections(run: FinishedRun, named: Hooks, data: pathlib.Path) -> None:
    """Writes the hooks' report sections to sections.json, as HTML by name. The first section has the hooks' metrics.

    Raises:
        InputError: a hook fails, or returns no text.
    """
    if not named.sections and not run.metrics.get("hooks"):
        return
    written = {"Metrics of packages": _metrics_table(run.metrics)} if run.metrics.get("hooks") else {}
    for name in named.sections:
        section = hooks.load("sections", name)
        with hooks.failures("sections", name):
            text = section(run)
        if not isinstance(text, str):
            raise InputError(
                f"the report section {name} returned {type(text).__name__}, not a text; return HTML as a str"
            )
        written[name] = text
    write_json(data / "sections.json", written)


def _metrics_table(metrics: Mapping[str, Any]) -> str:
    """Returns an HTML table of the hooks' metrics of the model and of its baseline."""
    sides = {"model": metrics["hooks"]}
    if baseline := metrics.get("baseline"):
        sides[f"{baseline['name']} (baseline)"] = baseline.get("hooks", {})
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ["", *metrics["hooks"]])
    rows = "".join(
        f"<tr><td>{html.escape(side)}</td>"
        + "".join(f"<td>{'-' if values.get(name) is None else f'{values[name]:.4f}'}</td>" for name in metrics["hooks"])
        + "</tr>"
        for side, values in sides.items()
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def call_after_run(run: FinishedRun, named: Hooks) -> None:
    """Calls the exports and the trackers, after all results of the run are written.

    Raises:
        InputError: a hook failed. The others are called anyway.
    """
    mistakes = []
    for kind, name in named.after_run:
        if kind == "exports" and run.version is None:
            continue
        try:
            hook = hooks.load(kind, name)
            with hooks.failures(kind, name):
                if kind == "exports":
                    with atomic_folder(run.folder / EXPORTS / name) as place:
                        hook(run, place)
                    announce(f"Export {name}: {run.folder / EXPORTS / name}")
                else:
                    announce(f"Tracked by {name}: {hook(run) or 'done'}")
        except InputError as error:
            mistakes.append(error)
    if mistakes:
        raise InputError(f"{run.folder}: the run is finished, but {mistakes[0]}") from mistakes[0]
