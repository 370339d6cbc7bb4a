"""Writes a generated log as packed files and trains on it, to check models against a known truth."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.models import FeatureMap
from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.transforms.features.packed_files import PackedWriter
from ctrpipe.transforms.generate.sample import GeneratedRows

# Seed of each part's rows, and its size relative to the training rows.
PARTS = {"train": (1, 1.0), "validation": (2, 0.25), "test": (3, 0.5)}


@dataclasses.dataclass(frozen=True)
class PackedLog:
    """A generated log on disk: one packed file for each of PARTS.

    Attributes:
        feature_map: The description of the packed tensors.
        files: The file of each part.
        labels: Labels of the test rows, `[N]`.
        best_auc: The AUC of the true probabilities on the test rows.
    """

    feature_map: FeatureMap
    files: dict[str, str]
    labels: np.ndarray
    best_auc: float


@dataclasses.dataclass(frozen=True)
class Rows:
    """Packed rows of a part of a log.

    Attributes:
        ids: Packed ids, integers `[N, slots]`.
        labels: `[N]`.
        probabilities: float64 `[N]`, the true click probabilities.
    """

    ids: np.ndarray
    labels: np.ndarray
    probabilities: np.ndarray


def write_rows(name: str, feature_map: FeatureMap, parts: Mapping[str, Rows], folder: pathlib.Path) -> PackedLog:
    """Writes a log with the given rows of each of PARTS.

    Raises:
        InputError: The test rows have only one class.
    """
    files = {}
    for part, rows in parts.items():
        path = folder / f"{name}-{part}.parquet"
        with PackedWriter(path) as writer:
            writer.write({"ids": rows.ids.astype(np.int32), "label": rows.labels[:, None].astype(np.float32)})
        files[part] = str(path)
    test = parts["test"]
    best = metrics.auc(test.labels, test.probabilities)
    if best is None:
        raise InputError(f"--rows too few: the test rows of the {name} log have one class only; give more rows")
    return PackedLog(feature_map, files, test.labels, best)


def write_packed_log(
    name: str, columns: Sequence[str], parts: Mapping[str, GeneratedRows], folder: pathlib.Path
) -> PackedLog:
    """Writes a log of categorical columns with the given rows of each of PARTS.

    Raises:
        InputError: The test rows have only one class.
    """
    sizes = parts["test"].code_counts
    fields = [(column, "categorical", size, 1, "feature") for column, size in zip(columns, sizes, strict=True)]
    feature_map = FeatureMap.from_sizes(fields)
    first = [field.offset + RESERVED_IDS for field in feature_map.fields]
    packed = {part: Rows(rows.codes + first, rows.labels, rows.probabilities) for part, rows in parts.items()}
    return write_rows(name, feature_map, packed, folder)


def trained(settings: Model, training: Training, log: PackedLog, seed: int, work: pathlib.Path) -> Any:
    """Trains a model to its best validation result, and returns the learner."""
    # Imported here: TensorFlow takes 4 s of CPU time, which --help and option errors should not pay.
    from ctrpipe.pipeline.training.job import TrainingJob
    from ctrpipe.pipeline.training.train import train

    files = [log.files["train"]], [log.files["validation"]]
    return train(TrainingJob(settings, training, log.feature_map, *files, seed), work).learner


def predicted(learner: Any, log: PackedLog) -> np.ndarray:
    """Returns the predicted probabilities of the test rows, `[N]`."""
    from ctrpipe.pipeline.training.data import packed_batches

    labels, probabilities = learner.predict(packed_batches([log.files["test"]], log.feature_map, 8192))
    assert np.array_equal(labels[:, 0], log.labels)
    return np.asarray(probabilities[:, 0])


def with_weights(settings: Model, training: Training, log: PackedLog, weights: list[np.ndarray]) -> Any:
    """Returns a learner of a model with the given weights."""
    from ctrpipe.pipeline.training.tensorflow_learner import make_learner

    learner = make_learner(settings, training, log.feature_map, seed=0)
    learner.load_weights(weights)
    return learner
