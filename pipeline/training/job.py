"""A training job, which another process can read as JSON, and its result."""

import dataclasses
import importlib
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import keras

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import derives_from
from ctrpipe.models.base.saved import TrainingState
from ctrpipe.models.layers.tower import has_batch_statistics
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.config.groups import GroupedRows, check_pairs
from ctrpipe.pipeline.training.data import count_rows, even_batch, groups_of, labels_of, packed_batches
from ctrpipe.pipeline.training.learner import Batch, Learner, compares_rows
from ctrpipe.pipeline.training.progress import Progress

# By Keras backend. Each module imports its backend, and a process can have only one.
LEARNERS = {
    "tensorflow": "ctrpipe.pipeline.training.tensorflow_learner",
    "jax": "ctrpipe.pipeline.training.jax_learner",
}


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """A model to train, its training settings and its rows.

    Args:
        model: Registry name and hyperparameters.
        training: Optimisation settings.
        feature_map: The description of the packed tensors.
        train_files, validation_files: Globs of packed files.
        seed: Seed of initial weights, dropout and the order of examples.
        shared_stages: Folder of first stages, shared by all training runs that begin with the same stage; "" to keep
            stages in the training run's own work folder.
        start: The folder of a `Start`, the initial values from a parent; "" for none. `train` sets it.
        group_weight: What a group's AUC is weighted by in gAUC.
        start_vectors: The file with the initial vectors of embeddings; "" for none. A model without embeddings of
            single values does not read it.
    """

    model: Model
    training: Training
    feature_map: FeatureMap
    train_files: list[str]
    validation_files: list[str]
    seed: int
    shared_stages: str = ""
    start: str = ""
    group_weight: str = "impressions"
    start_vectors: str = ""

    def to_json(self) -> str:
        values = dataclasses.asdict(self)
        values |= {"model": self.model.model_dump(mode="json"), "training": self.training.model_dump(mode="json")}
        return json.dumps({**values, "feature_map": self.feature_map.to_json()})

    @classmethod
    def from_json(cls, text: str) -> "TrainingJob":
        values = json.loads(text)
        values |= {"model": Model(**values["model"]), "training": Training(**values["training"])}
        return cls(**{**values, "feature_map": FeatureMap.from_json(values["feature_map"])})

    def with_training(self, **changes: Any) -> "TrainingJob":
        """Returns the job with other values of some settings of `training`."""
        return dataclasses.replace(self, training=self.training.model_copy(update=changes))

    def data(self, files: list[str], epoch: int, skip: int, take: int) -> Iterable[Batch]:
        """Returns `take` batches of an epoch, counted from 0, after its first `skip` batches."""
        by_length = self.training.bucket_by_length and not derives_from(self.model.name, "numbert")
        batch = even_batch(count_rows(files), self.training.batch_size)
        order = (batch, self.seed + epoch, skip, take, by_length)
        grouped = compares_rows(self.training, self.feature_map)
        return packed_batches(files, self.feature_map, *order, weighted=True, grouped=grouped)

    def check_batches(self, network: CTRModel) -> None:
        """Raises InputError if a batch has a single row, which the network's batch normalization would make zero."""
        if not has_batch_statistics(network):
            return
        trained_on = [self.train_files, self.train_files + self.validation_files][: 1 + self.training.refit]
        check_batches(self.training.batch_size, map(count_rows, trained_on))

    def check_groups(self) -> None:
        """Raises InputError if a loss or a metric compares the rows within a group, and no group has both classes."""

        def rows_of(split: str) -> GroupedRows:
            files = self.train_files if split == "train" else self.validation_files
            groups, labels = groups_of(files), labels_of(files)
            assert groups is not None  # the configuration names a group
            return groups, dict(zip(self.feature_map.tasks, labels.T, strict=True))

        tasks = [task for task, number in self.feature_map.numbers_by_task.items() if number is None]
        check_pairs(self.training, tasks, "evaluation.group", rows_of)

    def learner(self) -> Learner:
        """Returns a learner of this job's untrained model."""
        backend = importlib.import_module(LEARNERS[keras.backend.backend()])
        learner: Learner = backend.make_learner(self.model, self.training, self.feature_map, self.seed)
        return learner

    def served_learner(self) -> Learner:
        """Returns an untrained learner of the served model: on one device, with all layers in float32."""
        return self.with_training(optimizer="adam", distribution="one_device", precision="float32").learner()


def check_batches(batch_size: int, trained_on: Iterable[int]) -> None:
    """Raises InputError if an epoch has a batch of a single row, which batch normalization would make zero.

    Args:
        batch_size: The maximum number of rows in a batch.
        trained_on: The number of rows in an epoch, for each training run.
    """
    for rows in trained_on:
        batch = even_batch(rows, batch_size)
        if rows % batch == 1 or batch == 1:
            raise InputError(
                f"training.batch_size: {batch_size} leaves a batch of one of the {rows:,} rows, "
                "which batch normalisation makes zero; use another batch_size or normalization: layer"
            )


@dataclasses.dataclass
class TrainResult:
    """A trained model with its best weights, and its history.

    Args:
        job: The job, with `auto` resolved.
        learner: The learner with the model.
        progress: The progress at the end of the training run.
        trained_here: Whether `learner` did the training and has its optimizer state. False if another process trained,
            or if the precision was not float32.
        weights_file: A file of `ctrpipe.common.arrays` with the model's weights, written during training; None if there
            is none.
        state: The training state with these weights, before the shift of the logits (see `train`).
        taken: The values taken from the parent, `warm_start.Taken` as a dictionary; None without a parent.
    """

    job: TrainingJob
    learner: Learner
    progress: Progress
    trained_here: bool = True
    weights_file: pathlib.Path | None = None
    state: TrainingState | None = None
    taken: dict[str, Any] | None = None

    @property
    def model(self) -> Any:
        return self.learner.network

    @property
    def history(self) -> dict[str, Any]:
        value = dataclasses.asdict(self.progress)
        numbers = {key: value[key] for key in ("evaluations", "best", "stopped", "not_finite")}
        return numbers | {"backend": self.job.training.backend, "precision": self.job.training.precision}
