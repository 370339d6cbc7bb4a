"""Models by name."""

import dataclasses
import difflib
import importlib
import inspect
from typing import Any

from models.feature_map import FeatureMap

_MODELS = {
    "lr": ("models.lr", "LR", "-"),
    "fm": ("models.fm", "FM", "Rendle 2010"),
    "ffm": ("models.ffm", "FFM", "Juan 2016"),
    "afm": ("models.afm", "AFM", "Xiao 2017"),
    "mlp": ("models.mlp", "MLP", "Attention-Net, section 4"),
    "fnn": ("models.fnn", "FNN", "Zhang 2016"),
    "ccpm": ("models.ccpm", "CCPM", "Liu 2015"),
    "pnn": ("models.pnn", "PNN", "Qu 2016"),
    "deepfm": ("models.deepfm", "DeepFM", "Guo 2017"),
    "wide_deep": ("models.wide_deep", "WideDeep", "Cheng 2016"),
    "dcn": ("models.dcn", "DCN", "Wang 2017"),
    "crossnet": ("models.crossnet", "CrossNet", "xDeepFM, Table 2"),
    "dcn_v2": ("models.dcn_v2", "DCNv2", "Wang 2021"),
    "dlrm": ("models.dlrm", "DLRM", "Naumov 2019"),
    "cin": ("models.cin", "CIN", "xDeepFM, Table 2"),
    "xdeepfm": ("models.xdeepfm", "XDeepFM", "Lian 2018 (xDeepFM)"),
    "autoint": ("models.autoint", "AutoInt", "Song 2019"),
    "attention_net": ("models.attention_net", "AttentionNet", "Attention-Net, section 3"),
    "transformer": ("models.transformer", "Transformer", "Hiformer, section 4"),
    "transformer_pe": ("models.transformer_pe", "TransformerPE", "Hiformer, section 4"),
    "hetero_att": ("models.hetero_att", "HeteroAtt", "Hiformer, section 3.3"),
    "hiformer": ("models.hiformer", "Hiformer", "Gui 2023 (Hiformer)"),
    "features_only": ("models.text.features_only", "FeaturesOnly", "BERT4CTR, section 3.2.4"),
    "text_only": ("models.text.text_only", "TextOnly", "BERT4CTR, section 4.2.1"),
    "numbert": ("models.text.numbert", "NumBERT", "Zhang 2020; BERT4CTR, section 3.2.1"),
    "numbert_uni_attention": ("models.text.numbert", "NumBERTUniAttention", "BERT4CTR, section 3.2.2"),
    "numbert_uni_attention_reduced": (
        "models.text.bert4ctr",
        "NumBERTUniAttentionReduced",
        "BERT4CTR, section 4.2.3",
    ),
    "bert4ctr": ("models.text.bert4ctr", "BERT4CTR", "Wang 2023 (BERT4CTR)"),
    "shallow_interaction_1": ("models.text.shallow_interaction", "ShallowInteraction1", "BERT4CTR, section 4.1.3"),
    "shallow_interaction_n": ("models.text.shallow_interaction", "ShallowInteractionN", "BERT4CTR, section 4.1.3"),
    "cascading_wide_deep": ("models.text.cascading", "CascadingWideDeep", "BERT4CTR, section 4.1.3"),
    "cascading_deepfm": ("models.text.cascading", "CascadingDeepFM", "BERT4CTR, section 4.1.3"),
    "cascading_nn_gbdt": ("models.text.cascading", "CascadingNNGBDT", "BERT4CTR, section 4.1.3; Ling 2017"),
}
# Hyperparameters that may also be None.
_OPTIONAL = ("top_k", "rank", "qk_rank", "v_rank")


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """A model of the registry: its name, where it comes from, what it is, its options with their defaults, and whether
    it reads a text."""

    name: str
    paper: str
    description: str
    options: dict[str, Any]
    needs_text: bool


def create(name: str, feature_map: FeatureMap, **hyperparameters: Any):
    """A model for the data that `feature_map` describes.

    Raises:
        ValueError: no such model, no such hyperparameter, or an impossible value.
    """
    check_hyperparameters(name, **hyperparameters)
    return model_class(name)(feature_map, **hyperparameters)


def check_hyperparameters(name: str, **hyperparameters: Any) -> None:
    """Raises ValueError when the model or one of the hyperparameters does not exist."""
    options = model_class(name).options()
    for key, value in hyperparameters.items():
        if key not in options:
            raise ValueError(f"{name} has no hyperparameter {_suggest(key, options)}")
        if not _fits(value, options[key]) and not (key in _OPTIONAL and _fits(value, 1) | (value is None)):
            raise ValueError(f"{name}: {key} should be like its default {options[key]!r}. Received: {value!r}")


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, bool | str):
        return isinstance(value, type(default))
    if isinstance(default, int):
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    kind = str if default and isinstance(default[0], str) else int
    return isinstance(value, list | tuple) and all(isinstance(item, kind) for item in value)


def available() -> tuple[ModelInfo, ...]:
    """All models, by name."""
    found = []
    for name, (_, _, paper) in sorted(_MODELS.items()):
        model = model_class(name)
        found.append(
            ModelInfo(name, paper, str(inspect.getdoc(model)).splitlines()[0], model.options(), model.needs_text)
        )
    return tuple(found)


def model_class(name: str):
    """The class of a model; ValueError where there is none of that name."""
    if name not in _MODELS:
        raise ValueError(f"There is no model {_suggest(name, _MODELS)}")
    module, attribute, _ = _MODELS[name]
    return getattr(importlib.import_module(module), attribute)


def _suggest(name: str, known) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(known))}"
    return f"'{name}'; {hint}"
