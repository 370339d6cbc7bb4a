"""The training loop of all backends: evaluations, plateaus, early stopping, checkpoints."""

import dataclasses
import importlib
import itertools
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from ctrpipe.common.arrays import read_arrays
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_folder, restore_folder, write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.progress import announce
from ctrpipe.models.base import metrics
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import check_hyperparameters, model_class
from ctrpipe.models.base.saved import TrainingState
from ctrpipe.pipeline.config import FirstStage, Model, Training
from ctrpipe.pipeline.training import masked_language_model
from ctrpipe.pipeline.training.auto_settings import settled, slow_precision
from ctrpipe.pipeline.training.averaging import WeightAverage
from ctrpipe.pipeline.training.base_rate import shift_to_base_rate
from ctrpipe.pipeline.training.boosting import learn_trees, load_lightgbm
from ctrpipe.pipeline.training.cluster import Cluster, text_from_chief
from ctrpipe.pipeline.training.data import (
    base_rates,
    count_rows,
    even_batch,
    out_of_order,
    packed_batches,
    prediction_rows,
    weights_of,
)
from ctrpipe.pipeline.training.learner import Batch, Learner, split_weight
from ctrpipe.pipeline.training.network import build_network
from ctrpipe.pipeline.training.process import Report, other_workers, train_with_others, train_with_worker
from ctrpipe.pipeline.training.regularisation import regularised
from ctrpipe.pipeline.training.warm_start import Start, take

# By Keras backend. Each module imports its backend, and a process can have only one.
LEARNERS = {
    "tensorflow": "ctrpipe.pipeline.training.tensorflow_learner",
    "jax": "ctrpipe.pipeline.training.jax_learner",
}

CHECKPOINT, REFIT = "checkpoint", "refit"  # folders below a training's work folder
STATE, BEST_STATE, NAMES = "state.npz", "best_state.npz", "state_names.json"  # files in these folders
TAKEN = "taken.json"  # the values that a training took from its parent


@dataclasses.dataclass
class Progress:
    """The progress of a training run, saved in a checkpoint together with the learner's state."""

    evaluation: int = 0  # the number of evaluations due so far, including those without a step in an epoch of few steps
    best: int | None = None  # the index of the best evaluation in `evaluations`
    best_value: float = math.inf  # of the monitored metric; lower is better (AUC is negated)
    waited: int = 0  # evaluations since the best
    plateau_waited: int = 0  # evaluations since the best, or since the learning rate was lowered
    learning_rate: float = 0.0
    stopped: str = ""  # the reason for the stop; "" during training
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class TrainResult:
    """A trained model with its best weights, and its history.

    Args:
        learner: The learner with the model.
        progress: The progress at the end of the training run.
        trained_here: Whether `learner` did the training and has its optimizer state. False if another process trained,
            or if the precision was not float32.
        weights_file: A file of `ctrpipe.common.arrays` with the model's weights, written during training; None if there
            is none.
        state: The training state with these weights, before the shift of the logits (see `train`).
        taken: The values taken from the parent, `warm_start.Taken` as a dictionary; None without a parent.
        backend, precision: The backend and the precision of the training, with `auto` resolved.
    """

    learner: Learner
    progress: Progress
    trained_here: bool = True
    weights_file: pathlib.Path | None = None
    state: TrainingState | None = None
    taken: dict[str, Any] | None = None
    backend: str = ""
    precision: str = ""

    @property
    def model(self) -> Any:
        return self.learner.network

    @property
    def history(self) -> dict[str, Any]:
        value = dataclasses.asdict(self.progress)
        numbers = {key: value[key] for key in ("evaluations", "best", "stopped")}
        return numbers | {"backend": self.backend, "precision": self.precision}


