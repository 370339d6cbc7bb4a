"""Finds and creates models by name, including a user's own model as `package.module:Class`."""

import dataclasses
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ctrpipe.common import foreign
from ctrpipe.common.near import nearest_name
from ctrpipe.common.packages import PACKAGE, PARTS
from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.layers.boosted import Boosted

if TYPE_CHECKING:
    from ctrpipe.models.base.ctr_model import CTRModel

_MODELS = {
    "lr": ("ctrpipe.models.lr", "LR", "-"),
    "lightgbm": ("ctrpipe.models.lightgbm", "LightGBM", "Ke 2017"),
    "fm": ("ctrpipe.models.fm", "FM", "Rendle 2010"),
    "ffm": ("ctrpipe.models.ffm", "FFM", "Juan 2016"),
    "afm": ("ctrpipe.models.afm", "AFM", "Xiao 2017"),
    "mlp": ("ctrpipe.models.mlp", "MLP", "Attention-Net, section 4"),
    "fnn": ("ctrpipe.models.fnn", "FNN", "Zhang 2016"),
    "ccpm": ("ctrpipe.models.ccpm", "CCPM", "Liu 2015"),
    "pnn": ("ctrpipe.models.pnn", "PNN", "Qu 2016"),
    "deepfm": ("ctrpipe.models.deepfm", "DeepFM", "Guo 2017"),
    "wide_deep": ("ctrpipe.models.wide_deep", "WideDeep", "Cheng 2016"),
    "dcn": ("ctrpipe.models.dcn", "DCN", "Wang 2017"),
    "crossnet": ("ctrpipe.models.crossnet", "CrossNet", "xDeepFM, Table 2"),
    "dcn_v2": ("ctrpipe.models.dcn_v2", "DCNv2", "Wang 2021"),
    "dlrm": ("ctrpipe.models.dlrm", "DLRM", "Naumov 2019"),
    "cin": ("ctrpipe.models.cin", "CIN", "xDeepFM, Table 2"),
    "xdeepfm": ("ctrpipe.models.xdeepfm", "XDeepFM", "Lian 2018 (xDeepFM)"),
    "autoint": ("ctrpipe.models.autoint", "AutoInt", "Song 2019"),
    "attention_net": ("ctrpipe.models.attention_net", "AttentionNet", "Attention-Net, section 3"),
    "transformer": ("ctrpipe.models.transformer", "Transformer", "Hiformer, section 4"),
    "transformer_pe": ("ctrpipe.models.transformer_pe", "TransformerPE", "Hiformer, section 4"),
    "hetero_att": ("ctrpipe.models.hetero_att", "HeteroAtt", "Hiformer, section 3.3"),
    "hiformer": ("ctrpipe.models.hiformer", "Hiformer", "Gui 2023 (Hiformer)"),
    "fibinet": ("ctrpipe.models.fibinet", "FiBiNET", "Huang 2019"),
    "mask_net": ("ctrpipe.models.mask_net", "MaskNet", "Wang 2021 (MaskNet)"),
    "edcn": ("ctrpipe.models.edcn", "EDCN", "Chen 2021"),
    "final_mlp": ("ctrpipe.models.final_mlp", "FinalMLP", "Mao 2023"),
    "final_net": ("ctrpipe.models.final_net", "FinalNet", "Zhu 2023"),
    "gdcn": ("ctrpipe.models.gdcn", "GDCN", "Wang 2023 (GDCN)"),
    "ppnet": ("ctrpipe.models.ppnet", "PPNet", "Chang 2023"),
    "pepnet": ("ctrpipe.models.pepnet", "PEPNet", "Chang 2023"),
    "fcn": ("ctrpipe.models.fcn", "FCN", "Li 2024 (FCN, DCNv3)"),
    "wukong": ("ctrpipe.models.wukong", "Wukong", "Zhang 2024"),
    "qnn": ("ctrpipe.models.qnn", "QNN", "Li 2025 (QNN-alpha)"),
    "rank_mixer": ("ctrpipe.models.rank_mixer", "RankMixer", "Zhu 2025"),
    "fism": ("ctrpipe.models.fism", "FISM", "Kabbur 2013"),
    "nais": ("ctrpipe.models.nais", "NAIS", "He 2018"),
    "din": ("ctrpipe.models.din", "DIN", "Zhou 2018"),
    "bst": ("ctrpipe.models.bst", "BST", "Chen 2019"),
    "dien": ("ctrpipe.models.dien", "DIEN", "Zhou 2019"),
    "sim": ("ctrpipe.models.sim", "SIM", "Pi 2020"),
    "sequence_transformer": ("ctrpipe.models.sequence_transformer", "SequenceTransformer", "Vaswani 2017"),
    "hstu": ("ctrpipe.models.hstu", "HSTU", "Zhai 2024"),
    "one_trans": ("ctrpipe.models.one_trans", "OneTrans", "Zhang 2025 (OneTrans)"),
    "two_tower": ("ctrpipe.models.two_tower", "TwoTower", "Yi 2019"),
    "starspace": ("ctrpipe.models.starspace", "StarSpace", "Wu 2018"),
    "mmoe": ("ctrpipe.models.multi_task.mmoe", "MMoE", "Ma 2018 (MMoE)"),
    "ple": ("ctrpipe.models.multi_task.ple", "PLE", "Tang 2020"),
    "esmm": ("ctrpipe.models.multi_task.esmm", "ESMM", "Ma 2018 (ESMM)"),
    "features_only": ("ctrpipe.models.text.features_only", "FeaturesOnly", "BERT4CTR, section 3.2.4"),
    "text_only": ("ctrpipe.models.text.text_only", "TextOnly", "BERT4CTR, section 4.2.1"),
    "numbert": ("ctrpipe.models.text.numbert", "NumBERT", "Zhang 2020; BERT4CTR, section 3.2.1"),
    "numbert_uni_attention": ("ctrpipe.models.text.numbert", "NumBERTUniAttention", "BERT4CTR, section 3.2.2"),
    "numbert_uni_attention_reduced": (
        "ctrpipe.models.text.bert4ctr",
        "NumBERTUniAttentionReduced",
        "BERT4CTR, section 4.2.3",
    ),
    "bert4ctr": ("ctrpipe.models.text.bert4ctr", "BERT4CTR", "Wang 2023 (BERT4CTR)"),
    "shallow_interaction_1": (
        "ctrpipe.models.text.shallow_interaction",
        "ShallowInteraction1",
        "BERT4CTR, section 4.1.3",
    ),
    "shallow_interaction_n": (
        "ctrpipe.models.text.shallow_interaction",
        "ShallowInteractionN",
        "BERT4CTR, section 4.1.3",
    ),
    "cascading_wide_deep": ("ctrpipe.models.text.cascading", "CascadingWideDeep", "BERT4CTR, section 4.1.3"),
    "cascading_deepfm": ("ctrpipe.models.text.cascading", "CascadingDeepFM", "BERT4CTR, section 4.1.3"),
    "cascading_nn_gbdt": ("ctrpipe.models.text.cascading", "CascadingNNGBDT", "BERT4CTR, section 4.1.3; Ling 2017"),
}
_OWN = re.compile(r"[\w.]+:\w+")
_BESIDE = ("name", "encoder")  # keys of a model's section in a configuration that are not hyperparameters
# Hyperparameters that may also be None.
_OPTIONAL = ("top_k", "rank", "qk_rank", "v_rank")
# Hyperparameters that may also be a list with a value per hidden layer.
_PER_LAYER = ("dropout",)


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """The description of a model in the registry.

    Args:
        name: The name that a configuration gives as `model.name`.
        paper: The paper that the model comes from.
        description: The first line of the model's docstring.
        options: The model's hyperparameters and their defaults.
        needs_text: Whether the data must have a text.
        needs_history: Whether the data must have a sequence that shares the vocabulary of the candidate's column.
        needs_items: Whether the data must mark the candidate's columns.
        needs_tasks: Whether the data must have several tasks.
    """

    name: str
    paper: str
    description: str
    options: dict[str, Any]
    needs_text: bool
    needs_history: bool = False
    needs_items: bool = False
    needs_tasks: bool = False


