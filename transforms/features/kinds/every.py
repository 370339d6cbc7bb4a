"""The transform of each kind."""

from typing import Any

from ctrpipe.transforms.features.kinds.categorical import CategoricalTransform
from ctrpipe.transforms.features.kinds.kind import KindTransform
from ctrpipe.transforms.features.kinds.multivalent import MultivalentTransform
from ctrpipe.transforms.features.kinds.numeric import NumericTransform
from ctrpipe.transforms.features.kinds.sequence import SequenceTransform
from ctrpipe.transforms.features.kinds.text import TextTransform
from ctrpipe.transforms.features.kinds.time import TimeTransform
from ctrpipe.transforms.features.kinds.vector import VectorTransform
from ctrpipe.transforms.log.spec import Feature, LogSpec

_BY_KIND: dict[str, type[KindTransform[Any]]] = {
    "numeric": NumericTransform,
    "categorical": CategoricalTransform,
    "multivalent": MultivalentTransform,
    "sequence": SequenceTransform,
    "time": TimeTransform,
    "vector": VectorTransform,
    "text": TextTransform,
}


def transform_of(feature: Feature, spec: LogSpec) -> KindTransform[Any]:
    """Returns the transform of a feature of the log."""
    return _BY_KIND[feature.kind](feature, spec)
