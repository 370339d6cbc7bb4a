"""Training steps on TensorFlow: one device or several, of one host or more, dense updates or only the rows that a batch
touches."""

import functools
import os
from collections.abc import Iterable, Iterator

import keras
import numpy as np
import tensorflow as tf

from common.errors import InputError
from models.ctr_model import CTRModel
from models.feature_map import FeatureMap
from models.layers.field_embedding import FieldEmbedding
from models.losses import BinaryCrossEntropy
from pipeline.config import Model, Training
from pipeline.training.cluster import read_cluster
from pipeline.training.learner import Batch
from pipeline.training.loss_scale import INITIAL_SCALE, next_scale
from pipeline.training.network import build_network, rate_factors, task_weights, warm_up
from pipeline.training.row_optimizers import RowOptimizer, row_optimizer
from pipeline.training.tensorflow_data import input_errors
from pipeline.training.worker_group import WorkerGroup


def make_strategy(distribution: str) -> tf.distribute.Strategy:
    """`auto`: a TPU where one is configured, else all GPUs, else one device.

    Raises:
        InputError: `multi_worker` without the names of the workers.
    """
    if distribution == "multi_worker":
        return _multi_worker()
    if distribution == "tpu" or (distribution == "auto" and os.environ.get("TPU_NAME")):
        return _tpu()
    gpus = tf.config.list_logical_devices("GPU")
    if distribution == "mirrored" or (distribution == "auto" and len(gpus) > 1):
        return _mirrored()
    return tf.distribute.get_strategy()


@functools.cache
def _tpu() -> tf.distribute.Strategy:
    """Returns the one of the process: to initialise a TPU again loses what lies on it."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


@functools.cache
def _multi_worker() -> tf.distribute.Strategy:
    """Returns the process's only one, made before TensorFlow does anything: it opens the port that TF_CONFIG names."""
    if read_cluster() is None:
        raise InputError("training.distribution: multi_worker needs TF_CONFIG, which names the workers; see the README")
    return tf.distribute.MultiWorkerMirroredStrategy()


@functools.cache
def _mirrored() -> tf.distribute.Strategy:
    """Returns the process's only one: a second would number its collective operations like the first, and collide."""
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def make_learner(model: Model, training: Training, feature_map: FeatureMap, seed: int) -> "TensorFlowLearner":
    """Returns a fresh model with its optimizer, on the devices that `training.distribution` names."""
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


class LossScale:
    """The float16 loss scale as a training's state; see loss_scale."""

    def __init__(self) -> None:
        self.scale = keras.Variable(INITIAL_SCALE, dtype="float32", trainable=False, name="loss_scale")
        self.steps = keras.Variable(0, dtype="int32", trainable=False, name="loss_scale_steps")

    def advance(self, finite: tf.Tensor) -> None:
        after = next_scale(self.scale.value, self.steps.value, finite)
        for variable, value in zip((self.scale, self.steps), after, strict=True):
            tf.raw_ops.AssignVariableOp(resource=variable.value.handle, value=value)