def create(name: str, feature_map: FeatureMap, **hyperparameters: Any) -> "CTRModel":
    """Creates a model for the data that `feature_map` describes.

    Args:
        name: A name of the registry, or `package.module:Class`.
        feature_map: The description of the packed tensors.
        **hyperparameters: Hyperparameters of the model; the others keep their defaults.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> type(create("deepfm", feature_map, embedding_dim=4, hidden_units=[8])).__name__
        'DeepFM'

    Raises:
        ValueError: there is no such model or hyperparameter, or the model rejects a value.
    """
    check_hyperparameters(name, **hyperparameters)
    model = model_class(name)(feature_map, **hyperparameters)
    model.check_used(name)
    return model


def check_hyperparameters(name: str, **hyperparameters: Any) -> None:
    """Checks a model's hyperparameters before it is created.

    Raises:
        ValueError: the model or a hyperparameter does not exist, a value has the wrong type, or one without a default
            is not given.
    """
    check_values(name, known_options(name), hyperparameters)
    check_none_missing(name, hyperparameters)


def known_options(name: str) -> dict[str, Any]:
    """Returns a model's hyperparameters with their defaults. The value of one without a default is None.

    Raises:
        ValueError: see `model_class`.
    """
    model = model_class(name)
    return {**dict.fromkeys(model.options_without_default()), **model.options()}


def check_none_missing(name: str, hyperparameters: Mapping[str, Any]) -> None:
    """Raises ValueError if a hyperparameter without a default is not given."""
    for needed in model_class(name).required_options():
        if needed not in hyperparameters:
            raise ValueError(f"{name}: the hyperparameter '{needed}' has no default; set it")


