"""A small servable whose probabilities can be computed by hand."""

import math
import pathlib

import tensorflow as tf

from ctrpipe.transforms.log.spec import LogSpec


def spec(**data) -> LogSpec:
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    data = {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}, **data}
    return LogSpec.model_validate({"data": data, "features": features})


def probability(number: float | None, text: str) -> float:
    """The servable's answers: the logistic function of the number (-1 if missing) plus the text's length in bytes."""
    logit = (-1.0 if number is None else number) / 100 + len(text.encode()) / 10
    return 1 / (1 + math.exp(-logit))


def save(version: pathlib.Path, log: LogSpec, explains: bool = False) -> pathlib.Path:
    """Writes a version for logs like `log`, with the signatures `serving_raw` and `log_spec`; returns its folder.

    With `explains` it also has `serving_explain`, whose row without values has the logit -0.01.
    """
    module = tf.Module()
    description = log.model_dump_json()

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="n"), tf.TensorSpec([None], tf.string, name="c")]
    )
    def serving_raw(n, c):
        logit = tf.where(tf.math.is_nan(n), -1.0, n) / 100 + tf.cast(tf.strings.length(c), tf.float32) / 10
        return {"ctr": tf.sigmoid(logit)}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="n"), tf.TensorSpec([None], tf.string, name="c")]
    )
    def serving_explain(n, c):
        number = tf.where(tf.math.is_nan(n), -1.0, n) / 100
        text = tf.cast(tf.strings.length(c), tf.float32) / 10
        added = {"attribution_n": number + 0.01, "attribution_c": text}
        logit = number + text
        return {"ctr": tf.sigmoid(logit), "logit": logit, "baseline_logit": tf.fill(tf.shape(n), -0.01), **added}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="request")])
    def log_spec(request):
        return {"log_spec": tf.where(tf.range(tf.size(request)) == 0, description, "")}

    signatures = {"serving_raw": serving_raw, "log_spec": log_spec}
    if explains:
        signatures["serving_explain"] = serving_explain
    tf.saved_model.save(module, str(version), signatures)
    (version / "assets.extra").mkdir()
    (version / "assets.extra" / "log_spec.json").write_text(log.model_dump_json())
    return version
