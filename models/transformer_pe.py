"""Transformer with an encoding per feature."""

import keras

from ctrpipe.models.base.tensors import Inputs, Shape, Tensor
from ctrpipe.models.transformer import Transformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class TransformerPE(Transformer):
    """Transformer over features with a learned encoding per feature.

    `token_f = e_f + p_f`. Task tokens have no encoding: they are learned vectors already.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        **options: Options of TokenTransformer and CTRModel.

    Example:
        >>> from ctrpipe.models import FeatureMap
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = TransformerPE(feature_map, embedding_dim=4, heads=2, key_dim=3, value_dim=2, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

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
