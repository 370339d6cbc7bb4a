"""Training steps on JAX: dense updates or only the rows that a batch touches, in buffers that the step owns."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from models.ctr_model import CTRModel
from models.feature_map import FeatureMap
from models.losses import BinaryCrossEntropy
from pipeline.config import Model, Training
from pipeline.training.learner import Batch
from pipeline.training.network import build_network, task_weights, warm_up
from pipeline.training.row_optimizers import row_optimizer

Arrays = list[Any]


def make_learner(model: Model, training: Training, feature_map: FeatureMap, seed: int) -> "JaxLearner":
    """A fresh model with its optimizer, on JAX's first device."""
    return JaxLearner(build_network(model, feature_map, seed), training)


class JaxLearner:
    """See `learner.Learner`. The variables live in `_values` while training; `network` holds them when it is asked for.

    A step takes all arrays and gives them back (donated), so that a table is updated where it lies.
    """

    def __init__(self, network: CTRModel, training: Training):
        self._network = network
        self.learning_rate = training.learning_rate
        self._training = training
        self._loss = BinaryCrossEntropy(task_weights(network.feature_map, training.task_weights))
        self._rows = row_optimizer(training.optimizer)
        tables = network.tables() if self._rows else []
        self._table_names = [table.name for table in tables]
        self._trainable = network.trainable_variables
        self._table_places = [_place(self._trainable, table.table) for table in tables]
        self._dense_places = [index for index in range(len(self._trainable)) if index not in self._table_places]
        self._optimizer = keras.optimizers.Adam(training.learning_rate)
        self._optimizer.build([self._trainable[index] for index in self._dense_places])
        slots = [
            jnp.zeros((table.table.shape[0], width))
            for table in tables
            for width in (self._rows.slot_widths(table.table.shape[1]) if self._rows else ())
        ]
        self._values: dict[str, Arrays] = {"slots": slots, "optimizer": _values(self._optimizer.variables)}
        self._take_network()
        self._step = jax.jit(self._pure_step, donate_argnums=0)
        self._forward = jax.jit(self._probabilities)

    @property
    def network(self) -> CTRModel:
        """The model with its present weights."""
        self._give_network()
        return self._network

    def fit(self, batches: Iterable[Batch]) -> float:
        self._take_network()
        first = 1 + int(self._values["optimizer"][0])
        losses = []
        for step, (inputs, labels) in enumerate(batches, first):
            rate = self.learning_rate * warm_up(step, self._training.warmup_steps)
            arrays = {name: _array(value) for name, value in inputs.items()}
            self._values, loss = self._step(self._values, arrays, _array(labels), rate)
            losses.append(loss)
        self._give_network()
        return float(np.mean([float(loss) for loss in losses]))

    def predict(self, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
        self._take_network()
        labels, probabilities = [], []
        for inputs, label in batches:
            labels.append(np.asarray(label))
            arrays = {name: _array(value) for name, value in inputs.items()}
            probabilities.append(np.asarray(self._forward(self._values, arrays)))
        return np.concatenate(labels), np.concatenate(probabilities)

    def state(self) -> list[np.ndarray]:
        return [*self.weights(), *(np.asarray(value) for key in ("optimizer", "slots") for value in self._values[key])]

    def load_state(self, state: list[np.ndarray]) -> None:
        weights, rest = np.split(np.arange(len(state)), [len(self._network.variables)])
        self.load_weights([state[index] for index in weights])
        loaded = [jnp.asarray(state[index]) for index in rest]
        count = len(self._values["optimizer"])
        self._values |= {"optimizer": loaded[:count], "slots": loaded[count:]}

    def weights(self) -> list[np.ndarray]:
        return [np.asarray(variable.value) for variable in self.network.variables]

    def load_weights(self, weights: list[np.ndarray]) -> None:
        for variable, value in zip(self._network.variables, weights, strict=True):
            variable.assign(value)
        self._take_network()

    def _take_network(self) -> None:
        """The network may have been given other weights since."""
        self._values |= {
            "trainable": _values(self._trainable),
            "fixed": _values(self._network.non_trainable_variables),
        }

    def _give_network(self) -> None:
        for key, variables in (("trainable", self._trainable), ("fixed", self._network.non_trainable_variables)):
            for variable, value in zip(variables, self._values[key], strict=True):
                variable._value = value  # `assign` would copy a table

    def _gathered(self, trainable: Arrays, inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        places = zip(self._table_names, self._table_places, strict=True)
        return {name: trainable[place][inputs["ids"]] for name, place in places}

    def _probabilities(self, values: dict[str, Arrays], inputs: dict[str, jax.Array]) -> jax.Array:
        logits, _ = self._network.stateless_call(
            values["trainable"],
            values["fixed"],
            inputs,
            training=False,
            gathered=self._gathered(values["trainable"], inputs),
        )
        return jax.nn.sigmoid(logits)

    def _pure_step(
        self, values: dict[str, Arrays], inputs: dict[str, jax.Array], labels: jax.Array, rate: float
    ) -> tuple[dict[str, Arrays], jax.Array]:
        trainable = values["trainable"]

        def objective(dense: Arrays, gathered: dict[str, jax.Array]):
            weights = list(trainable)
            for place, value in zip(self._dense_places, dense, strict=True):
                weights[place] = value
            logits, fixed, penalties = self._network.stateless_call(
                weights, values["fixed"], inputs, training=True, gathered=gathered, return_losses=True
            )
            loss = jnp.mean(self._loss.call(labels, logits))
            return loss + sum(penalties), (loss, fixed)

        dense = [trainable[index] for index in self._dense_places]
        gathered = self._gathered(trainable, inputs)
        gradients, (loss, fixed) = jax.grad(objective, argnums=(0, 1), has_aux=True)(dense, gathered)
        by_dense, by_row = gradients
        ids, by_row = _sum_by_row(inputs["ids"], by_row) if by_row else (None, by_row)
        by_dense, by_row = self._clip(by_dense, by_row)
        state = list(values["optimizer"])
        step = state[0].astype("float32") + 1
        state[_place(self._optimizer.variables, self._optimizer._learning_rate)] = jnp.asarray(rate, "float32")
        dense, state = self._optimizer.stateless_apply(state, by_dense, dense)
        trainable, slots = list(trainable), list(values["slots"])
        for place, value in zip(self._dense_places, dense, strict=True):
            trainable[place] = value
        each = len(slots) // max(len(self._table_places), 1)
        for index, (name, place) in enumerate(zip(self._table_names, self._table_places, strict=True)):
            mine = slice(index * each, (index + 1) * each)
            trainable[place], slots[mine] = self._update_rows(
                trainable[place], slots[mine], ids, by_row[name], rate, step
            )
        return {"trainable": trainable, "fixed": fixed, "optimizer": list(state), "slots": slots}, loss

    def _update_rows(self, table, slots: Arrays, ids, gradients, rate, step) -> tuple[Any, Arrays]:
        assert self._rows
        old = tuple(slot.at[ids].get(mode="clip") for slot in slots)
        rows, new = self._rows.update(table.at[ids].get(mode="clip"), old, gradients, rate, step)

        def write(into: Any, values: Any) -> Any:  # unused places of `ids` lie beyond the table and are dropped
            return into.at[ids].set(values, mode="drop", indices_are_sorted=True)

        return write(table, rows), [write(slot, values) for slot, values in zip(slots, new, strict=True)]

    def _clip(self, dense: Arrays, by_row: dict[str, jax.Array]) -> tuple[Arrays, dict[str, jax.Array]]:
        limit = self._training.gradient_clip_norm
        if not limit:
            return dense, by_row
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(part)) for part in [*dense, *by_row.values()]))
        factor = jnp.where(norm > limit, limit / norm, 1.0)
        return [part * factor for part in dense], {name: part * factor for name, part in by_row.items()}


def _sum_by_row(ids: jax.Array, gradients: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Each id once, and the sum of its gradients; places left over hold an id beyond every table."""
    flat = ids.reshape(-1)
    beyond = np.iinfo(np.int32).max
    unique, places = jnp.unique(flat, return_inverse=True, size=flat.size, fill_value=beyond)
    return unique, {
        name: jax.ops.segment_sum(part.reshape(flat.size, -1), places.reshape(-1), flat.size)
        for name, part in gradients.items()
    }


def _array(value: Any) -> jax.Array:
    return value if isinstance(value, jax.Array) else jnp.asarray(np.asarray(value))


def _values(variables: list[keras.Variable]) -> Arrays:
    return [variable.value for variable in variables]


def _place(variables: list[keras.Variable], wanted: keras.Variable) -> int:
    return next(index for index, variable in enumerate(variables) if variable is wanted)
