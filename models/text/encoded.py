"""Finds the text model in a trained model."""

from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.text.cascading import Cascading
from ctrpipe.models.text.text_model import TextModel


def text_model_of(model: CTRModel) -> TextModel | None:
    """Returns the model with the text encoder: the model or one inside it; None for a model without a text."""
    if isinstance(model, TextModel):
        return model
    return model.text if isinstance(model, Cascading) else None
