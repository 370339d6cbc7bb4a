"""Models with boosted trees, which another library trains."""

from typing import Any


class Boosted:
    """A model whose logits are, at least in part, those of boosted trees. It has no useful gradients.

    The trees are trained by LightGBM, after the rest of the model and in the chief's process.
    """

    trees: Any
    """A TreeEnsemble, of value 0 until they are trained."""