def train(
    model: Model,
    training: Training,
    feature_map: FeatureMap,
    train_files: list[str],
    validation_files: list[str],
    seed: int,
    work: pathlib.Path,
    report: Report | None = None,
    shared_stages: pathlib.Path | None = None,
    start: Start | None = None,
) -> TrainResult:
    """Trains a model.

    Resumes from the checkpoint in `work` if there is one; the weights are the same either way.

    With `training.end_at_base_rate`, a constant is added to the logits of the trained model (see `shift_to_base_rate`).
    If `feature_map.negative_sampling` is below 1, its logarithm is added to these logits: the prior correction of King
    and Zeng 2001, "Logistic Regression in Rare Events Data". The metrics in the history are computed on the sampled
    validation rows, before these corrections.

    Args:
        model: Registry name and hyperparameters.
        training: Optimisation settings.
        feature_map: The description of the packed tensors.
        train_files, validation_files: Globs of packed files.
        seed: Seed of initial weights, dropout and the order of examples.
        work: Folder of this training's checkpoint and TensorBoard logs.
        report: Called with the metrics of each evaluation.
        shared_stages: Folder of first stages, shared by all trainings that begin with the same stage; None to keep
            stages in `work`.
        start: The initial values from the parent of `training.warm_start`; None for random weights.

    Raises:
        InputError: the configuration does not fit the data or the parent, a row's labels do not fit the model, or
            another worker did not join or was lost.
    """
    if model_class(model.name).is_funnel:
        _check_order(model.name, feature_map, train_files + validation_files)
    if "auto" in (training.backend, training.precision):
        training = settled(model, training, count_rows(train_files))
        announce(f"Training on {training.backend} in {training.precision} (as `auto` has it here)")
    if slow := slow_precision(training):
        announce(slow)
    feature_map = dataclasses.replace(feature_map, fake_negatives=training.fake_negative_calibration)
    others = other_workers(training.distribution, training.backend)
    if others and training.backend == "jax":
        _check_hosts(model, training)
    if training.distillation:
        # Imported only here: JAX training processes import this module, but not TensorFlow (see worker.py).
        from ctrpipe.pipeline.training.distillation import soften_labels

        teacher, weight = pathlib.Path(training.distillation.teacher), training.distillation.weight
        train_files = [soften_labels(train_files, feature_map, teacher, weight, work / "distilled")]
    shared = str(shared_stages) if shared_stages else ""
    model, training = regularised(model, training, count_rows(train_files))
    task = Task(model, training, feature_map, tuple(train_files), tuple(validation_files), seed, shared)
    if start is not None:
        start.save(work / "warm_start")
        task = dataclasses.replace(task, start=str(work / "warm_start"))
    if others:
        result = _train_in_subprocess(task.with_training(distribution="multi_worker"), work, report, others)
    elif training.backend != keras.backend.backend():
        result = _train_in_subprocess(task, work, report)
    else:
        result = _train_here(task, work, report)
    shift = 0.0
    if training.end_at_base_rate:
        learnt = train_files + (validation_files if training.refit else [])
        rows = packed_batches(learnt, feature_map, prediction_rows(feature_map), weighted=True)
        shift = shift_to_base_rate(result.learner, rows)
    if feature_map.negative_sampling < 1:
        # With only this share of the negatives, the odds are 1 / share times the odds on all rows.
        shift += math.log(feature_map.negative_sampling)
    if shift:
        result.model.shift_logits(shift)
        result.weights_file = None  # the file has the weights before the shift
    if start is not None:
        result.taken = json.loads((work / TAKEN).read_text())
    result.backend, result.precision = training.backend, training.precision
    return result


def _check_hosts(model: Model, training: Training) -> None:
    """Raises InputError for settings that JAX supports on one host only.

    Reading an array that is spread over hosts takes all of them.
    """
    stage = training.stages.get("masked_language_model")
    alone = {
        "training.shard_tables": training.shard_tables,
        "training.stages.masked_language_model": stage is not None and not stage.skip,
        f"model.name {model.name}": model_class(model.name).boosts,
    }
    key = next((key for key, asked in alone.items() if asked), None)
    if key:
        raise InputError(f"{key}: JAX has it on one host alone; set training.distribution: mirrored, or use TensorFlow")


def _check_order(name: str, feature_map: FeatureMap, patterns: list[str]) -> None:
    """Raises InputError if a row is positive for a task but not for the preceding task."""
    counts = out_of_order(patterns)
    for before, task, count in zip(feature_map.tasks, feature_map.tasks[1:], counts, strict=False):
        if count:
            raise InputError(
                f"{name}: {count:,} training and validation rows have {task} without {before}; name the labels in the "
                "order in which they follow one another, and leave such rows out of the log"
            )


