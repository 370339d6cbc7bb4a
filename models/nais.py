"""Neural attentive item similarity model."""

from typing import Any

import keras

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.history_model import History
from ctrpipe.models.base.tensors import Tensor
from ctrpipe.models.fism import FISM
from ctrpipe.models.layers.smoothed_attention import SmoothedAttention


@keras.saving.register_keras_serializable(package="ctrpipe")
class NAIS(FISM):
    """Neural attentive item similarity: FISM with items weighted by attention to the candidate.

    `logit = linear part + Σ_{j in history, j ≠ i} a_ij <p_i, q_j>` with `a_ij = exp(f_ij) / (Σ_j exp(f_ij))^β`. f is
    `hᵀ relu(W (p_i ∘ q_j) + b)` ("prod") or `hᵀ relu(W [p_i, q_j] + b)` ("concat"). With `training.stages.fism`, a FISM
    is trained first, and this model starts from its embeddings and linear part.

    Args:
        feature_map: FeatureMap. Must have a sequence with `shared_with`, and one task.
        attention: str. "prod" or "concat". Defaults to "prod".
        attention_units: int. Width of the attention network. Defaults to 16.
        beta: float. β of the smoothed softmax; 1 is the softmax. Defaults to 0.5.
        **options: Options of FISM and CTRModel; `alpha` applies only to the FISM that is trained first.

    Example:
        >>> item = ("item", "categorical", 50)
        >>> history = ("items", "sequence", 50, 4, "feature", "mean", "item")
        >>> model = NAIS(FeatureMap.from_sizes([item, history]), embedding_dim=4)
        >>> inputs = {"ids": keras.ops.array([[3, 5, 9, 0, 0], [7, 8, 7, 6, 5]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: there is no sequence with `shared_with`, the data has several tasks, or `attention` is unknown.

    References:
        He et al., "NAIS: Neural Attentive Item Similarity Model for Recommendation", 2018, equations 8 and 9.
    """

    optional_pretraining = ("fism",)

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        attention: str = "prod",
        attention_units: int = 16,
        beta: float = 0.5,
        use_linear: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.attentions = [
            SmoothedAttention(attention, attention_units, beta, name=f"attention_{number}")
            for number in range(len(feature_map.histories))
        ]

    def _weights(self, candidate: Tensor, history: History, counted: Tensor, number: int) -> Tensor:
        return self.attentions[number](candidate, history.items, counted)
