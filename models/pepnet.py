"""PEPNet: PPNet on embeddings gated by the domain."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import fields_named
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.gate_network import GateNetwork
from ctrpipe.models.ppnet import PPNet


@keras.saving.register_keras_serializable(package="ctrpipe")
class PEPNet(PPNet):
    """PEPNet, for several domains: the domain gates the embeddings (EPNet), and priors gate the MLPs (PPNet).

    PPNet reads `x = Gate([e_domains, stop_gradient(E)]) ∘ E`. E is the concatenated embeddings and dense features.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        domains: sequence of str. Names of the fields of the domain, such as the page or the scene. Required.
        gate_units: int. Width of the gates' hidden layers. Defaults to 64.
        embedding_dim: int. Width d of an embedding. Defaults to 16.
        **options: Options of PPNet and CTRModel.

    Example:
        >>> fields = [("user", "categorical", 100), ("ad", "categorical", 50), ("scene", "categorical", 3)]
        >>> feature_map = FeatureMap.from_sizes(fields)
        >>> model = PEPNet(feature_map, domains=["scene"], priors=["user"], embedding_dim=4, hidden_units=(8,))
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105, 155], [7, 110, 156]])}))  # (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: `domains` or `priors` is missing or names no field, or see PPNet.

    References:
        Chang et al., "PEPNet: Parameter and Embedding Personalized Network for Infusing with Personalized Prior
        Information", 2023, sections 2.3 and 2.4.
    """

    registered = "pepnet"

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        domains: Sequence[str] | None = None,
        gate_units: int = 64,
        embedding_dim: int = 16,
        **options: Any,
    ) -> None:
        if not domains:
            raise ValueError("pepnet needs `domains`, the fields of the domain, such as [scene]; without one, ppnet")
        super().__init__(feature_map, gate_units=gate_units, embedding_dim=embedding_dim, **options)
        self.domains = fields_named(self.registered, feature_map, domains)
        width = self.flat_width(embedding_dim)
        self.embedding_gate = GateNetwork(width, gate_units, name="embedding_gate")

    def features(self, rows: Tensor, inputs: Inputs) -> Tensor:
        x = self.flatten(rows, inputs)
        domain = self.embeddings_of(rows, self.domains)
        return x * self.embedding_gate(ops.concatenate([domain, ops.stop_gradient(x)], axis=1))