@dataclasses.dataclass(frozen=True)
class Task:
    """The arguments of `train`, which a subprocess reads as JSON."""

    model: Model
    training: Training
    feature_map: FeatureMap
    train_files: tuple[str, ...]
    validation_files: tuple[str, ...]
    seed: int
    shared_stages: str = ""
    start: str = ""  # the folder of a `Start`; "" for none

    def to_json(self) -> str:
        values = dataclasses.asdict(self)
        values |= {"model": self.model.model_dump(mode="json"), "training": self.training.model_dump(mode="json")}
        return json.dumps({**values, "feature_map": self.feature_map.to_json()})

    @classmethod
    def from_json(cls, text: str) -> "Task":
        values = json.loads(text)
        values |= {"train_files": tuple(values["train_files"]), "validation_files": tuple(values["validation_files"])}
        values |= {"model": Model(**values["model"]), "training": Training(**values["training"])}
        return cls(**{**values, "feature_map": FeatureMap.from_json(values["feature_map"])})

    def with_training(self, **changes: Any) -> "Task":
        return dataclasses.replace(self, training=self.training.model_copy(update=changes))

    def data(self, files: tuple[str, ...], epoch: int, skip: int, take: int) -> Iterable[Batch]:
        """Returns `take` batches of an epoch, counted from 0, after its first `skip` batches."""
        by_length = self.training.bucket_by_length and not model_class(self.model.name).counts_padding
        batch = even_batch(self.rows(files), self.training.batch_size)
        order = (batch, self.seed + epoch, skip, take, by_length)
        return packed_batches(list(files), self.feature_map, *order, weighted=True)

    def rows(self, files: tuple[str, ...]) -> int:
        return count_rows(list(files))

    def learner(self) -> Learner:
        """Returns a learner of this task's untrained model."""
        backend = importlib.import_module(LEARNERS[keras.backend.backend()])
        learner: Learner = backend.make_learner(self.model, self.training, self.feature_map, self.seed)
        return learner

    def served_learner(self) -> Learner:
        """Returns an untrained learner of the served model: on one device, with all layers in float32."""
        return self.with_training(optimizer="adam", distribution="one_device", precision="float32").learner()


def _train_here(task: Task, work: pathlib.Path, report: Report | None) -> TrainResult:
    training = task.training
    learner = task.learner()
    if learner.network.trees is not None:
        load_lightgbm()  # fails here, not after hours of training the network
    if not learner.is_chief:
        report = None
    average = WeightAverage(training.averaged_evaluations)
    checkpoint = _Checkpoint(work / CHECKPOINT, learner, average)
    progress = checkpoint.restore()
    if progress is None:
        progress = Progress(learning_rate=training.learning_rate)
        _initialise(task, learner, work, report)
    rows = task.rows(task.train_files)
    steps = math.ceil(rows / training.batch_size)
    interval = math.ceil(steps / training.evaluations_per_epoch)
    validation = packed_batches(list(task.validation_files), task.feature_map, prediction_rows(task.feature_map))
    weights = weights_of(list(task.validation_files))
    logs = _TensorBoard(work / "tensorboard") if learner.is_chief else None
    while not progress.stopped:
        epoch, part = divmod(progress.evaluation, training.evaluations_per_epoch)
        if epoch >= training.epochs:
            progress.stopped = f"all {training.epochs} epochs done"
            break
        if part * interval < steps:
            learner.learning_rate = progress.learning_rate
            loss = learner.fit(task.data(task.train_files, epoch, part * interval, interval))
            average.add(learner, len(progress.evaluations) + 1)
            with average.loaded(learner):
                labels, probabilities = learner.predict(validation)
            done = min(epoch * steps + min((part + 1) * interval, steps), training.epochs * steps)
            numbers = {
                "step": done,
                "examples": int(done / steps * rows),
                "train_loss": loss,
                **_validation(labels, probabilities, weights, task.feature_map.tasks),
                "learning_rate": progress.learning_rate,
            }
            _record_evaluation(training, progress, numbers)
            checkpoint.save(progress, is_best=progress.waited == 0)
            if logs:
                logs.write(numbers)
            if report:
                report({"model": task.model.name, **numbers})
        else:
            progress.evaluation += 1
    if training.refit:
        learner = task.learner()
        _initialise(task, learner, work, report)
        _refit(task, learner, progress)
        if learner.is_chief:
            _write_state(work / REFIT, learner)
    else:
        checkpoint.restore_best()
    if training.precision != "float32":
        learner = _in_float32(task, learner)
    if learner.network.trees is not None and learner.is_chief:
        with_trees = _train_trees(task, learner)
        if progress.best is not None and not training.refit:
            progress.evaluations[progress.best] |= with_trees
    is_best = not training.refit and learner.network.trees is None
    written = checkpoint.best if is_best else None
    return TrainResult(learner, progress, training.precision == "float32", written, _read_state(task, work))


