"""Finds the last blessed model in the push folder, which only holds blessed models."""

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
    """Makes an artifact of a pushed version.

    Args:
        model: The artifact, with a link to the version; without a model where `version` is empty.
        push_folder: The folder of versions.
        version: The version, which the runner looks up, so that a newer one misses the cache; "" before the first push.
    """
    if not version:
        return
    pushed = pathlib.Path(push_folder) / version
    serving = pathlib.Path(model.uri) / SERVABLE
    serving.parent.mkdir(parents=True, exist_ok=True)
    serving.symlink_to(pushed.resolve(), target_is_directory=True)
