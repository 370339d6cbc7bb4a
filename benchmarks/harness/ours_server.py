"""Serves this project's training by the peers' line protocol: `python -m benchmarks.harness.ours_server`.

KERAS_BACKEND (tensorflow or jax) and CTRPIPE_THREADS are environment variables because they must be set before a
backend is loaded. Requests:

    {"cmd": "about"} -> {"backend": str, "device": str, "cuda": str or null, "versions": {package: version},
        "cpu_seconds": float}: cpu_seconds is the CPU time of this process so far
    {"cmd": "train", "steps": 10, ...options} -> {"samples_per_s": float, "seconds": float, "cpu_seconds": float,
        "request_cpu_seconds": float, "loss": float}: wall and CPU time of the timed steps; request_cpu_seconds is the
        CPU time of the whole request, which includes building and compiling a new model
    {"cmd": "memory", ...options} -> {"baseline_bytes": int, "peak_bytes": int}
    {"cmd": "device_memory", ...options} -> {"argument_bytes": int, "temporary_bytes": int, "live_bytes": int} (JAX)
    {"cmd": "flops", ...options} -> {"flops": float}: operations of a step (JAX)
    {"cmd": "calls", "rows": [1, 100], "seconds": 1, ...options} -> {"p50_ms": [float for each number of rows]}:
        predictions from numpy inputs to numpy probabilities
    {"cmd": "answers", "steps": 5, "rows": 100, "exact": false, ...options} -> {"logits": [[float per task] per row],
        "trained_logits": the same after the steps, "loss": float}
    {"cmd": "peak", "size": 8192, "seconds": 1} -> {"flops_per_s": {number format: float}}

The options are the fields of `Spec`; `train` also takes `warmup` (2).
"""

import collections
import contextlib
import dataclasses
import gc
import importlib.metadata
import json
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness import text_batches
from benchmarks.peers.drawn_ids import draw_ids
from benchmarks.peers.line_server import Answer, serve_lines
from benchmarks.peers.peak_memory import peak_bytes
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.models.base.feature_map import RESERVED_IDS, FeatureMap
from ctrpipe.pipeline.config import Model, Training

SEED = 20
WARM_UP_CALLS, LEAST_CALLS = 3, 5
# The package with CUDA's version for each JAX plugin; PyTorch may have installed another version.
CUDA_OF_JAX = {"jax-cuda12-plugin": "nvidia-cuda-runtime-cu12", "jax-cuda13-plugin": "nvidia-cuda-runtime"}
FORMATS = ("float32", "tf32", "bfloat16")  # tf32: float32 with products rounded if the device supports it


@dataclasses.dataclass(frozen=True)
class Spec:
    """A model, its training, and its data.

    Args:
        model, hyperparameters: As in a run's configuration.
        sizes: Ids of each univalent field, without the reserved ids.
        batch: Rows in a step.
        history: Maximum length of a history of the first field's ids; 0 for data without a history.
        least_history: Minimum length of a history.
        tasks: Number of labels.
        text: Whether a row has only numbers, as many as `sizes`, and a text (see text_batches.py).
        batches: Number of distinct batches, which training repeats.
        zipf: Exponent of Zipf's law for the ids of a field, the most frequent first as in a vocabulary; None: uniform.
        training: Fields of `ctrpipe.pipeline.config.Training`. Gradients are not clipped by default, as in the peers.
    """

    model: str
    hyperparameters: dict[str, Any]
    sizes: tuple[int, ...]
    batch: int
    history: int = 0
    least_history: int = 1
    tasks: int = 1
    text: bool = False
    batches: int = 8
    zipf: float | None = None
    training: dict[str, Any] = dataclasses.field(default_factory=dict)


def feature_map_of(spec: Spec) -> FeatureMap:
    if spec.text:
        return text_batches.feature_map(len(spec.sizes))
    fields: list[tuple] = [(f"f{index}", "categorical", size, 1, "feature") for index, size in enumerate(spec.sizes)]
    if spec.history:
        fields.append(("history", "sequence", spec.sizes[0], spec.history, "feature", "mean", "f0"))
    return FeatureMap.from_sizes(fields, tasks=tuple(f"task_{index}" for index in range(spec.tasks)))


