"""Reduces the precision of a trained model's text encoder, for serving."""

from keras.quantizers import Int8QuantizationConfig

from ctrpipe.models.base.ctr_model import CTRModel, empty_row
from ctrpipe.models.text.cascading import text_model_of

PRECISIONS = ("float32", "bfloat16", "int8", "int8_weights")


def in_precision(model: CTRModel, precision: str) -> CTRModel:
    """Returns a copy of the model with another precision of the text encoder; other layers stay float32.

    Args:
        model: A trained, built model. A model without a text is returned unchanged.
        precision: "float32": returns the model unchanged. "bfloat16": the encoder's weights and arithmetic are
            bfloat16. "int8_weights": the token table and the kernels are int8, with one scale per token and one per
            output; activations are float32. "int8": the kernels' inputs are int8 too, with one scale per token computed
            at run time (dynamic quantisation).

    Raises:
        ValueError: `precision` is unknown.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"`precision` should be one of {PRECISIONS}. Received: precision={precision!r}")
    copy: CTRModel = type(model).from_config(model.get_config())
    reader = text_model_of(copy)
    if precision == "float32" or reader is None:
        return model
    encoder = reader.encoder
    if precision == "bfloat16":
        encoder.dtype_policy = "bfloat16"
    copy(empty_row(model.feature_map))
    copy.set_weights(model.get_weights())
    if precision == "int8":
        encoder.quantize("int8")
    elif precision == "int8_weights":
        encoder.quantize("int8", config=Int8QuantizationConfig(activation_quantizer=None))
    return copy
