"""Base class of models with boosted trees, which another library trains."""

from typing import Any


class Boosted:
    """A model whose logits come, at least in part, from boosted trees. It has no useful gradients.

    LightGBM trains the trees after the rest of the model, in the chief's process.
    """

    trees: Any
    """A TreeEnsemble, of value 0 until they are trained."""
