"""The default search space of a model, for configurations without `search`."""

from typing import Any

from ctrpipe.models.base.registry import derives_from, model_class
from ctrpipe.pipeline.config import RunConfig, SearchRange

Values = list[Any] | SearchRange

# The steps that random weights need would damage a pretrained encoder (BERT, appendix A.3).
LEARNING_RATE = SearchRange(log=[1e-4, 3e-2])
TEXT_LEARNING_RATE = SearchRange(log=[1e-5, 1e-3])
# Penalties on the network's kernels; on all rows of the embedding tables; and on only the rows of a batch, for
# optimizers that update no other rows.
NETWORK_PENALTY = SearchRange(log=[1e-7, 1e-2])
TABLE_PENALTY, BATCH_PENALTY = SearchRange(log=[1e-7, 1e-2]), SearchRange(log=[1e-7, 1e-1])
_DROPOUT = SearchRange(linear=[0.0, 0.5])
_UNITS = [[64, 32], [128, 64], [200, 100], [400, 400]]
# By model option. `layers` is the number of attention or cross layers; `maps` is the number of maps per layer of a
# compressed interaction network.
OPTIONS: dict[str, Values] = {
    "embedding_dim": [8, 16, 32],
    "embedding_dropout": _DROPOUT,
    "hidden_units": _UNITS,
    "dropout": _DROPOUT,
    "layers": [1, 2, 3],
    "maps": [[16, 16], [50, 50], [100, 100]],
    "attention_units": [8, 16, 32],
    "attention_dim": [16, 32, 64],
    "linear_rate": SearchRange(log=[1.0, 30.0]),
    "trees": [30, 100, 300],
}
# The text encoder is most of the model, so few other options matter.
TEXT_OPTIONS: dict[str, Values] = {
    key: OPTIONS[key] for key in ("embedding_dropout", "hidden_units", "dropout", "trees")
}
_SECOND_UNITS: Values = [[32], [64, 32], [200, 100]]
_NORMALISED: dict[str, Values] = {"normalises": [True, False]}
_TOKENS: dict[str, Values] = {
    "embedding_dim": [32, 64, 128],
    "hidden_units": [[64], [128], [256]],
    "ffn_dim": [128, 256, 512],
}
_WITH_RANKS: dict[str, Values] = {**_TOKENS, "qk_rank": [32, 64, 128], "v_rank": [256, 512, 1024]}
# By model. These replace the entries above.
MODELS: dict[str, dict[str, Values]] = {
    "ffm": {"embedding_dim": [2, 4, 8]},
    "transformer": _TOKENS,
    "transformer_pe": _TOKENS,
    "hetero_att": _TOKENS,
    "hiformer": _WITH_RANKS,
    "din": {"attention_hidden_units": [[40, 20], [80, 40]]},
    "sequence_transformer": {"width": [16, 32, 64], "ffn_dim": [64, 128, 256]},
    "autoint": {"deep_units": [[], *_UNITS], "hidden_units": [[]]},
    "fibinet": {"bilinear": ["all", "each", "interaction"]},
    "mask_net": {
        "structure": ["serial", "parallel"],
        "hidden_units": [[64, 64], [64, 64, 64], [200, 100]],
        **_NORMALISED,
    },
    "edcn": {"bridge": ["product", "sum", "concat", "attention"]},
    "final_mlp": {"second_units": _SECOND_UNITS, "second_dropout": _DROPOUT},
    "final_net": {"second_units": _SECOND_UNITS, "second_dropout": _DROPOUT, "normalization": ["batch", "none"]},
    "gdcn": {"structure": ["parallel", "stacked"]},
    "fcn": {
        "exponential_layers": [1, 2, 3],
        "linear_layers": [1, 2, 3],
        "exponential_dropout": _DROPOUT,
        "linear_dropout": _DROPOUT,
        **_NORMALISED,
    },
    "wukong": {"products": [4, 8, 16], "compressed": [4, 8, 16], "hidden_units": [[32], [64, 32]], **_NORMALISED},
    "qnn": {"products": [1, 2, 4], "normalization": ["batch", "layer", "none"]},
    # Widths that every number of tokens divides.
    "rank_mixer": {
        "tokens": [4, 8, 16],
        "token_dim": [16, 32, 64],
        "ffn_dim": [32, 64, 128],
        "hidden_units": [[], [64, 32]],
    },
    "pepnet": {"gate_units": [16, 32, 64]},
    "ppnet": {"gate_units": [16, 32, 64]},
    "bst": {"ffn_dim": [32, 64, 128]},
    "dien": {"units": [16, 32, 64]},
    "hstu": {"width": [16, 32, 64]},
    "one_trans": {"width": [16, 32, 64], "ffn_dim": [32, 64, 128]},
    "sim": {"search_units": [8, 16, 32], "key_dim": [8, 16, 32]},
}
# For `lightgbm`. The validation rows choose its number of trees and the regression's penalty.
TREES: dict[str, Values] = {
    "model.rate": SearchRange(log=[0.02, 0.2]),
    "model.leaves": [7, 15, 31],
    "model.columns": [0.4, 0.7, 1.0],
    "model.leaf_rows": [20, 50, 200],
    "model.leaf_l2": SearchRange(log=[0.3, 30.0]),
}


