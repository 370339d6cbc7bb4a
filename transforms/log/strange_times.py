"""Finds suspicious columns of times: times other than the rows' own, such as birthdays and later events, mixed time
zones, and times that are probably read with the wrong meaning.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.column_values import numbers_of, plain_chunks
from ctrpipe.transforms.log.epochs import outside_calendar, seconds_of_column
from ctrpipe.transforms.log.kinds.guess import ColumnSample
from ctrpipe.transforms.log.look_alikes import LEAST_SHARE
from ctrpipe.transforms.log.ordering import moments_of
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.suspects import LEAST_IDS, LEAST_ROWS, Suspect, gives_away
from ctrpipe.transforms.log.time_formats import of_digits
from ctrpipe.transforms.log.words import NUMBER
from ctrpipe.transforms.log.zones import Zones

LEAST_SHORT_YEARS = 20  # different times of ten or twelve digits
LEAST_FAR, MOST_FAR = 5, 0.5  # times that are decades from the others: rows, and the share of all
LEAST_LATER = 0.2  # of the rows, whose time in a column is after their own
_EXPECTED = 14.0  # rows that chance would bring beyond the end of the log: none is once in a million
_SORTED = 0.99  # of the steps from row to row that do not go back, of the rows' own times
_YEAR, _DAY = 365.25 * 86_400, 86_400
_DECADES = 15 * _YEAR  # that lie between most times of a column, or between them and the rows' own
_ROUNDED = 1e-3  # of the time that the log spans: rows are a sample, and times are read to the minute

Seconds = npt.NDArray[np.float64]


def strange_times(spec: LogSpec, rows: Mapping[str, pa.Table]) -> Iterator[Suspect]:
    """Yields the columns of kind `time` whose times span decades, or belong to events after their rows.

    Args:
        spec: The description of the log.
        rows: Rows of each split in the order of the log, by its name.
    """
    splits = [name for name, table in rows.items() if table.num_rows]
    times = {
        name: [seconds_of_column(plain_chunks(rows[split][name]).combine_chunks(), time_format) for split in splits]
        for name, time_format in spec.time_formats.items()
    }
    own = _own(spec, times)
    for name in times:
        if text := _short_years(spec, name, [rows[split][name] for split in splits]):
            yield Suspect(name, "all", text)
        if text := _no_days(spec, name, [rows[split][name] for split in splits]):
            yield Suspect(name, "all", text)
        zones = Zones()
        for split in splits:
            zones.add(plain_chunks(rows[split][name]))
        if zones.known and zones.unknown:
            yield Suspect(
                name,
                "all",
                f"{zones.unknown:,} of its times have no zone and {zones.known:,} have one: hours of different zones "
                "look alike; write all times with their zone",
            )
    yield from _after_the_click(spec, rows, splits)
    of_all = {name: np.concatenate(parts) for name, parts in times.items()}
    for name, seconds in of_all.items():
        if np.isfinite(seconds).sum() < LEAST_IDS:
            continue
        if text := _far_from_others(seconds, [rows[split][name] for split in splits]):
            yield Suspect(name, "all", text)
            continue
        if name == own:
            continue
        if years := _decades(seconds, None if own is None else of_all[own]):
            yield Suspect(
                name,
                "all",
                f"dates {years}, which are not the rows' own: a model reads their hour and weekday alone; write the "
                "age, such as days before the row, as a number",
            )
        elif own is not None and (later := _later(seconds, of_all[own])):
            yield Suspect(
                name,
                "all",
                f"{later:.0%} of its times are after {own}, the row's own, and none is after the last of the log, as "
                "of a user's last event in the whole log: it is not known when the row is shown",
            )


def _short_years(spec: LogSpec, name: str, parts: list[pa.ChunkedArray]) -> str:
    """Returns a warning if `auto` reads times such as 1402242334, which seem to begin with a year of two digits, as
    epochs; "" if not.
    """
    if spec.time_formats[name] != "auto":
        return ""
    words = {word for part in parts for word in pc.unique(plain_chunks(part)).drop_null().to_pylist()}
    texts = sorted(word.decode("utf-8", "replace") for word in words)
    if len(texts) < LEAST_SHORT_YEARS or (formats := of_digits(ColumnSample(name, texts)) or ["auto"])[0] == "auto":
        return ""
    return (
        f"its times of {len(texts[0])} digits, as {texts[0]}, are read as epochs, and all of them are times as "
        f"{formats[0]} too: set its format to '{formats[0]}', or to {formats[1]}"
    )


def _no_days(spec: LogSpec, name: str, parts: Sequence[pa.ChunkedArray]) -> str:
    """Returns a warning about dates that no calendar has, such as 2026-02-30; "" without any."""
    texts = pc.unique(pa.chunked_array([chunk for part in parts for chunk in plain_chunks(part).chunks], pa.binary()))
    wrong = outside_calendar(texts.drop_null(), spec.time_formats[name])
    if not len(wrong):
        return ""
    shown = wrong[0].as_py().decode("utf-8", "replace")
    return f"{len(wrong):,} of its different times, as {shown}, are on days that their month lacks: correct them"


def _after_the_click(spec: LogSpec, rows: Mapping[str, pa.Table], splits: Sequence[str]) -> Iterator[Suspect]:
    """Yields the columns whose times are after another column's by a time that gives the label away."""
    if len(spec.time_formats) < 2:
        return
    table = pa.concat_tables([rows[split] for split in splits])
    moments = {
        name: moments_of(plain_chunks(table[name]).combine_chunks(), time_format)
        for name, time_format in spec.time_formats.items()
    }
    labels = [numbers_of(table[spec.data.columns_by_task[task]]) for task in spec.data.click_tasks]
    for name, own in itertools.permutations(moments, 2):
        if not are_after(moments[name], moments[own]):
            continue
        texts = (passing_gives_away(moments[name], moments[own], label) for label in labels)
        if text := next(filter(None, texts), ""):
            yield Suspect(name, "all", f"times after {own}, and of the time between both {text}: is it known before?")