def draw_batches(spec: Spec, feature_map: FeatureMap) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Returns batches of packed tensors and labels [rows, tasks]; a quarter of the labels are clicks."""
    random = np.random.default_rng(SEED)
    if spec.text:
        drawn = text_batches.batches(feature_map, spec.batch, spec.batches)
        return [(inputs, (random.random((spec.batch, 1)) < 0.25).astype(np.float32)) for inputs in drawn]
    first = np.array([field.offset + RESERVED_IDS for field in feature_map.fields[: len(spec.sizes)]], np.int32)
    batches = []
    for _ in range(spec.batches):
        ids = draw_ids(random, spec.sizes, spec.batch, spec.zipf) + first
        if spec.history:
            items = draw_ids(random, spec.sizes[:1] * spec.history, spec.batch, spec.zipf) + first[0]
            lengths = random.integers(spec.least_history, spec.history + 1, (spec.batch, 1))
            items[np.arange(spec.history) >= lengths] = 0
            ids = np.concatenate([ids, items], axis=1)
        labels = (random.random((spec.batch, spec.tasks)) < 0.25).astype(np.float32)
        batches.append(({"ids": ids}, labels))
    return batches


class Job:
    """A model in training with its batches on the device, kept between requests."""

    def __init__(self, spec: Spec):
        import keras  # loaded by load_backend, on the backend of the environment

        # On JAX, TensorFlow would add 2 s and 470 MB to the measurement (see pipeline/training/worker.py).
        if keras.backend.backend() == "jax":
            from ctrpipe.pipeline.training.jax_learner import make_learner
        else:
            from ctrpipe.pipeline.training.tensorflow_learner import make_learner
        self.spec, self.feature_map = spec, feature_map_of(spec)
        training = Training.model_validate({"batch_size": spec.batch, "gradient_clip_norm": None, **spec.training})
        model = Model(name=spec.model, **spec.hyperparameters)
        self.learner = make_learner(model, training, self.feature_map, SEED)
        self.batches = [
            (
                {name: keras.ops.convert_to_tensor(values) for name, values in inputs.items()},
                keras.ops.convert_to_tensor(labels),
            )
            for inputs, labels in draw_batches(spec, self.feature_map)
        ]
        self.steps_done = 0

    def run(self, steps: int) -> float:
        """Runs `steps` training steps, waits for the last one, and returns the mean loss."""
        chosen = [self.batches[(self.steps_done + step) % len(self.batches)] for step in range(steps)]
        self.steps_done += steps
        return self.learner.fit(chosen)

    def call_ms(self, rows: int, seconds: float) -> float:
        """Returns the median milliseconds of a prediction of `rows` rows, repeated for about `seconds`."""
        batch = self._rows(rows)
        for _ in range(WARM_UP_CALLS):
            self.learner.predict([batch])
        times: list[float] = []
        while sum(times) < seconds or len(times) < LEAST_CALLS:
            start = time.perf_counter()
            self.learner.predict([batch])
            times.append(time.perf_counter() - start)
        return 1000 * statistics.median(times)

    def logits(self, rows: int) -> np.ndarray:
        """Returns float64 (rows, tasks), the log-odds of the predicted probabilities."""
        probabilities = self.learner.predict([self._rows(rows)])[1].astype(np.float64)
        return np.log(probabilities) - np.log1p(-probabilities)

    def _rows(self, rows: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        (batch,) = draw_batches(dataclasses.replace(self.spec, batch=rows, batches=1), self.feature_map)
        return batch


class Server:
    """Answers requests. The last model is kept for the next request, because building it is slow and not measured."""

    def __init__(self):
        self.key: str | None = None
        self.job: Job | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request.pop("cmd")
        commands = {"about": self.about, "train": self.train, "memory": self.memory}
        commands |= {"device_memory": self.device_memory, "flops": self.flops, "peak": self.peak, "calls": self.calls}
        commands |= {"answers": self.answers}
        return commands[command](request)

    def about(self, _request: dict[str, Any]) -> dict[str, Any]:
        backend = os.environ["KERAS_BACKEND"]
        versions = {name: importlib.metadata.version(name) for name in ("keras", "keras-rs", backend)}
        about = {"backend": backend, "device": device_name(backend), "cuda": cuda_version(backend)}
        return about | {"versions": versions, "cpu_seconds": time.process_time()}

    def train(self, request: dict[str, Any]) -> dict[str, Any]:
        steps, warmup, asked = request.pop("steps"), request.pop("warmup", 2), time.process_time()
        job = self.prepared(request)
        if warmup:
            job.run(warmup)
        start, cpu_start = time.perf_counter(), time.process_time()
        loss = job.run(steps)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        numbers = {"samples_per_s": steps * request["batch"] / seconds, "seconds": seconds, "loss": loss}
        return numbers | {"cpu_seconds": cpu_seconds, "request_cpu_seconds": time.process_time() - asked}

    def memory(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measures the weights, the optimizer state, and two steps including their compilation."""
        baseline = peak_bytes()
        self.prepared(request).run(2)
        return {"baseline_bytes": baseline, "peak_bytes": peak_bytes()}

    def device_memory(self, request: dict[str, Any]) -> dict[str, int]:
        import jax  # only on that backend

        job = self.prepared(request)
        # Analysed before the first step: a program from JAX's cache may have no analysis.
        analysis = job.learner.compiled_step(job.batches[0]).memory_analysis()
        job.run(1)
        gc.collect()  # frees the previous model
        live: collections.Counter = collections.Counter()
        for array in jax.live_arrays():
            for shard in array.addressable_shards:
                live[shard.device.id] += shard.data.nbytes
        step = {"argument_bytes": analysis.argument_size_in_bytes, "temporary_bytes": analysis.temp_size_in_bytes}
        return step | {"live_bytes": max(live.values())}

    def flops(self, request: dict[str, Any]) -> dict[str, float]:
        job = self.prepared(request)
        return {"flops": job.learner.lowered_step(job.batches[0]).cost_analysis()["flops"]}

    def calls(self, request: dict[str, Any]) -> dict[str, list[float]]:
        rows, seconds = request.pop("rows"), request.pop("seconds")
        job = self.prepared(request)
        return {"p50_ms": [job.call_ms(count, seconds) for count in rows]}

    def answers(self, request: dict[str, Any]) -> dict[str, Any]:
        steps, rows, exact = (request.pop(key) for key in ("steps", "rows", "exact"))
        with rounded_products(False) if exact else contextlib.nullcontext():
            job = Job(_spec_of(request))  # new weights: those of `prepared` may be trained
            logits = job.logits(rows)
            loss = job.run(steps)
            return {"logits": logits.tolist(), "trained_logits": job.logits(rows).tolist(), "loss": loss}

    def peak(self, request: dict[str, Any]) -> dict[str, Any]:
        formats = {name: products_per_s(name, **request) for name in FORMATS}
        return {"flops_per_s": {name: rate * 2 * request["size"] ** 3 for name, rate in formats.items()}}

    def prepared(self, request: dict[str, Any]) -> Job:
        key = json.dumps(request, sort_keys=True)
        if self.key != key or self.job is None:
            self.key, self.job = key, None
            self.job = Job(_spec_of(request))
        return self.job


