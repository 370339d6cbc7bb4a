"""Calibrates the exported model of a run on its validation rows."""

import functools
import json
import pathlib
from collections.abc import Callable

from ctrpipe.common.finite import check_figures
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.config import Calibration
from ctrpipe.pipeline.training.calibrate import fit_calibration, weight_of_negatives
from ctrpipe.serving.calibration import FittedCalibration
from ctrpipe.transforms.features.kept_rows import is_sampled
from ctrpipe.transforms.log.payload import payload_files
from ctrpipe.transforms.log.spec import LogSpec


def calibrator(
    by: Calibration, log: LogSpec, fields: FeatureMap, validation_files: list[str], payload: pathlib.Path
) -> Callable[[CTRModel], FittedCalibration]:
    """Returns the function that fits a model's calibration. It raises NotFiniteError if a number is not finite.

    Args:
        by: The settings of the calibration.
        log: The description of the log.
        fields: The description of the packed tensors.
        validation_files: The packed validation rows.
        payload: The folder of the payload, which has all negatives where the validation rows are a sample of them.
    """
    unsampled = payload_files(payload / "Split-validation")
    negatives = weight_of_negatives(log, unsampled) if is_sampled(log, "validation") else None
    return functools.partial(_calibrate, by, fields, validation_files, negatives)


def _calibrate(
    by: Calibration, fields: FeatureMap, validation_files: list[str], negatives: float | None, model: CTRModel
) -> FittedCalibration:
    """Fits the calibration; see `fit_calibration`. Raises NotFiniteError if a number of it is not finite."""
    fitted = fit_calibration(by, fields, validation_files, negatives, model)
    check_figures(
        "calibration", json.loads(fitted.to_json()), "remove calibration, or take another method", "validation"
    )
    return fitted
