"""The kind `multivalent`."""

from collections.abc import Iterator
from typing import Literal

import pydantic

from ctrpipe.transforms.log.kinds.kind import Seen, WithVocabulary


class Multivalent(WithVocabulary):
    """Several values in one string, such as `615|1545|75`. The field's embedding is the sum of their embeddings.

    Example:
        features: [{columns: [interests], kind: multivalent, max_length: 10, top_k: 50000}]
    """

    kind: Literal["multivalent"]
    """The kind of feature."""
    separator: str = pydantic.Field("|", min_length=1)
    """Separator between two values."""
    max_length: int = pydantic.Field(ge=1, examples=[10])
    """Maximum number of values; further values of the string are ignored."""

    @property
    def list_separator(self) -> str | None:
        return self.separator

    def has_vocabulary(self, column: str) -> bool:
        return True

    def slots(self, column: str) -> dict[str, int]:
        return {column: self.max_length}

    def meaning(self, column: str) -> tuple[object, ...]:
        return (self.kind, self.role, self.max_length, column, "sum")

    def notes(self, column: str, seen: Seen) -> Iterator[str]:
        yield from seen.list_notes(column, self.separator)
