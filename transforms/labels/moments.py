"""The times of rows, for joins by time."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.labels.labelled import Letters, TextFiles
from ctrpipe.transforms.log.batches import LogBatch, Reject
from ctrpipe.transforms.log.epochs import eight_digits, epoch_seconds
from ctrpipe.transforms.log.ordering import Ordering
from ctrpipe.transforms.log.spec import Data
from ctrpipe.transforms.log.times import EightDigits
from ctrpipe.transforms.log.zones import Zones

MOMENT, EPOCH = Ordering("moment"), Ordering("epoch")
_MAX_BAD_RATE = float(Data.model_fields["max_bad_row_rate"].default)

Moments = npt.NDArray[np.float64]  # seconds since 1970


def with_moments(
    side: TextFiles, column: str, time_format: str, letters: Letters, zones: Zones | None = None
) -> Iterator[tuple[LogBatch, Moments]]:
    """Yields the rows that have a time, and their times. A row without a time is malformed.

    Args:
        side: The files.
        column: The column of the times.
        time_format: The format of the times; see `format` of kind `time`.
        letters: Gets the malformed rows.
        zones: Counts the times with and without a zone.

    Raises:
        InputError: more than 1% of the rows have no time.
    """
    dates = time_format == "auto" and _are_dates(side, column)
    rows = wrong = 0
    first = ""
    for batch in side.batches(letters):
        moments = moments_of(batch.rows[column], time_format, dates)
        if zones is not None:
            zones.add(batch.rows[column])
        bad = np.isnan(moments)
        rejects = _rejects(batch, column, np.flatnonzero(bad))
        letters.add(batch.path, rejects)
        first = first or next((f"line {reject.line}: {reject.reason}" for reject in rejects), "")
        rows, wrong = rows + len(bad), wrong + int(bad.sum())
        yield dataclasses.replace(batch, rows=batch.rows.filter(pa.array(~bad)), lines=batch.lines[~bad]), moments[~bad]
    if wrong > _MAX_BAD_RATE * rows:
        raise InputError(
            f"{side.files[0]}: {wrong} of {rows} rows have no readable time; the first is {first}; name the "
            "time column, and set time_format"
        )


def moments_of(values: pa.Array, time_format: str, dates: bool) -> Moments:
    """Returns the times of rows, to the microsecond if available; NaN for values that are not times.

    ISO 8601 and epochs are parsed as in a split by time, which infers the unit of an epoch from its size. Dates, hours
    and strptime patterns are parsed as in a feature of kind `time`.
    """
    seconds = epoch_seconds(values, time_format, dates)
    of_format = {"auto": (MOMENT, EPOCH), "iso8601": (MOMENT,)}
    for ordering in of_format.get(time_format, ()):
        ordered = ordering.compare(values)
        seconds = np.where(ordered.faults == 0, ordered.keys / 1e6, seconds)
    return seconds


def _are_dates(side: TextFiles, column: str) -> bool:
    """Returns whether times of eight digits are YYYYMMDD. Reads rows until only one form is possible; see
    `EightDigits`.
    """
    digits = EightDigits()
    for batch in side.batches(Letters()):
        digits |= eight_digits(batch.rows[column])
        if digits.are_told:
            break
    return digits.are_dates(column)


def _rejects(batch: LogBatch, column: str, places: npt.NDArray[np.int64]) -> list[Reject]:
    rejects = []
    for place in places.tolist():
        value = batch.rows[column][place].as_py()
        shown = "a missing value" if value is None else f"'{value.decode('utf-8', 'replace')}'"
        rejects.append(Reject(int(batch.lines[place]), f"{column}: {shown} is not a time", ""))
    return rejects
