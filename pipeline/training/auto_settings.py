"""What `auto` stands for in `training.backend` and `training.precision`: what was measured to be faster.

The rules read the configuration, the number of training rows and the machine's devices, and no clock: the same run on
the same machine has the same settings again.
"""

import os
from typing import NamedTuple

import keras

from ctrpipe.common.extras import missing
from ctrpipe.common.processes import multiplies_bfloat16
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.process import other_workers


class Costs(NamedTuple):
    """Seconds of a core.

    Attributes:
        tensorflow, jax: Microseconds that a row takes in a training step of each backend.
        start: Seconds that JAX takes more until its first step is done: another process, its imports, the compiler.
    """

    tensorflow: float
    jax: float
    start: float


# `python -m benchmarks.backends --ways tensorflow,jax,tensorflow_bfloat16`, 2026-11-26, 2 quiet cores of an AMD EPYC,
# rows of 39 columns in batches of 1,024, width 16, by the clock and by the core. Here JAX trains at least
# so many times as many rows a second as TensorFlow, which for the others is faster, or about as fast, and needs no
# process of its own.
LEAST_OF_JAX = 1.3
FASTER_ON_JAX = {
    "lr": Costs(1.8, 1.0, 3.6),
    "starspace": Costs(33.0, 24.2, 4.8),
}
# These train at least 1.2 times as many rows in bfloat16, and about as many where their hidden layers are narrow (64,
# 32). In the others, products of matrices are a smaller part.
FASTER_IN_BFLOAT16 = frozenset(
    ("xdeepfm", "dcn_v2", "deepfm", "pnn", "mlp", "fnn", "wide_deep", "dcn", "cin", "features_only", "transformer")
    + ("transformer_pe", "hetero_att", "hiformer", "bst", "mmoe", "ple", "esmm")
    # With an encoder of MiniLM's shape, in batches of 32.
    + ("text_only", "shallow_interaction_1", "shallow_interaction_n", "bert4ctr", "numbert", "numbert_uni_attention")
    + ("numbert_uni_attention_reduced",)
)


def settled(model: Model, training: Training, rows: int) -> Training:
    """Returns the training with the backend and the precision that `auto` stands for; what is named stays.

    Args:
        model: Its name decides.
        training: The settings.
        rows: Training rows.

    Raises:
        InputError: TF_CONFIG is invalid.
    """
    return _with_precision(model, _with_backend(model, training, rows))


def slow_precision(training: Training) -> str:
    """Returns a line for a user whose CPU is slower in the precision that the configuration names; "" where it is not.

    With AVX-512 and without its products of bfloat16 it takes 2.0 to 2.4 times as long as in float32.
    """
    named = training.precision == "mixed_bfloat16" and training.backend == "tensorflow"
    if not named or not _on_one_cpu(training.distribution) or _onednn_multiplies_bfloat16():
        return ""
    return "training.precision mixed_bfloat16: slower than float32 here, where oneDNN multiplies no bfloat16; set auto"


def _with_backend(model: Model, training: Training, rows: int) -> Training:
    """JAX is chosen for a model of FASTER_ON_JAX where one pass over the rows saves more than its start costs, and
    where what was measured is asked for: one CPU, `adam`, float32, JAX installed, and no setting of TensorFlow alone.
    """
    if training.backend != "auto":
        return training
    return training.model_copy(update={"backend": "jax" if _jax_is_faster(model, training, rows) else "tensorflow"})


def _jax_is_faster(model: Model, training: Training, rows: int) -> bool:
    costs = FASTER_ON_JAX.get(model.name)
    as_measured = training.optimizer == "adam" and training.precision in ("float32", "auto")
    of_tensorflow = training.xla or training.steps_per_execution > 1 or training.bucket_by_length
    if costs is None or not as_measured or of_tensorflow or not _on_one_cpu(training.distribution):
        return False
    if missing("jax"):
        return False
    return rows * (costs.tensorflow - costs.jax) * 1e-6 > costs.start


def _with_precision(model: Model, training: Training) -> Training:
    """mixed_bfloat16 is chosen for a model of FASTER_IN_BFLOAT16 where what was measured is asked for: TensorFlow with
    oneDNN's products on one CPU that multiplies bfloat16.
    """
    if training.precision != "auto":
        return training
    faster = (
        model.name in FASTER_IN_BFLOAT16
        and training.backend == "tensorflow"
        and not training.xla
        and _on_one_cpu(training.distribution)
        and _onednn_multiplies_bfloat16()
    )
    return training.model_copy(update={"precision": "mixed_bfloat16" if faster else "float32"})


def _onednn_multiplies_bfloat16() -> bool:
    """Returns whether oneDNN has the processor's instructions for bfloat16, which either variable can take from it."""
    variables = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0" or "ONEDNN_MAX_CPU_ISA" in os.environ
    return multiplies_bfloat16() and not variables


def _on_one_cpu(distribution: str) -> bool:
    if (
        distribution not in ("auto", "one_device")
        or os.environ.get("TPU_NAME")
        or other_workers(distribution, "tensorflow")
    ):
        return False
    return all(device.startswith("cpu") for device in keras.distribution.list_devices())
