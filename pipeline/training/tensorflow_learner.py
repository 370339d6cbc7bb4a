"""Training on TensorFlow, on one or several devices and hosts.

Embedding tables get dense updates, or updates of only the rows in a batch.
"""

import functools
import os
from collections.abc import Iterable, Iterator

import keras
import numpy as np
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.answers import answers
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import GROUP, FeatureMap, Field
from ctrpipe.models.layers.field_embedding import FieldEmbedding
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.cluster import read_cluster
from ctrpipe.pipeline.training.learner import Batch, compares_rows, row_losses, split_weight, with_labels
from ctrpipe.pipeline.training.loss_scale import INITIAL_SCALE, next_scale
from ctrpipe.pipeline.training.network import (
    build_network,
    constrained,
    dense_adam,
    l2_strengths,
    rate_factors,
    state_names,
    warmup_factor,
)
from ctrpipe.pipeline.training.row_optimizers import RowOptimizer, row_optimizer
from ctrpipe.pipeline.training.worker_group import WorkerGroup

_PART_BYTES = 1 << 20  # bytes of a table's gradient that are summed together; they fit a core's cache
_MOST_PARTS = 64  # approximate maximum of sums per table gradient


def make_strategy(distribution: str) -> tf.distribute.Strategy:
    """Returns the distribution strategy of `training.distribution`.

    `auto` uses a TPU if TPU_NAME is set, otherwise all GPUs if there are several, otherwise one device.

    Raises:
        InputError: `multi_worker` without a TF_CONFIG that names the workers.
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
    """Returns the TPU strategy, one per process: initialising a TPU again clears its memory."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


@functools.cache
def _multi_worker() -> tf.distribute.Strategy:
    """Returns the multi-worker strategy, one per process.

    Call it before any other use of TensorFlow, because it opens the port that TF_CONFIG names.
    """
    if read_cluster() is None:
        raise InputError("training.distribution: multi_worker needs a TF_CONFIG; see docs/how-to/devices.md")
    return tf.distribute.MultiWorkerMirroredStrategy()


@functools.cache
def _mirrored() -> tf.distribute.Strategy:
    """Returns the mirrored strategy, one per process.

    A second strategy would reuse the collective keys of the first.
    """
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def make_learner(model: Model, training: Training, feature_map: FeatureMap, seed: int) -> "TensorFlowLearner":
    """Returns a learner of an untrained model on the devices of `training.distribution`.

    Raises:
        InputError: the optimizer does not run on a TPU, XLA cannot compile the step of several devices, or the loss
            would compare rows on several devices; also see `make_strategy`.
    """
    strategy = make_strategy(training.distribution)
    if training.optimizer != "adam" and isinstance(strategy, tf.distribute.TPUStrategy):
        raise InputError(f"training.optimizer: {training.optimizer} does not run on a TPU; use adam")
    if training.xla and strategy.num_replicas_in_sync > 1:
        raise InputError("training.xla: it compiles the step of one device; set training.distribution: one_device")
    if compares_rows(training, feature_map) and strategy.num_replicas_in_sync > 1:
        raise InputError(
            "training.loss: a loss within groups compares rows on one device; set training.distribution: one_device, "
            "or backend: jax"
        )
    with strategy.scope():
        return TensorFlowLearner(build_network(model, feature_map, seed, training.precision), training, strategy)


class RowUpdate:
    """Applies a row optimizer to an embedding table, and owns the slots of the table."""

    def __init__(self, table: FieldEmbedding, optimizer: RowOptimizer):
        self.table, self.optimizer = table.table, optimizer
        rows, width = self.table.shape
        self.slots = [
            keras.Variable(shape=(rows, slot), initializer="zeros", trainable=False, name=f"{table.name}_slot")
            for slot in optimizer.slot_widths(width)
        ]

    def apply(self, ids: tf.Tensor, gradients: tf.Tensor, rate: tf.Tensor, step: tf.Tensor) -> None:
        """Updates the rows of `ids`, int32 (ids,) without repeats, with `gradients`, float32 (ids, width)."""
        slots = tuple(tf.gather(slot.value, ids) for slot in self.slots)
        rows, slots = self.optimizer.update(tf.gather(self.table.value, ids), slots, gradients, rate, step)
        rows = constrained(self.table, rows)
        for variable, values in zip((self.table, *self.slots), (rows, *slots), strict=True):
            tf.raw_ops.ResourceScatterUpdate(resource=variable.value.handle, indices=ids, updates=values)


