"""A log that is packed for trainings outside a pipeline."""

import dataclasses
import pathlib

from models.feature_map import FeatureMap
from pipeline.run_inputs import RunInputs


@dataclasses.dataclass(frozen=True)
class TransformedLog:
    """What the pipeline makes of a log up to Transform.

    Attributes:
        train, validation, test: Patterns of each split's packed files.
        feature_map: The description of the packed tensors.
        payload: Folder of the checked log, with `Split-train` and so on.
        inputs: What it is made from.
    """

    train: list[str]
    validation: list[str]
    test: list[str]
    feature_map: FeatureMap
    payload: pathlib.Path
    inputs: RunInputs
