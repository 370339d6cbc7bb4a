"""Pretrained vectors that initialise a model's embeddings, written next to the transform graph.

Does not import TensorFlow, which training on JAX does not need.
"""

import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.arrays import read_arrays, write_arrays
from ctrpipe.models.base.feature_map import RESERVED_IDS, FeatureMap
from ctrpipe.transforms.log.pretrained_table import read_table, tuned_tables
from ctrpipe.transforms.log.spec import LogSpec

START_VECTORS = "start_vectors.npz"  # in the folder of the transform graph


@dataclasses.dataclass(frozen=True)
class StartVectors:
    """The vectors of a field's values.

    Attributes:
        ids: The ids of the values that have a vector, int64 [values].
        vectors: Their vectors, float32 [values, length].
        axes: The principal axes of all vectors of the file, without centering, one per column, largest variance first,
            float32 [length, length]. The first d axes preserve the vectors' inner products best (Eckart and Young, "The
            approximation of one matrix by another of lower rank", 1936).
    """

    ids: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]
    axes: npt.NDArray[np.float32]

    def fitted(self, width: int) -> npt.NDArray[np.float32]:
        """Returns the vectors, or their coordinates on the first `width` axes if they are longer; [values, at most
        width].
        """
        return self.vectors if self.vectors.shape[1] <= width else self.vectors @ self.axes[:, :width]


def write_start_vectors(path: pathlib.Path, spec: LogSpec, vocabularies: Mapping[str, pa.Array]) -> None:
    """Writes the vectors of the columns whose vectors are fine-tuned. Writes nothing without such a column.

    Args:
        path: The file.
        spec: The description of the log.
        vocabularies: Values of each vocabulary in the order of their ids, binary, by column.

    Raises:
        InputError: a table cannot be read, or has a mistake.
    """
    path.unlink(missing_ok=True)
    columns: list[str] = []
    arrays: list[npt.NDArray[np.generic]] = []
    for column, described in tuned_tables(spec).items():
        table = read_table(described, column in spec.whole_number_columns)
        places = pc.index_in(vocabularies[column], value_set=table.keys)
        known = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
        rows = places.drop_null().to_numpy()
        columns.append(column)
        arrays += [known + RESERVED_IDS, table.vectors[rows], _principal_axes(table.vectors)]
    if columns:
        write_arrays(path, [np.array(columns), *arrays])


def start_vectors_of(graph: pathlib.Path) -> str:
    """Returns the file of start vectors in the folder of a transform graph; "" if there is none."""
    path = graph / START_VECTORS
    return str(path) if path.exists() else ""


def read_start_vectors(path: pathlib.Path, feature_map: FeatureMap) -> dict[str, StartVectors]:
    """Reads a file of `write_start_vectors`. Returns the vectors by field."""
    columns, *arrays = read_arrays(path)
    first = {field.name: field.offset for field in feature_map.fields}
    parts = zip(columns.tolist(), arrays[::3], arrays[1::3], arrays[2::3], strict=True)
    return {column: StartVectors(first[column] + local, vectors, axes) for column, local, vectors, axes in parts}


def _principal_axes(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    length = vectors.shape[1]
    moment = np.zeros((length, length))
    for start in range(0, len(vectors), 1 << 16):  # float64 of all rows at once may not fit in memory
        part = vectors[start : start + (1 << 16)].astype(np.float64)
        moment += part.T @ part
    axes: npt.NDArray[np.float32] = np.linalg.eigh(moment)[1][:, ::-1].astype(np.float32)
    return axes
