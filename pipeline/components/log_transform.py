"""In place of TFX's Transform: the same transform graph, from columnar parts (see transforms.features.transform)."""

import json
import pathlib

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples, ExampleStatistics, TransformGraph

from common.processes import Workers, end_idle_pools
from common.progress import announce, now_and_then
from pipeline.components.log_statistics_gen import RATES
from pipeline.monitoring.scored_drift import keep_statistics
from pipeline.monitoring.statistics import Sampled, read_statistics
from transforms.features.transform import analyze, transform
from transforms.log.payload import payload_files, payload_rows
from transforms.log.spec import LogSpec


@component
def LogTransform(
    examples: InputArtifact[Examples],
    statistics: InputArtifact[ExampleStatistics],
    transform_graph: OutputArtifact[TransformGraph],
    transformed_examples: OutputArtifact[Examples],
    spec: Parameter[str],
    seed: Parameter[int],
    workers: Parameter[str],
    code_version: Parameter[str],
):
    """`spec`: LogSpec as JSON; `workers`: see Workers.from_json; `code_version`: another one, another cache entry."""
    log, log_workers = LogSpec.model_validate_json(spec), Workers.from_json(workers)
    names = artifact_utils.decode_split_names(examples.split_names)
    source, target = pathlib.Path(examples.uri), pathlib.Path(transformed_examples.uri)
    graph = pathlib.Path(transform_graph.uri)
    train = payload_files(source / "Split-train")
    analyze(log, train, graph, log_workers, announce)
    rate = json.loads(statistics.get_string_custom_property(RATES))["train"]
    keep_statistics(Sampled(read_statistics(pathlib.Path(statistics.uri), "train"), rate), payload_rows(train), graph)
    splits = {name: (source / f"Split-{name}", target / f"Split-{name}") for name in names}
    transform(log, graph, splits, seed, log_workers, now_and_then())
    end_idle_pools()  # what follows trains
    transformed_examples.split_names = examples.split_names
