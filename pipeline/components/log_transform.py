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

from ctrpipe.common.processes import Workers, end_idle_pools
from ctrpipe.common.progress import announce, throttled_announce
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.features.former_counts import COUNTS, SCHEMA, read_counts
from ctrpipe.transforms.features.learned import Former, numbers_that_stay, read_numbers
from ctrpipe.transforms.features.packed_files import packed_files
from ctrpipe.transforms.features.transform import analyze, transform
from ctrpipe.transforms.features.understood import all_unknown
from ctrpipe.transforms.features.vocabularies import read_vocabularies
from ctrpipe.transforms.log.payload import payload_files
from ctrpipe.transforms.log.spec import LogSpec

ALL_UNKNOWN = "all_unknown_by_split"  # a property of the packed rows, JSON: fields whose values are all unknown


@component
def LogTransform(
    examples: InputArtifact[Examples],
    transform_graph: OutputArtifact[TransformGraph],
    transformed_examples: OutputArtifact[Examples],
    spec: Parameter[str],
    seed: Parameter[int],
    workers: Parameter[str],
    former: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Learns the transforms from the training rows, and packs all splits.

    Args:
        examples: The payload.
        transform_graph: The transform of the raw columns, as a TFT output folder.
        transformed_examples: The packed rows, with the property ALL_UNKNOWN.
        spec: LogSpec as JSON.
        seed: Seed of the order of packed rows, and of `missing_rate`.
        workers: See Workers.from_json.
        former: The arguments of `_read_former` as JSON, if a part of a parent's transform is kept or values are counted
            over several training runs; else "".
        code_version: See ctrpipe.pipeline.components.
    """
    log, log_workers = LogSpec.model_validate_json(spec), Workers.from_json(workers)
    names = artifact_utils.decode_split_names(examples.split_names)
    source, target = pathlib.Path(examples.uri), pathlib.Path(transformed_examples.uri)
    graph = pathlib.Path(transform_graph.uri)
    stays = _read_former(log, **json.loads(former)) if former else None
    analyze(log, payload_files(source / "Split-train"), graph, log_workers, announce, stays)
    splits = {name: (source / f"Split-{name}", target / f"Split-{name}") for name in names}
    transform(log, graph, splits, seed, log_workers, throttled_announce())
    unknown = {name: all_unknown(log, graph, packed_files(folder)) for name, (_, folder) in splits.items()}
    transformed_examples.set_string_custom_property(ALL_UNKNOWN, json.dumps(unknown))
    end_idle_pools()  # frees the memory of the worker processes before training
    transformed_examples.split_names = examples.split_names


def _read_former(
    log: LogSpec, parent: dict[str, str] | None, boundaries: str, window: int, max_age: int, max_values: int | None
) -> Former:
    """Returns the parts of a parent's transform that are kept.

    Args:
        log: The description of the new log.
        parent: The folders `version` and `kept` of a Parent; None for the first of several training runs.
        boundaries, window, max_age, max_values: See WarmStart.
    """
    counts = _read_counts(parent, window) if window > 1 else None
    if parent is None:
        return Former(counts=counts, window=window)
    folder = pathlib.Path(parent["version"])
    spec = read_log_spec(folder)
    numbers = {}
    if boundaries == "keep":
        numbers = numbers_that_stay(log, spec, read_numbers(asset_path(folder, Asset.NUMBERS)))
    former = Former(numbers, counts=counts, window=window)
    if not max_age:
        return former
    ages = json.loads(asset_path(folder, Asset.AGES).read_text())
    vocabularies = read_vocabularies(folder / "assets", spec)
    return dataclasses.replace(former, vocabularies=vocabularies, ages=ages, max_age=max_age, max_values=max_values)


def _read_counts(parent: dict[str, str] | None, window: int) -> pa.Table:
    """Returns how often values occurred in the previous training runs; empty if there were none."""
    if parent is None:
        return SCHEMA.empty_table()
    path = pathlib.Path(parent["kept"]) / COUNTS
    if not path.exists():
        announce("Warm start: the parent kept no counts of values; min_count and top_k count today's rows alone")
        return SCHEMA.empty_table()
    return read_counts(path, window)