class LossScale:
    """The variables of the float16 loss scale; see loss_scale.py."""

    def __init__(self) -> None:
        self.scale = keras.Variable(INITIAL_SCALE, dtype="float32", trainable=False, name="loss_scale")
        self.steps = keras.Variable(0, dtype="int32", trainable=False, name="loss_scale_steps")

    def advance(self, finite: tf.Tensor) -> None:
        """Updates the scale and the step count after a step with finite or non-finite gradients."""
        after = next_scale(self.scale.value, self.steps.value, finite)
        for variable, value in zip((self.scale, self.steps), after, strict=True):
            tf.raw_ops.AssignVariableOp(resource=variable.value.handle, value=value)


class TensorFlowLearner:
    """A `learner.Learner` with a custom training step.

    In Keras 3.15, `Model.fit` counts one optimizer step too many if the size of the dataset is unknown, and its result
    on several devices differs from that on one. Here the loss of a batch is the mean over its rows on all devices of
    all workers. Each worker reads the whole batch and takes its share.

    Every device computes the same update and writes it to its own copy of the weights through the handle of the copy.
    The `assign` of a distributed variable would send the equal values between the devices.
    """

    def __init__(self, network: CTRModel, training: Training, strategy: tf.distribute.Strategy):
        self._network = network
        self.learning_rate = training.learning_rate
        self.strategy = strategy
        self._training = training
        self._workers = WorkerGroup(strategy)
        self._losses = row_losses(network.feature_map, training)
        self._tables = {table.name: table for table in network.tables()}
        tables = [table.table for table in self._tables.values()]
        places = {id(table) for table in tables}
        self._others = [weight for weight in network.trainable_variables if id(weight) not in places]
        optimizer = self._row_optimizer = row_optimizer(training)
        self._row_updates = {name: RowUpdate(table, optimizer) for name, table in self._tables.items() if optimizer}
        self._dense = self._others if optimizer else [*self._others, *tables]
        # Without clipping: `_clip` clips all gradients by their global norm, including those of the row optimizer.
        self._optimizer = dense_adam(training)
        self._optimizer.build(self._dense)
        self._rate_factors = rate_factors(network, self._dense, training.encoder_rate)
        self._l2_strengths = l2_strengths(network, self._dense, training)
        self._loss_scale = LossScale() if training.precision == "mixed_float16" else None
        # The moving averages of batch normalisation.
        self._statistics = [one for one in network.non_trainable_variables if one.dtype.startswith("float")]
        compiled = {"autograph": False, "reduce_retracing": True, "jit_compile": training.xla or None}
        self._step = tf.function(self.step, **compiled)
        self._several_steps = tf.function(self.several_steps, **compiled)
        self._forward = tf.function(self._probabilities, autograph=False, reduce_retracing=True)
        self._offset_seeds()

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
        whole = fill_batches(batches) if static else batches
        for group in _group_by_shape(whole, self._training.steps_per_execution):
            factors = [warmup_factor(number + index, self._training.warmup_steps) for index in range(len(group))]
            number += len(group)
            rates = tf.constant([self.learning_rate * factor for factor in factors], tf.float32)
            if len(group) == 1:
                losses.append(self._step(*group[0], rates[0]))
            else:
                losses.append(self._several_steps(*_stacked(group), rates))
        return float(np.mean(np.concatenate([np.atleast_1d(loss.numpy()) for loss in losses])))

    def predict(self, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
        """See Learner. Worker i of n predicts every n-th batch, and all workers receive all predictions."""
        labels, probabilities = [], []
        for index, (inputs, label) in enumerate(batches):
            labels.append(np.asarray(label))
            own = index % self._workers.count == self._workers.index
            probabilities.append(self._forward(inputs).numpy() if own else np.zeros(label.shape, np.float32))
        return np.concatenate(labels), self._workers.total(np.concatenate(probabilities))

    def from_chief(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return self._workers.from_chief(arrays)

    def state(self) -> list[np.ndarray]:
        return [keras.ops.convert_to_numpy(variable) for variable in self._variables()]

    def state_names(self) -> list[str]:
        slots = self._row_optimizer.slot_names if self._row_optimizer else ()
        names = state_names(self._network, self._optimizer, self._dense, slots)
        return [*names, *("" for _ in range(len(self._variables()) - len(names)))]

    def load_state(self, state: list[np.ndarray]) -> None:
        _assign(self._variables(), state)
        self._offset_seeds()

    def weights(self) -> list[np.ndarray]:
        return [keras.ops.convert_to_numpy(variable) for variable in self._network.variables]

    def load_weights(self, weights: list[np.ndarray]) -> None:
        _assign(self._network.variables, weights)
        self._offset_seeds()

    def _variables(self) -> list[keras.Variable]:
        slots = [slot for update in self._row_updates.values() for slot in update.slots]
        scale = [self._loss_scale.scale, self._loss_scale.steps] if self._loss_scale else []
        return [*self._network.variables, *self._optimizer.variables, *slots, *scale]

    def _offset_seeds(self) -> None:
        """Adds the number of each device to its copy of every seed, which makes devices drop different units."""
        first = self._workers.index * self._workers.replicas
        for variable in self._network.non_trainable_variables:
            if variable.name == "seed_generator_state" and self.strategy.num_replicas_in_sync > 1:
                for index, copy in enumerate(self.strategy.experimental_local_results(variable.value)):
                    copy.assign(copy + tf.constant([first + index, 0], copy.dtype))

    def _gathered(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: tf.gather(table.table.value, inputs["ids"]) for name, table in self._tables.items()}

    def _probabilities(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        # Gathers only the needed rows: TensorFlow copies a table that is read whole after scattered writes.
        logits = self._network(inputs, training=False, gathered=self._gathered(inputs))
        return answers(logits, self._network.feature_map)

    def several_steps(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, rates: tf.Tensor) -> tf.Tensor:
        """Does several steps in one call.

        Args:
            inputs: As for `step`, with a first dimension of steps.
            labels: (steps, batch_size, tasks).
            rates: Learning rates, (steps,).

        Returns:
            The losses of the steps, (steps,).
        """

        def one(index: tf.Tensor, losses: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            own = {name: value[index] for name, value in inputs.items()}
            return index + 1, losses.write(index, self.step(own, labels[index], rates[index]))

        count = tf.shape(rates)[0] if rates.shape[0] is None else rates.shape[0]
        losses = tf.TensorArray(tf.float32, count, element_shape=())
        return tf.while_loop(lambda index, _: index < count, one, (0, losses), parallel_iterations=1)[1].stack()

    def step(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        """Updates the weights with a batch on all devices, and returns its loss. Call it inside a tf.function."""
        arguments = (inputs, labels)
        if self.strategy.num_replicas_in_sync > 1:
            arguments = self.strategy.experimental_distribute_values_from_function(
                lambda context: _replica_rows(inputs, labels, context)
            )
        losses = self.strategy.run(self._replica_step, args=(*arguments, rate))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _replica_step(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        several = self.strategy.num_replicas_in_sync > 1
        groups = inputs.get(GROUP)
        inputs, weights = split_weight(inputs)
        own_rows = tf.cast(tf.shape(labels)[0], tf.float32)
        rows = context.all_reduce(tf.distribute.ReduceOp.SUM, own_rows) if several else own_rows
        if weights is None:
            weight = rows
        else:
            own_weight = tf.reduce_sum(weights)
            weight = context.all_reduce(tf.distribute.ReduceOp.SUM, own_weight) if several else own_weight
        scale = self._loss_scale.scale.value if self._loss_scale else 1.0
        before = [tf.identity(variable.value) for variable in self._statistics] if self._loss_scale else []
        gathered = self._gathered(inputs)
        with tf.GradientTape() as tape:
            tape.watch(list(gathered.values()))
            read = with_labels(self._network, inputs, labels, weights)
            logits = self._network(read, training=True, gathered=gathered)
            losses = self._losses(labels, logits, groups)
            loss = tf.math.divide_no_nan(tf.reduce_sum(losses if weights is None else losses * weights), weight)
            objective = loss
            if self._network.losses:
                # Means over a device's rows: NaN on a device without rows, which must add 0.
                objective += tf.math.multiply_no_nan(tf.add_n(self._network.losses), own_rows / rows)
            objective *= scale
        dense, by_row = tape.gradient(objective, ([weight.value for weight in self._others], gathered))
        if not self._row_updates:
            dense += [_table_gradient(table, inputs["ids"], by_row[name]) for name, table in self._tables.items()]
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
        for variable, old in zip(self._statistics, before, strict=True):
            kept = tf.where(finite, variable.value, old)  # a skipped step leaves the statistics, which may be infinite
            tf.raw_ops.AssignVariableOp(resource=variable.value.handle, value=kept)
        self._loss_scale.advance(finite)
        return loss

    def _update(
        self, dense: list[tf.Tensor], by_row: dict[str, tf.Tensor], ids: tf.Tensor | None, rate: tf.Tensor
    ) -> None:
        """Updates the rows of the tables, and the dense weights with TensorFlow's Adam kernel.

        Keras's Adam takes ten operations per weight, and each of them reads or writes the whole weight. The kernel
        takes one.
        """
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
            if weight.constraint is not None:
                within = constrained(weight, weight.value)
                tf.raw_ops.AssignVariableOp(resource=weight.value.handle, value=within)
        one = tf.ones((), optimizer.iterations.dtype)
        tf.raw_ops.AssignAddVariableOp(resource=optimizer.iterations.value.handle, value=one)

    def _clip(
        self, dense: list[tf.Tensor], by_row: dict[str, tf.Tensor]
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        dense = self._with_l2(dense)
        if not self._training.gradient_clip_norm:
            return dense, by_row
        clipped, _ = tf.clip_by_global_norm([*dense, *by_row.values()], self._training.gradient_clip_norm)
        return clipped[: len(dense)], dict(zip(by_row, clipped[len(dense) :], strict=True))

    def _with_l2(self, dense: list[tf.Tensor]) -> list[tf.Tensor]:
        """Adds the gradients of the L2 penalties on whole tables and on the network's kernels."""
        each = zip(dense, self._dense, self._l2_strengths, strict=True)
        return [part + strength * weight.value if strength else part for part, weight, strength in each]


def fill_batches(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields batches with as many rows as the first one, because a TPU needs batches of one size.

    Smaller batches are filled with repeated rows.
    """
    rows = 0
    for batch in batches:
        inputs, labels = batch
        rows = rows or len(labels)
        if len(labels) < rows:
            repeated = np.arange(rows) % len(labels)
            batch = {name: np.asarray(value)[repeated] for name, value in inputs.items()}, np.asarray(labels)[repeated]
        yield batch


def _group_by_shape(batches: Iterable[Batch], size: int) -> Iterator[list[Batch]]:
    """Yields lists of at most `size` consecutive batches of the same shapes."""
    group: list[Batch] = []
    for batch in batches:
        if group and (len(group) == size or _shapes(batch) != _shapes(group[0])):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in (*batch[0].values(), batch[1])]


def _stacked(batches: list[Batch]) -> Batch:
    """Returns the batches stacked along a new first dimension, (batches, batch_size, ...)."""
    inputs = {name: np.stack([inputs[name] for inputs, _ in batches]) for name in batches[0][0]}
    return inputs, np.stack([labels for _, labels in batches])


def _replica_rows(
    inputs: dict[str, tf.Tensor], labels: tf.Tensor, context: tf.distribute.experimental.ValueContext
) -> Batch:
    """Returns the rows of a batch for one device. The row counts of devices differ by at most one."""
    rows = tf.shape(labels)[0] if labels.shape[0] is None else labels.shape[0]
    index, count = context.replica_id_in_sync_group, context.num_replicas_in_sync
    own = slice(rows * index // count, rows * (index + 1) // count)
    return {name: value[own] for name, value in inputs.items()}, labels[own]


def _table_gradient(table: FieldEmbedding, ids: tf.Tensor, gradients: tf.Tensor) -> tf.Tensor:
    """Returns the dense gradient of a table, (rows, width).

    It is summed in groups of whole fields, because the rows of a group fit a core's cache. A group has as many fields
    as fit. It has more if there would be far more than _MOST_PARTS groups, because TensorFlow takes time to trace and
    optimise each sum. Padding (id 0) gets no gradient.

    Args:
        table: The embedding.
        ids: Ids, (batch_size, slots).
        gradients: Gradients of the gathered rows, (batch_size, slots, width).
    """
    fields = [field for field in table.feature_map.fields if not field.shared_with]
    most_rows = max(_PART_BYTES // (4 * table.dim), -(-sum(field.size for field in fields) // _MOST_PARTS))
    groups = _grouped(fields, most_rows)
    parts = [tf.zeros((1, table.dim), gradients.dtype)]
    for group in groups:
        names = {field.name for field in group}
        slots = [
            table.feature_map.slots_of(field.name)
            for field in table.feature_map.fields
            if field.name in names or field.shared_with in names
        ]
        own, rows = (_columns(values, slots) for values in (ids, gradients))
        segments = tf.reshape(own, [-1]) - group[0].offset  # negative for padding: the sum ignores it
        size = sum(field.size for field in group)
        parts.append(tf.math.unsorted_segment_sum(tf.reshape(rows, [-1, table.dim]), segments, size))
    return tf.concat(parts, axis=0)


def _grouped(fields: Iterable[Field], most_rows: int) -> list[list[Field]]:
    """Groups consecutive fields. A group has at most `most_rows` rows, or one larger field."""
    groups: list[list[Field]] = []
    rows = 0
    for field in fields:
        if not groups or rows + field.size > most_rows:
            groups.append([])
            rows = 0
        groups[-1].append(field)
        rows += field.size
    return groups


def _columns(values: tf.Tensor, places: list[slice]) -> tf.Tensor:
    """Returns some columns of values.

    Adjacent places are read as one slice, because each slice takes time to trace.
    """
    joined = places[:1]
    for place in places[1:]:
        if place.start == joined[-1].stop:
            joined[-1] = slice(joined[-1].start, place.stop)
        else:
            joined.append(place)
    parts = [values[:, place] for place in joined]
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)


def _gather_all(context: tf.distribute.ReplicaContext, gradients: tf.Tensor) -> tf.Tensor:
    """Concatenates the rows of all devices, and restores the static width that `all_gather` drops."""
    return tf.ensure_shape(context.all_gather(gradients, axis=0), [None, gradients.shape[-1]])


def _sum_by_row(
    ids: tf.Tensor | None, gradients: dict[str, tf.Tensor]
) -> tuple[tf.Tensor | None, dict[str, tf.Tensor]]:
    """Returns the distinct ids, and for each table the sum of each id's gradients."""
    if ids is None:
        return None, {}
    unique, segments = tf.unique(ids)
    count = tf.shape(unique)[0]
    summed = {name: tf.math.unsorted_segment_sum(part, segments, count) for name, part in gradients.items()}
    return unique, summed


def _assign(variables: Iterable[keras.Variable], values: Iterable[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
