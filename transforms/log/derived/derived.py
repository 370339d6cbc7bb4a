"""The base class of derived columns: columns that are computed from others of the same row, in the served graph too."""

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
    """A derived column. Requests and logs hold the columns it is made of, its sources."""

    makes: ClassVar[tuple[str, ...]]
    """The kinds of features that its values can be."""

    @property
    def aligned(self) -> tuple[str, ...]:
        """The columns whose lists have the same length; the last one has numbers. () if there are none."""
        return ()

    @abc.abstractmethod
    def sources(self) -> dict[str, Source]:
        """Returns the columns it is made of, each with how it is read if it is no feature itself."""

    def faults(self, features: Mapping[str, Kind]) -> Iterator[str]:
        """Yields why it cannot be made of its sources as features read them.

        Args:
            features: How each source is read.
        """
        for name in self.sources():
            if not features[name].is_number:
                yield f"{name} is of kind {kind_of(features[name])}, no number"

    def does_not_fit(self, column: str, feature: Any) -> str:
        """Returns why a feature cannot read its values; "" if it can."""
        if feature.kind not in self.makes:
            return f"{column} is of kind {feature.kind}; its values need kind {' or '.join(self.makes)}"
        return ""


def kind_of(feature: Kind) -> str:
    """Returns the name of a feature's kind."""
    return str(getattr(feature, "kind", ""))
