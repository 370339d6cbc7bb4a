"""ExampleGen for raw logs: checks, splits and writes a Parquet payload (see transforms.log.ingest)."""

import json
import pathlib

from tfx.components.util import examples_utils
from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.proto import example_gen_pb2
from tfx.types.standard_artifacts import Examples

from common.processes import Workers
from common.progress import now_and_then
from transforms.log.ingest import SPLITS, ingest
from transforms.log.read_ahead import handed_over
from transforms.log.spec import LogSpec


@component
def LogExampleGen(
    examples: OutputArtifact[Examples],
    spec: Parameter[str],
    files: Parameter[str],
    data_fingerprint: Parameter[str],
    seed: Parameter[int],
    dead_letter: Parameter[str],
    workers: Parameter[str],
):
    """`spec`: LogSpec as JSON; `files`: JSON list; `data_fingerprint`: makes changed data another cache entry;
    `workers`: see Workers.from_json."""
    examples.split_names = json.dumps(list(SPLITS))
    folders = {name: pathlib.Path(examples.uri) / f"Split-{name}" for name in SPLITS}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    log = LogSpec.model_validate_json(spec)
    paths = json.loads(files)
    with handed_over(log, paths, seed) as partial:
        result = ingest(
            log, paths, seed, folders, pathlib.Path(dead_letter), Workers.from_json(workers), now_and_then(), partial
        )
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_PARQUET)
    examples.set_string_custom_property("data_fingerprint", data_fingerprint)
    (pathlib.Path(examples.uri) / "counts.json").write_text(result.to_json())
