"""Training steps on TensorFlow: one device or several, dense updates or only the rows that a batch touches."""

import functools
import os
from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

from models.ctr_model import CTRModel
from models.feature_map import FeatureMap
from models.layers.field_embedding import FieldEmbedding
from models.losses import BinaryCrossEntropy
from pipeline.config import Model, Training
from pipeline.training.data import input_errors
from pipeline.training.learner import Batch
from pipeline.training.network import build_network, task_weights, warm_up
from pipeline.training.row_optimizers import RowOptimizer, row_optimizer
from transforms.errors import InputError


def make_strategy(distribution: str) -> tf.distribute.Strategy:
    """`auto`: a TPU where one is configured, else all GPUs, else one device."""
    if distribution == "tpu" or (distribution == "auto" and os.environ.get("TPU_NAME")):
        return _tpu()
    gpus = tf.config.list_logical_devices("GPU")
    if distribution == "mirrored" or (distribution == "auto" and len(gpus) > 1):
        return _mirrored()
    return tf.distribute.get_strategy()


@functools.cache
def _tpu() -> tf.distribute.Strategy:
    """One for the process: to initialise a TPU again loses what lies on it."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


@functools.cache
def _mirrored() -> tf.distribute.Strategy:
    """One for the process: a second one would number its collective operations like the first, and collide with it."""
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def make_learner(model: Model, training: Training, feature_map: FeatureMap, seed: int) -> "TensorFlowLearner":
    """A fresh model with its optimizer, on the devices that `training.distribution` names."""
    strategy = make_strategy(training.distribution)
    if training.optimizer != "adam" and isinstance(strategy, tf.distribute.TPUStrategy):
        raise InputError(f"training.optimizer: {training.optimizer} does not run on a TPU; use adam")
    with strategy.scope():
        return TensorFlowLearner(build_network(model, feature_map, seed, training.precision), training, strategy)


class RowUpdate:
    """Updates a table's touched rows and nothing else."""

    def __init__(self, table: FieldEmbedding, optimizer: RowOptimizer):
        self.table, self.optimizer = table.table, optimizer
        rows, width = self.table.shape
        self.slots = [
            keras.Variable(shape=(rows, slot), initializer="zeros", trainable=False, name=f"{table.name}_slot")
            for slot in optimizer.slot_widths(width)
        ]

    def apply(self, ids: tf.Tensor, gradients: tf.Tensor, rate: tf.Tensor, step: tf.Tensor) -> None:
        """`ids` (touched), each once; `gradients` (touched, width)."""
        slots = tuple(tf.gather(slot.value, ids) for slot in self.slots)
        rows, slots = self.optimizer.update(tf.gather(self.table.value, ids), slots, gradients, rate, step)
        for variable, values in zip((self.table, *self.slots), (rows, *slots), strict=True):
            tf.raw_ops.ResourceScatterUpdate(resource=variable.value.handle, indices=ids, updates=values)


