"""Tiny models, with one signature for each subject of the contract.

`python -m tests.contract.models FOLDER` writes them for a server that the tests do not start, and prints its flags.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

NAME = "m"
VERSION = 123
FOLDER = "00000123"  # V1: leading zeros
MONITORING = "monitoring.config"
METRICS_PATH = "/monitoring/prometheus/metrics"

EXAMPLE = {
    "x": tf.io.FixedLenFeature([], tf.float32, 0.0),
    "n": tf.io.FixedLenFeature([], tf.int64, 0),
    "s": tf.io.FixedLenFeature([], tf.string, ""),
}


def spec(dtype, name, *shape):
    return tf.TensorSpec([None, *shape], dtype, name=name)


class Small(tf.Module):
    """A model whose attributes without an underscore are its signatures."""

    @tf.function(input_signature=[spec(tf.float32, "x")])
    def half_plus_two(self, x):
        return {"y": x / 2 + 2}

    @tf.function(input_signature=[spec(tf.float32, "f"), spec(tf.int32, "i"), spec(tf.string, "s"), spec(tf.bool, "b")])
    def mixed(self, f, i, s, b):
        return {"sum": f + tf.cast(i, tf.float32), "s_bytes": s, "text": s, "flag": b}

    @tf.function(
        input_signature=[
            spec(dtype, dtype.name)
            for dtype in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint32, tf.uint64, tf.float32, tf.float64)
        ]
    )
    def numbers(self, int8, int16, int32, int64, uint8, uint32, uint64, float32, float64):
        names = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64")
        values = (int8, int16, int32, int64, uint8, uint32, uint64, float32, float64)
        return {name: tf.identity(value) for name, value in zip(names, values, strict=True)}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string, name="s")])
    def strings(self, s):
        return {"s_bytes": s}

    @tf.function(input_signature=[spec(tf.string, "s")])
    def text(self, s):
        return {"text": s}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")])
    def any_shape(self, x):
        return {"y": tf.identity(x)}

    @tf.function(input_signature=[spec(tf.float32, "x")])
    def scalar(self, x):
        return {"scalar": tf.reduce_sum(x), "y": x}

    @tf.function(input_signature=[spec(tf.float32, "x")])
    def unequal(self, x):
        return {"first": x, "second": tf.concat([x, x], 0)}

    @tf.function(input_signature=[spec(tf.float32, "x"), spec(tf.float32, "z")])
    def total(self, x, z):
        return {"total": tf.reshape(tf.reduce_sum(x) + tf.reduce_sum(z), [1])}

    @tf.function(input_signature=[spec(tf.float32, "x", 2)])
    def matrix(self, x):
        return {"y": x[:, :1]}

    @tf.function(input_signature=[spec(tf.float32, "x")])
    def failing(self, x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="not positive")]):
            return {"y": tf.identity(x)}

    @tf.function(input_signature=[spec(tf.half, "h")])
    def half(self, h):
        return {"y": tf.cast(h, tf.float32)}

    @tf.function(input_signature=[spec(tf.float32, "x")])
    def brain_float(self, x):
        return {"y": tf.cast(x, tf.bfloat16)}

    @tf.function(input_signature=[spec(tf.float32, "seconds")])
    def slow(self, seconds):
        """Sleeps for the seconds of the first row, without using a processor, which other tests need."""
        one = tf.data.Dataset.from_tensors(0.0)
        asleep = tf.raw_ops.SleepDataset(
            input_dataset=tf.data.experimental.to_variant(one),
            sleep_microseconds=tf.cast(0.5e6 * seconds[0], tf.int64),  # before the element, and before the end
            output_types=[tf.float32],
            output_shapes=[tf.TensorShape([])],
        )
        waited = tf.data.experimental.from_variant(asleep, one.element_spec).get_single_element()
        return {"y": tf.reshape(waited, [1])}

    @tf.function(input_signature=[spec(tf.float32, "x"), spec(tf.float32, "scale")])
    def with_default(self, x, scale):
        return {"y": x * scale}

    @tf.function(input_signature=[spec(tf.string, "inputs")])
    def regress(self, inputs):
        features = tf.io.parse_example(inputs, EXAMPLE)
        return {"outputs": features["x"] + tf.cast(features["n"], tf.float32)}

    @tf.function(input_signature=[spec(tf.string, "inputs")])
    def regress_column(self, inputs):
        return {"outputs": tf.io.parse_example(inputs, EXAMPLE)["x"][:, None]}

    @tf.function(input_signature=[spec(tf.string, "inputs")])
    def regress_wide(self, inputs):
        return {"outputs": tf.stack([tf.io.parse_example(inputs, EXAMPLE)["x"]] * 2, 1)}

    @tf.function(input_signature=[spec(tf.string, "examples")])
    def regress_examples(self, examples):
        return {"outputs": tf.io.parse_example(examples, EXAMPLE)["x"]}

    @tf.function(input_signature=[spec(tf.string, "inputs")])
    def classify(self, inputs):
        features = tf.io.parse_example(inputs, EXAMPLE)
        labels = tf.stack([features["s"], tf.fill(tf.shape(features["s"]), "other")], 1)
        return {"classes": labels, "scores": tf.stack([features["x"], 1 - features["x"]], 1)}

    @tf.function(input_signature=[spec(tf.string, "inputs")])
    def classify_scores(self, inputs):
        return {"scores": tf.io.parse_example(inputs, EXAMPLE)["x"][:, None]}

    @tf.function(input_signature=[spec(tf.string, "inputs")])
    def classify_classes(self, inputs):
        return {"classes": tf.io.parse_example(inputs, EXAMPLE)["s"][:, None]}


def save(version: pathlib.Path) -> pathlib.Path:
    """Writes all signatures as one SavedModel, the first of them as the default too; returns its folder."""
    model = Small()
    names = [name for name, value in vars(Small).items() if hasattr(value, "get_concrete_function")]
    signatures = {name: getattr(model, name) for name in names}
    tf.saved_model.save(model, str(version), {"serving_default": model.half_plus_two, **signatures})
    _set_default(version / "saved_model.pb", "with_default", "scale", np.array([2.0], np.float32))
    return version


def _set_default(file: pathlib.Path, signature: str, name: str, value: np.ndarray) -> None:
    """Gives an input a default, so a gRPC request may leave it out (G5)."""
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    definition = saved.meta_graphs[0].signature_def[signature]
    definition.defaults[name].CopyFrom(tf.make_tensor_proto(value))
    file.write_bytes(saved.SerializeToString())


def save_broken(version: pathlib.Path) -> pathlib.Path:
    """Writes a Keras 3 model by tf.saved_model.save, in which the C++ loader finds no variables."""
    import keras

    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])

    @tf.function(input_signature=[spec(tf.float32, "x", 2)])
    def serve(x):
        return {"y": model(x)}

    module = tf.Module()
    module.model = model
    tf.saved_model.save(module, str(version), {"serving_default": serve})
    return version


def save_all(folder: pathlib.Path) -> None:
    """Writes the models of the shared server."""
    save(folder / NAME / FOLDER)
    (folder / NAME / "not-a-version").mkdir()
    (folder / MONITORING).write_text(f'prometheus_config {{ enable: true path: "{METRICS_PATH}" }}\n')


def flags(folder: pathlib.Path) -> list[str]:
    """Returns the flags of the server of this folder."""
    return [
        f"--model_base_path={folder / NAME}",
        f"--model_name={NAME}",
        f"--monitoring_config_file={folder / MONITORING}",
    ]


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]).resolve()
    save_all(folder)
    print(*flags(folder))
