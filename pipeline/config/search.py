"""The values of the `search` section: the range that `ctrpipe tune` searches for a key."""

import pydantic

from ctrpipe.transforms.log.section import Section


class SearchRange(Section):
    """A range of numbers, on a logarithmic or linear scale; whole numbers if the key takes whole numbers.

    Example:
        search: {training.learning_rate: {log: [1e-4, 1e-2]}, model.dropout: {linear: [0, 0.5]}}
    """

    log: list[float] | None = pydantic.Field(None, min_length=2, max_length=2, examples=[[1e-4, 1e-2]])
    """Lowest and highest number, sampled log-uniformly; for learning rates and penalties, whose magnitude matters."""
    linear: list[float] | None = pydantic.Field(None, min_length=2, max_length=2, examples=[[0, 0.5]])
    """Lowest and highest number, sampled uniformly."""

    @pydantic.model_validator(mode="after")
    def _is_one_range(self) -> "SearchRange":
        if (self.log is None) == (self.linear is None):
            raise ValueError("expected {log: [LOW, HIGH]} or {linear: [LOW, HIGH]}")
        low, high = self.ends
        if not low < high:
            raise ValueError(f"the first number of a range should be below the second. Received: [{low:g}, {high:g}]")
        if self.log and low <= 0:
            raise ValueError(f"a logarithmic range begins above 0. Received: {low:g}")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest number."""
        ends = self.log or self.linear
        assert ends is not None  # checked by the validator
        return ends[0], ends[1]
