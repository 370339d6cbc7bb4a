"""Finds the last blessed model in the push folder, which contains only blessed models."""

import os
import pathlib

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Model

from ctrpipe.common.output_folder import place_of
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
    pushed = (pathlib.Path(push_folder) / version).resolve()
    serving = pathlib.Path(model.uri) / SERVABLE
    serving.parent.mkdir(parents=True, exist_ok=True)
    own = place_of(serving.resolve())
    if own and pushed.is_relative_to(own):  # makes the link of a moved or copied run lead to its own version
        pushed = pathlib.Path(os.path.relpath(pushed, serving.parent.resolve()))
    serving.symlink_to(pushed, target_is_directory=True)
