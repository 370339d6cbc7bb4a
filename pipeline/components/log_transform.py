"""Replaces TFX's Transform: builds the same graph from columnar files.

See ctrpipe.transforms.features.transform.
"""

import dataclasses
import json
import pathlib

import pyarrow as pa
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples, TransformGraph

from ctrpipe.common.memory import return_freed_memory
from ctrpipe.common.processes import Workers, end_forked_workers
from ctrpipe.common.progress import announce, throttled_announce
from ctrpipe.pipeline.components.settings import StageSettings
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.features.former_counts import COUNTS, SCHEMA, read_counts
from ctrpipe.transforms.features.learned import Former, numbers_that_stay, read_numbers
from ctrpipe.transforms.features.packed_files import packed_files
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.features.understood import all_unknown
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies
from ctrpipe.transforms.log.payload import payload_files
from ctrpipe.transforms.log.spec import LogSpec

# Properties of the packed rows, JSON.
CLIPPED = "clipped_by_split"  # by split and column, the number of rows with a number beyond the limits of the transform
ALL_UNKNOWN = "all_unknown_by_split"  # fields whose values are all unknown


class FormerSettings(StageSettings):
    """The parts of a parent's transform that are kept, and the training runs over which values are counted.

    Args:
        version, kept: The folders of a Parent; "" for the first of several training runs, which has no parent.
        boundaries, window, max_age, max_values: See WarmStart.
    """

    version: str
    kept: str
    boundaries: str
    window: int
    max_age: int
    max_values: int | None


class TransformSettings(StageSettings):
    """Settings of LogTransform.

    Args:
        spec: The description of the log.
        seed: Seed of the order of packed rows, and of `missing_rate`.
        former: What is kept of former training runs; None for nothing.
    """

    spec: LogSpec
    seed: int
    former: FormerSettings | None


@component
def LogTransform(
    examples: InputArtifact[Examples],
    transform_graph: OutputArtifact[TransformGraph],
    transformed_examples: OutputArtifact[Examples],
    settings: Parameter[str],
    workers: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Learns the transforms from the training rows, and packs all splits.

    Args:
        examples: The payload.
        transform_graph: The transform of the raw columns, as a TFT output folder.
        transformed_examples: The packed rows, with the properties ALL_UNKNOWN and CLIPPED.
        settings: TransformSettings as JSON.
        workers: See Workers.from_json.
        code_version: See ctrpipe.pipeline.components.
    """
    given, log_workers = TransformSettings.model_validate_json(settings), Workers.from_json(workers)
    log = given.spec
    names = artifact_utils.decode_split_names(examples.split_names)
    source, target = pathlib.Path(examples.uri), pathlib.Path(transformed_examples.uri)
    graph = pathlib.Path(transform_graph.uri)
    stays = _read_former(log, given.former) if given.former else None
    analyze(log, payload_files(source / "Split-train"), graph, log_workers, announce, stays)
    return_freed_memory()  # the counts of the values, before the workers pack
    splits = {name: (source / f"Split-{name}", target / f"Split-{name}") for name in names}
    packed = transform(log, graph, splits, given.seed, log_workers, throttled_announce())
    transformed_examples.set_string_custom_property(CLIPPED, json.dumps(packed.clipped))
    unknown = {name: all_unknown(log, graph, packed_files(folder)) for name, (_, folder) in splits.items()}
    transformed_examples.set_string_custom_property(ALL_UNKNOWN, json.dumps(unknown))
    # Frees the memory of the worker processes, and of the process that they are forks of (240 MB), before training. An
    # evaluation by several processes starts new ones, which load TensorFlow in any case.
    end_forked_workers()
    transformed_examples.split_names = examples.split_names


def _read_former(log: LogSpec, settings: FormerSettings) -> Former:
    """Returns the parts of a parent's transform that are kept for a new log."""
    window = settings.window
    counts = _read_counts(settings.kept, window) if window > 1 else None
    if not settings.version:
        return Former(counts=counts, window=window)
    folder = pathlib.Path(settings.version)
    spec = read_log_spec(folder)
    numbers = {}
    if settings.boundaries == "keep":
        numbers = numbers_that_stay(log, spec, read_numbers(asset_path(folder, Asset.NUMBERS)))
    limits = asset_path(folder, Asset.LIMITS)  # absent where an earlier version of ctrpipe trained the parent
    former = Former(
        numbers,
        numbers_that_stay(log, spec, read_numbers(limits)) if limits.exists() else {},
        counts=counts,
        window=window,
    )
    if not settings.max_age:
        return former
    ages = json.loads(asset_path(folder, Asset.AGES).read_text())
    vocabularies = read_vocabularies(folder / "assets", spec)
    return dataclasses.replace(
        former, vocabularies=vocabularies, ages=ages, max_age=settings.max_age, max_values=settings.max_values
    )


def _read_counts(kept: str, window: int) -> pa.Table:
    """Returns how often values occurred in the previous training runs; empty if there were none.

    Args:
        kept: The folder of the parent's Keras model; "" without a parent.
        window: The number of training runs, including the current one.
    """
    if not kept:
        return SCHEMA.empty_table()
    path = pathlib.Path(kept) / COUNTS
    if not path.exists():
        announce("Warm start: the parent has no counts of values; min_count and top_k use only today's rows")
        return SCHEMA.empty_table()
    return read_counts(path, window)
