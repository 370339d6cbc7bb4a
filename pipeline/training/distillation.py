"""Knowledge distillation: mixes training labels with the click probabilities of a teacher model.

The cross-entropy is linear in the label. The loss against (1 - w) y + w p is therefore (1 - w) times the loss against
the label y plus w times the loss against the teacher's probability p (Hinton et al. 2015, at a temperature of 1).
"""

import dataclasses
import pathlib

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_folder
from ctrpipe.common.finite import check_predictions
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.training.data import packed_reader
from ctrpipe.pipeline.training.learner import split_weight
from ctrpipe.serving.assets import read_feature_map
from ctrpipe.serving.layout import find_version
from ctrpipe.serving.loader import Servable
from ctrpipe.transforms.features.packed_files import PackedWriter

BATCH_ROWS = 1024
ANOTHER = "name another training.distillation.teacher"


def soften_labels(
    patterns: list[str], feature_map: FeatureMap, teacher: pathlib.Path, weight: float, folder: pathlib.Path
) -> str:
    """Writes the packed rows with mixed labels, in the same order.

    Does nothing if `folder` already has them.

    Args:
        patterns: Globs of packed files.
        feature_map: The description of the packed tensors.
        teacher: The folder of a model's versions, or of one version.
        weight: The weight w of the teacher's probability, 0 to 1.
        folder: The output folder.

    Returns:
        The glob of the written files.

    Raises:
        InputError: the teacher was trained on other features, vocabularies or tasks.
        NotFiniteError: a prediction of the teacher is not finite.
    """
    done = folder / "all"
    if not done.is_dir():
        version = find_version(teacher)
        taught = read_feature_map(version)
        if taught not in (feature_map, dataclasses.replace(feature_map, numbers=())):
            raise InputError(
                f"training.distillation.teacher: {version} was trained on other features or vocabularies; give a model "
                "that was trained on this log with these features"
            )
        servable = Servable(version)
        try:
            with atomic_folder(done) as unfinished, PackedWriter(unfinished / "part-0.parquet") as writer:
                for inputs, labels in packed_reader(patterns, feature_map, BATCH_ROWS, weighted=True):
                    outputs = servable.run("serving_packed", split_weight(inputs)[0])
                    probabilities = np.stack([outputs[task] for task in feature_map.tasks], axis=1)
                    check_predictions(f"the teacher {version}", probabilities, "train", in_order=False, advice=ANOTHER)
                    mixed = (1 - weight) * labels + weight * probabilities
                    writer.write({**inputs, "label": mixed.astype(np.float32)})
        finally:
            servable.close()
    return str(done / "*")
