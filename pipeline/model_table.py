"""`ctrpipe models`: every model with its paper, its size and its options."""

import dataclasses
import pathlib
from typing import Any

import rich.console
import rich.markup
import rich.table

from common.errors import InputError, one_line
from models.ctr_model import CTRModel
from models.feature_map import RESERVED_IDS, FeatureMap, Text
from models.registry import ModelInfo, available
from pipeline.config import Model, RunConfig, load_config
from pipeline.training.network import build_network
from pipeline.training.text_encoder import with_encoder
from transforms.features.preprocessing import layout
from transforms.log.spec import Categorical, Multivalent
from transforms.log.spec import Text as TextFeature

REFERENCE_FIELDS, REFERENCE_IDS = 39, 5000
REFERENCE_TEXT = 64, 30522  # BERT4CTR's length, BERT's vocabulary
TABLE_WIDTH = 160  # where the output is no terminal


def describe_models(config: pathlib.Path | None = None) -> tuple[str, list[dict[str, Any]]]:
    """What the sizes are for, and per model `name`, `paper`, `description`, `options`, `parameters` and
    `parameters_without_embeddings` (None where the data cannot be the model's).

    Args:
        config: A run's configuration, whose features are taken, vocabularies full, and whose model has its options;
            else 39 fields of 5,000 ids each and the defaults.

    Raises:
        InputError: the configuration cannot be used, or has a vocabulary without top_k.
    """
    if config is None:
        fields = [
            (f"field_{i}", "categorical", REFERENCE_IDS - RESERVED_IDS, 1, "feature") for i in range(REFERENCE_FIELDS)
        ]
        where = f"{REFERENCE_FIELDS} fields of {REFERENCE_IDS:,} ids"
        features = FeatureMap.from_sizes(fields)
        with_text = dataclasses.replace(features, text=Text(*REFERENCE_TEXT))
        where = f"{where}; a text of {REFERENCE_TEXT[0]} tokens of {REFERENCE_TEXT[1]:,}, through BERT-Base"
        return where, [_describe(info, with_text if info.needs_text else features, {}) for info in available()]
    loaded = load_config(config)
    features = _full_vocabularies(config, loaded)
    where = (
        f"{config}: {len(features.fields)} fields of {features.total_ids:,} ids together, {len(features.dense)} dense"
    )
    model = with_encoder(loaded.model, loaded.text)
    chosen = {model.name: model.hyperparameters}
    return where, [_describe(info, features, chosen.get(info.name, {})) for info in available()]


def _full_vocabularies(path: pathlib.Path, config: RunConfig) -> FeatureMap:
    def size(column: str, feature: Categorical | Multivalent | TextFeature) -> int:
        if feature.top_k is None:
            raise InputError(f"{path}: {column} has no top_k, so its vocabulary's size is not known before a run")
        return feature.top_k

    return layout(config.log_spec, size)


def _describe(info: ModelInfo, features: FeatureMap, hyperparameters: dict[str, Any]) -> dict[str, Any]:
    from pipeline.sweep.measure import count_parameters

    parameters = without = None
    try:
        network = build_network(Model(name=info.name, **hyperparameters), features, seed=0)
    except ValueError as error:
        if hyperparameters:
            raise InputError(f"{info.name}: {one_line(error)}") from error
    else:
        parameters, tables = count_parameters(network)
        without = parameters - tables
    options = {**info.options, **hyperparameters}
    sizes = {"parameters": parameters, "parameters_without_embeddings": without}
    return {"name": info.name, "paper": info.paper, "description": info.description, "options": options, **sizes}


def print_models(where: str, models: list[dict[str, Any]]) -> None:
    """The table; options that every model has with the same default stand below it."""
    shared = CTRModel.options()
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=TABLE_WIDTH)
    table = rich.table.Table(title=f"Parameters: {where}", show_lines=True)
    table.add_column("model\npaper")
    table.add_column("parameters\nwithout embeddings", justify="right", no_wrap=True)
    table.add_column("what it is\noptions and their defaults", overflow="fold")
    for model in models:
        own = {key: value for key, value in model["options"].items() if key not in shared or value != shared[key]}
        size = f"{_number(model['parameters'])}\n{_number(model['parameters_without_embeddings'])}"
        about = rich.markup.escape(f"{model['description']}\n{_options(own)}")
        table.add_row(f"[bold]{model['name']}[/bold]\n{model['paper']}", size, about)
    console.print(table)
    console.print(f"All but lr, unless it says otherwise: {_options(shared)}", highlight=False, markup=False)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_value(value)}" for key, value in options.items())


def _value(value: Any) -> str:
    return "null" if value is None else str(list(value)) if isinstance(value, list | tuple) else str(value).lower()
