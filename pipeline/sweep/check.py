"""Builds the models of a plan before anything is trained."""

import keras

from common.errors import InputError, one_line
from pipeline.sweep.plan import Plan
from pipeline.training.network import build_network
from pipeline.training.text_encoder import with_encoder
from transforms.features.preprocessing import layout


def check_models(plan: Plan) -> None:
    """Builds every model of a plan on a few ids, so that a mistake is found before anything is trained.

    Raises:
        InputError: a model or one of its hyperparameters is impossible; it names the point.
    """
    few_ids = layout(plan.base.log_spec, lambda column, feature: 3)
    checked: set[str] = set()
    for point in plan.points:
        model = point.config.model
        if model.model_dump_json() in checked:
            continue
        checked.add(model.model_dump_json())
        try:
            build_network(with_encoder(model, plan.base.text), few_ids, seed=0)
        except (ValueError, TypeError) as error:
            raise InputError(f"point '{point.name}': {one_line(error)}") from error
        keras.utils.clear_session()
