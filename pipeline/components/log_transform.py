"""In place of TFX's Transform: the same transform graph, from columnar parts (see transforms.transform)."""

import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples, TransformGraph

from pipeline.progress import announce, now_and_then
from transforms.parallel import Workers
from transforms.payload import payload_files
from transforms.spec import LogSpec
from transforms.transform import analyze, transform


@component
def LogTransform(
    examples: InputArtifact[Examples],
    transform_graph: OutputArtifact[TransformGraph],
    transformed_examples: OutputArtifact[Examples],
    spec: Parameter[str],
    seed: Parameter[int],
    workers: Parameter[str],
    code_version: Parameter[str],
):
    """`spec`: LogSpec as JSON; `workers`: see Workers.from_json; `code_version`: another one, another cache entry."""
    log, crew = LogSpec.model_validate_json(spec), Workers.from_json(workers)
    names = artifact_utils.decode_split_names(examples.split_names)
    source, target = pathlib.Path(examples.uri), pathlib.Path(transformed_examples.uri)
    graph = pathlib.Path(transform_graph.uri)
    analyze(log, payload_files(source / "Split-train"), graph, crew, announce)
    splits = {name: (source / f"Split-{name}", target / f"Split-{name}") for name in names}
    transform(log, graph, splits, seed, crew, now_and_then())
    transformed_examples.split_names = examples.split_names
