"""Exports a run's trained model as a servable version."""

import json
import pathlib
from typing import Any

import tensorflow_transform as tft

from ctrpipe.common.phases import start_phase
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.components import SERVABLE
from ctrpipe.pipeline.components.calibrator import calibrator
from ctrpipe.pipeline.components.trained_run import TrainedRun
from ctrpipe.pipeline.components.trainer_settings import TrainerInputs, TrainerSettings
from ctrpipe.pipeline.training.warm_start import listed
from ctrpipe.serving.export.export import export
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.features.learned import NUMBERS
from ctrpipe.transforms.features.transform import AGES, LIMITS
from ctrpipe.transforms.log.outliers import naming_the_number
from ctrpipe.transforms.log.payload import payload_files, read_payload


def export_run(
    given: TrainerSettings,
    inputs: TrainerInputs,
    transform: tft.TFTransformOutput,
    trained: TrainedRun,
    folder: pathlib.Path,
    code_version: str,
) -> dict[str, Any]:
    """Exports a trained model, calibrated, with its assets.

    Args:
        given: The settings of the training.
        inputs: The rows that it was trained on.
        transform: The transform graph, which becomes a part of the export.
        trained: The trained model.
        folder: The output folder of the export.
        code_version: Written into the export.

    Returns:
        The history of the training, with the choice of the calibration.
    """
    announce("Writing the servable")
    start_phase("Trainer's export")
    log, by, model, fields = given.spec, given.calibration, trained.result.model, trained.fields
    assets = _assets(given, inputs, trained, code_version)
    # The raw log may have changed since it was read: the payload has its first training rows.
    rows = next(read_payload(payload_files(inputs.payload / "Split-train"), batch_rows=given.warmup_requests))
    calibrate = calibrator(by, log, fields, inputs.rows("validation"), inputs.payload) if by else None
    served_as = (given.position, given.encoder_precision, calibrate, given.explains)
    servable = folder / SERVABLE
    with naming_the_number(log, inputs.payload):
        calibration = export(model, transform, log, fields, rows, servable, assets, *served_as)
    choices = calibration.choices() if calibration else None
    for task, choice in (choices or {}).items():
        announce(f"Calibration of {task}: {choice['text']}")
    history = {**trained.result.history, "calibration": choices}
    asset_path(servable, Asset.HISTORY).write_text(json.dumps(history, indent=1))
    return history


def _assets(
    given: TrainerSettings, inputs: TrainerInputs, trained: TrainedRun, code_version: str
) -> dict[Asset, str | bytes]:
    """Returns the contents of the export's assets.extra/."""
    assets: dict[Asset, str | bytes] = {
        Asset.TRAINING: json.dumps(given.model_dump(mode="json", include={"model", "training"}), indent=1),
        Asset.CODE_VERSION: code_version,
        Asset.TRAINING_FINGERPRINT: given.training_fingerprint,
        Asset.NUMBERS: (inputs.transform_graph / NUMBERS).read_text(),
        Asset.LIMITS: (inputs.transform_graph / LIMITS).read_text(),
        Asset.AGES: (inputs.transform_graph / AGES).read_text(),
        **inputs.statistics,
    }
    parent, taken = given.parent, trained.result.taken
    if parent and taken:
        if left := taken["left"]:
            announce(f"Not taken from the parent: {listed(left)}")
        described = {"model": parent.name, "fingerprint": parent.fingerprint, "ids": trained.ids, **taken}
        assets[Asset.PARENT] = json.dumps(described, indent=1)
    return assets
