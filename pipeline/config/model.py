"""The `model` section of a run's configuration."""

from typing import Any

import pydantic

from ctrpipe.common import hooks
from ctrpipe.pipeline.config.model_table import read_reference


class Model(pydantic.BaseModel):
    """The model to train: its name, with its hyperparameters as additional keys.

    `ctrpipe models` prints all names, and each model's hyperparameters with their defaults. The model registry
    validates the hyperparameters.

    Example:
        model: {name: deepfm, embedding_dim: 16, hidden_units: [128, 64], dropout: 0.2}
    """

    model_config = pydantic.ConfigDict(
        extra="allow", frozen=True, protected_namespaces=(), use_attribute_docstrings=True
    )

    name: str = pydantic.Field(examples=["deepfm", "my_models:MyModel"])
    """Name in the model registry, as printed by `ctrpipe models`, `module:Class` for a model of your own, or the name
    of an installed package's model (docs/hooks.md).
    """
    encoder: str | None = pydantic.Field(None, examples=["random"])
    """Initial weights of a text model's encoder: the folder of a checkpoint, or `random`.

    Default: the `encoder` of the feature of kind `text`. The checkpoint must have the same shape as that encoder.
    """
    encoder_words: bool = True
    """Whether the encoder's word embeddings are loaded from the checkpoint, too.

    Set by the pipeline: false if the feature of kind `text` has a vocabulary of its own.
    """

    @pydantic.field_validator("name")
    @classmethod
    def _of_a_package(cls, value: str) -> str:
        """Returns the class `module:Class` that an installed package registers under a name.

        Models of ctrpipe take precedence. Their names come from a stored table, so stages before the training, which
        read the configuration too, do not depend on the models' code.
        """
        place = hooks.names("models").get(value)
        is_ours = place and any(model["name"] == value for model in read_reference().models)
        if not place or is_ours:
            return value
        hooks.check("models", value)
        return place

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The model's hyperparameters: the keys that this class does not declare."""
        return dict(self.model_extra or {})

    def option(self, name: str) -> Any:
        """Returns a hyperparameter or its default; None if the model lacks it, or is not from ctrpipe."""
        defaults: dict[str, Any] = next(
            (model["options"] for model in read_reference().models if model["name"] == self.name), {}
        )
        return self.hyperparameters.get(name, defaults.get(name))

    def of_stage(self, name: str, hyperparameters: dict[str, Any]) -> "Model":
        """Returns the model of a stage that trains before this model, with the same encoder."""
        return Model(name=name, encoder=self.encoder, encoder_words=self.encoder_words, **hyperparameters)
