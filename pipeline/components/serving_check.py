"""Replaces InfraValidator, which needs Docker.

Runs the export in the C++ loader and compares its probabilities with those of Keras at export.
"""

import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import InfraBlessing, Model

from ctrpipe.pipeline.components import SERVABLE
from ctrpipe.serving.server.check import check_servable


@component
def ServingCheck(
    model: InputArtifact[Model],
    blessing: OutputArtifact[InfraBlessing],
    code_version: Parameter[str],
) -> None:
    """Blesses a model that passes ctrpipe.serving.server.check.check_servable.

    For `code_version` see ctrpipe.pipeline.components.

    Raises:
        InputError: the model does not pass. The run then ends before the pusher.
    """
    check_servable(pathlib.Path(model.uri) / SERVABLE)
    blessing.set_int_custom_property("blessed", 1)
    folder = pathlib.Path(blessing.uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "INFRA_BLESSED").touch()
