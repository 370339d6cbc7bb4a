"""A servable whose probabilities can be worked out by hand, in place of one that a run has trained."""

import math
import pathlib

import tensorflow as tf

from transforms.log.spec import LogSpec


def spec(**data) -> LogSpec:
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    data = {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}, **data}
    return LogSpec.model_validate({"data": data, "features": features})


def probability(number: float | None, text: str) -> float:
    """What the servable answers: the logistic function of the number (-1 where it is missing) + the text's bytes."""
    logit = (-1.0 if number is None else number) / 100 + len(text.encode()) / 10
    return 1 / (1 + math.exp(-logit))


def save(version: pathlib.Path, log: LogSpec) -> pathlib.Path:
    """Writes a version for logs like `log`, with the signatures `serving_raw` and `log_spec`; returns its folder."""
    module = tf.Module()
    description = log.model_dump_json()

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="n"), tf.TensorSpec([None], tf.string, name="c")]
    )
    def serving_raw(n, c):
        logit = tf.where(tf.math.is_nan(n), -1.0, n) / 100 + tf.cast(tf.strings.length(c), tf.float32) / 10
        return {"ctr": tf.sigmoid(logit)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="request")])
    def log_spec(request):
        return {"log_spec": tf.where(tf.range(tf.size(request)) == 0, description, "")}

    tf.saved_model.save(module, str(version), {"serving_raw": serving_raw, "log_spec": log_spec})
    (version / "assets.extra").mkdir()
    (version / "assets.extra" / "log_spec.json").write_text(log.model_dump_json())
    return version
