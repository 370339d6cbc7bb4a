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
from ctrpipe.common.progress import announce, throttled_announce
from ctrpipe.pipeline.components.settings import StageSettings
from ctrpipe.transforms.log.described_files import read_states
from ctrpipe.transforms.log.ingest import described_splits, few_of_a_class, ingest
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS


class ExampleGenSettings(StageSettings):
    """Settings of LogExampleGen.

    Args:
        spec: The description of the log.
        files: The log's files in order.
        data_fingerprint: Hash of the files. Changed data therefore misses the cache.
        states: A file of `write_states` with the states of the log's files when they were hashed; None if unknown. They
            are stored in a file and not in the settings, because a copied log must hit the cache.
        seed: Seed of `split.by: hash` and `by: group`.
        dead_letter: Folder of the dead-letter files with the malformed rows.
    """

    spec: LogSpec
    files: list[str]
    data_fingerprint: str
    states: pathlib.Path | None
    seed: int
    dead_letter: pathlib.Path


@component
def LogExampleGen(
    examples: OutputArtifact[Examples],
    settings: Parameter[str],
    workers: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Reads, checks and splits the log.

    Args:
        examples: The payload, with the property `data_fingerprint`, and counts.json.
        settings: ExampleGenSettings as JSON.
        workers: See Workers.from_json.
        code_version: See ctrpipe.pipeline.components.
    """
    given = ExampleGenSettings.model_validate_json(settings)
    examples.split_names = json.dumps(list(SPLITS))
    folders = {name: pathlib.Path(examples.uri) / f"Split-{name}" for name in SPLITS}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    states = read_states(given.states) if given.states else {}
    result = ingest(
        given.spec,
        given.files,
        given.seed,
        folders,
        given.dead_letter,
        Workers.from_json(workers),
        throttled_announce(),
        states,
    )
    for line in (
        *described_splits(given.spec.data.split, result),
        *few_of_a_class(given.spec.label_columns[0], result),
    ):
        announce(line)
    for column, count in result.rates.items():
        advice = "" if given.spec.data.weight else "; data.weight takes the column of impressions"
        rows = f"{count:,} of {sum(result.rows.values()):,} rows"
        announce(f"Label {column}: {rows} have a rate between 0 and 1, and count as so many clicks{advice}")
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_PARQUET)
    examples.set_string_custom_property("data_fingerprint", given.data_fingerprint)
    (pathlib.Path(examples.uri) / "counts.json").write_text(result.to_json())
