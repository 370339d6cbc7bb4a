"""The Transformer with an encoding per feature."""

import keras

from models.tensors import Inputs, Shape, Tensor
from models.transformer import Transformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class TransformerPE(Transformer):
    """Transformer + PE: a learned vector per feature is added to its token. Task tokens are such vectors already.

    Args:
        feature_map: The description of the packed tensors.
        **options: See TokenTransformer and CTRModel.

    References:
        Gui et al., "Hiformer", 2023, section 4.1.3.
    """

    def build(self, input_shape: Shape | None = None) -> None:
        super().build(input_shape)
        count = len(self.feature_map.fields) + self.dense_tokens
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        encoding = self.add_weight(name="feature_encoding", shape=(count, self.dim), initializer=initializer)
        self.feature_encoding = encoding

    def tokens(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        tokens = super().tokens(rows, inputs, training)
        encoding = keras.ops.pad(keras.ops.convert_to_tensor(self.feature_encoding), ((0, self.tasks), (0, 0)))
        return tokens + keras.ops.cast(encoding, tokens.dtype)
