"""Replaces TFX's Trainer, which has no input for the statistics in the export."""

import dataclasses
import functools
import json
import pathlib
from typing import Any

import pyarrow as pa
import tensorflow_transform as tft
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, ExampleStatistics, TransformGraph
from tfx.types.standard_artifacts import Model as ModelArtifact

from ctrpipe.common.files import link_or_copy
from ctrpipe.common.finite import check_figures
from ctrpipe.common.phases import start_phase
from ctrpipe.common.progress import announce
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.saved import read_feature_map, save_model
from ctrpipe.pipeline.components import KEPT_MODEL, SERVABLE
from ctrpipe.pipeline.components.log_statistics_gen import train_statistics
from ctrpipe.pipeline.components.settings import StageSettings
from ctrpipe.pipeline.config import Calibration, Model, Training
from ctrpipe.pipeline.monitoring.scored_drift import statistics_assets
from ctrpipe.pipeline.training.calibrate import check_classes, fit_calibration, weight_of_negatives
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.parent import Parent, start_with
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.pipeline.training.train import train
from ctrpipe.pipeline.training.warm_start import Start, counts, listed
from ctrpipe.serving.calibration import FittedCalibration
from ctrpipe.serving.export.export import export
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.features.former_counts import COUNTS
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.sample_negatives import is_sampled
from ctrpipe.transforms.features.transform import AGES, LIMITS, NUMBERS
from ctrpipe.transforms.log.outliers import naming_the_number
from ctrpipe.transforms.log.payload import payload_files, read_payload
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
    """The inputs of a training, artifacts of the nodes before it.

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

    @classmethod
    def of(
        cls, payload: Examples, examples: Examples, transform_graph: TransformGraph, statistics: ExampleStatistics
    ) -> "TrainerInputs":
        """Returns the inputs in the artifacts of a component."""
        read, packed, graph = (pathlib.Path(artifact.uri) for artifact in (payload, examples, transform_graph))
        return cls(read, packed, graph, statistics_assets(*train_statistics(statistics)))


@component
def LogTrainer(
    payload: InputArtifact[Examples],
    examples: InputArtifact[Examples],
    transform_graph: InputArtifact[TransformGraph],
    statistics: InputArtifact[ExampleStatistics],
    model: OutputArtifact[ModelArtifact],
    settings: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Trains on the packed examples and exports the model.

    Args:
        payload: The payload. Its first training rows become the warm-up requests of the export.
        examples: The packed examples.
        transform_graph: The transform graph of the packed examples; it becomes a part of the export.
        statistics: The statistics of the splits. The export contains those of the training rows.
        model: The export, and the trained Keras model with its weights.
        settings: TrainerSettings as JSON.
        code_version: See ctrpipe.pipeline.components; written into the export.
    """
    inputs = TrainerInputs.of(payload, examples, transform_graph, statistics)
    train_and_export(TrainerSettings.model_validate_json(settings), inputs, pathlib.Path(model.uri), code_version)


