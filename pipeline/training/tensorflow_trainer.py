"""Training with the TensorFlow backend: evaluation, plateau, early stopping, checkpoints, one device or several."""

import dataclasses
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from models import metrics
from models.feature_map import FeatureMap
from models.losses import BinaryCrossEntropy
from models.registry import create
from pipeline.config import Model, Training
from pipeline.training.data import count_rows, packed_dataset


@dataclasses.dataclass
class Progress:
    """Where a training stands; together with the weights, all that is needed to go on."""

    evaluation: int = 0  # evaluations done
    best: int | None = None  # the best of them
    best_value: float = math.inf  # of the monitored metric, lower is better (AUC negated)
    waited: int = 0  # evaluations since the best
    plateau_waited: int = 0
    learning_rate: float = 0.0
    stopped: str = ""
    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class TrainResult:
    """The trained model, with its best weights, and its history."""

    model: keras.Model
    progress: Progress

    @property
    def history(self) -> dict[str, Any]:
        value = dataclasses.asdict(self.progress)
        return {key: value[key] for key in ("evaluations", "best", "stopped")}


def make_strategy(distribution: str) -> tf.distribute.Strategy:
    """`auto`: a TPU where one is configured, else all GPUs, else one device."""
    if distribution == "tpu" or (distribution == "auto" and os.environ.get("TPU_NAME")):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    gpus = tf.config.list_logical_devices("GPU")
    if distribution == "mirrored" or (distribution == "auto" and len(gpus) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in gpus or tf.config.list_logical_devices("CPU")])
    return tf.distribute.get_strategy()


