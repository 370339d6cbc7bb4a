"""What all kinds of features have in common: their keys, and what a kind says unless it says otherwise."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.section import ColumnNames, Section


class Columns(Section):
    columns: ColumnNames = pydantic.Field(min_length=1, examples=[["I1..I13"], ["device", "shop"]])
    """Columns of the log that share these settings; `I1..I13` expands to thirteen names."""
    role: Literal["feature", "position", "item"] = "feature"
    """`position`: the place where an ad was shown, which is unknown at serving time; `serving.position` may set one
    value for every request. `item`: the columns describe the candidate, like every column that `shared_with` names.
    `two_tower` and `starspace` compute one vector from the candidate's columns and one from all others. A request of
    many candidates (`serving_candidates`) has one value of these columns for each candidate, and of all other columns
    one value.
    """


class WithVocabulary(Columns):
    """Settings of a vocabulary. Each of its values has its own id; all other values share out-of-vocabulary ids."""

    top_k: int | None = pydantic.Field(None, ge=1, examples=[500_000])
    """Maximum size of the vocabulary, which keeps the most frequent values of the training rows. null: no limit."""
    min_count: int = pydantic.Field(1, ge=1)
    """Values that occur less often than this in the training rows are not in the vocabulary."""
    oov_buckets: int = pydantic.Field(1, ge=1)
    """Number of out-of-vocabulary ids. A hash of the value selects one of them."""