def are_after(times: Seconds, others: Seconds) -> bool:
    """Returns whether times are nearly never before the others, and some are after them."""
    known = np.isfinite(times) & np.isfinite(others)
    passing = (times - others)[known]
    return len(passing) >= LEAST_ROWS and bool((passing >= 0).mean() >= _SORTED and (passing > 0).any())


def passing_gives_away(times: Seconds, others: Seconds, label: npt.NDArray[np.float64]) -> str:
    """Returns how the time that passes between two times of a row reveals its label; "" if it does not."""
    known = np.isfinite(times) & np.isfinite(others)
    return gives_away(pa.chunked_array([pa.array((times - others)[known])]), label[known])


def _own(spec: LogSpec, times: Mapping[str, list[Seconds]]) -> str | None:
    """Returns the column of the rows' own times: the split's column, or the only column that sorts the rows."""
    if spec.data.split.column in times:
        return spec.data.split.column
    ordered = [name for name, parts in times.items() if _is_sorted(parts)]
    return ordered[0] if len(ordered) == 1 else None


def _is_sorted(parts: list[Seconds]) -> bool:
    steps = np.concatenate([np.diff(part[np.isfinite(part)]) for part in parts])
    return len(steps) > 0 and bool((steps >= 0).mean() >= _SORTED and (steps > 0).any())


def _decades(seconds: Seconds, own: Seconds | None) -> str:
    """Returns the years of times that cannot be impressions, such as `of 1950 to 2004`; "" if they can."""
    known = seconds[np.isfinite(seconds)]
    first, last = np.quantile(known, [0.05, 0.95])
    away = 0.0
    if own is not None and np.isfinite(seconds - own).any():
        away = float(np.nanmedian(np.abs(seconds - own)))
    if last - first < _DECADES and away < _DECADES:
        return ""
    if own is None and (known % _DAY).any():
        return ""  # moments may be those of the rows, in another order
    years = [int(np.datetime64(int(end), "s").astype("datetime64[Y]").astype(int)) + 1970 for end in (first, last)]
    return f"of {years[0]} to {years[1]}" if years[0] < years[1] else f"of {years[0]}"


def _far_from_others(seconds: Seconds, parts: Sequence[pa.ChunkedArray]) -> str:
    """Returns a warning if few different times lie decades from all others, such as 9999-12-31 for never; "" if none
    do.
    """
    known = np.sort(seconds[np.isfinite(seconds)])
    gaps = np.diff(known)
    gap = int(np.argmax(gaps))
    sides = known[: gap + 1], known[gap + 1 :]
    kinds, rows = zip(*((len(np.unique(side)), len(side)) for side in sides), strict=True)
    is_after = (kinds[1], rows[1]) <= (kinds[0], rows[0])
    few, most = rows[is_after], 1.0 if kinds[is_after] == 1 else MOST_FAR
    if gaps[gap] < _DECADES or not max(LEAST_FAR, LEAST_SHARE * len(known)) <= few <= most * len(known):
        return ""
    farthest = int(np.nanargmax(seconds) if is_after else np.nanargmin(seconds))
    value = next(itertools.islice((value.as_py() for part in parts for value in part), farthest, None))
    shown = value.decode("utf-8", "replace")
    # In data.missing_values, 0 would be missing in every column of numbers too.
    advice = "write an empty value instead" if NUMBER.fullmatch(shown) else "name it in data.missing_values"
    return (
        f"{few / len(known):.1%} of its times, as {shown}, lie decades {'after' if is_after else 'before'} all "
        f"others, as a word for never or for no time: {advice}"
    )


def _later(seconds: Seconds, own: Seconds) -> float:
    """Returns the share of times after the row's own time, if none lies beyond the end of the log; otherwise 0.

    Times planned ahead, such as departures, lie beyond the end of the log in some of the last rows.
    """
    known = np.isfinite(seconds) & np.isfinite(own)
    if known.sum() < LEAST_IDS:
        return 0.0
    at, other = own[known], seconds[known]
    share = float((other > at).mean())
    end = float(at.max()) + _ROUNDED * float(np.ptp(at))
    if share < LEAST_LATER or other.max() > end:
        return 0.0
    after = np.sort((other - at)[other > at])
    beyond = 1 - np.searchsorted(after, end - at, side="right") / len(after)  # of each row, if by chance
    return share if share * float(beyond.sum()) >= _EXPECTED else 0.0
