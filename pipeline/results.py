"""What a run leaves for people: metrics.json, report_data/ and report.html."""

import datetime
import hashlib
import importlib.metadata
import json
import pathlib
import shutil
from typing import Any, Protocol

import yaml

from common.files import atomic_folder, write_json
from common.progress import announce
from pipeline.config import RunConfig
from pipeline.fingerprints import fingerprint_files
from serving.layout import Asset, asset_path

VERSIONS_SHOWN = ("tensorflow", "keras", "tfx", "tensorflow-transform", "apache-beam", "numpy", "pyarrow")


class FoundArtifacts(Protocol):
    """The output artifacts of a run, as pipeline.artifacts.Artifacts finds them."""

    def folder(self, node: str, output: str) -> pathlib.Path: ...

    def property(self, node: str, output: str, name: str) -> str | None: ...


def finish(
    config: RunConfig, data: list[dict[str, Any]], code: str, output: pathlib.Path, artifacts: FoundArtifacts
) -> dict[str, Any]:
    """Writes metrics.json, report_data/ and report.html from the artifacts of the newest execution of each node."""
    from pipeline.components.log_statistics_gen import RATES
    from pipeline.evaluation.evaluate import evaluate
    from pipeline.evaluation.gates import read_gates
    from pipeline.evaluation.scored_rows import rows_of, write_scored
    from pipeline.monitoring.drift import drift_gate
    from pipeline.monitoring.statistics import summarise_statistics
    from pipeline.report.report import write_report
    from transforms.log.payload import payload_files

    examples = artifacts.folder("LogExampleGen", "examples")
    model = artifacts.folder("Trainer", "model") / "Format-Serving"
    baseline = None
    if config.evaluation.baseline:
        folder = artifacts.folder("Trainer.baseline", "model") / "Format-Serving"
        baseline = (config.evaluation.baseline.name, folder)
    announce("Metrics on the test rows")
    test = payload_files(examples / "Split-test")
    evaluation = artifacts.folder("GatedEvaluator", "evaluation")
    workers = config.workers_for(output / "tfx")
    rows = rows_of(fingerprint_files(data), config)
    metrics, scored, others = evaluate(evaluation, baseline, test, config.log_spec, config.evaluation, rows, workers)
    if tail := metrics["tail"]:
        announce(f"Tail: {tail['examples']:,} of {metrics['examples']:,} test rows, {' x '.join(tail['columns'])}")
    gates = read_gates(evaluation, config.gates)
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
    with atomic_folder(output / "report_data") as unfinished:
        write_scored(unfinished / "predictions.parquet", scored, others)
        write_json(unfinished / "gates.json", gates)
        if drift:
            write_json(unfinished / "drift.json", drift)
        shutil.copy(asset_path(model, Asset.HISTORY), unfinished / "history.json")
        counts = json.loads((examples / "counts.json").read_text())
        statistics = artifacts.folder("LogStatisticsGen", "statistics")
        anomalies = artifacts.folder("ExampleValidator", "anomalies")
        rates = json.loads(str(artifacts.property("LogStatisticsGen", "statistics", RATES)))
        write_json(
            unfinished / "statistics.json", summarise_statistics(statistics, anomalies, counts, config.log_spec, rates)
        )
        (unfinished / "config.yaml").write_text(_as_yaml(config))
        lineage = {
            "config_hash": hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:16],
            "code_version": code,
            "data": data,
            "schema": str(artifacts.folder("ImportSchemaGen", "schema")),
            "transform_graph": str(artifacts.folder("LogTransform", "transform_graph")),
            "model": str(artifacts.folder("Trainer", "model")),
            "versions": {name: importlib.metadata.version(name) for name in VERSIONS_SHOWN},
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        write_json(unfinished / "lineage.json", lineage)
        write_json(output / "metrics.json", metrics)
    write_report(output)
    return metrics


def _as_yaml(config: RunConfig) -> str:
    return yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=False)