def _spec_of(request: dict[str, Any]) -> Spec:
    return Spec(**{**request, "sizes": tuple(request["sizes"])})


def device_name(backend: str) -> str:
    if backend == "jax":
        import jax  # only on that backend

        return jax.devices()[0].device_kind
    import tensorflow as tf  # only on that backend

    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU") if gpus else "cpu"


def cuda_version(backend: str) -> str | None:
    """Returns the CUDA version of TensorFlow's build or of JAX's plugin; None without CUDA."""
    if backend == "jax":
        for plugin, runtime in CUDA_OF_JAX.items():
            if _installed(plugin):
                return _installed(runtime)
        return None
    import tensorflow as tf  # only on that backend

    return tf.sysconfig.get_build_info().get("cuda_version")


def _installed(package: str) -> str | None:
    """Returns a package's version; None if it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def products_per_s(number_format: str, size: int, seconds: float) -> float:
    """Returns the number of products of two square matrices that the device computes per second."""
    import keras  # see Job

    dtype = "bfloat16" if number_format == "bfloat16" else "float32"
    random = np.random.default_rng(SEED)
    first, second = (keras.ops.cast(random.standard_normal((size, size), np.float32), dtype) for _ in range(2))

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            product = keras.ops.matmul(first, second)
        float(keras.ops.cast(product[0, 0], "float32"))  # waits for the products
        return time.perf_counter() - start

    with rounded_products(number_format == "tf32"):
        run(2)
        count = max(1, round(seconds / max(run(1), 1e-6)))
        return count / run(count)


@contextlib.contextmanager
def rounded_products(rounded: bool) -> Iterator[None]:
    """Allows or forbids TF32 for float32 products inside the block."""
    import keras  # see Job

    if keras.backend.backend() == "jax":
        import jax  # only on that backend

        with jax.default_matmul_precision("tensorfloat32" if rounded else "highest"):
            yield
        return
    import tensorflow as tf  # only on that backend

    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(rounded)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def load_backend() -> None:
    """Loads the backend and Keras; limits the threads of TensorFlow (JAX uses the cores of the process's affinity)."""
    if os.environ["KERAS_BACKEND"] == "tensorflow":
        load_tensorflow()
        import tensorflow as tf  # a process that trains on JAX does without: saves 3.7 s of CPU time

        threads = int(os.environ["CTRPIPE_THREADS"])
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    import keras  # after load_tensorflow, which suppresses TensorFlow's start-up messages

    keras.config.disable_traceback_filtering()


def start() -> Answer:
    load_backend()
    return Server().answer


if __name__ == "__main__":
    serve_lines(start)
