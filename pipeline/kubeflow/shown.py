"""The artifacts of a run that Kubeflow's pages display beyond metrics: curves, rows, versions and TensorBoard.

Kubeflow draws the metadata of artifacts whose type it knows. Curves and confusion matrices use the keys of kfp's
ClassificationMetrics.
"""

import json
import pathlib
import shutil
from collections.abc import Iterable
from typing import Any

import numpy as np
from kfp.dsl import ClassificationMetrics

from ctrpipe.common import metrics
from ctrpipe.common.files import write_json
from ctrpipe.pipeline.kubeflow.task import TENSORBOARD
from ctrpipe.pipeline.report.measured import read_predictions

CURVE_POINTS = 100  # maximum points of a curve, which the metadata of its artifact hold
CLASSES = ["no click", "click"]
_MINIO = "minio://"  # Kubeflow's scheme for its own store of the S3 kind, which TensorBoard does not know
_PUSHED = ("pushed_version", "pushed_destination")  # properties of TFX's pushed model


def classification(predictions: pathlib.Path) -> dict[str, Any]:
    """Returns the metadata of the ROC curve and the confusion matrix of the test rows, for the primary task.

    A click is predicted where the probability is at least the rows' click rate: at 0.5 hardly any is. Without rows of
    both classes there is no curve.

    Args:
        predictions: The file of scored rows.
    """
    columns, _ = read_predictions(predictions.read_bytes())
    labels, probabilities, weights = (columns[name].astype(np.float64) for name in ("label", "probability", "weight"))
    rate = float(np.average(labels, weights=weights))
    shown = ClassificationMetrics(name="classification", uri="", metadata={"threshold": rate})
    clicks, others = metrics.class_weights(labels, weights)
    if clicks.sum() and others.sum():
        points = metrics.roc_points(labels, probabilities, weights)
        chosen = _spread(points[0], points[1])
        # The first point is above every score. Kubeflow reads only finite numbers.
        thresholds = np.minimum(points[2], 1.0)
        shown.log_roc_curve(*(values[chosen].tolist() for values in (points[0], points[1], thresholds)))
    predicted = probabilities >= rate
    matrix = [[float(mass[predicted == click].sum()) for click in (False, True)] for mass in (others, clicks)]
    shown.log_confusion_matrix(CLASSES, matrix)
    return dict(shown.metadata)


def _spread(*axes: np.ndarray) -> np.ndarray:
    """Returns the places of about CURVE_POINTS points of a curve, evenly along each axis, including both ends."""
    count = len(axes[0])
    if count <= CURVE_POINTS:
        return np.arange(count)
    even = np.linspace(0.0, 1.0, CURVE_POINTS // len(axes))
    places = [np.searchsorted(axis, even).clip(0, count - 1) for axis in axes]
    return np.unique(np.concatenate([*places, [0, count - 1]]))


def of_artifact(artifact: Any, folders: Iterable[pathlib.Path], models: str | None = None) -> dict[str, Any]:
    """Returns what Kubeflow shows of a TFX artifact: the rows of each split, and where a model was pushed.

    Args:
        artifact: The TFX artifact, with its local path.
        folders: The folders of Examples that the step has read.
        models: The URL that versions are pushed to. None if they are pushed to a volume.
    """
    shown: dict[str, Any] = {}
    if artifact.type_name == "Examples":
        counts = next((file for folder in folders if (file := folder / "counts.json").is_file()), None)
        rows = json.loads(counts.read_text())["rows"] if counts else {}
        shown = {f"rows_{split}": rows[split] for split in json.loads(artifact.split_names or "[]") if split in rows}
    properties = artifact.mlmd_artifact.custom_properties
    version, place = (properties[name].string_value if name in properties else "" for name in _PUSHED)
    if version:
        shown = {"version": version, "pushed_to": f"{models}/{version}" if models else place}
    return shown


def keep_tensorboard(work: pathlib.Path, folder: pathlib.Path, uri: str, viewers: pathlib.Path) -> None:
    """Copies the event files of a training into an artifact, and writes the link with which Kubeflow opens them.

    Args:
        work: The folder of the training.
        folder: The artifact's local path.
        uri: Its URI.
        viewers: The file of the link.
    """
    logs = sorted(work.rglob("tensorboard/*tfevents*")) if work.is_dir() else []
    for log in logs:
        kept = folder / log.relative_to(work)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept)
    viewers.parent.mkdir(parents=True, exist_ok=True)
    source = f"s3://{uri.removeprefix(_MINIO)}" if uri.startswith(_MINIO) else uri
    write_json(viewers, {"outputs": [{"type": TENSORBOARD, "source": source}] if logs else []})
