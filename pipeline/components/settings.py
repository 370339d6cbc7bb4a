"""The base class of a stage's settings."""

import pydantic


class StageSettings(pydantic.BaseModel):
    """Settings of a stage: everything but its artifacts that decides its result.

    A component takes them as one JSON text, because TFX takes only strings and numbers. The text is part of the
    component's cache key. It contains only what the stage reads, so other changes do not rerun the stage.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
