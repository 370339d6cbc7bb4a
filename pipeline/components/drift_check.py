"""Compares the training rows with an earlier log and with the serving log.

See ctrpipe.pipeline.monitoring.drift.
"""

import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, ExamplesDiff, ExampleStatistics, InfraBlessing

from ctrpipe.common.files import write_json
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.components.log_statistics_gen import train_statistics
from ctrpipe.pipeline.components.settings import StageSettings
from ctrpipe.pipeline.config import Monitoring
from ctrpipe.pipeline.monitoring.drift import compare_training_rows
from ctrpipe.transforms.log.described_files import read_states
from ctrpipe.transforms.log.spec import LogSpec

FILE = "drift.json"


class DriftSettings(StageSettings):
    """Settings of DriftCheck.

    Args:
        spec: The description of the log.
        monitoring: The logs to compare with, and the largest allowed distances.
        logs_fingerprint: Hash of the logs. Changed logs therefore miss the cache.
        states: See ExampleGenSettings.
        max_rows: A log with more rows is compared by a sample of this size.
        seed: Seed of the sample.
    """

    spec: LogSpec
    monitoring: Monitoring
    logs_fingerprint: str
    states: pathlib.Path | None
    max_rows: int
    seed: int


@component
def DriftCheck(
    examples: InputArtifact[Examples],
    statistics: InputArtifact[ExampleStatistics],
    drift: OutputArtifact[ExamplesDiff],
    settings: Parameter[str],
    workers: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Compares the training rows with the logs named in the configuration.

    Args:
        examples: The payload.
        statistics: The statistics of its splits.
        drift: FILE, with the property `breached`.
        settings: DriftSettings as JSON.
        workers: See Workers.from_json.
        code_version: See ctrpipe.pipeline.components.
    """
    given = DriftSettings.model_validate_json(settings)
    comparison = compare_training_rows(
        pathlib.Path(examples.uri),
        train_statistics(statistics)[0],
        given.spec,
        given.monitoring,
        given.max_rows,
        given.seed,
        Workers.from_json(workers),
        read_states(given.states) if given.states else None,
    )
    folder = pathlib.Path(drift.uri)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FILE, comparison)
    drift.set_string_custom_property("logs_fingerprint", given.logs_fingerprint)
    drift.set_int_custom_property("breached", int(comparison["breached"]))


@component
def DriftGate(
    drift: InputArtifact[ExamplesDiff],
    infra_blessing: InputArtifact[InfraBlessing],
    blessing: OutputArtifact[InfraBlessing],
) -> None:
    """Copies `infra_blessing`, but withholds the blessing if a log has drifted, so the pusher pushes nothing."""
    passed = not drift.get_int_custom_property("breached") and infra_blessing.get_int_custom_property("blessed") == 1
    blessing.set_int_custom_property("blessed", int(passed))
    folder = pathlib.Path(blessing.uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("INFRA_BLESSED" if passed else "INFRA_NOT_BLESSED")).touch()
