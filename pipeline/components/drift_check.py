"""The training rows beside yesterday's log and the log of what was served (see pipeline.monitoring.drift)."""

import json
import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, ExamplesDiff, ExampleStatistics, InfraBlessing

from common.processes import Workers
from pipeline.components.log_statistics_gen import RATES
from pipeline.config import Monitoring
from pipeline.monitoring.drift import compare_training_rows
from pipeline.monitoring.statistics import Sampled, read_statistics
from transforms.log.spec import LogSpec

FILE = "drift.json"


@component
def DriftCheck(
    examples: InputArtifact[Examples],
    statistics: InputArtifact[ExampleStatistics],
    drift: OutputArtifact[ExamplesDiff],
    spec: Parameter[str],
    monitoring: Parameter[str],
    logs_fingerprint: Parameter[str],
    max_rows: Parameter[int],
    seed: Parameter[int],
    workers: Parameter[str],
):
    """`spec`, `monitoring`: LogSpec and Monitoring as JSON; `logs_fingerprint`: other logs, other cache entry."""
    rate = json.loads(statistics.get_string_custom_property(RATES))["train"]
    found = compare_training_rows(
        pathlib.Path(examples.uri),
        Sampled(read_statistics(pathlib.Path(statistics.uri), "train"), rate),
        LogSpec.model_validate_json(spec),
        Monitoring.model_validate_json(monitoring),
        max_rows,
        seed,
        Workers.from_json(workers),
    )
    folder = pathlib.Path(drift.uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(found, indent=1), encoding="utf-8")
    drift.set_string_custom_property("logs_fingerprint", logs_fingerprint)
    drift.set_int_custom_property("breached", int(found["breached"]))


@component
def DriftGate(
    drift: InputArtifact[ExamplesDiff],
    infra_blessing: InputArtifact[InfraBlessing],
    blessing: OutputArtifact[InfraBlessing],
):
    """`infra_blessing`, except that after a breach there is none: nothing may be pushed then."""
    passed = not drift.get_int_custom_property("breached") and infra_blessing.get_int_custom_property("blessed") == 1
    blessing.set_int_custom_property("blessed", int(passed))
    folder = pathlib.Path(blessing.uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("INFRA_BLESSED" if passed else "INFRA_NOT_BLESSED")).touch()
