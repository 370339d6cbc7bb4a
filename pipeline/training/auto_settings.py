"""Resolves `auto` in `training.backend` and `training.precision` to the faster setting, as measured.

The rules use only the configuration, the number of training rows and the machine's devices, and no timing. The same run
on the same machine therefore always gets the same settings.
"""

import os
from typing import NamedTuple

import keras

from ctrpipe.common.extras import missing
from ctrpipe.common.processes import multiplies_bfloat16
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.process import other_workers


class BackendCosts(NamedTuple):
    """CPU time of a model's training on each backend.

    Attributes:
        tensorflow, jax: Microseconds per row in a training step of the backend.
        start: Additional seconds until JAX has done its first step, for a second process, its imports and compilation.
    """

    tensorflow: float
    jax: float
    start: float


# Measured by wall-clock and CPU time with `python -m benchmarks.backends --ways tensorflow,jax,tensorflow_bfloat16` on
# 2 quiet cores of an AMD EPYC: rows of 39 columns, batches of 1,024, width 16. For these models JAX trains at least
# LEAST_OF_JAX times as many rows per second as TensorFlow. For the others TensorFlow is faster or about as fast, and it
# needs no separate process.
LEAST_OF_JAX = 1.3
FASTER_ON_JAX = {
    "lr": BackendCosts(1.8, 1.0, 3.6),
    "starspace": BackendCosts(33.0, 24.2, 4.8),
}
# These models train at least 1.2 times as many rows per second in bfloat16, or about as many if their hidden layers are
# narrow (64, 32). In the other models matrix products are a smaller part of the work.
FASTER_IN_BFLOAT16 = frozenset(
    ("xdeepfm", "dcn_v2", "deepfm", "pnn", "mlp", "fnn", "wide_deep", "dcn", "cin", "features_only", "transformer")
    + ("transformer_pe", "hetero_att", "hiformer", "bst", "mmoe", "ple", "esmm")
    # Measured with an encoder of MiniLM's shape, in batches of 32.
    + ("text_only", "shallow_interaction_1", "shallow_interaction_n", "bert4ctr", "numbert", "numbert_uni_attention")
    + ("numbert_uni_attention_reduced",)
)


def settled(model: Model, training: Training, rows: int) -> Training:
    """Returns the training settings with `auto` resolved. An explicit backend or precision is kept.

    Args:
        model: The model; the choice depends on its name.
        training: The training settings.
        rows: The number of training rows.

    Raises:
        InputError: TF_CONFIG is invalid.
    """
    return _with_precision(model, _with_backend(model, training, rows))


def slow_precision(training: Training) -> str:
    """Returns a warning if mixed_bfloat16 is configured and slower than float32 on this CPU, otherwise "".

    On a CPU with AVX-512 but without bfloat16 instructions, mixed_bfloat16 takes 2.0 to 2.4 times as long as float32.
    """
    named = training.precision == "mixed_bfloat16" and training.backend == "tensorflow"
    if not named or not _on_one_cpu(training.distribution) or _onednn_multiplies_bfloat16():
        return ""
    return "training.precision mixed_bfloat16: slower than float32 here: oneDNN has no bfloat16; set auto"


def _with_backend(model: Model, training: Training, rows: int) -> Training:
    """Resolves the backend.

    JAX is chosen for a model of FASTER_ON_JAX if one pass over the rows saves more than the start of JAX costs. The
    settings must be those of the measurement: one CPU, `adam`, float32, JAX installed and no TensorFlow-only setting.
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
    """Resolves the precision.

    mixed_bfloat16 is chosen for a model of FASTER_IN_BFLOAT16 if the settings are those of the measurement: TensorFlow
    with oneDNN on one CPU that has bfloat16 instructions.
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
    """Returns whether oneDNN uses the CPU's bfloat16 instructions.

    Either environment variable can disable them.
    """
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
