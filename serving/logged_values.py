"""The values of the log that a version was trained on, for rows of another format."""

import pathlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.serving.assets import GoldenRows
from ctrpipe.serving.layout import GRAPH_ASSETS, Asset, asset_path
from ctrpipe.transforms.features.vocabulary_files import VocabularyFiles
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.spec import LogSpec


def own_values(version: pathlib.Path, spec: LogSpec) -> OwnValues:
    """Returns the values of a version's log. A vocabulary is read when it is needed first.

    Args:
        version: The version's folder.
        spec: The description of its log.
    """
    files, listed = VocabularyFiles(version / GRAPH_ASSETS, spec), set(spec.vocabulary_columns)

    def vocabulary(column: str) -> pa.Array | None:
        try:
            return files.read(column) if column in listed else None
        except OSError:  # another exporter's version
            return None

    return OwnValues(spec, _rows_of_log(version), vocabulary)


def _rows_of_log(version: pathlib.Path) -> Mapping[str, npt.NDArray[np.generic]]:
    """Returns the columns of a few rows of a version's log; {} if the version has none."""
    try:
        return dict(GoldenRows.load(asset_path(version, Asset.GOLDEN)).raw)
    except (OSError, KeyError, ValueError):
        return {}
