"""Base class of multi-task models, which combine several models on shared embeddings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras import ops

from ctrpipe.models.base.ctr_model import NUMBER_OPTIONS, CTRModel, require_several_tasks
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import check_hyperparameters, model_class
from ctrpipe.models.base.tensors import Inputs, Shape, Tensor

# A model that overrides one of these methods looks up embeddings in its own way. It cannot be nested in another model.
_OWN_WAYS = ("rows", "call", "tables")
_SHARED = ("embedding_dim", "embedding_stddev", "embedding_l2", "embedding_dropout", *NUMBER_OPTIONS)
_LINEAR = ("use_linear", "linear_l2", "linear_rate")


class MultiTaskModel(CTRModel):
    """Base class of multi-task models: several `interactions` of one kind on the same embeddings.

    Each interaction has its own weights; the embeddings and the linear part belong to this model. An interaction is any
    model, from the registry or user-defined, that combines given embeddings. It cannot be `lr`, a multi-task model, or
    a model with a text, with pretraining stages or with its own embedding tables. The docstring of MMoE has an example.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with several tasks.
        interaction: mapping. The `name` of the model and its hyperparameters, except those of the embeddings and the
            linear part.
        count: int. Number of interactions.
        outputs: int. Number of outputs of each interaction per row; above 1, the model must support several tasks.
        embedding_dim: int. Width d of an embedding. Defaults to 16.
        **options: Options of CTRModel.

    Raises:
        ValueError: the data has one task, or the interaction is not suitable.
    """

    needs_tasks = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        interaction: Mapping[str, Any],
        count: int,
        outputs: int,
        embedding_dim: int = 16,
        **options: Any,
    ) -> None:
        require_several_tasks(type(self).__name__.lower(), feature_map.tasks)
        units = tuple(f"output_{index}" for index in range(outputs))
        inner_map = dataclasses.replace(feature_map, tasks=units, number_tasks=())
        interactions = [_interaction(interaction, inner_map, embedding_dim, number) for number in range(count)]
        first = interactions[0]
        self.pools, self.embeds_dense = first.pools, first.embeds_dense
        super().__init__(feature_map, embedding_dim=first.embedding_dim, **options)
        self.interactions = interactions

    def build(self, input_shape: Shape | None = None) -> None:
        for model in self.interactions:
            model.build()

    def outputs(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> list[Tensor]:
        """Returns the output of each interaction, (batch_size, outputs) each."""
        return [model.interact(rows, inputs, training=training) for model in self.interactions]


def mixed(scores: Tensor, experts: Tensor) -> Tensor:
    """Returns `Σ_i softmax(scores)_i experts_i`, (batch_size, units).

    Args:
        scores: (batch_size, experts).
        experts: (batch_size, experts, units).
    """
    weights = ops.softmax(ops.cast(scores, "float32"))
    return ops.einsum("be,beu->bu", ops.cast(weights, experts.dtype), experts)


def _interaction(settings: Mapping[str, Any], feature_map: FeatureMap, embedding_dim: int, number: int) -> CTRModel:
    options = dict(settings)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(f"interaction should name a model, such as {{name: mlp}}. Received: {dict(settings)}")
    model = model_class(name)
    has_own_ways = any(getattr(model, way) is not getattr(CTRModel, way) for way in _OWN_WAYS)
    if name == "lr" or model.needs_text or model.needs_tasks or model.pretraining or model.own_loss or has_own_ways:
        raise ValueError(f"interaction: {name} does not combine given embeddings; choose another model, such as mlp")
    for key in options:
        if key in (*_SHARED, *_LINEAR):
            raise ValueError(f"interaction: {key} belongs to the shared embeddings; set it next to interaction")
    try:
        check_hyperparameters(name, **options)
        own = {"embedding_dim": embedding_dim, "embeds": False, "name": f"interaction_{number}", **options}
        made = model(feature_map, **own)
        made.check_used(name)
        return made
    except ValueError as error:
        raise ValueError(f"interaction: {error}") from error
