"""The `serving` part of a run's configuration."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.spec import Section


class Serving(Section):
    """Settings of the pushed model and of the signatures that it answers.

    Example:
        features: [{columns: [place], kind: categorical, role: position}]
        serving: {model_name: search_ctr, warmup_requests: 50, position: {place: "1"}}
    """

    model_config = pydantic.ConfigDict(protected_namespaces=())

    model_name: str = pydantic.Field("ctr", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Name of the folder under models/, and of the model in requests: letters, digits, `_`, `.` and `-`."""
    # A row has four records, and candidates have two: TF Serving refuses a model with more than 1,000.
    warmup_requests: int = pydantic.Field(10, ge=1, le=249)
    """Rows recorded as requests with the model, which the server replays before a version takes requests."""
    bulk_inferrer: bool = False
    """Adds TFX's BulkInferrer, which scores the test split, to the pipeline."""
    push_again: bool = False
    """Whether a model is pushed as a new version even where the newest version has the same files."""
    position: dict[str, str | float] = pydantic.Field({}, examples=[{"place": "1"}])
    """A value by column of the role `position`, used for every request in place of its own."""
    encoder_precision: Literal["float32", "bfloat16", "int8", "int8_weights"] = "float32"
    """Precision of a text's encoder in the served model, which the gates judge."""
    explain: bool = False
    """Adds the signature `serving_explain`, which also answers what each column adds to the row's logit."""
