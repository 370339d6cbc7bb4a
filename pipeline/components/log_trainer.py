"""Replaces TFX's Trainer, which has no input for the statistics in the export."""

import pathlib
from typing import Any

import tensorflow_transform as tft
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, ExampleStatistics, TransformGraph
from tfx.types.standard_artifacts import Model as ModelArtifact

from ctrpipe.pipeline.components.exported_run import export_run
from ctrpipe.pipeline.components.trained_run import train_run
from ctrpipe.pipeline.components.trainer_settings import TrainerInputs, TrainerSettings
from ctrpipe.pipeline.training.calibrate import check_classes
from ctrpipe.transforms.features.preprocessing import feature_map


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
    transform = tft.TFTransformOutput(str(inputs.transform_graph))
    fields = feature_map(given.spec, transform)
    if given.calibration:
        check_classes(fields, inputs.rows("validation"))
    trained = train_run(given, inputs, fields, folder)  # keeps the model before the export, which may fold its weights
    return export_run(given, inputs, transform, trained, folder, code_version)
