"""A servable with an input of every kind, whose answers can be computed by hand."""

import pathlib

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.serving.layout import Asset, asset_path, make_assets_folder
from tests.fuzz.server import NAME

__all__ = ["NAME", "record_warmup", "save"]

_FEATURE_MAP = FeatureMap.from_sizes([("c", "categorical", 99)])


class _Model(tf.Module):
    def __init__(self, bias: float, megabytes: int):
        super().__init__()
        # Added to every answer, so no part of the graph can be dropped: a table of 1 MB per row.
        self.table = tf.Variable(tf.fill([max(megabytes, 1), 1 << 18 if megabytes else 1], bias))
        self.weights = tf.Variable(tf.range(float(_FEATURE_MAP.total_ids)))

    @property
    def bias(self):
        return self.table[-1, -1]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def half(self, x):
        """x / 2 + bias."""
        return {"y": x / 2 + self.bias}

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.int32, name="ids")])
    def serving_packed(self, ids):
        """Returns the id itself; fails for an id that the feature map lacks."""
        return {"weight": tf.gather(self.weights, ids)[:, 0]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="seconds")])
    def slow(self, seconds):
        """Computes for the seconds of the first row; returns the number of looks at the clock."""
        end = tf.timestamp() + tf.cast(seconds[0], tf.float64)
        looks = tf.while_loop(lambda _: tf.timestamp() < end, lambda count: [count + 1], [tf.constant(0.0)])
        return {"looks": tf.fill(tf.shape(seconds), looks[0])}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="f"),
            tf.TensorSpec([None], tf.int32, name="i"),
            tf.TensorSpec([None], tf.int64, name="l"),
            tf.TensorSpec([None], tf.string, name="s"),
            tf.TensorSpec([None], tf.bool, name="b"),
            tf.TensorSpec([None, 2], tf.float32, name="m"),
        ]
    )
    def mixed(self, f, i, l, s, b, m):  # noqa: E741
        total = f + tf.cast(i, tf.float32) + tf.cast(l, tf.float32) + tf.reduce_sum(m, 1)
        return {"sum": total, "s_bytes": s, "text": s, "flag": b}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def regress(self, inputs):
        parsed = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32, 0.0)})
        return {"outputs": parsed["x"] / 2 + self.bias}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs):
        parsed = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32, 0.0)})
        rows = tf.shape(inputs)[0]
        return {
            "classes": tf.tile([["no", "yes"]], [rows, 1]),
            "scores": tf.stack([1 - parsed["x"], parsed["x"]], 1),
        }


def save(version: pathlib.Path, bias: float = 2.0, megabytes: int = 0) -> pathlib.Path:
    """Writes a version with a signature for each method of the model, and its feature map; returns its folder.

    Args:
        version: The folder.
        bias: Added to each answer.
        megabytes: Of its variables.
    """
    model = _Model(bias, megabytes)
    signatures = {name: getattr(model, name) for name in ("mixed", "regress", "classify", "serving_packed", "slow")}
    tf.saved_model.save(model, str(version), {"serving_default": model.half, **signatures})
    make_assets_folder(version)
    _FEATURE_MAP.save(asset_path(version, Asset.FEATURE_MAP))
    return version


def record_warmup(version: pathlib.Path, input_name: str = "x", rows: int = 10) -> None:
    """Adds a recorded request; one for an input that does not exist fails the load."""
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.CopyFrom(predict_pb2.PredictRequest())
    request.model_spec.name = NAME
    request.inputs[input_name].CopyFrom(tf.make_tensor_proto([1.0] * rows, tf.float32))
    file = asset_path(version, Asset.WARMUP)
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(log.SerializeToString())
