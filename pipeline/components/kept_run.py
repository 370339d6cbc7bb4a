"""Keeps a run's trained Keras model next to its export, for explanations and warm starts."""

import pathlib

from ctrpipe.common.files import link_or_copy
from ctrpipe.models.base.saved import save_model
from ctrpipe.pipeline.components import KEPT_MODEL
from ctrpipe.pipeline.training.job import TrainResult
from ctrpipe.transforms.features.former_counts import COUNTS


def keep_model(result: TrainResult, graph: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes a trained model to a folder, with the value counts of its vocabularies if its graph has them.

    Args:
        result: The result of the training.
        graph: The folder of the transform graph.
        folder: The output folder of the Trainer.
    """
    kept, value_counts = folder / KEPT_MODEL, graph / COUNTS
    save_model(kept, result.job.model.name, result.model, result.weights_file, result.state)
    if value_counts.exists():
        link_or_copy(value_counts, kept / COUNTS)
