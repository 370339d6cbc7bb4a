"""Finds fields whose values are out-of-vocabulary in all packed rows."""

import contextlib
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow_transform as tft

from ctrpipe.models.base.feature_map import PADDING_ID
from ctrpipe.transforms.features.kinds.kind import UNKNOWN
from ctrpipe.transforms.features.packed_files import READ_ROWS, PackedReader
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.log.spec import LogSpec


def all_unknown(spec: LogSpec, graph: pathlib.Path, files: Sequence[pathlib.Path]) -> list[str]:
    """Returns the fields whose values are out-of-vocabulary in every row.

    Stops as soon as every field has a known value, in most logs after the first rows.

    Args:
        spec: The description of the log.
        graph: The folder that ctrpipe.transforms.features.transform.analyze wrote.
        files: Packed files of a split.
    """
    fields, start = dict[str, tuple[slice, int]](), 0
    for field in feature_map(spec, tft.TFTransformOutput(str(graph))).fields:
        fields[field.name] = (slice(start, start + field.slots), field.offset + UNKNOWN)
        start += field.slots
    if not fields or not files:
        return []
    with contextlib.closing(PackedReader(files, READ_ROWS).windows()) as windows:
        for rows in windows:
            fields = {name: place for name, place in fields.items() if _is_unknown(rows["ids"], *place)}
            if not fields:
                break
    return list(fields)


def _is_unknown(ids: np.ndarray, slots: slice, unknown: int) -> bool:
    of_field = ids[:, slots]
    return bool((of_field[:, 0] == unknown).all() and np.isin(of_field, (unknown, PADDING_ID)).all())
