"""The `serving` part of a run's configuration."""

from typing import Literal

import pydantic

from transforms.log.spec import Section


class Serving(Section):
    """What is pushed, and how it answers.

    Example:
        features: [{columns: [place], kind: categorical, role: position}]
        serving: {model_name: search_ctr, warmup_requests: 50, position: {place: "1"}}
    """

    model_config = pydantic.ConfigDict(protected_namespaces=())

    model_name: str = pydantic.Field("ctr", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Name of the folder under models/, and of the model in requests: letters, digits, `_`, `.` and `-`."""
    # Four records each, and two of candidates: TF Serving loads no model with over 1000.
    warmup_requests: int = pydantic.Field(10, ge=1, le=249)
    """Rows recorded with the model, which the server replays before a version takes requests."""
    bulk_inferrer: bool = False
    """Adds TFX's BulkInferrer, which scores the test split, to the pipeline."""
    push_again: bool = False
    """Pushes a model as a new version also where the newest version is the same model, file by file."""
    position: dict[str, str | float] = pydantic.Field({}, examples=[{"place": "1"}])
    """One value for every request, whatever it says, for columns of the role `position`."""
    encoder_precision: Literal["float32", "bfloat16", "int8", "int8_weights"] = "float32"
    """Precision of a text's encoder as it is served, and as the gates judge it."""
