"""ExampleGen for raw logs: checks, splits and writes a Parquet payload.

See ctrpipe.transforms.log.ingest.
"""

import json
import pathlib

from tfx.components.util import examples_utils
from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.proto import example_gen_pb2
from tfx.types.standard_artifacts import Examples

from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import throttled_announce
from ctrpipe.transforms.log.byte_sum import sums_from_json
from ctrpipe.transforms.log.ingest import SPLITS, ingest
from ctrpipe.transforms.log.read_ahead import handed_over
from ctrpipe.transforms.log.spec import LogSpec


@component
def LogExampleGen(
    examples: OutputArtifact[Examples],
    spec: Parameter[str],
    files: Parameter[str],
    data_fingerprint: Parameter[str],
    sums: Parameter[str],
    seed: Parameter[int],
    dead_letter: Parameter[str],
    workers: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Reads, checks and splits the log.

    Args:
        examples: The payload, with the property `data_fingerprint`, and counts.json.
        spec: LogSpec as JSON.
        files: The log's files in order, as JSON.
        data_fingerprint: Hash of the files. Changed data therefore misses the cache.
        sums: The hashed parts of the files, see ctrpipe.transforms.log.byte_sum.
        seed: Seed of `split.by: hash`.
        dead_letter: Folder of the dead-letter files with the malformed rows.
        workers: See Workers.from_json.
        code_version: See ctrpipe.pipeline.components.
    """
    examples.split_names = json.dumps(list(SPLITS))
    folders = {name: pathlib.Path(examples.uri) / f"Split-{name}" for name in SPLITS}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    log = LogSpec.model_validate_json(spec)
    paths = json.loads(files)
    with handed_over(log, paths, seed) as partial:
        result = ingest(
            log,
            paths,
            seed,
            folders,
            pathlib.Path(dead_letter),
            Workers.from_json(workers),
            throttled_announce(),
            partial,
            sums_from_json(sums),
        )
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_PARQUET)
    examples.set_string_custom_property("data_fingerprint", data_fingerprint)
    (pathlib.Path(examples.uri) / "counts.json").write_text(result.to_json())
