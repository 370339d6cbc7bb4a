"""Trains a run's model, and keeps it next to its export, for explanations and warm starts."""

import dataclasses
import functools
import pathlib
from typing import Any

from ctrpipe.common.files import link_or_copy
from ctrpipe.common.progress import announce
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.saved import save_model
from ctrpipe.pipeline.components import KEPT_MODEL
from ctrpipe.pipeline.components.trainer_settings import TrainerInputs, TrainerSettings
from ctrpipe.pipeline.training.data import count_rows
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.parent import start_with
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.pipeline.training.train import train
from ctrpipe.pipeline.training.warm_start import announce_start
from ctrpipe.transforms.features.former_counts import COUNTS
from ctrpipe.transforms.features.start_vectors import start_vectors_of
from ctrpipe.transforms.log.outliers import naming_the_number


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A run's trained model.

    Attributes:
        fields: The description of its packed tensors.
        result: The result of the training.
        ids: With a warm start, how many ids of each field the parent knows, which are new, and which are gone.
    """

    fields: FeatureMap
    result: TrainResult
    ids: dict[str, dict[str, int]]


def train_run(given: TrainerSettings, inputs: TrainerInputs, fields: FeatureMap, folder: pathlib.Path) -> TrainedRun:
    """Trains a run's model, and keeps it in a folder.

    Args:
        given: What to train.
        inputs: The rows to train on.
        fields: The description of the packed tensors.
        folder: The folder of the kept model.

    Raises:
        InputError: see `train`.
    """
    log, parent = given.spec, given.parent
    trained = with_encoder(given.model, log.text)
    start = start_with(parent, log, fields, inputs.transform_graph) if parent else None
    ids = announce_start(start, fields) if start else {}
    files = inputs.rows("train"), inputs.rows("validation")
    vectors = start_vectors_of(inputs.transform_graph)
    job = TrainingJob(
        trained,
        given.training,
        fields,
        *files,
        given.seed,
        group_weight=given.group_weight,
        start_vectors=vectors,
    )
    with naming_the_number(log, inputs.payload):
        most = max(given.training.epochs * count_rows(job.train_files), 1)
        result = train(job, given.work, functools.partial(_announce_evaluation, most), start)
    _keep_model(result, inputs.transform_graph, folder)
    return TrainedRun(fields, result, ids)


def _keep_model(result: TrainResult, graph: pathlib.Path, folder: pathlib.Path) -> None:
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


def _announce_evaluation(most: int, numbers: dict[str, Any]) -> None:
    text = f"{numbers['model']}: {numbers['examples']:,} examples, loss {numbers['train_loss']:.4f}"
    if "validation_auc" in numbers:  # the pretraining of a text encoder has no validation metrics
        auc = "-" if numbers["validation_auc"] is None else f"{numbers['validation_auc']:.4f}"
        if numbers.get("validation_gauc") is not None:
            auc += f", gAUC {numbers['validation_gauc']:.4f}"
        text += f", validation AUC {auc}, log loss {numbers['validation_log_loss']:.4f}"
    announce(text, share=min(numbers["examples"] / most, 1.0))