def _in_float32(task: Task, learner: Learner) -> Learner:
    """Returns a learner with the same weights whose layers all compute in float32, like the served model."""
    served = task.with_training(precision="float32").learner()
    served.load_weights(learner.weights())
    return served


def _train_trees(task: Task, learner: Learner) -> dict[str, float | None]:
    """Trains the model's boosted trees until the validation rows stop them.

    With `refit`, trains the same number of trees again on all rows.

    Returns:
        AUC and log loss on the validation rows with the trees, before a refit.
    """

    def rows(files: tuple[str, ...]) -> Iterable[Batch]:
        return packed_batches(list(files), task.feature_map, task.training.batch_size, weighted=True)

    count = learn_trees(learner.network, rows(task.train_files), rows(task.validation_files), None, task.seed)
    if task.training.refit:
        learn_trees(learner.network, rows(task.train_files + task.validation_files), None, count, task.seed)
    # `learner.predict` would wait for the other workers, but only the chief has the trees.
    predicted = [
        (np.asarray(labels), np.asarray(keras.ops.sigmoid(learner.network(split_weight(inputs)[0], training=False))))
        for inputs, labels in rows(task.validation_files)
    ]
    labels, probabilities = (np.concatenate(parts) for parts in zip(*predicted, strict=True))
    return _validation(labels, probabilities, weights_of(list(task.validation_files)), task.feature_map.tasks)


def _initialise(task: Task, learner: Learner, work: pathlib.Path, report: Report | None) -> None:
    """Sets the bias of an untrained model to the base rate, and its weights to those of first stages, if configured.

    With a parent, the weights are taken from the parent instead.
    """
    if task.training.start_at_base_rate:
        try:
            rates = base_rates(list(task.train_files))
            if task.training.fake_negative_weighting:
                seen = np.minimum(rates, 0.5)
                rates = seen / (1 - seen)  # rate over distinct rows: each positive is also present as a fake negative
            learner.network.start_at(rates)
        except ValueError as error:
            raise InputError(f"training.start_at_base_rate: {error}") from error
    if task.feature_map.negative_sampling < 1:
        try:
            learner.network.output_biases()
        except ValueError as error:
            raise InputError(f"data.negative_sampling: {error}") from error
    if task.training.end_at_base_rate:
        try:
            learner.network.output_biases()
        except ValueError as error:
            raise InputError(f"training.end_at_base_rate: {error}") from error
    if task.start:
        _begin_with_parent(task, learner, work)
    else:
        _pretrain(task, learner, work, report)


def _begin_with_parent(task: Task, learner: Learner, work: pathlib.Path) -> None:
    assert task.training.warm_start is not None
    taken = take(learner, Start.load(pathlib.Path(task.start)) if learner.is_chief else None, task.training.warm_start)
    if taken:
        write_json(work / TAKEN, dataclasses.asdict(taken))


def _pretrain(task: Task, learner: Learner, work: pathlib.Path, report: Report | None) -> None:
    """Trains the first stages of `training.stages` and copies their weights into the learner's network.

    If the stage masked_language_model is configured, it first trains a text model's encoder. Then each model in
    `network.pretraining`, and each configured model in `network.optional_pretraining`, is trained after its own first
    stages, and the network takes its weights.

    Raises:
        InputError: the weights of a stage would not fit. This is checked before any training.
    """
    network = learner.network
    _check_stages(task, network)
    if language := language_stage(task, network):
        if learner.is_chief:
            _pretrain_encoder(task, network.encoder, language, work, report)
        learner.load_weights(learner.from_chief(learner.weights()))
    for first in first_stages(task, network):
        result = _train_here(first, _stage_folder(first, work), report)
        network.take_weights(result.model)


