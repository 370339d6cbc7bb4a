"""The base class of what a stage is told."""

import pydantic


class StageSettings(pydantic.BaseModel):
    """Settings of a stage: everything but its artifacts that decides its result.

    A component takes them as one JSON text, because TFX takes only strings and numbers. The text is part of the
    component's cache key. It has only what the stage reads, so that no other change reruns the stage.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