def train_and_export(
    given: TrainerSettings, inputs: TrainerInputs, folder: pathlib.Path, code_version: str
) -> dict[str, Any]:
    """Trains a model and exports it. An interrupted training resumes from the checkpoint in `given.work`.

    Args:
        given: What to train.
        inputs: The rows to train on.
        folder: The output folder of the export, and of the trained Keras model with its weights.
        code_version: Written into the export.

    Returns:
        The history of the training, with the choice of the calibration.

    Raises:
        InputError: see `train`.
    """
    log, by, parent = given.spec, given.calibration, given.parent
    transform = tft.TFTransformOutput(str(inputs.transform_graph))
    fields = feature_map(log, transform)
    train_files, validation_files = ([f"{inputs.examples}/Split-{split}/*"] for split in ("train", "validation"))
    if by:
        check_classes(fields, validation_files)
    trained = with_encoder(given.model, log.text)
    start = start_with(parent, log, fields, inputs.transform_graph) if parent else None
    ids = _announce_start(parent, start, fields) if parent and start else {}
    job = TrainingJob(
        trained,
        given.training,
        fields,
        train_files,
        validation_files,
        given.seed,
        group_weight=given.group_weight,
    )
    with naming_the_number(log, inputs.payload):
        result = train(job, given.work, _announce_evaluation, start)
    # Before the export, which may fold the model's weights.
    kept, counts_of_values = folder / KEPT_MODEL, inputs.transform_graph / COUNTS
    save_model(kept, trained.name, result.model, result.weights_file, result.state)
    if counts_of_values.exists():
        link_or_copy(counts_of_values, kept / COUNTS)
    announce("Writing the servable")
    start_phase("Trainer's export")
    assets = {
        Asset.TRAINING: json.dumps(given.model_dump(mode="json", include={"model", "training"}), indent=1),
        Asset.CODE_VERSION: code_version,
        Asset.TRAINING_FINGERPRINT: given.training_fingerprint,
        Asset.NUMBERS: (inputs.transform_graph / NUMBERS).read_text(),
        Asset.LIMITS: (inputs.transform_graph / LIMITS).read_text(),
        Asset.AGES: (inputs.transform_graph / AGES).read_text(),
        **inputs.statistics,
    }
    if parent and result.taken:
        if left := result.taken["left"]:
            announce(f"Not taken of the parent: {listed(left)}")
        described = {"model": parent.name, "fingerprint": parent.fingerprint, "ids": ids, **result.taken}
        assets[Asset.PARENT] = json.dumps(described, indent=1)
    rows = _first_rows(inputs.payload, given.warmup_requests)
    servable = folder / SERVABLE
    calibrate = None
    if by:
        unsampled = payload_files(inputs.payload / "Split-validation")
        negatives = weight_of_negatives(log, unsampled) if is_sampled(log, "validation") else None
        calibrate = functools.partial(_calibrate, by, fields, validation_files, negatives)
    served_as = (given.position, given.encoder_precision, calibrate, given.explains)
    with naming_the_number(log, inputs.payload):
        calibration = export(result.model, transform, log, fields, rows, servable, assets, *served_as)
    choices = calibration.choices() if calibration else None
    for task, choice in (choices or {}).items():
        announce(f"Calibration of {task}: {choice['text']}")
    history = {**result.history, "calibration": choices}
    asset_path(servable, Asset.HISTORY).write_text(json.dumps(history, indent=1))
    return history


def _calibrate(
    by: Calibration, fields: FeatureMap, validation_files: list[str], negatives: float | None, model: CTRModel
) -> FittedCalibration:
    """Fits the calibration; see `fit_calibration`. Raises NotFiniteError if a number of it is not finite."""
    fitted = fit_calibration(by, fields, validation_files, negatives, model)
    check_figures(
        "calibration", json.loads(fitted.to_json()), "remove calibration, or take another method", "validation"
    )
    return fitted


def _announce_start(parent: Parent, start: Start, fields: FeatureMap) -> dict[str, dict[str, int]]:
    """Announces how many ids the parent knows in total, and returns the counts by field."""
    ids = counts(fields, read_feature_map(start.kept), start.rows["ids"])
    known, new, gone = (sum(field[key] for field in ids.values()) for key in ("known", "new", "gone"))
    announce(f"Warm start from {parent.name}: {known:,} ids that it knows, {new:,} new ones, {gone:,} gone")
    return ids


def _announce_evaluation(numbers: dict[str, Any]) -> None:
    text = f"{numbers['model']}: {numbers['examples']:,} examples, loss {numbers['train_loss']:.4f}"
    if "validation_auc" in numbers:  # the pretraining of a text encoder has no validation metrics
        auc = "-" if numbers["validation_auc"] is None else f"{numbers['validation_auc']:.4f}"
        if numbers.get("validation_gauc") is not None:
            auc += f", gAUC {numbers['validation_gauc']:.4f}"
        text += f", validation AUC {auc}, log loss {numbers['validation_log_loss']:.4f}"
    announce(text)


def _first_rows(payload: pathlib.Path, count: int) -> pa.RecordBatch:
    """Returns the first training rows of the payload. The raw log may have changed since it was read."""
    return next(read_payload(payload_files(payload / "Split-train"), batch_rows=count))
