"""A transformed log, for training outside a pipeline."""

import dataclasses
import pathlib

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.run.inputs import RunInputs


@dataclasses.dataclass(frozen=True)
class TransformedLog:
    """The outputs of a pipeline up to Transform.

    Attributes:
        train, validation, test: Glob patterns of each split's packed files.
        feature_map: The description of the packed tensors.
        payload: Folder of the checked log, with `Split-train` and so on.
        inputs: The run's inputs, for fingerprints.
        graph: Folder of the transform graph.
    """

    train: list[str]
    validation: list[str]
    test: list[str]
    feature_map: FeatureMap
    payload: pathlib.Path
    inputs: RunInputs
    graph: pathlib.Path
