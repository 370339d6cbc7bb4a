"""The inputs of the Trainer: its settings, and the artifacts of earlier nodes."""

import dataclasses
import pathlib

from tfx.types.standard_artifacts import Examples, ExampleStatistics, TransformGraph

from ctrpipe.pipeline.components.log_statistics_gen import train_statistics
from ctrpipe.pipeline.components.settings import StageSettings
from ctrpipe.pipeline.config import Calibration, Model, Training
from ctrpipe.pipeline.monitoring.scored_drift import statistics_assets
from ctrpipe.pipeline.training.parent import Parent
from ctrpipe.serving.layout import Asset
from ctrpipe.transforms.log.spec import LogSpec


class TrainerSettings(StageSettings):
    """Settings of LogTrainer.

    Args:
        spec: The description of the log.
        model: The model to train.
        training: Optimisation settings.
        seed: Seed of the training run.
        warmup_requests: The number of first training rows that become warm-up requests.
        position: The value in every request of each column with the role position.
        encoder_precision: The precision of the served text encoder.
        calibration: The calibration; None for none.
        explains: Whether the export has the signature `serving_explain`.
        work: Folder of the checkpoints, the same for every attempt at the same training run.
        parent: The model of a warm start; None for none.
        training_fingerprint: Hash of the training inputs, written into the export.
        group_weight: What a group's AUC is weighted by in gAUC.
    """

    spec: LogSpec
    model: Model
    training: Training
    seed: int
    warmup_requests: int
    position: dict[str, str | float]
    encoder_precision: str
    calibration: Calibration | None
    explains: bool
    work: pathlib.Path
    parent: Parent | None
    training_fingerprint: str
    group_weight: str = "impressions"


@dataclasses.dataclass(frozen=True)
class TrainerInputs:
    """The inputs of a training run, artifacts of the nodes before it.

    Args:
        payload: The folder of the payload.
        examples: The folder of the packed examples.
        transform_graph: The folder of the transform graph.
        statistics: The assets of an export with the statistics of the training rows.
    """

    payload: pathlib.Path
    examples: pathlib.Path
    transform_graph: pathlib.Path
    statistics: dict[Asset, str | bytes]

    def rows(self, split: str) -> list[str]:
        """Returns the pattern of a split's packed files."""
        return [f"{self.examples}/Split-{split}/*"]

    @classmethod
    def of(
        cls, payload: Examples, examples: Examples, transform_graph: TransformGraph, statistics: ExampleStatistics
    ) -> "TrainerInputs":
        """Returns the inputs in the artifacts of a component."""
        read, packed, graph = (pathlib.Path(artifact.uri) for artifact in (payload, examples, transform_graph))
        return cls(read, packed, graph, statistics_assets(*train_statistics(statistics)))