def language_stage(task: Task, network: CTRModel) -> FirstStage | None:
    """Returns the stage that trains the network's own encoder as a masked language model, or None if there is none."""
    stage = _settings(task).get(masked_language_model.NAME)
    before = [first.model.name for first in first_stages(task, network)]
    trains = stage and not stage.skip and "text_only" not in before and network.text_model() is network
    return stage if trains else None


def first_stages(task: Task, network: CTRModel) -> list[Task]:
    """Returns the training tasks of the models whose weights the network takes, in order.

    Each may have its own stages.

    Raises:
        InputError: a hyperparameter of the model is invalid for the model of the stage.
    """
    stages = _settings(task)
    later = {**type(network).options(), **task.model.hyperparameters}
    tasks = []
    for name in (*network.pretraining, *(name for name in network.optional_pretraining if name in stages)):
        stage = stages.get(name, FirstStage())
        if stage.skip:
            continue
        options = model_class(name).options_of_stage(later)
        try:
            check_hyperparameters(name, **options)
        except ValueError as error:
            raise InputError(f"training.stages.{name}: {error}") from error
        # Only the settings that this stage uses, because other models may begin with the same stage and share it.
        own = {before: stages[before] for before in sorted(_stages_of(name) & stages.keys())}
        training = stage.applied_to(task.training).model_copy(update={"stages": own})
        tasks.append(dataclasses.replace(task, model=task.model.of_stage(name, options), training=training))
    return tasks


def _stages_of(name: str) -> set[str]:
    """Returns the names of all stages of a model's training, including the stages of its first stages."""
    names = {masked_language_model.NAME}
    later = model_class(name)
    for first in (*later.pretraining, *later.optional_pretraining):
        names |= {first} | _stages_of(first)
    return names


def _settings(task: Task) -> Mapping[str, FirstStage]:
    """Returns `training.stages` as a mapping that accepts any model name."""
    return {name: stage for name, stage in task.training.stages.items()}


def _check_stages(task: Task, network: CTRModel) -> None:
    """Checks on untrained networks that the weights of all first stages, and of their own stages, would fit.

    Raises:
        InputError: a copied layer has another shape in the model of the stage.
    """
    for first in first_stages(task, network):
        # Built without the checkpoint, which does not affect shapes.
        stage = build_network(first.model.model_copy(update={"encoder": None}), task.feature_map, task.seed)
        for layer, (mine, trained) in network.taken_weights(stage).items():
            for weight, other in itertools.zip_longest(mine, trained):
                here, there = ("none" if each is None else tuple(each.shape) for each in (weight, other))
                if here != there:
                    raise InputError(
                        f"training.stages.{first.model.name}: {task.model.name} would start from its layer '{layer}',"
                        f" whose weight is {there} and not {here}; give both models the same widths"
                    )
        _check_stages(first, stage)


def _stage_folder(first: Task, work: pathlib.Path) -> pathlib.Path:
    """Returns the folder of a first stage.

    A shared stage's name has a hash of everything that its training uses.
    """
    name = first.model.name
    if not first.shared_stages:
        return work / f"pretrained-{name}"
    key = fingerprint(dataclasses.replace(first, shared_stages="").to_json())
    return pathlib.Path(first.shared_stages) / f"{name}-{key}"


def _pretrain_encoder(task: Task, encoder: Any, stage: FirstStage, work: pathlib.Path, report: Report | None) -> None:
    training = stage.applied_to(task.training)
    files, text = list(task.train_files), task.feature_map.text
    assert text is not None  # the network has an encoder

    def of_epoch(epoch: int) -> Iterable[Batch]:
        order = (even_batch(task.rows(task.train_files), training.batch_size), task.seed + epoch)
        return packed_batches(files, task.feature_map, *order, by_length=training.bucket_by_length)

    batches = masked_language_model.TextBatches(of_epoch, task.rows(task.train_files), text)
    folder = work / f"pretrained-{masked_language_model.NAME}"
    masked_language_model.pretrain_encoder(encoder, batches, training, stage.mask_rate, task.seed, folder, report)


