"""A trained model whose text encoder is served in fewer bits."""

from keras.quantizers import Int8QuantizationConfig

from models.ctr_model import CTRModel, empty_row

PRECISIONS = ("float32", "bfloat16", "int8", "int8_weights")


def in_precision(model: CTRModel, precision: str) -> CTRModel:
    """The model itself, or a copy whose text encoder has another precision; everything else stays float32.

    Args:
        model: A trained model, built; one without a text is returned as it is.
        precision: `bfloat16`: the encoder's weights and arithmetic. `int8_weights`: its token table and kernels are
            int8, with a scale for every token and every output, and what they are multiplied with is float32. `int8`:
            that is int8 as well, with a scale for every token, found as it comes (dynamic quantisation).

    Raises:
        ValueError: no such precision.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"`precision` should be one of {PRECISIONS}. Received: precision={precision!r}")
    copy: CTRModel = type(model).from_config(model.get_config())
    reader = copy.text_model
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
