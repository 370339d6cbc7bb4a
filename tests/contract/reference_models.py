"""Models with the answers of those in TF Serving's own tests, for the same requests."""

import pathlib

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

_VECTOR = tf.TensorSpec([None], tf.string, name="inputs")
_NUMBER = tf.TensorSpec(None, tf.float32)


def _feature(examples, name, dtype=tf.float32):
    return tf.io.parse_example(examples, {name: tf.io.RaggedFeature(dtype)})[name].to_tensor()


class HalfPlusTwo(tf.Module):
    """y = x / 2 + 2, y2 = x / 2 + 3 and y3 = x2 / 2 + 3, of tf.Examples and of plain numbers."""

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")])
    def serving_default(self, x):
        return {"y": x / 2 + 2}

    @tf.function(input_signature=[_VECTOR])
    def regress_x_to_y(self, inputs):
        return {"outputs": _feature(inputs, "x") / 2 + 2}

    @tf.function(input_signature=[_VECTOR])
    def regress_x_to_y2(self, inputs):
        return {"outputs": _feature(inputs, "x") / 2 + 3}

    @tf.function(input_signature=[_VECTOR])
    def classify_x_to_y(self, inputs):
        return {"scores": _feature(inputs, "x") / 2 + 2}

    @tf.function(input_signature=[_NUMBER])
    def regress_x2_to_y3(self, inputs):
        return {"outputs": inputs / 2 + 3}

    @tf.function(input_signature=[_NUMBER])
    def classify_x2_to_y3(self, inputs):
        return {"scores": inputs / 2 + 3}


class Examples(tf.Module):
    """The features of an example, as right and wrong outputs of a classifier and a regression."""

    @tf.function(input_signature=[_VECTOR])
    def classify(self, inputs):
        return {"classes": _feature(inputs, "class", tf.string), "scores": _feature(inputs, "score")}

    @tf.function(input_signature=[_VECTOR])
    def classify_plus_one(self, inputs):
        return {"classes": _feature(inputs, "class", tf.string), "scores": _feature(inputs, "score") + 1}

    @tf.function(input_signature=[_VECTOR])
    def classes_only(self, inputs):
        return {"classes": _feature(inputs, "class", tf.string)}

    @tf.function(input_signature=[_VECTOR])
    def scores_only(self, inputs):
        return {"scores": _feature(inputs, "score")}

    @tf.function(input_signature=[_VECTOR])
    def scores_of_rank_3(self, inputs):
        return {"classes": _feature(inputs, "class", tf.string), "scores": _feature(inputs, "score")[..., None]}

    @tf.function(input_signature=[_VECTOR])
    def one_row_of_classes(self, inputs):
        return {"classes": _feature(inputs, "class", tf.string)[:1], "scores": _feature(inputs, "score")}

    @tf.function(input_signature=[_VECTOR])
    def classes_of_floats(self, inputs):
        return {"classes": _feature(inputs, "score"), "scores": _feature(inputs, "score")}

    @tf.function(input_signature=[_VECTOR])
    def one_row_of_scores(self, inputs):
        return {"classes": _feature(inputs, "class", tf.string), "scores": _feature(inputs, "score")[:1]}

    @tf.function(input_signature=[_VECTOR])
    def scores_of_strings(self, inputs):
        labels = _feature(inputs, "class", tf.string)
        return {"classes": labels, "scores": tf.identity(labels)}

    @tf.function(input_signature=[_VECTOR])
    def a_score_too_many(self, inputs):
        scores = _feature(inputs, "score")
        return {"classes": _feature(inputs, "class", tf.string), "scores": tf.concat([scores, scores[:, :1]], 1)}

    @tf.function(input_signature=[_VECTOR])
    def fails(self, inputs):
        with tf.control_dependencies([tf.debugging.assert_negative(tf.size(inputs), message="Run totally failed")]):
            return {"outputs": tf.identity(_feature(inputs, "output")), "scores": _feature(inputs, "output")}

    @tf.function(input_signature=[_VECTOR])
    def regress_fails(self, inputs):
        with tf.control_dependencies([tf.debugging.assert_negative(tf.size(inputs), message="Run totally failed")]):
            return {"outputs": tf.identity(_feature(inputs, "output"))}

    @tf.function(input_signature=[_VECTOR])
    def regress(self, inputs):
        return {"outputs": _feature(inputs, "output")[:, 0]}

    @tf.function(input_signature=[_VECTOR])
    def regress_plus_one(self, inputs):
        return {"outputs": _feature(inputs, "output") + 1}

    @tf.function(input_signature=[_VECTOR])
    def outputs_of_rank_3(self, inputs):
        return {"outputs": tf.ones([tf.size(inputs), 1, 10])}

    @tf.function(input_signature=[_VECTOR])
    def an_output_too_many(self, inputs):
        return {"outputs": tf.ones([tf.size(inputs) + 1])}

    @tf.function(input_signature=[_VECTOR])
    def outputs_of_strings(self, inputs):
        return {"outputs": tf.identity(inputs)}


class Counter(tf.Module):
    """A number that requests change."""

    def __init__(self):
        super().__init__()
        self.value = tf.Variable(0.0)

    @tf.function(input_signature=[])
    def get_counter(self):
        return {"output": tf.identity(self.value)}

    @tf.function(input_signature=[])
    def incr_counter(self):
        return {"output": self.value.assign_add(1.0)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="delta")])
    def incr_counter_by(self, delta):
        return {"output": self.value.assign_add(delta)}

    @tf.function(input_signature=[])
    def reset_counter(self):
        return {"output": self.value.assign(0.0)}


def save(model: tf.Module, version: pathlib.Path, methods: dict[str, str] | None = None) -> pathlib.Path:
    """Writes the model with its methods as signatures; `methods` are method names to write into signatures."""
    names = [name for name, value in vars(type(model)).items() if hasattr(value, "get_concrete_function")]
    tf.saved_model.save(model, str(version), {name: getattr(model, name) for name in names})
    file = version / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for name, method in (methods or {}).items():
        saved.meta_graphs[0].signature_def[name].method_name = method
    file.write_bytes(saved.SerializeToString())
    return version
