"""The `serving` section of a run's configuration."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.section import Section


class Serving(Section):
    """Settings of the pushed model and its serving signatures.

    Example:
        features: [{columns: [place], kind: categorical, role: position}]
        serving: {model_name: search_ctr, warmup_requests: 50, position: {place: "1"}}
    """

    model_config = pydantic.ConfigDict(protected_namespaces=())

    model_name: str = pydantic.Field("ctr", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Name of the model in requests and of its folder under models/: letters, digits, `_`, `.` and `-`."""
    # Each row becomes four warm-up records, plus two for candidates. TF Serving rejects a model with more than 1,000.
    warmup_requests: int = pydantic.Field(10, ge=1, le=249)
    """Number of rows that are stored with the model as warm-up requests. The server replays them before a version goes
    live.
    """
    bulk_inferrer: bool = False
    """Whether the pipeline also runs TFX's BulkInferrer, which scores the test split."""
    push_again: bool = False
    """Whether to push a model as a new version even if its files equal the newest version's."""
    position: dict[str, str | float] = pydantic.Field({}, examples=[{"place": "1"}])
    """Maps each column of the role `position` to the value that replaces the one in every request."""
    encoder_precision: Literal["float32", "bfloat16", "int8", "int8_weights"] = "float32"
    """Precision of the text encoder in the served model. The gates evaluate the model in this precision."""
    explain: bool = False
    """Whether to add the signature `serving_explain`, which also returns each column's contribution to the logit."""
