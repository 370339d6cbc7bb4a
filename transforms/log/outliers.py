"""Finds the extreme number of a log that makes a model's arithmetic overflow."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError, NotFiniteError
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

FAR = 1e4  # interquartile ranges of the training rows; fewer overflow in no model
SPLIT_FOLDER = "Split-{}"  # in the payload


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A number far from the training rows' numbers.

    Attributes:
        column: Its column.
        number: The number.
        split: The split of its row.
    """

    column: str
    number: float
    split: str


def find_outlier(spec: LogSpec, payload: pathlib.Path, split: str, row: int | None = None) -> Outlier | None:
    """Returns the number with the largest distance to its column's training rows; None if no distance exceeds FAR.

    The distance to the median is measured in interquartile ranges, which a single extreme number does not change.

    Args:
        spec: The description of the log.
        payload: The folder of the payload, with a folder for each split.
        split: The split to look in.
        row: The row to look in, in the order of the log; None for all rows.
    """
    outliers: list[tuple[float, Outlier]] = []
    for column in [*spec.numeric_columns, *([spec.data.weight] if spec.data.weight else [])]:
        trained, judged = (_numbers(payload, name, column) for name in ("train", split))
        if row is not None:
            judged = judged[row : row + 1]
        known = trained[np.isfinite(trained)]
        if not len(known) or not np.isfinite(judged).any():
            continue
        low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
        distances = np.abs(np.where(np.isfinite(judged), judged, middle) - middle) / ((high - low) or 1.0)
        farthest = int(np.argmax(distances))
        outliers.append((float(distances[farthest]), Outlier(column, float(judged[farthest]), split)))
    distance, outlier = max(outliers, key=lambda pair: pair[0], default=(0.0, None))
    return outlier if distance > FAR else None


def _numbers(payload: pathlib.Path, split: str, column: str) -> np.ndarray:
    """Returns a column of a split, float64 [N]; NaN where a value is missing."""
    files = payload_files(payload / SPLIT_FOLDER.format(split))
    parts = [number_array(rows[column]) for rows in read_payload(files, [column])]
    return np.concatenate([*parts, np.empty(0, np.float32)]).astype(np.float64)


def place_of_number(spec: LogSpec, files: Sequence[str], column: str, number: float) -> str:
    """Returns the first place of a number in a column of the log, such as `log.csv:17`; "" if it is not found.

    The place is a line number from 1, a header included, or a row number for Parquet.
    """
    wanted = pa.scalar(number, pa.float32())
    try:
        return next(_places(spec, files, column, wanted), "")
    except (InputError, LookupError):  # the log has been read once; what is wrong now hides only the place
        return ""


def _places(spec: LogSpec, files: Sequence[str], column: str, wanted: pa.Scalar) -> Iterator[str]:
    reader = LogReader(spec)
    for file in files:
        for batch in reader.read(file):
            same = pc.equal(batch.rows[column], wanted).fill_null(False)
            for row in np.flatnonzero(same.to_numpy(zero_copy_only=False)):
                yield f"{file}:{batch.lines[row]}"


@contextlib.contextmanager
def naming_the_number(spec: LogSpec, payload: pathlib.Path) -> Iterator[None]:
    """Adds the likely cause, a column and a number of the log, to a NotFiniteError raised in the block.

    Args:
        spec: The description of the log.
        payload: The folder of the log's payload.
    """
    try:
        yield
    except NotFiniteError as error:
        outlier = find_outlier(spec, payload, error.split, error.row) if error.split else None
        if outlier is None:
            raise
        raise error.with_(column=outlier.column, number=outlier.number) from error
