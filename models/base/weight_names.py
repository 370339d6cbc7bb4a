"""Stable names of a model's weights, derived from their place in the model.

Keras numbers layers per process: the `path` of the same layer may be `dense_7` in one process and `dense_3` in another.
"""

from collections.abc import Iterator
from typing import Any

import keras

_SEED = "seed_generator_state"  # Keras's name of a random state, which is not a weight
_OF_TENSORFLOW = "_self_"  # prefix of the attributes that TensorFlow adds to a layer


def weight_names(model: keras.Model) -> list[str]:
    """Returns a name for each of `model.variables`, such as `tower.hidden.0.kernel`; "" for a random state."""
    names: dict[int, str] = {}
    for place, layer in _layers(model, "", set()):
        for variable in layer._trainable_variables + layer._non_trainable_variables:
            name = f"{place}{variable.name}"
            same = sum(other == name or other.startswith(f"{name}#") for other in names.values())
            names.setdefault(id(variable), f"{name}#{same}" if same else name)
    return [
        "" if variable.name == _SEED else names.get(id(variable), f"variable_{index}")
        for index, variable in enumerate(model.variables)
    ]


def _layers(layer: keras.layers.Layer, place: str, seen: set[int]) -> Iterator[tuple[str, keras.layers.Layer]]:
    """Yields a layer and all its sublayers, each once, with the prefix of the names of its weights."""
    if id(layer) in seen:
        return
    seen.add(id(layer))
    yield place, layer
    # Keras's private attributes come last. One is the list of all sublayers, the only one with the layers of a
    # Sequential.
    attributes = sorted(vars(layer).items(), key=lambda attribute: attribute[0].startswith("_"))
    for name, value in attributes:
        if not name.startswith(_OF_TENSORFLOW):
            yield from _within(value, f"{place}{name}.", seen)


def _within(value: Any, place: str, seen: set[int]) -> Iterator[tuple[str, keras.layers.Layer]]:
    if isinstance(value, keras.layers.Layer):
        yield from _layers(value, place, seen)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _within(item, f"{place}{index}.", seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _within(item, f"{place}{key}.", seen)