def _refit(task: Task, learner: Learner, progress: Progress) -> None:
    """Trains on training and validation rows, with the epochs and learning rates that led to the best evaluation."""
    training, files = task.training, task.train_files + task.validation_files
    steps = math.ceil(task.rows(task.train_files) / training.batch_size)
    # A short epoch has fewer evaluations than configured: at most one per step.
    evaluations = math.ceil(steps / math.ceil(steps / training.evaluations_per_epoch))
    steps = math.ceil(task.rows(files) / training.batch_size)
    interval = math.ceil(steps / evaluations)
    average = WeightAverage(training.averaged_evaluations)
    for index, numbers in enumerate(progress.evaluations[: (progress.best or 0) + 1]):
        epoch, part = divmod(index, evaluations)
        if part * interval < steps:
            learner.learning_rate = numbers["learning_rate"]
            learner.fit(task.data(files, epoch, part * interval, interval))
        average.add(learner, index + 1)
    if average.span > 1:
        learner.load_weights(average.of(learner.weights()))


def _validation(
    labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None, tasks: tuple[str, ...]
) -> dict[str, float | None]:
    """Returns validation_auc and validation_log_loss of the first task, and validation_<task>_... of the others."""
    numbers: dict[str, float | None] = {}
    for index, task in enumerate(tasks):
        name = f"validation_{task}" if index else "validation"
        numbers[f"{name}_auc"] = metrics.auc(labels[:, index], probabilities[:, index], weights)
        numbers[f"{name}_log_loss"] = metrics.log_loss(labels[:, index], probabilities[:, index], weights)
    return numbers


def _record_evaluation(training: Training, progress: Progress, numbers: dict[str, Any]) -> None:
    """Records an evaluation: updates the best, lowers the learning rate at a plateau, or stops the training.

    Raises:
        InputError: AUC is monitored and the validation rows have one class only.
    """
    if training.monitor == "auc" and numbers["validation_auc"] is None:
        raise InputError("training.monitor: the validation rows have one class only, so no AUC; monitor log_loss")
    value = -numbers["validation_auc"] if training.monitor == "auc" else numbers["validation_log_loss"]
    progress.evaluations.append(numbers)
    progress.evaluation += 1
    if value < progress.best_value:
        progress.best, progress.best_value = len(progress.evaluations) - 1, value
        progress.waited = progress.plateau_waited = 0
        return
    progress.waited += 1
    progress.plateau_waited += 1
    if progress.waited >= training.patience:
        progress.stopped = f"{training.monitor} did not improve for {training.patience} evaluations"
    elif training.plateau and progress.plateau_waited >= training.plateau.patience:
        lowered = max(progress.learning_rate * training.plateau.factor, training.plateau.minimum)
        progress.learning_rate, progress.plateau_waited = lowered, 0


class _TensorBoard:
    """A TensorBoard event file of the evaluations, written without TensorFlow, which a JAX process does not load."""

    def __init__(self, folder: pathlib.Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"

    def write(self, numbers: dict[str, Any]) -> None:
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in numbers.items()
            if name != "step" and value is not None
        ]
        event = Event(wall_time=time.time(), step=numbers["step"], summary=Summary(value=values))
        with self._path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())


def _write_state(folder: pathlib.Path, learner: Learner) -> None:
    folder.mkdir(exist_ok=True)
    np.savez(folder / STATE, *learner.state())
    write_json(folder / NAMES, learner.state_names())


def _read_state(task: Task, work: pathlib.Path) -> TrainingState | None:
    """Returns the state with the best weights of a finished training, or with the last weights after a refit.

    Returns None in a worker that writes no checkpoints.
    """
    refit = task.training.refit
    folder = work / (REFIT if refit else CHECKPOINT)
    path = folder / (STATE if refit else BEST_STATE)
    return TrainingState(path, json.loads((folder / NAMES).read_text())) if path.exists() else None


