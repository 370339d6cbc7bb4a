"""The `model` part of a run's configuration."""

from typing import Any

import pydantic


class Model(pydantic.BaseModel):
    """The model to train: its name, and its hyperparameters as further keys.

    `ctrpipe models` prints the names and each model's hyperparameters with their defaults; the registry of models
    checks them.

    Example:
        model: {name: deepfm, embedding_dim: 16, hidden_units: [128, 64], dropout: 0.2}
    """

    model_config = pydantic.ConfigDict(
        extra="allow", frozen=True, protected_namespaces=(), use_attribute_docstrings=True
    )

    name: str = pydantic.Field(examples=["deepfm", "my_models:MyModel"])
    """Name in the registry of models, as `ctrpipe models` prints it, or `module:Class` of a model of your own."""
    encoder: str | None = pydantic.Field(None, examples=["random"])
    """The initial weights of a text model's encoder: the folder of a checkpoint, or `random`.

    By default the `encoder` of the feature of kind `text`, whose shape the checkpoint must have.
    """
    encoder_words: bool = True
    """Whether the encoder's word embeddings come from the checkpoint as well.

    The pipeline sets it: it is false where the feature of kind `text` has a vocabulary of its own.
    """

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The keys that this class does not declare."""
        return dict(self.model_extra or {})

    def of_stage(self, name: str, hyperparameters: dict[str, Any]) -> "Model":
        """Returns the model of a stage that trains before this one, with the same encoder."""
        return Model(name=name, encoder=self.encoder, encoder_words=self.encoder_words, **hyperparameters)
