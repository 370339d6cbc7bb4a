"""Writes a run's results from its artifacts: metrics.json, report_data/ and report.html.

Importing TFDV and TFX takes 3 s and more. They are imported inside functions, because a run imports this module before
it has read its log.
"""

import datetime
import hashlib
import importlib.metadata
import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, Protocol

import yaml

from ctrpipe.common.errors import without_secrets
from ctrpipe.common.files import atomic_folder, write_json
from ctrpipe.common.progress import announce
from ctrpipe.common.stores import absolute, name_of
from ctrpipe.pipeline.components import SERVABLE
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.evaluation.artifact import SCORED, read_gate_table, read_metrics
from ctrpipe.pipeline.evaluation.drift_gate import drift_gate
from ctrpipe.pipeline.evaluation.seeds import SEEDS, Seeds, write_seeds
from ctrpipe.pipeline.report.report import write_report
from ctrpipe.pipeline.run.finished import call_after_run, check_hooks, finished_run, write_sections
from ctrpipe.pipeline.run.inputs import encoders
from ctrpipe.pipeline.run.seeds import all_seeds
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.text.checkpoint import checkpoint_revision

VERSIONS_SHOWN = ("tensorflow", "keras", "tfx", "tensorflow-transform", "apache-beam", "numpy", "pyarrow")


class RunArtifacts(Protocol):
    """Gives access to a run's output artifacts, as ctrpipe.pipeline.run.artifacts.Artifacts does."""

    def folder(self, node: str, output: str) -> pathlib.Path: ...

    def property(self, node: str, output: str, name: str) -> str | None: ...


