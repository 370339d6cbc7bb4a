"""Similarity of history items to the candidate by locality-sensitive hashes (ETA)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.one_history import inner_products


@keras.saving.register_keras_serializable(package="ctrpipe")
class HashSearch(keras.layers.Layer):
    """Scores the items of a history by locality-sensitive hashes: `r_j = Σ_b [sign(<e_j, h_b>) = sign(<v, h_b>)]`.

    The vectors h_b are drawn once and never trained. The number of equal bits falls with the angle between item and
    candidate.

    Args:
        bits: int. Number of bits of a hash. Defaults to 32.

    Example:
        >>> candidate, items = keras.random.normal((2, 4)), keras.random.normal((2, 5, 4))
        >>> keras.ops.shape(HashSearch(bits=8)(candidate, items))  # (batch_size, length)
        (2, 5)

    Raises:
        ValueError: `bits` is not positive.

    References:
        Chen et al., "End-to-End User Behavior Retrieval in Click-Through Rate Prediction Model", 2021, section 4.2.
    """

    def __init__(self, bits: int = 32, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(bits=bits)
        self.bits = bits

    def build(self, candidate_shape: Shape, items_shape: Shape | None = None) -> None:
        shape = (candidate_shape[-1], self.bits)
        self.planes = self.add_weight(name="planes", shape=shape, initializer="random_normal", trainable=False)

    def call(self, candidate: Tensor, items: Tensor) -> Tensor:
        """Maps (batch_size, width), (batch_size, length, width) to float32 (batch_size, length).

        All candidates may share one history, (1, length, width).
        """
        # +1 or -1: the number of equal bits is half of (bits + the inner product).
        signs = [ops.where(ops.matmul(each, self.planes) > 0, 1.0, -1.0) for each in (candidate, items)]
        return 0.5 * (self.bits + inner_products(*signs))

    def compute_output_shape(self, candidate_shape: Shape, items_shape: Shape) -> Shape:
        return (candidate_shape[0], items_shape[1])

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), bits=self.bits)
