"""The base class of derived columns, which are computed from other columns of the same row, also in the served
graph.
"""

import abc
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.kinds.multivalent import Multivalent
from ctrpipe.transforms.log.kinds.numeric import Numeric
from ctrpipe.transforms.log.section import Section

Source = Numeric | Categorical | Multivalent  # how a column is read that derived columns are made of


class Derived(Section, abc.ABC):
    """A derived column. Logs and requests hold its sources: the columns that it is computed from."""

    makes: ClassVar[tuple[str, ...]]
    """The kinds of features that its values can be."""

    @property
    def aligned(self) -> tuple[str, ...]:
        """The source columns whose lists must have equal lengths; the last one holds numbers. () if there are none."""
        return ()

    @abc.abstractmethod
    def sources(self) -> dict[str, Source]:
        """Maps each source column to its kind for reading, which applies if it is not a feature itself."""

    def faults(self, features: Mapping[str, Kind]) -> Iterator[str]:
        """Yields the reasons why the column cannot be computed from its sources as they are read.

        Args:
            features: How each source is read.
        """
        for name in self.sources():
            if not features[name].is_number:
                yield f"{name} is of kind {kind_of(features[name])}, no number"

    def does_not_fit(self, column: str, feature: Any) -> str:
        """Returns why a feature cannot read the column; "" if it can."""
        if feature.kind not in self.makes:
            return f"{column} is of kind {feature.kind}; its values need kind {' or '.join(self.makes)}"
        return ""


def kind_of(feature: Kind) -> str:
    """Returns the name of a feature's kind."""
    return str(getattr(feature, "kind", ""))
