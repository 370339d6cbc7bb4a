"""Lower precision of a trained model's text encoder, for serving."""

from keras.quantizers import Int8QuantizationConfig

from ctrpipe.models.base.ctr_model import CTRModel, empty_row

PRECISIONS = ("float32", "bfloat16", "int8", "int8_weights")


def in_precision(model: CTRModel, precision: str) -> CTRModel:
    """Returns a copy of the model whose text encoder has another precision; all other layers stay float32.

    Args:
        model: A trained model, built. A model without a text is returned as it is.
        precision: "float32" returns the model as it is. "bfloat16" is for the encoder's weights and arithmetic. With
            "int8_weights" its token table and kernels are int8, with a scale for every token and every output, and
            activations float32. With "int8" the kernels' inputs are int8 too, with a scale for every token that is
            computed at run time (dynamic quantisation).

    Raises:
        ValueError: `precision` is unknown.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"`precision` should be one of {PRECISIONS}. Received: precision={precision!r}")
    copy: CTRModel = type(model).from_config(model.get_config())
    reader = copy.text_model()
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
