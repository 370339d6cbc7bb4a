"""Builds the models of a plan before anything is trained."""

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.sweep.plan import SweepPlan
from ctrpipe.pipeline.training.buildable import why_impossible


def check_models(plan: SweepPlan) -> None:
    """Builds every model of a plan on a few ids, to detect errors before anything is trained.

    Raises:
        InputError: a model or one of its hyperparameters is impossible. The message names the point.
    """
    checked: set[str] = set()
    for point in plan.points:
        model = point.config.model
        if model.model_dump_json() in checked:
            continue
        checked.add(model.model_dump_json())
        if reason := why_impossible(model, plan.base):
            raise InputError(f"point '{point.name}': {reason}")
