"""Models by name."""

import dataclasses
import difflib
import importlib
import inspect
from typing import Any

from models.feature_map import FeatureMap

_MODELS = {
    "lr": ("models.lr", "LR", "-"),
    "mlp": ("models.mlp", "MLP", "Attention-Net, section 4 (vanilla MLP)"),
    "attention_net": ("models.attention_net", "AttentionNet", "Attention-Net, section 3"),
}


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """A model of the registry: its name, where it comes from, what it is, its options with their defaults."""

    name: str
    paper: str
    description: str
    options: dict[str, Any]


def create(name: str, feature_map: FeatureMap, **hyperparameters: Any):
    """A model for the data that `feature_map` describes.

    Raises:
        ValueError: no such model, no such hyperparameter, or an impossible value.
    """
    check_hyperparameters(name, **hyperparameters)
    return _class(name)(feature_map, **hyperparameters)


def check_hyperparameters(name: str, **hyperparameters: Any) -> None:
    """Raises ValueError when the model or one of the hyperparameters does not exist."""
    options = _options(_class(name))
    for key, value in hyperparameters.items():
        if key not in options:
            raise ValueError(f"{name} has no hyperparameter {_suggest(key, options)}")
        default = options[key]
        if isinstance(default, bool) or isinstance(default, str):
            fits = isinstance(value, type(default))
        elif isinstance(default, int | float):
            fits = isinstance(value, int | float) and not isinstance(value, bool) or value is None and key == "top_k"
        else:
            fits = isinstance(value, list | tuple) and all(isinstance(item, int) for item in value)
        if not fits:
            raise ValueError(f"{name}: {key} should be like its default {default!r}. Received: {value!r}")


def available() -> tuple[ModelInfo, ...]:
    """All models, by name."""
    found = []
    for name, (_, _, paper) in sorted(_MODELS.items()):
        model = _class(name)
        found.append(ModelInfo(name, paper, str(inspect.getdoc(model)).splitlines()[0], _options(model)))
    return tuple(found)


def _class(name: str):
    if name not in _MODELS:
        raise ValueError(f"There is no model {_suggest(name, _MODELS)}")
    module, attribute, _ = _MODELS[name]
    return getattr(importlib.import_module(module), attribute)


def _options(model) -> dict[str, Any]:
    parameters = inspect.signature(model.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _suggest(name: str, known) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"'{name}'{hint} It has: {', '.join(sorted(known))}" if not close else f"'{name}'{hint}"
