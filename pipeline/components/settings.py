"""The base class of a stage's settings."""

import pydantic


def short_json(model: pydantic.BaseModel) -> str:
    """Returns a model as JSON without default values, if that parses to the same model.

    Kubeflow passes the text to a step several times, and Argo stores it in the workflow.
    """
    text = model.model_dump_json(exclude_defaults=True)
    try:
        is_whole = type(model).model_validate_json(text) == model
    except pydantic.ValidationError:
        is_whole = False
    return text if is_whole else model.model_dump_json()


class StageSettings(pydantic.BaseModel):
    """Settings of a stage: everything except its artifacts that determines its result.

    A component takes them as one JSON text, because TFX takes only strings and numbers. The text is part of the
    component's cache key. It contains only the settings that the stage reads, so other changes do not rerun the stage.
    Defaults are code, which is also part of the key.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    def to_text(self) -> str:
        """Returns the settings as the component takes them."""
        return short_json(self)
