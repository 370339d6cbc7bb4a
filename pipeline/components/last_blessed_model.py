"""Finds the last blessed model in the push folder, which contains only blessed models."""

import pathlib

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Model

from ctrpipe.pipeline.components import SERVABLE


@component
def LastBlessedModel(
    model: OutputArtifact[Model],
    push_folder: Parameter[str],
    version: Parameter[str],
) -> None:
    """Creates an artifact for a pushed version.

    Args:
        model: The artifact with a link to the version, or without a model if `version` is empty.
        push_folder: The folder of versions.
        version: The version; "" before the first push. The runner looks it up, so a newer version misses the cache.
    """
    if not version:
        return
    pushed = pathlib.Path(push_folder) / version
    serving = pathlib.Path(model.uri) / SERVABLE
    serving.parent.mkdir(parents=True, exist_ok=True)
    serving.symlink_to(pushed.resolve(), target_is_directory=True)
