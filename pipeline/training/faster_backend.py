"""What `training.backend: auto` trains on: TensorFlow, or JAX where a measured rule has it done earlier.

The rule reads the configuration, the number of training rows and the machine's devices, and no clock: the same run has
the same backend again.
"""

import importlib.util
import os
from typing import NamedTuple

import keras

from pipeline.config import Model, Training
from pipeline.training.process import other_workers


class Costs(NamedTuple):
    """Seconds of a core.

    Attributes:
        tensorflow, jax: Microseconds that a row takes in a training step of each backend.
        start: Seconds that JAX takes more until its first step is done: another process, its imports, the compiler.
    """

    tensorflow: float
    jax: float
    start: float


# `python -m benchmarks.backends`, 2026-11-24, 2 cores of an AMD EPYC that other work kept busy, rows of 39 columns in
# batches of 1,024, width 16: the models of which JAX trains at least LEAST times as many rows a second, by the clock
# and by the core. For the others TensorFlow is faster, or about as fast, and needs no process of its own.
LEAST = 1.3
FASTER_ON_JAX = {
    "lr": Costs(4.9, 2.0, 5.2),
    "ffm": Costs(1565, 770, 5.4),
    "hetero_att": Costs(880, 639, 12.6),
}


def with_backend(model: Model, training: Training, rows: int) -> Training:
    """Returns the training with the backend that `auto` stands for; any other stays.

    JAX is chosen for a model of FASTER_ON_JAX where one pass over the rows saves more than its start costs, and where
    what was measured is asked for: one CPU, `adam`, float32, JAX installed, and no setting of TensorFlow alone.

    Args:
        model: Its name decides.
        training: The settings.
        rows: Training rows.

    Raises:
        InputError: TF_CONFIG is invalid.
    """
    if training.backend != "auto":
        return training
    return training.model_copy(update={"backend": "jax" if _jax_is_faster(model, training, rows) else "tensorflow"})


def _jax_is_faster(model: Model, training: Training, rows: int) -> bool:
    costs = FASTER_ON_JAX.get(model.name)
    as_measured = training.optimizer == "adam" and training.precision == "float32"
    of_tensorflow = training.xla or training.steps_per_execution > 1 or training.bucket_by_length
    if costs is None or not as_measured or of_tensorflow or not _on_one_cpu(training.distribution):
        return False
    if importlib.util.find_spec("jax") is None:
        return False
    return rows * (costs.tensorflow - costs.jax) * 1e-6 > costs.start


def _on_one_cpu(distribution: str) -> bool:
    if (
        distribution not in ("auto", "one_device")
        or os.environ.get("TPU_NAME")
        or other_workers(distribution, "tensorflow")
    ):
        return False
    return all(device.startswith("cpu") for device in keras.distribution.list_devices())