class TensorFlowLearner:
    """See `learner.Learner`.

    Not `Model.fit`: in Keras 3.15 it counts one optimizer step too many where a dataset's size is unknown, and several
    devices do not add up to one. The loss of a batch is the mean over the rows of all devices of all workers, each of
    which reads the whole batch and takes its share.

    Every device writes its own copy of the weights, all of them the same: an operation on the copies' handles, where a
    variable's own `assign` would send what is there already.
    """

    def __init__(self, network: CTRModel, training: Training, strategy: tf.distribute.Strategy):
        self._network = network
        self.learning_rate = training.learning_rate
        self.strategy = strategy
        self._training = training
        self._workers = WorkerGroup(strategy)
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
        self._rate_factors = rate_factors(network, self._dense, training.encoder_rate)
        self._loss_scale = LossScale() if training.precision == "mixed_float16" else None
        self._step = tf.function(self.step, reduce_retracing=True)
        self._several_steps = tf.function(self.several_steps, reduce_retracing=True)
        self._forward = tf.function(self._probabilities, reduce_retracing=True)
        self._spread_seeds()

    @property
    def network(self) -> CTRModel:
        return self._network

    @property
    def is_chief(self) -> bool:
        return self._workers.index == 0

    def fit(self, batches: Iterable[Batch]) -> float:
        number = 1 + int(self._optimizer.iterations.numpy())
        losses = []
        static = isinstance(self.strategy, tf.distribute.TPUStrategy)
        whole = (fill_batch(batch, self._training.batch_size) if static else batch for batch in input_errors(batches))
        for several in _alike(whole, self._training.steps_per_execution):
            factors = [warm_up(number + place, self._training.warmup_steps) for place in range(len(several))]
            number += len(several)
            rates = tf.constant([self.learning_rate * factor for factor in factors], tf.float32)
            if len(several) == 1:
                losses.append(self._step(*several[0], rates[0]))
            else:
                losses.append(self._several_steps(*_stacked(several), rates))
        return float(np.mean(np.concatenate([np.atleast_1d(loss.numpy()) for loss in losses])))

    def predict(self, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
        """Predicts: of several workers each its share of the batches; all get the same numbers."""
        labels, probabilities = [], []
        for place, (inputs, label) in enumerate(input_errors(batches)):
            labels.append(np.asarray(label))
            mine = place % self._workers.count == self._workers.index
            probabilities.append(self._forward(inputs).numpy() if mine else np.zeros(label.shape, np.float32))
        return np.concatenate(labels), self._workers.total(np.concatenate(probabilities))

    def from_chief(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return self._workers.from_chief(arrays)

    def state(self) -> list[np.ndarray]:
        return [keras.ops.convert_to_numpy(variable) for variable in self._variables()]

    def load_state(self, state: list[np.ndarray]) -> None:
        _assign(self._variables(), state)
        self._spread_seeds()

    def weights(self) -> list[np.ndarray]:
        return [keras.ops.convert_to_numpy(variable) for variable in self._network.variables]

    def load_weights(self, weights: list[np.ndarray]) -> None:
        _assign(self._network.variables, weights)
        self._spread_seeds()

    def _variables(self) -> list[keras.Variable]:
        slots = [slot for update in self._row_updates.values() for slot in update.slots]
        scale = [self._loss_scale.scale, self._loss_scale.steps] if self._loss_scale else []
        return [*self._network.variables, *self._optimizer.variables, *slots, *scale]

    def _spread_seeds(self) -> None:
        """Gives every device dropout of its own: a seed's copies are the first one's and those that follow it."""
        first = self._workers.index * self._workers.replicas
        for variable in self._network.non_trainable_variables:
            if variable.name == "seed_generator_state" and self.strategy.num_replicas_in_sync > 1:
                for place, copy in enumerate(self.strategy.experimental_local_results(variable.value)):
                    copy.assign(copy + tf.constant([first + place, 0], copy.dtype))

    def _gathered(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: tf.gather(table.table.value, inputs["ids"]) for name, table in self._tables.items()}

    def _probabilities(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        # Reading a table whole copies it once its rows have been written one by one: hence gathered.
        return tf.sigmoid(self._network(inputs, training=False, gathered=self._gathered(inputs)))

    def several_steps(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, rates: tf.Tensor) -> tf.Tensor:
        """Steps one after the other in one call: `step` with tensors (steps, ...); their losses (steps,)."""

        def one(place: tf.Tensor, losses: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            own = {name: value[place] for name, value in inputs.items()}
            return place + 1, losses.write(place, self.step(own, labels[place], rates[place]))

        count = tf.shape(rates)[0] if rates.shape[0] is None else rates.shape[0]
        losses = tf.TensorArray(tf.float32, count, element_shape=())
        return tf.while_loop(lambda place, _: place < count, one, (0, losses), parallel_iterations=1)[1].stack()

    def step(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        """One update of the weights with a batch, on all devices; its loss. Compiled here or by whoever calls it."""
        arguments = (inputs, labels)
        if self.strategy.num_replicas_in_sync > 1:
            arguments = self.strategy.experimental_distribute_values_from_function(
                lambda context: _share(inputs, labels, context)
            )
        losses = self.strategy.run(self._replica_step, args=(*arguments, rate))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _replica_step(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        several = self.strategy.num_replicas_in_sync > 1
        own_rows = tf.cast(tf.shape(labels)[0], tf.float32)
        rows = context.all_reduce(tf.distribute.ReduceOp.SUM, own_rows) if several else own_rows
        scale = self._loss_scale.scale.value if self._loss_scale else 1.0
        gathered = self._gathered(inputs)
        with tf.GradientTape() as tape:
            tape.watch(list(gathered.values()))
            logits = self._network(inputs, training=True, gathered=gathered)
            loss = tf.reduce_sum(self._loss.call(labels, logits)) / rows
            objective = loss
            if self._network.losses:
                # Means over a device's rows, of which it may have none where a batch is small: 0, not NaN, is its part.
                objective += tf.math.multiply_no_nan(tf.add_n(self._network.losses), own_rows / rows)
            objective *= scale
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
        if self._loss_scale is None:
            self._update(*self._clip(dense, by_row), unique, rate)
            return loss
        dense = [gradient / scale for gradient in dense]
        by_row = {name: part / scale for name, part in by_row.items()}
        finite = tf.math.is_finite(tf.linalg.global_norm([*dense, *by_row.values()]))
        tf.cond(finite, lambda: self._update(*self._clip(dense, by_row), unique, rate), lambda: None)
        self._loss_scale.advance(finite)
        return loss

    def _update(
        self, dense: list[tf.Tensor], by_row: dict[str, tf.Tensor], ids: tf.Tensor | None, rate: tf.Tensor
    ) -> None:
        """Updates rows, and runs Adam in one kernel a weight: Keras's own is ten operations, each a pass over it."""
        optimizer = self._optimizer
        step = tf.cast(optimizer.iterations.value, tf.float32) + 1
        for name, update in self._row_updates.items():
            update.apply(ids, by_row[name], rate, step)
        betas = {"beta1": optimizer.beta_1, "beta2": optimizer.beta_2}
        powers = {f"{name}_power": tf.pow(beta, step) for name, beta in betas.items()}
        settings = betas | powers | {"epsilon": optimizer.epsilon}
        moments = zip(optimizer._momentums, optimizer._velocities, strict=True)
        for weight, (m, v), gradient, factor in zip(self._dense, moments, dense, self._rate_factors, strict=True):
            handles = {"var": weight.value.handle, "m": m.value.handle, "v": v.value.handle}
            tf.raw_ops.ResourceApplyAdam(**handles, grad=gradient, lr=rate * factor, **settings)
        one = tf.ones((), optimizer.iterations.dtype)
        tf.raw_ops.AssignAddVariableOp(resource=optimizer.iterations.value.handle, value=one)

    def _clip(
        self, dense: list[tf.Tensor], by_row: dict[str, tf.Tensor]
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        if not self._training.gradient_clip_norm:
            return dense, by_row
        clipped, _ = tf.clip_by_global_norm([*dense, *by_row.values()], self._training.gradient_clip_norm)
        return clipped[: len(dense)], dict(zip(by_row, clipped[len(dense) :], strict=True))


def fill_batch(batch: Batch, rows: int) -> Batch:
    """Returns a batch of so many rows, as a TPU compiles it once: those of a smaller one, the last, come again."""
    inputs, labels = batch
    if len(labels) == rows:
        return batch
    again = np.arange(rows) % len(labels)
    return {name: np.asarray(value)[again] for name, value in inputs.items()}, np.asarray(labels)[again]


def _alike(batches: Iterable[Batch], most: int) -> Iterator[list[Batch]]:
    """Yields lists of up to so many batches that follow each other and have the same shapes."""
    several: list[Batch] = []
    for batch in batches:
        if several and (len(several) == most or _shapes(batch) != _shapes(several[0])):
            yield several
            several = []
        several.append(batch)
    if several:
        yield several


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in (*batch[0].values(), batch[1])]


def _stacked(batches: list[Batch]) -> Batch:
    """Returns the batches one behind the other, (batches, batch_size, ...)."""
    inputs = {name: tf.stack([inputs[name] for inputs, _ in batches]) for name in batches[0][0]}
    return inputs, tf.stack([labels for _, labels in batches])


def _share(inputs: dict[str, tf.Tensor], labels: tf.Tensor, context: tf.distribute.experimental.ValueContext) -> Batch:
    """Returns a device's rows of a batch, as many as every other's, give or take one."""
    rows = tf.shape(labels)[0] if labels.shape[0] is None else labels.shape[0]
    place, count = context.replica_id_in_sync_group, context.num_replicas_in_sync
    own = slice(rows * place // count, rows * (place + 1) // count)
    return {name: value[own] for name, value in inputs.items()}, labels[own]


def _of_table(table: FieldEmbedding, ids: tf.Tensor, gradients: tf.Tensor) -> tf.Tensor:
    """Returns the gradient of a whole table from those of its gathered rows (batch_size, slots, width).

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
    """Returns the rows of all devices, one behind the other; `all_gather` forgets their width."""
    return tf.ensure_shape(context.all_gather(gradients, axis=0), [None, gradients.shape[-1]])


def _sum_by_row(
    ids: tf.Tensor | None, gradients: dict[str, tf.Tensor]
) -> tuple[tf.Tensor | None, dict[str, tf.Tensor]]:
    """Returns each id once, and the sum of its gradients; one search for equal ids serves all tables."""
    if ids is None:
        return None, {}
    unique, places = tf.unique(ids)
    count = tf.shape(unique)[0]
    summed = {name: tf.math.unsorted_segment_sum(part, places, count) for name, part in gradients.items()}
    return unique, summed


def _assign(variables: Iterable[keras.Variable], values: Iterable[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
