"""Training on JAX, with dense updates of the embedding tables or updates of only the rows in a batch."""

import contextlib
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import keras
import numpy as np

from ctrpipe.models.base.answers import answers
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import GROUP, FeatureMap
from ctrpipe.models.base.tensors import Tensor
from ctrpipe.models.layers.tower import has_batch_statistics
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.jax_devices import Devices, make_distribution, on_host, put_like
from ctrpipe.pipeline.training.jax_hosts import from_chief
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
from ctrpipe.pipeline.training.row_optimizers import row_optimizer

Arrays = list[Tensor]
STATE = ("optimizer", "slots", "scale")  # the values of a checkpoint in addition to the weights
NO_ROW = np.iinfo(np.int32).max  # larger than every table: JAX drops updates of this id


def make_learner(model: Model, training: Training, feature_map: FeatureMap, seed: int) -> "JaxLearner":
    """Returns a learner of an untrained model on the devices of `training.distribution`."""
    distribution = make_distribution(training.distribution, training.shard_tables)
    with distribution.scope() if distribution else contextlib.nullcontext():
        return JaxLearner(build_network(model, feature_map, seed, training.precision), training, Devices(distribution))


class JaxLearner:
    """A `learner.Learner` whose training step is one program over all devices.

    During `fit` the current weights are in `_values`, and those of the network are stale. The step takes the values as
    donated buffers, which lets XLA update a table in place. The loss of a batch is the mean over its rows on all
    devices; XLA inserts the sums across devices.
    """

    def __init__(self, network: CTRModel, training: Training, devices: Devices):
        self._network = network
        self.learning_rate = training.learning_rate
        self._training = training
        self._devices = devices
        self._losses = row_losses(network.feature_map, training)
        self._rows = row_optimizer(training)
        tables = network.tables()
        self._trainable = network.trainable_variables
        self._tables = {table.name: _index_of(self._trainable, table.table) for table in tables}
        by_row = self._tables.values() if self._rows else ()
        self._dense_indices = [index for index in range(len(self._trainable)) if index not in by_row]
        self._optimizer = dense_adam(training)
        dense = [self._trainable[index] for index in self._dense_indices]
        self._optimizer.build(dense)
        self._rate_factors = rate_factors(network, dense, training.encoder_rate)
        self._l2_strengths = l2_strengths(network, dense, training)
        slots = [
            _placed(jnp.zeros((table.table.shape[0], width), device=table.table.value.sharding))
            for table in tables
            for width in (self._rows.slot_widths(table.table.shape[1]) if self._rows else ())
        ]
        # The loss scale of float16, and the number of consecutive finite steps at this scale.
        scale = (jnp.float32(INITIAL_SCALE), jnp.int32(0)) if training.precision == "mixed_float16" else ()
        self._whole_batches = has_batch_statistics(network) or compares_rows(training, network.feature_map)
        self._values: dict[str, Arrays] = {
            "slots": slots,
            "optimizer": _values(self._optimizer.variables),
            "scale": [_placed(jax.device_put(value, devices.replicated)) for value in scale],
        }
        self._read_network()
        shardings = jax.tree.map(lambda value: value.sharding, self._values)
        self._step = jax.jit(self._pure_step, donate_argnums=0, out_shardings=(shardings, devices.replicated))
        # With several hosts the output is replicated, because a host can read only its own devices.
        self._forward = jax.jit(
            self._probabilities, out_shardings=devices.replicated if devices.several_hosts else None
        )

    @property
    def network(self) -> CTRModel:
        """Returns the Keras model with its current weights.

        Sharded tables have padding rows: see FieldEmbedding.
        """
        return self._network

    @property
    def is_chief(self) -> bool:
        return jax.process_index() == 0

    def fit(self, batches: Iterable[Batch]) -> float:
        self._read_network()
        first = 1 + int(self._values["optimizer"][0])
        losses = []
        for step, batch in enumerate(batches, first):
            rate = self.learning_rate * warmup_factor(step, self._training.warmup_steps)
            self._values, loss = self._step(self._values, self._devices.split(batch, self._whole_batches), rate)
            losses.append(loss)
        self._write_network()
        return float(np.mean(jax.device_get(losses)))  # one transfer: a GPU takes as long for one value as for many

    def predict(self, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
        self._read_network()
        labels, probabilities = [], []
        for batch in batches:
            labels.append(np.asarray(batch[1]))
            for inputs, _ in self._devices.split(batch):
                probabilities.append(np.asarray(self._forward(self._values, inputs)))
        return np.concatenate(labels), np.concatenate(probabilities)

    def from_chief(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return from_chief(arrays)

    def lowered_step(self, batch: Batch) -> jax.stages.Lowered:
        """Returns the step for batches of this shape before compilation, to count its operations."""
        self._read_network()
        parts = self._devices.split(batch, self._whole_batches)
        return self._step.lower(self._values, parts, self.learning_rate)

    def compiled_step(self, batch: Batch) -> jax.stages.Compiled:
        """Returns the step compiled for batches of this shape, to inspect its program and its device memory."""
        return self.lowered_step(batch).compile()

    def state(self) -> list[np.ndarray]:
        return [*self.weights(), *(self._on_host(value) for key in STATE for value in self._values[key])]

    def state_names(self) -> list[str]:
        dense = [self._trainable[index] for index in self._dense_indices]
        names = state_names(self._network, self._optimizer, dense, self._rows.slot_names if self._rows else ())
        return [*names, *("" for _ in self._values["scale"])]

    def load_state(self, state: list[np.ndarray]) -> None:
        count = len(self._network.variables)
        self.load_weights(state[:count])
        loaded = iter(state[count:])
        for key in STATE:
            self._values[key] = [put_like(next(loaded), value) for value in self._values[key]]

    def weights(self) -> list[np.ndarray]:
        return [self._on_host(variable.value) for variable in self.network.variables]

    def load_weights(self, weights: list[np.ndarray]) -> None:
        for variable, value in zip(self.network.variables, weights, strict=True):
            variable._value = put_like(value, variable.value)
        self._read_network()

    def _on_host(self, value: jax.Array) -> np.ndarray:
        return on_host(value, self._network.feature_map.total_ids)

    def _read_network(self) -> None:
        """Copies references to the network's weights into `_values`, because a caller may have assigned new ones."""
        self._values |= {
            "trainable": _values(self._trainable),
            "fixed": _values(self._network.non_trainable_variables),
        }

    def _write_network(self) -> None:
        for key, variables in (("trainable", self._trainable), ("fixed", self._network.non_trainable_variables)):
            for variable, value in zip(variables, self._values[key], strict=True):
                variable._value = value  # `assign` would copy the table

    def _gathered(self, trainable: Arrays, inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: trainable[index][inputs["ids"]] for name, index in self._tables.items()}

    def _probabilities(self, values: dict[str, Arrays], inputs: dict[str, jax.Array]) -> jax.Array:
        logits, _ = self._network.stateless_call(
            values["trainable"],
            values["fixed"],
            inputs,
            training=False,
            gathered=self._gathered(values["trainable"], inputs),
        )
        answered: jax.Array = answers(logits, self._network.feature_map)
        return answered

    def _pure_step(
        self, values: dict[str, Arrays], parts: list[Batch], rate: float
    ) -> tuple[dict[str, Arrays], jax.Array]:
        (by_dense, by_part), (loss, fixed) = self._gradients(values, parts)
        ids, by_row = self._sum_by_row([inputs["ids"] for inputs, _ in parts], by_part) if any(by_part) else (None, {})
        if not values["scale"]:
            by_dense, by_row = self._clip(by_dense, by_row)
            return {**self._updated(values, by_dense, ids, by_row, rate), "fixed": fixed, "scale": []}, loss
        scale, steps = values["scale"]
        by_dense, by_row = jax.tree.map(lambda part: part / scale, (by_dense, by_row))
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(part)) for part in [*by_dense, *by_row.values()]]))
        by_dense, by_row = self._clip(by_dense, by_row)
        ids = ids if ids is None else jnp.where(finite, ids, NO_ROW)
        new = self._updated(values, by_dense, ids, by_row, rate)
        for key, indices in (("trainable", self._dense_indices), ("optimizer", range(len(new["optimizer"])))):
            for index in indices:
                new[key][index] = jnp.where(finite, new[key][index], values[key][index])
        if self._whole_batches:  # a skipped step leaves the statistics, which may be infinite, but not the seeds
            pairs = zip(fixed, values["fixed"], strict=True)
            fixed = [jnp.where(finite, now, old) if jnp.issubdtype(now, jnp.floating) else now for now, old in pairs]
        return {**new, "fixed": fixed, "scale": list(next_scale(scale, steps, finite))}, loss

    def _gradients(self, values: dict[str, Arrays], parts: list[Batch]) -> Tensor:
        """Returns gradients and auxiliary values: ((dense, each part's gathered rows by table), (loss, fixed weights)).

        Losses and penalties are means over the rows of a part, so each part is weighted by its share of the rows.
        """
        trainable = values["trainable"]
        rows = sum(len(labels) for _, labels in parts)
        by_part = [split_weight(inputs) for inputs, _ in parts]
        total = sum(jnp.sum(row_weights) for _, row_weights in by_part if row_weights is not None)

        def objective(dense: Arrays, gathered: list[dict[str, jax.Array]]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            weights = list(trainable)
            for index, value in zip(self._dense_indices, dense, strict=True):
                weights[index] = value
            loss, penalty = jnp.float32(0), jnp.float32(0)
            fixed = values["fixed"]
            for part, ((inputs, row_weights), (_, labels)) in enumerate(zip(by_part, parts, strict=True)):
                table_rows = gathered[part] if self._rows else self._gathered(weights, inputs)
                read = with_labels(self._network, inputs, labels, row_weights)
                logits, fixed, penalties = self._network.stateless_call(
                    weights, fixed, read, training=True, gathered=table_rows, return_losses=True
                )
                share = len(labels) / rows
                losses = self._losses(labels, logits, parts[part][0].get(GROUP))
                if row_weights is None:
                    loss += share * jnp.mean(losses)
                else:
                    loss += jnp.sum(losses * row_weights) / jnp.where(total > 0, total, 1)
                penalty += share * sum(penalties)
            for value, strength in zip(dense, self._l2_strengths, strict=True):
                if strength:
                    penalty += 0.5 * strength * jnp.sum(jnp.square(value))
            return (loss + penalty) * (values["scale"][0] if values["scale"] else 1), (loss, fixed)

        dense = [trainable[index] for index in self._dense_indices]
        gathered = [self._gathered(trainable, inputs) for inputs, _ in parts] if self._rows else []
        return jax.grad(objective, argnums=(0, 1), has_aux=True)(dense, gathered)

    def _updated(
        self, values: dict[str, Arrays], by_dense: Arrays, ids: Tensor, by_row: dict[str, Tensor], rate: Tensor
    ) -> dict[str, Arrays]:
        """Returns the weights and the optimizer state after a step with these gradients."""
        trainable, slots, state = (list(values[key]) for key in ("trainable", "slots", "optimizer"))
        step = state[0].astype("float32") + 1
        state[_index_of(self._optimizer.variables, self._optimizer._learning_rate)] = jnp.asarray(rate, "float32")
        dense = [trainable[index] for index in self._dense_indices]
        dense, state = self._optimizer.stateless_apply(state, by_dense, dense)
        for index, value, factor in zip(self._dense_indices, dense, self._rate_factors, strict=True):
            # Keras's Adam has one rate for all weights. Its update is proportional to the rate, so scale it afterwards.
            trainable[index] = value if factor == 1 else trainable[index] + factor * (value - trainable[index])
        slots_per_table = len(slots) // max(len(self._tables), 1)
        for number, name in enumerate(by_row):
            index, own = self._tables[name], slice(number * slots_per_table, (number + 1) * slots_per_table)
            trainable[index], slots[own] = self._update_rows(
                index, trainable[index], slots[own], ids, by_row[name], rate, step
            )
        return {"trainable": trainable, "optimizer": list(state), "slots": slots}

    def _update_rows(
        self, index: int, table: Tensor, slots: Arrays, ids: Tensor, gradients: Tensor, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Arrays]:
        assert self._rows
        old = tuple(slot.at[ids].get(mode="clip") for slot in slots)
        rows, new = self._rows.update(table.at[ids].get(mode="clip"), old, gradients, rate, step)
        rows = constrained(self._trainable[index], rows)

        def write(into: Tensor, values: Tensor) -> Tensor:  # drops updates of NO_ROW
            return into.at[ids].set(values, mode="drop", indices_are_sorted=True)

        return write(table, rows), [write(slot, values) for slot, values in zip(slots, new, strict=True)]

    def _sum_by_row(
        self, ids: list[jax.Array], gradients: list[dict[str, jax.Array]]
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Returns the distinct ids, padded with NO_ROW, and for each table the sum of each id's gradients."""
        flat = self._devices.replicate(jnp.concatenate([part.reshape(-1) for part in ids]))
        unique, segments = jnp.unique(flat, return_inverse=True, size=flat.size, fill_value=NO_ROW)

        def summed(name: str) -> jax.Array:
            rows = jnp.concatenate([part[name].reshape(-1, part[name].shape[-1]) for part in gradients])
            return jax.ops.segment_sum(self._devices.replicate(rows), segments.reshape(-1), flat.size)

        return unique, {name: summed(name) for name in self._tables}

    def _clip(self, dense: Arrays, by_row: dict[str, jax.Array]) -> tuple[Arrays, dict[str, jax.Array]]:
        limit = self._training.gradient_clip_norm
        if not limit:
            return dense, by_row
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(part)) for part in [*dense, *by_row.values()]))
        factor = jnp.where(norm > limit, limit / norm, 1.0)
        return [part * factor for part in dense], {name: part * factor for name, part in by_row.items()}


def _values(variables: list[keras.Variable]) -> Arrays:
    return [_placed(variable.value) for variable in variables]


def _placed(value: jax.Array) -> jax.Array:
    """Returns the array committed to its device, without a copy, as the step returns it.

    The value of a new variable is not committed, and JAX would compile the program again for the second step.
    """
    placed: jax.Array = value if value.committed else jax.device_put(value, value.sharding)
    return placed


def _index_of(variables: list[keras.Variable], wanted: keras.Variable) -> int:
    return next(index for index, variable in enumerate(variables) if variable is wanted)
