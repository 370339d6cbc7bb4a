"""The sizes of all models, counted by building each of them.

After a model or an option has changed, `python -m ctrpipe.pipeline.run.model_sizes` rewrites the kept table,
pipeline/config/model_table.json.
"""

import dataclasses
import pathlib
import types
from collections.abc import Mapping
from typing import Any

import keras

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.models.base.ctr_model import CTRModel, empty_row
from ctrpipe.models.base.feature_map import RESERVED_IDS, FeatureMap, Text
from ctrpipe.models.base.registry import ModelInfo, available, create
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.config.model_table import REFERENCE, ModelTable
from ctrpipe.pipeline.training.network import count_parameters
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.transforms.features.preprocessing import layout
from ctrpipe.transforms.log.kinds.kind import WithVocabulary
from ctrpipe.transforms.log.kinds.text import Text as TextFeature

REFERENCE_FIELDS, REFERENCE_IDS = 39, 5000
REFERENCE_HISTORY = 50
# Hyperparameters without which a model cannot be built, for the reference.
REQUIRED: dict[str, dict[str, Any]] = {
    "ppnet": {"priors": ["field_0"]},
    "pepnet": {"priors": ["field_0"], "domains": ["field_1"]},
}
NOTHING: Mapping[str, Any] = types.MappingProxyType({})
REFERENCE_TEXT = 64, 30522  # BERT4CTR's length, BERT's vocabulary


def measure_reference() -> ModelTable:
    """Returns the table for 39 fields of 5,000 ids and default options.

    A model that needs a text, a history or tasks gets them in addition.
    """
    fields = [
        (f"field_{i}", "categorical", REFERENCE_IDS - RESERVED_IDS, 1, "feature") for i in range(REFERENCE_FIELDS)
    ]
    features = FeatureMap.from_sizes(fields)
    history = ("history", "sequence", REFERENCE_IDS - RESERVED_IDS, REFERENCE_HISTORY, "feature", "mean", "field_0")
    with_history = FeatureMap.from_sizes([*fields, history])
    with_tasks = dataclasses.replace(features, tasks=("click", "conversion"))
    with_text = dataclasses.replace(features, text=Text(*REFERENCE_TEXT))
    where = (
        f"{REFERENCE_FIELDS} fields of {REFERENCE_IDS:,} ids; "
        f"a history of {REFERENCE_HISTORY} items; two tasks; "
        f"a text of {REFERENCE_TEXT[0]} tokens of {REFERENCE_TEXT[1]:,}, through BERT-Base"
    )

    def data(info: ModelInfo) -> FeatureMap:
        if info.needs_history or info.needs_items:
            return with_history
        if info.needs_tasks:
            return with_tasks
        return with_text if info.needs_text else features

    described = [_describe(info, data(info), {}, REQUIRED.get(info.name, {})) for info in available()]
    return ModelTable(where, dict(CTRModel.options()), described)


def measure_models(path: pathlib.Path) -> ModelTable:
    """Returns the table for the features of a configuration, with full vocabularies and its model's own options.

    Raises:
        InputError: the configuration cannot be used, or has a vocabulary without top_k.
    """
    config = load_config(path)
    features = _full_vocabularies(path, config)
    where = f"{path}: {len(features.fields)} fields of {features.total_ids:,} ids together, {len(features.dense)} dense"
    model = with_encoder(config.model, config.text)
    chosen = {model.name: model.hyperparameters}
    described = [_describe(info, features, chosen.get(info.name, {})) for info in available()]
    return ModelTable(where, dict(CTRModel.options()), described)


def _full_vocabularies(path: pathlib.Path, config: RunConfig) -> FeatureMap:
    def size(column: str, feature: WithVocabulary | TextFeature) -> int:
        if feature.top_k is None:
            raise InputError(f"{path}: {column} has no top_k, so its vocabulary's size is not known before a run")
        return feature.top_k

    return layout(config.log_spec, size)


def _describe(
    info: ModelInfo, features: FeatureMap, hyperparameters: dict[str, Any], required: Mapping[str, object] = NOTHING
) -> dict[str, Any]:
    parameters = without = None
    try:
        network = _without_weights(info.name, features, {**required, **hyperparameters})
    except ValueError as error:
        if hyperparameters:
            raise InputError(f"{info.name}: {one_line(error)}") from error
    else:
        parameters, tables = count_parameters(network)
        without = parameters - tables
    options = {**info.options, **hyperparameters}
    sizes = {"parameters": parameters, "parameters_without_embeddings": without}
    return {"name": info.name, "paper": info.paper, "description": info.description, "options": options, **sizes}


def _without_weights(name: str, features: FeatureMap, hyperparameters: dict[str, Any]) -> CTRModel:
    """Returns a model with shapes but no weights: the weights of all models together would be 5 GB."""
    row = empty_row(features)
    with keras.StatelessScope(initialize_variables=False):
        network = create(name, features, **hyperparameters)
        network({key: keras.KerasTensor(value.shape, value.dtype) for key, value in row.items()})
    return network


if __name__ == "__main__":
    REFERENCE.write_text(measure_reference().to_json(), encoding="utf-8")