def train(
    model: Model,
    training: Training,
    feature_map: FeatureMap,
    train_files: list[str],
    validation_files: list[str],
    seed: int,
    work: pathlib.Path,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> TrainResult:
    """Trains, or goes on from the checkpoint in `work`; the same seed gives the same weights either way.

    Args:
        model: Registry name and hyperparameters.
        training: Optimisation settings.
        feature_map: The description of the packed tensors.
        train_files, validation_files: Patterns of gzip TFRecords of transformed examples.
        seed: Seed of initial weights, dropout and the order of examples.
        work: Folder of the checkpoint and of the TensorBoard logs of this training.
        report: Called with each evaluation's numbers.
    """
    work.mkdir(parents=True, exist_ok=True)
    strategy = make_strategy(training.distribution)
    with strategy.scope():
        network = _build(model, training, feature_map, seed)
    rows = count_rows(train_files)
    steps = math.ceil(rows / training.batch_size)
    interval = math.ceil(steps / training.evaluations_per_epoch)
    validation = packed_dataset(validation_files, feature_map, 8192)
    fit = _fitter(network, strategy)
    checkpoint = _Checkpoint(work / "checkpoint", network)
    progress = checkpoint.restore() or Progress(learning_rate=training.learning_rate)
    logs = tf.summary.create_file_writer(str(work / "tensorboard"))
    while not progress.stopped:
        epoch, part = divmod(progress.evaluation, training.evaluations_per_epoch)
        if epoch >= training.epochs:
            progress.stopped = f"all {training.epochs} epochs done"
            break
        if part * interval < steps:
            data = packed_dataset(train_files, feature_map, training.batch_size, shuffle_seed=seed + epoch)
            data = data.skip(part * interval).take(interval)
            network.optimizer.learning_rate.assign(progress.learning_rate)
            loss = fit(data)
            labels, probabilities = predict(network, validation)
            done = min(epoch * steps + min((part + 1) * interval, steps), training.epochs * steps)
            numbers = _evaluation(labels[:, 0], probabilities[:, 0], loss, progress, done, rows, steps)
            _decide(training, progress, numbers)
            checkpoint.save(progress, is_best=progress.waited == 0)
            _log(logs, numbers)
            if report:
                report(numbers)
        else:
            progress.evaluation += 1
    if training.refit:
        with strategy.scope():
            network = _build(model, training, feature_map, seed)
        fit = _fitter(network, strategy)
        _refit(network, fit, training, feature_map, train_files + validation_files, seed, progress)
    else:
        checkpoint.restore_best()
    return TrainResult(network, progress)


def _fitter(network: keras.Model, strategy: tf.distribute.Strategy) -> Callable[[tf.data.Dataset], float]:
    """A function that trains on every batch of a dataset once and returns the mean loss.

    Not `Model.fit`: in Keras 3.15 it counts one optimizer step too many where a dataset's size is unknown, and several
    devices do not add up to one. The loss of a batch is the mean over the rows of all devices.
    """

    def replica_step(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        rows = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.cast(tf.shape(labels)[0], tf.float32))
        with tf.GradientTape() as tape:
            logits = network(inputs, training=True)
            loss = tf.reduce_sum(network.loss.call(labels, logits)) / rows
            objective = loss
            if network.losses:
                objective += tf.add_n(network.losses) / strategy.num_replicas_in_sync
        gradients = tape.gradient(objective, [variable.value for variable in network.trainable_variables])
        network.optimizer.apply(gradients, network.trainable_variables)  # sums over the devices itself
        return loss

    @tf.function(reduce_retracing=True)
    def step(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(replica_step, args=(inputs, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def fit(data: tf.data.Dataset) -> float:
        if strategy.num_replicas_in_sync > 1:
            data = strategy.experimental_distribute_dataset(data)
        losses = [step(inputs, labels) for inputs, labels in data]
        return float(np.mean([loss.numpy() for loss in losses]))

    return fit


def _refit(
    network: keras.Model,
    fit: Callable[[tf.data.Dataset], float],
    training: Training,
    feature_map: FeatureMap,
    files: list[str],
    seed: int,
    progress: Progress,
) -> None:
    """Training and validation rows together, for as many passes and with the learning rates that led to the best."""
    steps = math.ceil(count_rows(files) / training.batch_size)
    interval = math.ceil(steps / training.evaluations_per_epoch)
    for index, numbers in enumerate(progress.evaluations[: (progress.best or 0) + 1]):
        epoch, part = divmod(index, training.evaluations_per_epoch)
        data = packed_dataset(files, feature_map, training.batch_size, shuffle_seed=seed + epoch)
        network.optimizer.learning_rate.assign(numbers["learning_rate"])
        fit(data.skip(part * interval).take(interval))


def predict(network: keras.Model, dataset: tf.data.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities, float32 [N, tasks] each."""
    labels, probabilities = [], []
    forward = tf.function(lambda inputs: tf.sigmoid(network(inputs, training=False)))
    for inputs, label in dataset:
        labels.append(label.numpy())
        probabilities.append(forward(inputs).numpy())
    return np.concatenate(labels), np.concatenate(probabilities)


def _build(model: Model, training: Training, feature_map: FeatureMap, seed: int) -> keras.Model:
    keras.utils.set_random_seed(seed)
    network = create(model.name, feature_map, **model.hyperparameters)
    optimizer = keras.optimizers.Adam(training.learning_rate, global_clipnorm=training.gradient_clip_norm)
    network.compile(optimizer=optimizer, loss=BinaryCrossEntropy(), jit_compile=False)
    inputs: dict[str, np.ndarray] = {}
    if feature_map.fields:
        inputs["ids"] = np.zeros((1, feature_map.total_slots), np.int32)
    if feature_map.dense:
        inputs["dense"] = np.zeros((1, len(feature_map.dense)), np.float32)
    # Builds weights and loss here: `fit` cannot do it from a batch that is spread over several devices.
    network.test_on_batch(inputs, np.zeros((1, len(feature_map.tasks)), np.float32))
    optimizer.build(network.trainable_variables)
    return network


def _evaluation(
    labels: np.ndarray, probabilities: np.ndarray, loss: float, progress: Progress, done: int, rows: int, steps: int
) -> dict[str, Any]:
    return {
        "step": done,
        "examples": int(done / steps * rows),
        "train_loss": float(loss),
        "validation_auc": metrics.auc(labels, probabilities),
        "validation_log_loss": metrics.log_loss(labels, probabilities),
        "learning_rate": progress.learning_rate,
    }


def _decide(training: Training, progress: Progress, numbers: dict[str, Any]) -> None:
    """Notes an evaluation: is it the best, is the learning rate cut, does training stop?"""
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


def _log(logs: tf.summary.SummaryWriter, numbers: dict[str, Any]) -> None:
    with logs.as_default(step=numbers["step"]):
        for name, value in numbers.items():
            if name != "step":
                tf.summary.scalar(name, value)
    logs.flush()


class _Checkpoint:
    """Weights, optimizer state and progress in one folder, replaced by a rename so that it is never half written."""

    def __init__(self, folder: pathlib.Path, network: keras.Model):
        self._folder = folder
        self._network = network

    def _variables(self) -> list[keras.Variable]:
        return [*self._network.variables, *self._network.optimizer.variables]

    def save(self, progress: Progress, is_best: bool) -> None:
        fresh = self._folder.with_name("checkpoint.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        np.savez(fresh / "state.npz", *[keras.ops.convert_to_numpy(variable) for variable in self._variables()])
        best = [keras.ops.convert_to_numpy(variable) for variable in self._network.variables]
        if is_best:
            np.savez(fresh / "best.npz", *best)
        else:
            os.link(self._folder / "best.npz", fresh / "best.npz")
        (fresh / "progress.json").write_text(json.dumps(dataclasses.asdict(progress)))
        old = self._folder.with_name("checkpoint.old")
        shutil.rmtree(old, ignore_errors=True)
        if self._folder.exists():
            self._folder.rename(old)
        fresh.rename(self._folder)
        shutil.rmtree(old, ignore_errors=True)

    def restore(self) -> Progress | None:
        # A kill between the two renames of save leaves only the old one.
        for folder in (self._folder, self._folder.with_name("checkpoint.old")):
            if (folder / "progress.json").exists():
                if folder != self._folder:
                    folder.rename(self._folder)
                _assign(self._variables(), self._folder / "state.npz")
                return Progress(**json.loads((self._folder / "progress.json").read_text()))
        return None

    def restore_best(self) -> None:
        _assign(self._network.variables, self._folder / "best.npz")


def _assign(variables: list[keras.Variable], path: pathlib.Path) -> None:
    with np.load(path) as values:
        for index, variable in enumerate(variables):
            variable.assign(values[f"arr_{index}"])
