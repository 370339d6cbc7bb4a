"""The models that read numbers as the log has them, for which the transform packs them.

Apart from the registry, so that a configuration, on which nearly all stages depend, does not depend on every model.
"""

_MODELS = ("numbert", "numbert_uni_attention")


def reads_numbers(name: str) -> bool:
    """Returns whether a model of the registry reads numbers as the log has them (see NumberTokens)."""
    return name in _MODELS