def default_space(config: RunConfig) -> dict[str, Values]:
    """Returns the keys of the configuration that `ctrpipe tune` searches by default for its model, with their values.

    They include the configuration's own values, because the first trial is the configuration itself. A logarithmic
    range cannot include a penalty of 0; its lowest number then stands for 0.

    Raises:
        ValueError: there is no such model.
    """
    name = config.model.name
    if derives_from(name, "lightgbm"):
        return dict(TREES)
    model = model_class(name)
    options = model.options()
    chosen = (TEXT_OPTIONS if model.needs_text else OPTIONS) | MODELS.get(name, {})
    used = {**options, **config.model.hyperparameters}
    if name == "lr" or not used.get("use_linear"):  # a logistic regression has only the learning rate
        chosen = {key: values for key, values in chosen.items() if key != "linear_rate"}
    space: dict[str, Values] = {
        "training.learning_rate": TEXT_LEARNING_RATE if model.needs_text else LEARNING_RATE,
    }
    if not model.needs_text:
        space |= _penalties(config)
    space |= {f"model.{key}": values for key, values in chosen.items() if key in options and values != [[]]}
    return {key: _with_own(values, own_value(config, key)) for key, values in space.items()}


def own_value(config: RunConfig, key: str) -> Any:
    """Returns a key's value in the configuration, or its default. None if it has neither."""
    section, *parts = key.split(".")
    place: Any = config.training.model_dump(mode="json")
    if section == "model":
        place = {**model_class(config.model.name).options(), **config.model.hyperparameters}
    for part in parts:
        if not isinstance(place, dict) or part not in place:
            return None
        place = place[part]
    return list(place) if isinstance(place, tuple) else place


def _with_own(values: Values, own: Any) -> Values:
    """Adds the configuration's own value to a list, or widens a range to include it."""
    if own is None:
        return values
    if not isinstance(values, SearchRange):
        return values if own in values else [own, *values]
    low, high = values.ends
    if low <= own <= high or (values.log and own <= 0):
        return values
    ends = [min(low, own), max(high, own)]
    return SearchRange(log=ends) if values.log else SearchRange(linear=ends)


def _penalties(config: RunConfig) -> dict[str, Values]:
    name = config.model.name
    has_network = name != "lr" and "l2" in model_class(name).options()  # in a logistic regression, l2 is on the table
    network: dict[str, Values] = {"training.network_l2": NETWORK_PENALTY} if has_network else {}
    if config.training.optimizer == "adam":
        return {"training.table_l2": TABLE_PENALTY, **network}
    return {"model.l2" if name == "lr" else "model.embedding_l2": BATCH_PENALTY, **network}