class _Checkpoint:
    """Checkpoint folder with a learner's state, its averaged weights and the progress.

    A save replaces the folder as a whole. With several workers, only the chief reads and
    writes it, and sends the contents to the others.
    """

    def __init__(self, folder: pathlib.Path, learner: Learner, average: WeightAverage):
        self._folder = folder
        self._learner = learner
        self._average = average
        self.best = folder / "best.npz"  # the weights of the best evaluation

    def save(self, progress: Progress, is_best: bool) -> None:
        if not self._learner.is_chief:
            return
        with atomic_folder(self._folder) as unfinished:
            _write_state(unfinished, self._learner)
            self._average.save(unfinished)
            if is_best:
                self._write_best(unfinished)
            else:
                os.link(self.best, unfinished / self.best.name)
                os.link(self._folder / BEST_STATE, unfinished / BEST_STATE)
            (unfinished / "progress.json").write_text(json.dumps(dataclasses.asdict(progress)))

    def _write_best(self, folder: pathlib.Path) -> None:
        """Writes the evaluated weights, and the training state with these weights in place of the trained ones."""
        trained = self._learner.weights()
        evaluated = self._average.of(trained)
        np.savez(folder / self.best.name, *evaluated)
        if evaluated is trained:
            os.link(folder / STATE, folder / BEST_STATE)
        else:
            np.savez(folder / BEST_STATE, *evaluated, *self._learner.state()[len(evaluated) :])

    def restore(self) -> Progress | None:
        """Loads the checkpoint and returns its progress, or None if there is no checkpoint."""
        learner, folder = self._learner, self._existing() if self._learner.is_chief else None
        progress = text_from_chief(learner.from_chief, (folder / "progress.json").read_text() if folder else "")
        if not progress:
            return None
        learner.load_state(learner.from_chief(read_arrays(folder / STATE) if folder else learner.state()))
        self._average.restore(learner, folder)
        return Progress(**json.loads(progress))

    def _existing(self) -> pathlib.Path | None:
        restore_folder(self._folder)
        return self._folder if (self._folder / "progress.json").exists() else None

    def restore_best(self) -> None:
        learner = self._learner
        best = read_arrays(self.best) if learner.is_chief else learner.weights()
        learner.load_weights(learner.from_chief(best))


# In a subprocess ------------------------------------------------------------------------------------------------------


def _train_in_subprocess(
    task: Task, work: pathlib.Path, report: Report | None, others: Cluster | None = None
) -> TrainResult:
    """Trains in a subprocess, and loads the weights into this process for the export.

    A process has one Keras backend, and workers must connect before any other use of TensorFlow.
    """
    work.mkdir(parents=True, exist_ok=True)
    (work / "task.json").write_text(task.to_json())
    if others:
        train_with_others(others, work, task.training.backend, task.training.worker_timeout_seconds, report)
    else:
        train_with_worker(work, task.training.backend, report)
    learner, weights = task.served_learner(), work / "weights.npz"
    learner.load_weights(read_arrays(weights))
    progress = Progress(**json.loads((work / "history.json").read_text()))
    return TrainResult(learner, progress, trained_here=False, weights_file=weights, state=_read_state(task, work))


def run_task(work: pathlib.Path, report: Report) -> None:
    """Trains `work`/task.json and writes weights.npz and history.json to `work`. Runs in the subprocess."""
    result = _train_here(Task.from_json((work / "task.json").read_text()), work, report)
    np.savez(work / "weights.npz", *result.learner.weights())
    (work / "history.json").write_text(json.dumps(dataclasses.asdict(result.progress)))


def run_shared_task(
    work: pathlib.Path | None,
    from_chief: Callable[[list[np.ndarray]], list[np.ndarray]],
    joined: Callable[[str], None],
    report: Report,
) -> None:
    """Runs one training in every worker of a cluster; the chief calls `run_task`. Runs in the subprocess.

    Args:
        work: The chief's folder with task.json; None in the other workers, which receive the task from the chief.
        from_chief: See `Learner.from_chief`.
        joined: Called with the model's name when all workers are connected.
        report: Called with the metrics of each evaluation.
    """
    message = ""
    if work:
        task = Task.from_json((work / "task.json").read_text())
        train_files, validation_files = (
            tuple(map(os.path.abspath, files)) for files in (task.train_files, task.validation_files)
        )
        absolute = dataclasses.replace(task, train_files=train_files, validation_files=validation_files)
        message = json.dumps({"work": os.path.abspath(work), "task": absolute.to_json()})
    shared = json.loads(text_from_chief(from_chief, message))
    task = Task.from_json(shared["task"])
    joined(task.model.name)
    if work:
        run_task(work, report)
    else:
        _train_here(task, pathlib.Path(shared["work"]), report)
