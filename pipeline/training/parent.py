"""Maps the embedding rows of a warm start's parent model to the rows of the new tables."""

import dataclasses
import pathlib

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.saved import read_description, read_feature_map
from ctrpipe.pipeline.config import WarmStart
from ctrpipe.pipeline.training.warm_start import Start
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.features.learned import NUMBERS, read_numbers
from ctrpipe.transforms.features.source_rows import (
    LearnedValues,
    differences,
    rows_of_ids,
    rows_of_positions,
    rows_of_tokens,
)
from ctrpipe.transforms.features.transform import GRAPH
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies
from ctrpipe.transforms.log.spec import LogSpec


@dataclasses.dataclass(frozen=True)
class Parent:
    """The trained model that a warm start begins with.

    Attributes:
        name: The folder that was named, or the folder of the latest version.
        version: The folder of its SavedModel, with the vocabularies and the numeric statistics of its transform.
        kept: The folder of its Keras model and of its training state.
        fingerprint: A hash of its weights and of the values that its rows represent.
    """

    name: str
    version: str
    kept: str
    fingerprint: str


def check_alike(
    parent: Parent, spec: LogSpec, model: str, settings: WarmStart, fake_negatives: bool = False
) -> list[str]:
    """Returns how the parent's columns, architecture and logits differ from those of the new model.

    Only names and settings are compared; shapes are compared in warm_start.py.

    Args:
        parent: The parent.
        spec: The description of the new log.
        model: The name of the new model.
        settings: What to do if they differ.
        fake_negatives: Whether the new model corrects for fake negatives (`fake_negative_calibration`).

    Raises:
        InputError: they differ and `on_mismatch` is `refuse`, or the parent's files are absent or damaged.
    """
    version = pathlib.Path(parent.version)
    differing = differences(spec, read_log_spec(version))
    name = read_description(pathlib.Path(parent.kept))["name"]
    if name != model:
        differing.append(f"another model: {name}")
    if read_feature_map(pathlib.Path(parent.kept)).fake_negatives != fake_negatives:
        differing.append(f"logits {'before' if fake_negatives else 'for'} training.fake_negative_calibration")
    if differing and settings.on_mismatch == "refuse":
        raise InputError(
            f"training.warm_start: {parent.name} has {'; '.join(differing)}; set training.warm_start.on_mismatch: take "
            "to begin with what fits, or name another parent"
        )
    return differing


def start_with(parent: Parent, spec: LogSpec, feature_map: FeatureMap, graph: pathlib.Path) -> Start:
    """Returns the initial values that a training run takes from its parent.

    Args:
        parent: The parent.
        spec: The description of the new log.
        feature_map: The description of the new packed tensors.
        graph: The folder of the new transform graph.

    Raises:
        InputError: the parent's files are absent or damaged.
    """
    today = LearnedValues(
        spec, feature_map, read_vocabularies(graph / GRAPH / "assets", spec), read_numbers(graph / NUMBERS)
    )
    former = _values_of(parent)
    rows = {"ids": rows_of_ids(today, former)}
    rows["positions"] = rows_of_positions(feature_map, former.feature_map, rows["ids"])
    tokens = rows_of_tokens(today, former)
    if tokens is not None:
        rows["tokens"] = tokens
    return Start(parent.name, pathlib.Path(parent.kept), rows, _columns(feature_map) == _columns(former.feature_map))


def _values_of(parent: Parent) -> LearnedValues:
    version = pathlib.Path(parent.version)
    spec = read_log_spec(version)
    fields = read_feature_map(pathlib.Path(parent.kept))
    try:
        vocabularies = read_vocabularies(version / "assets", spec)
    except (OSError, ValueError) as error:
        raise InputError(f"{version}: its vocabularies cannot be read ({error}); train it again") from error
    return LearnedValues(spec, fields, vocabularies, read_numbers(asset_path(version, Asset.NUMBERS)))


def _columns(feature_map: FeatureMap) -> list[object]:
    """Returns the inputs of the non-embedding weights: the columns, without their vocabularies."""
    fields = [dataclasses.replace(field, size=3, offset=1) for field in feature_map.fields]
    predicted = [(number.task, number.predicts) for number in feature_map.number_tasks]
    return [fields, feature_map.widths, feature_map.tasks, predicted, feature_map.numbers]
