"""In place of InfraValidator, which needs docker: does the C++ loader run the export, and does it equal Keras?"""

import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import InfraBlessing, Model

from pipeline.components import SERVABLE
from serving.check import check_servable


@component
def ServingCheck(
    model: InputArtifact[Model],
    blessing: OutputArtifact[InfraBlessing],
    code_version: Parameter[str],
) -> None:
    """Raises InputError where the model does not serve: nothing may be pushed then.

    `code_version`: see pipeline.components.
    """
    check_servable(pathlib.Path(model.uri) / SERVABLE)
    blessing.set_int_custom_property("blessed", 1)
    folder = pathlib.Path(blessing.uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "INFRA_BLESSED").touch()
