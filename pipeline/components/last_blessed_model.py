"""The model to beat, out of the push folder: only blessed models are pushed."""

import pathlib

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Model

from pipeline.components import SERVABLE


@component
def LastBlessedModel(
    model: OutputArtifact[Model],
    push_folder: Parameter[str],
    version: Parameter[str],
) -> None:
    """Makes an artifact of the version to beat, which the runner names, so that another one is another cache entry.

    Where it is empty, nothing has been pushed yet: the artifact holds no model, and GatedEvaluator compares with
    nothing.
    """
    if not version:
        return
    pushed = pathlib.Path(push_folder) / version
    serving = pathlib.Path(model.uri) / SERVABLE
    serving.parent.mkdir(parents=True, exist_ok=True)
    serving.symlink_to(pushed.resolve(), target_is_directory=True)
