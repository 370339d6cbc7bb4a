"""Names the models that read raw numbers; the transform packs the log's numbers for them.

This module is separate from the registry: nearly all stages depend on the configuration, and the configuration must not
depend on every model.
"""

_MODELS = ("numbert", "numbert_uni_attention")


def reads_numbers(name: str) -> bool:
    """Returns whether a model of the registry reads the raw numbers of the log (see NumberTokens)."""
    return name in _MODELS
