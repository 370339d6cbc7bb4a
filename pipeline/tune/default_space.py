"""What is searched where a configuration has no `search`: the settings that matter, by the options that a model has."""

from typing import Any

from ctrpipe.models.base.registry import model_class
from ctrpipe.pipeline.config import Range, RunConfig

Values = list[Any] | Range

# A pretrained encoder is spoilt by the steps that random weights need (BERT, appendix A.3).
LEARNING_RATE = Range(log=[1e-4, 3e-2])
TEXT_LEARNING_RATE = Range(log=[1e-5, 1e-3])
# On the network's kernels; on all rows of the tables; and on a batch's rows, for optimizers that update no others.
NETWORK_PENALTY = Range(log=[1e-7, 1e-2])
TABLE_PENALTY, BATCH_PENALTY = Range(log=[1e-7, 1e-2]), Range(log=[1e-7, 1e-1])
_DROPOUT = Range(linear=[0.0, 0.5])
_UNITS = [[64, 32], [128, 64], [200, 100], [400, 400]]
# By option of a model. `layers` counts attention or cross layers, `maps` those of a compressed interaction network.
OPTIONS: dict[str, Values] = {
    "embedding_dim": [8, 16, 32],
    "embedding_dropout": _DROPOUT,
    "hidden_units": _UNITS,
    "dropout": _DROPOUT,
    "layers": [1, 2, 3],
    "maps": [[16, 16], [50, 50], [100, 100]],
    "attention_units": [8, 16, 32],
    "attention_dim": [16, 32, 64],
    "linear_rate": Range(log=[1.0, 30.0]),
    "trees": [30, 100, 300],
}
# A text's encoder is most of the model, so that few of its other options matter.
TEXT_OPTIONS: dict[str, Values] = {
    key: OPTIONS[key] for key in ("embedding_dropout", "hidden_units", "dropout", "trees")
}
_TOKENS: dict[str, Values] = {
    "embedding_dim": [32, 64, 128],
    "hidden_units": [[64], [128], [256]],
    "ffn_dim": [128, 256, 512],
}
_WITH_RANKS: dict[str, Values] = {**_TOKENS, "qk_rank": [32, 64, 128], "v_rank": [256, 512, 1024]}
# By model, in place of those above.
MODELS: dict[str, dict[str, Values]] = {
    "ffm": {"embedding_dim": [2, 4, 8]},
    "transformer": _TOKENS,
    "transformer_pe": _TOKENS,
    "hetero_att": _TOKENS,
    "hiformer": _WITH_RANKS,
    "din": {"attention_hidden_units": [[40, 20], [80, 40]]},
    "sequence_transformer": {"width": [16, 32, 64], "ffn_dim": [64, 128, 256]},
    "autoint": {"deep_units": [[], *_UNITS], "hidden_units": [[]]},
}


def default_space(config: RunConfig) -> dict[str, Values]:
    """Returns keys of the configuration and the values that `ctrpipe tune` tries, for its model.

    Raises:
        ValueError: there is no such model.
    """
    name = config.model.name
    model = model_class(name)
    options = model.options()
    chosen = (TEXT_OPTIONS if model.needs_text else OPTIONS) | MODELS.get(name, {})
    used = {**options, **config.model.hyperparameters}
    if name == "lr" or not used.get("use_linear"):  # a logistic regression has the learning rate alone
        chosen = {key: values for key, values in chosen.items() if key != "linear_rate"}
    space: dict[str, Values] = {
        "training.learning_rate": TEXT_LEARNING_RATE if model.needs_text else LEARNING_RATE,
    }
    if not model.needs_text:
        space |= _penalties(config)
    space |= {f"model.{key}": values for key, values in chosen.items() if key in options and values != [[]]}
    return space


def _penalties(config: RunConfig) -> dict[str, Values]:
    name = config.model.name
    has_network = name != "lr" and "l2" in model_class(name).options()  # a logistic regression's is on its table
    network: dict[str, Values] = {"training.network_l2": NETWORK_PENALTY} if has_network else {}
    if config.training.optimizer == "adam":
        return {"training.table_l2": TABLE_PENALTY, **network}
    return {"model.l2" if name == "lr" else "model.embedding_l2": BATCH_PENALTY, **network}