def finish(
    config: RunConfig,
    data: list[dict[str, Any]],
    code: str,
    output: pathlib.Path,
    artifacts: RunArtifacts,
    seconds: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Writes metrics.json, report_data/ and report.html, and calls the hooks after a run.

    This needs no model, because GatedEvaluator has stored the predictions.

    Args:
        config: The run's configuration.
        data: The log's files, as returned by `describe_file`.
        code: The hash of the code.
        output: The run's folder.
        artifacts: The artifacts of the newest execution of each node.
        seconds: The duration of each phase of the run. None if its steps ran elsewhere.

    Returns:
        The contents of metrics.json.
    """
    evaluation = artifacts.folder("GatedEvaluator", "evaluation")
    metrics, gates = read_metrics(evaluation), read_gate_table(evaluation)
    if tail := metrics["tail"]:
        announce(f"Tail: {tail['examples']:,} of {metrics['examples']:,} test rows, {' x '.join(tail['columns'])}")
    metrics["blessed"] = (artifacts.folder("GatedEvaluator", "blessing") / "BLESSED").exists()
    metrics["drift_breached"] = None
    drift = None
    if config.monitoring.previous or config.monitoring.serving:
        drift = json.loads((artifacts.folder("DriftCheck", "drift") / "drift.json").read_text())
        metrics["drift_breached"] = drift["breached"]
        if config.monitoring.block:
            gates.append(drift_gate(drift))
            metrics["blessed"] = metrics["blessed"] and not drift["breached"]
    pushed = artifacts.property("AtomicPusher", "pushed_model", "pushed_version") if metrics["blessed"] else None
    metrics["model_version"] = pushed
    model = artifacts.folder("Trainer", "model") / SERVABLE
    history = json.loads(asset_path(model, Asset.HISTORY).read_text())
    metrics["calibration_choice"] = history.get("calibration")
    with atomic_folder(output / "report_data") as unfinished:
        shutil.copy(evaluation / SCORED, unfinished / "predictions.parquet")
        shutil.copy(asset_path(model, Asset.HISTORY), unfinished / "history.json")
        write_json(unfinished / "gates.json", gates)
        if drift:
            write_json(unfinished / "drift.json", drift)
        write_json(unfinished / "statistics.json", _statistics(config, data, artifacts))
        if seconds:
            write_json(unfinished / "seconds.json", seconds)
        seeds = _seeds(config, metrics, history, artifacts, unfinished) if config.evaluation.seeds > 1 else None
        write_json(unfinished / "lineage.json", _lineage(config, data, code, artifacts))
        # Nulls are kept: a null turns off a setting whose default is another value.
        settings = config.model_dump(mode="json")
        (unfinished / "config.yaml").write_text(without_secrets(yaml.safe_dump(settings, sort_keys=False)))
        write_json(output / "metrics.json", metrics)
        if seeds:
            write_seeds(output, seeds)
        else:
            (output / SEEDS).unlink(missing_ok=True)  # of an earlier run in this folder
    run = finished_run(config, output, metrics)
    write_sections(run, config.hooks, output / "report_data")
    write_report(output)
    call_after_run(run, config.hooks)
    return metrics


def _seeds(
    config: RunConfig,
    metrics: dict[str, Any],
    history: dict[str, Any],
    artifacts: RunArtifacts,
    data: pathlib.Path,
) -> Seeds:
    """Returns the training runs of both sides with all seeds, and copies their predictions to the folder `data`."""
    ends = {"model": {"stopped": history["stopped"], "converged": metrics["converged"]}}
    if metrics["baseline"]:
        ends["baseline"] = metrics["baseline"]
    predictions = artifacts.folder("GatedEvaluator", "evaluation") / SCORED
    return all_seeds(config.seed, artifacts.folder("SeedTrainings", "seeds"), predictions, ends, data)


def _statistics(config: RunConfig, data: list[dict[str, Any]], artifacts: RunArtifacts) -> dict[str, Any]:
    """Returns the contents of statistics.json: rows, columns, anomalies and malformed rows of the log."""
    # Lazy: TFX and TFDV take 3 s, and a page of results does not need them.
    from ctrpipe.pipeline.components.log_statistics_gen import RATES
    from ctrpipe.pipeline.components.log_transform import ALL_UNKNOWN, CLIPPED
    from ctrpipe.pipeline.monitoring.statistics import summarise_statistics

    counts = json.loads((artifacts.folder("LogExampleGen", "examples") / "counts.json").read_text())
    return summarise_statistics(
        artifacts.folder("LogStatisticsGen", "statistics"),
        artifacts.folder("ExampleValidator", "anomalies"),
        {**counts, "spans": _spans(counts, data)},
        config.log_spec,
        json.loads(str(artifacts.property("LogStatisticsGen", "statistics", RATES))),
        *(
            json.loads(artifacts.property("LogTransform", "transformed_examples", name) or "{}")
            for name in (ALL_UNKNOWN, CLIPPED)
        ),
    )


def _spans(counts: Mapping[str, Any], data: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Returns the first and last file, or time, of each split, with the current paths of files that were moved.

    If several files have the same name, the paths are those at the time of reading.
    """
    spans: dict[str, list[str]] = counts.get("spans", {})
    places = {name_of(file["path"]): absolute(file["path"]) for file in data}
    if len(places) < len(data):
        return spans
    return {split: [_place_now(end, places) for end in ends] for split, ends in spans.items()}


def _place_now(end: str, places: Mapping[str, str]) -> str:
    """Returns the current path of a file. Returns a time unchanged."""
    return places.get(pathlib.Path(end).name, end) if pathlib.Path(end).is_absolute() else end


def _lineage(config: RunConfig, data: list[dict[str, Any]], code: str, artifacts: RunArtifacts) -> dict[str, Any]:
    """Returns the contents of lineage.json: the files, code, libraries and artifacts of the run."""
    return {
        "config_hash": hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:16],
        "code_version": code,
        "data": data,
        "schema": str(artifacts.folder("ImportSchemaGen", "schema")),
        "checkpoints": {name: revision for name in encoders(config) if (revision := checkpoint_revision(name))},
        "transform_graph": str(artifacts.folder("LogTransform", "transform_graph")),
        "model": str(artifacts.folder("Trainer", "model")),
        "parent": _parent(artifacts.folder("Trainer", "model") / SERVABLE),
        "hooks": check_hooks(config.hooks),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS_SHOWN},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _parent(model: pathlib.Path) -> dict[str, Any] | None:
    """Returns the parent of a model's warm start and the values taken from it. None without a warm start."""
    path = asset_path(model, Asset.PARENT)
    return dict(json.loads(path.read_text())) if path.exists() else None