class TensorFlowLearner:
    """See `learner.Learner`.

    Not `Model.fit`: in Keras 3.15 it counts one optimizer step too many where a dataset's size is unknown, and several
    devices do not add up to one. The loss of a batch is the mean over the rows of all devices.
    """

    def __init__(self, network: CTRModel, training: Training, strategy: tf.distribute.Strategy):
        self._network = network
        self.learning_rate = training.learning_rate
        self.strategy = strategy
        self._training = training
        self._loss = BinaryCrossEntropy(task_weights(network.feature_map, training.task_weights))
        self._tables = {table.name: table for table in network.tables()}
        tables = [table.table for table in self._tables.values()]
        places = {id(table) for table in tables}
        self._others = [weight for weight in network.trainable_variables if id(weight) not in places]
        optimizer = row_optimizer(training.optimizer)
        self._row_updates = {name: RowUpdate(table, optimizer) for name, table in self._tables.items() if optimizer}
        self._dense = self._others if optimizer else [*self._others, *tables]
        # Gradients are clipped here, all by one norm, so not once more by the optimizer.
        self._optimizer = keras.optimizers.Adam(training.learning_rate)
        self._optimizer.build(self._dense)
        self._step = tf.function(self._distributed_step, reduce_retracing=True)
        self._forward = tf.function(self._probabilities, reduce_retracing=True)

    @property
    def network(self) -> CTRModel:
        return self._network

    def fit(self, batches: Iterable[Batch]) -> float:
        if self.strategy.num_replicas_in_sync > 1 and isinstance(batches, tf.data.Dataset):
            batches = self.strategy.experimental_distribute_dataset(batches)
        first = 1 + int(self._optimizer.iterations.numpy())
        losses = []
        for step, (inputs, labels) in enumerate(input_errors(batches), first):
            rate = self.learning_rate * warm_up(step, self._training.warmup_steps)
            losses.append(self._step(inputs, labels, tf.constant(rate, tf.float32)))
        return float(np.mean([loss.numpy() for loss in losses]))

    def predict(self, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
        labels, probabilities = [], []
        for inputs, label in input_errors(batches):
            labels.append(np.asarray(label))
            probabilities.append(self._forward(inputs).numpy())
        return np.concatenate(labels), np.concatenate(probabilities)

    def state(self) -> list[np.ndarray]:
        return [keras.ops.convert_to_numpy(variable) for variable in self._variables()]

    def load_state(self, state: list[np.ndarray]) -> None:
        _assign(self._variables(), state)

    def weights(self) -> list[np.ndarray]:
        return [keras.ops.convert_to_numpy(variable) for variable in self._network.variables]

    def load_weights(self, weights: list[np.ndarray]) -> None:
        _assign(self._network.variables, weights)

    def _variables(self) -> list[keras.Variable]:
        slots = [slot for update in self._row_updates.values() for slot in update.slots]
        return [*self._network.variables, *self._optimizer.variables, *slots]

    def _gathered(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: tf.gather(table.table.value, inputs["ids"]) for name, table in self._tables.items()}

    def _probabilities(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        # Reading a table whole copies it once its rows have been written one by one: hence gathered.
        return tf.sigmoid(self._network(inputs, training=False, gathered=self._gathered(inputs)))

    def _distributed_step(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        losses = self.strategy.run(self._replica_step, args=(inputs, labels, rate))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _replica_step(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        several = self.strategy.num_replicas_in_sync > 1
        rows = tf.cast(tf.shape(labels)[0], tf.float32)
        rows = context.all_reduce(tf.distribute.ReduceOp.SUM, rows) if several else rows
        gathered = self._gathered(inputs)
        with tf.GradientTape() as tape:
            tape.watch(list(gathered.values()))
            logits = self._network(inputs, training=True, gathered=gathered)
            loss = tf.reduce_sum(self._loss.call(labels, logits)) / rows
            objective = loss
            if self._network.losses:
                objective += tf.add_n(self._network.losses) / self.strategy.num_replicas_in_sync
        dense, by_row = tape.gradient(objective, ([weight.value for weight in self._others], gathered))
        if not self._row_updates:
            dense += [_of_table(table, inputs["ids"], by_row[name]) for name, table in self._tables.items()]
            by_row = {}
        by_row = {name: tf.reshape(part, [-1, part.shape[-1]]) for name, part in by_row.items()}
        ids = tf.reshape(inputs["ids"], [-1]) if by_row else None
        if several:
            dense = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
            by_row = {name: _gather_all(context, part) for name, part in by_row.items()}
            ids = context.all_gather(ids, axis=0) if by_row else None
        unique, by_row = _sum_by_row(ids, by_row)
        dense, by_row = self._clip(dense, by_row)
        self._optimizer.learning_rate.assign(rate)
        step = tf.cast(self._optimizer.iterations.value, tf.float32) + 1
        for name, update in self._row_updates.items():
            update.apply(unique, by_row[name], rate, step)
        self._apply_dense(dense)
        return loss

    def _apply_dense(self, gradients: list[tf.Tensor]) -> None:
        """Adam, in one kernel a weight: Keras's own update is ten operations, each of them a pass over a table.

        Over several devices Keras's, which adds the gradients up; they are already those of the whole batch.
        """
        optimizer, share = self._optimizer, self.strategy.num_replicas_in_sync
        if share > 1:
            optimizer.apply([gradient / share for gradient in gradients], self._dense)
            return
        step = tf.cast(optimizer.iterations.value, tf.float32) + 1
        betas = {"beta1": optimizer.beta_1, "beta2": optimizer.beta_2}
        powers = {f"{name}_power": tf.pow(beta, step) for name, beta in betas.items()}
        settings = betas | powers | {"epsilon": optimizer.epsilon, "lr": optimizer.learning_rate.value}
        moments = zip(optimizer._momentums, optimizer._velocities, strict=True)
        for weight, (m, v), gradient in zip(self._dense, moments, gradients, strict=True):
            handles = {"var": weight.value.handle, "m": m.value.handle, "v": v.value.handle}
            tf.raw_ops.ResourceApplyAdam(**handles, grad=gradient, **settings)
        optimizer.iterations.assign_add(1)

    def _clip(
        self, dense: list[tf.Tensor], by_row: dict[str, tf.Tensor]
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        if not self._training.gradient_clip_norm:
            return dense, by_row
        clipped, _ = tf.clip_by_global_norm([*dense, *by_row.values()], self._training.gradient_clip_norm)
        return clipped[: len(dense)], dict(zip(by_row, clipped[len(dense) :], strict=True))


def _of_table(table: FieldEmbedding, ids: tf.Tensor, gradients: tf.Tensor) -> tf.Tensor:
    """The gradient of a whole table from those of its gathered rows (batch_size, slots, width).

    Field by field, because the rows of one field fit a cache; padding (id 0) belongs to none.
    """
    fields = table.feature_map.fields
    slots = [field.slots for field in fields]
    parts = [tf.zeros((1, table.dim), gradients.dtype)]
    split = zip(fields, tf.split(ids, slots, axis=1), tf.split(gradients, slots, axis=1), strict=True)
    for field, own, rows in split:
        places = tf.reshape(own, [-1]) - field.offset  # negative ones are left out
        parts.append(tf.math.unsorted_segment_sum(tf.reshape(rows, [-1, table.dim]), places, field.size))
    return tf.concat(parts, axis=0)


def _gather_all(context: tf.distribute.ReplicaContext, gradients: tf.Tensor) -> tf.Tensor:
    """The rows of all devices, one behind the other; `all_gather` forgets their width."""
    return tf.ensure_shape(context.all_gather(gradients, axis=0), [None, gradients.shape[-1]])


def _sum_by_row(
    ids: tf.Tensor | None, gradients: dict[str, tf.Tensor]
) -> tuple[tf.Tensor | None, dict[str, tf.Tensor]]:
    """Each id once, and the sum of its gradients; one search for equal ids serves all tables."""
    if ids is None:
        return None, {}
    unique, places = tf.unique(ids)
    count = tf.shape(unique)[0]
    summed = {name: tf.math.unsorted_segment_sum(part, places, count) for name, part in gradients.items()}
    return unique, summed


def _assign(variables: Iterable[keras.Variable], values: Iterable[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