def check_values(name: str, options: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> None:
    """Checks hyperparameters against a model's options, which may come from a stored table.

    Args:
        name: The model's name, for messages.
        options: The model's hyperparameters and their defaults.
        hyperparameters: The hyperparameters to check.

    Raises:
        ValueError: a hyperparameter does not exist, a value has the wrong type, or embeddings have no width.
    """
    for key, value in hyperparameters.items():
        if key not in options:
            raise ValueError(f"{name} has no hyperparameter {_suggest(key, options, _BESIDE)}")
        allowed = key in _OPTIONAL and (value is None or _fits(value, 1))
        allowed |= key in _PER_LAYER and _fits(value, [0.0])
        if not allowed and not _fits(value, options[key]):
            raise ValueError(f"{name}: {key} should be like its default {options[key]!r}. Received: {value!r}")
        if key == "embedding_dim":
            require_positive(embedding_dim=value)


def _fits(value: Any, default: Any) -> bool:
    """Returns whether a value has the type of a default; an int also fits a float default."""
    if isinstance(default, bool | str):
        return isinstance(value, type(default))
    if isinstance(default, int):
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, Mapping):
        return isinstance(value, Mapping)
    if isinstance(default, list | tuple):
        item_default = default[0] if default else 1
        return isinstance(value, list | tuple) and all(_fits(item, item_default) for item in value)
    return True  # a default of None implies no type


def available() -> tuple[ModelInfo, ...]:
    """Returns all models of the registry, ordered by name."""
    models = []
    for name, (_, _, paper) in sorted(_MODELS.items()):
        model = model_class(name)
        description = str(inspect.getdoc(model)).splitlines()[0]
        needs = model.needs_text, model.needs_history, model.needs_items, model.needs_tasks
        models.append(ModelInfo(name, paper, description, model.options(), *needs))
    return tuple(models)


def model_class(name: str) -> type["CTRModel"]:
    """Returns the class of a model.

    Args:
        name: A name of the registry; or `package.module:Class`, with a module that is installed or in the working
            directory.

    Raises:
        ValueError: there is no such model, or the class is not a CTRModel.
    """
    if ":" in name:
        return _own_class(name)
    if name not in _MODELS:
        raise ValueError(f"There is no model {_suggest(name, _MODELS)}")
    module, attribute, _ = _MODELS[name]
    model: type[CTRModel] = getattr(importlib.import_module(module), attribute)
    return model


def derives_from(name: str, base: str) -> bool:
    """Returns whether the class of a model is the class of the registry's model `base`, or a subclass.

    Raises:
        ValueError: see `model_class`.
    """
    return issubclass(model_class(name), model_class(base))


def is_boosted(name: str) -> bool:
    """Returns whether a model contains boosted trees.

    Raises:
        ValueError: see `model_class`.
    """
    return issubclass(model_class(name), Boosted)


def foreign_code(name: str, hyperparameters: Mapping[str, Any]) -> list[str]:
    """Returns the classes outside ctrpipe that `create` would import, as `module:Class`.

    An untrusted file can name such classes, and importing a module runs it. Modules that this process has already
    imported are not listed.
    """
    classes = dict.fromkeys(text for text in _texts([name, hyperparameters]) if _OWN.fullmatch(text))
    modules = {own: own.partition(":")[0] for own in classes}
    return [own for own, module in modules.items() if module not in sys.modules and module.split(".")[0] != PACKAGE]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def source_of(name: str) -> str:
    """Returns a hash of the source of a user's own model and of the neighbouring modules that it imports.

    Returns "" for a model of the registry.

    Raises:
        ValueError: see `model_class`.
    """
    if ":" not in name:
        return ""
    return foreign.source_hash(*sorted({model_class(name).__module__, name.partition(":")[0]}))


def _own_class(name: str) -> type["CTRModel"]:
    from ctrpipe.models.base.ctr_model import CTRModel  # lazy: Keras takes 4 s, and `ctrpipe --help` does not need it

    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: a user's file must not hide a library
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        reason = foreign.reason(error)
        where = f"its module should be installed or lie in the working directory {os.getcwd()}"
        if isinstance(error, ImportError) and str(error.name).partition(".")[0] in PARTS:
            where = (
                f"what 0.2 called {error.name} is now {_name_now(str(error.name))}; change the imports of {module_name}"
            )
        raise ValueError(f"The model '{name}' cannot be imported ({reason}); {where}") from error
    foreign.called(module_name)
    own = getattr(module, attribute, None)
    if own is None:
        raise ValueError(f"The model '{name}' does not exist: {module.__file__} has no class '{attribute}'")
    if not (isinstance(own, type) and issubclass(own, CTRModel)):
        raise ValueError(f"The model '{name}' should be a subclass of ctrpipe.models.CTRModel. Received: {own!r}")
    return own


def _name_now(old: str) -> str:
    """Returns the current dotted name of a module that was at the top level in ctrpipe 0.2."""
    part, _, module = old.partition(".")
    base = f"ctrpipe.{part}.base.{module}"
    return base if part == "models" and module and importlib.util.find_spec(base) else f"ctrpipe.{old}"


def _suggest(name: str, known: Iterable[str], beside: Iterable[str] = ()) -> str:
    """Returns a hint for an unknown name: the most similar known name, or all known names."""
    names = list(known)
    near = nearest_name(name, [*names, *beside])
    hint = f"did you mean '{near}'?" if near is not None else f"known: {', '.join(sorted(names))}"
    return f"'{name}'; {hint}"
