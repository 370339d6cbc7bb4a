"""Replaces TFX's Trainer, which has no input for the statistics that the export contains."""

import json
import pathlib
from typing import Any

import pyarrow as pa
import tensorflow_transform as tft
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, ExampleStatistics, TransformGraph
from tfx.types.standard_artifacts import Model as ModelArtifact

from common.progress import announce
from models.saved import save_model
from pipeline.components import KEPT_MODEL, SERVABLE
from pipeline.components.log_statistics_gen import train_statistics
from pipeline.config import Model, Training
from pipeline.monitoring.scored_drift import statistics_assets
from pipeline.training.text_encoder import with_encoder
from pipeline.training.train import train
from serving.export import export
from serving.layout import Asset
from transforms.features.preprocessing import feature_map
from transforms.log.payload import payload_files, read_payload
from transforms.log.spec import LogSpec


@component
def LogTrainer(
    payload: InputArtifact[Examples],
    examples: InputArtifact[Examples],
    transform_graph: InputArtifact[TransformGraph],
    statistics: InputArtifact[ExampleStatistics],
    model: OutputArtifact[ModelArtifact],
    spec: Parameter[str],
    settings: Parameter[str],
    training: Parameter[str],
    seed: Parameter[int],
    warmup_requests: Parameter[int],
    position: Parameter[str],
    encoder_precision: Parameter[str],
    work: Parameter[str],
    training_fingerprint: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Trains on the packed examples and exports.

    Args:
        payload: The payload, a few rows of which become the export's warm-up requests.
        examples: The packed examples.
        transform_graph: The graph that made them; it becomes a part of the export.
        statistics: The statistics of the log's splits, of which the export contains the training rows'.
        model: The export, and beside it the model itself with its weights.
        spec: LogSpec as JSON.
        settings: Model as JSON.
        training: Training as JSON.
        seed: Seed of the training.
        warmup_requests: The number of training rows, the first ones, that become warm-up requests.
        position: JSON: the value that each column of the role position has in every request.
        encoder_precision: The precision of the served text encoder.
        work: Folder of the checkpoints, the same for every attempt at the same training.
        training_fingerprint: Hash of the training's inputs, written into the export.
        code_version: See pipeline.components; written into the export.
    """
    log = LogSpec.model_validate_json(spec)
    transform = tft.TFTransformOutput(transform_graph.uri)
    fields = feature_map(log, transform)
    train_files, validation_files = ([f"{examples.uri}/Split-{split}/*"] for split in ("train", "validation"))
    trained = with_encoder(Model.model_validate_json(settings), log.text)
    result = train(
        trained,
        Training.model_validate_json(training),
        fields,
        train_files,
        validation_files,
        seed,
        pathlib.Path(work),
        _announce_evaluation,
    )
    # Before the export, which may fold the model's weights.
    save_model(pathlib.Path(model.uri) / KEPT_MODEL, trained.name, result.model, result.weights_file)
    announce("Writing the servable")
    assets = {
        Asset.TRAINING: json.dumps({"model": json.loads(settings), "training": json.loads(training)}, indent=1),
        Asset.HISTORY: json.dumps(result.history, indent=1),
        Asset.CODE_VERSION: code_version,
        Asset.TRAINING_FINGERPRINT: training_fingerprint,
        **statistics_assets(*train_statistics(statistics)),
    }
    rows = _first_rows(pathlib.Path(payload.uri), warmup_requests)
    folder = pathlib.Path(model.uri) / SERVABLE
    export(result.model, transform, log, fields, rows, folder, assets, json.loads(position), encoder_precision)


def _announce_evaluation(numbers: dict[str, Any]) -> None:
    text = f"{numbers['model']}: {numbers['examples']:,} examples, loss {numbers['train_loss']:.4f}"
    if "validation_auc" in numbers:  # the pretraining of a text encoder has none
        auc = "-" if numbers["validation_auc"] is None else f"{numbers['validation_auc']:.4f}"
        text += f", validation AUC {auc}, log loss {numbers['validation_log_loss']:.4f}"
    announce(text)


def _first_rows(payload: pathlib.Path, count: int) -> pa.RecordBatch:
    """Returns the first training rows. The raw log may be another one by now."""
    return next(read_payload(payload_files(payload / "Split-train"), batch_rows=count))
