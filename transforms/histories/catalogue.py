"""The item catalogue of an event log, and negative sampling from it."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.hashing import hash_values, splitmix64
from ctrpipe.transforms.histories.partition import MOMENT, Piece, items_of
from ctrpipe.transforms.histories.settings import EventLog

MOST_DRAWN = 1 << 22  # maximum number of events in the sample for popularity-based draws
_MERGED = 64  # number of item tables merged at once
_ATTEMPTS = 60  # attempts to draw an allowed item
_ITEMS, _EVENTS = "items.arrow", "drawn.arrow"


def write_catalogue(pieces: Sequence[Piece], events: EventLog, seed: int, folder: pathlib.Path) -> int:
    """Writes the items of all pieces, sorted by first event, and a sample of the positive events.

    Returns:
        The number of items.
    """
    tables: list[pa.Table] = []
    for piece in pieces:
        tables.append(_read(piece.items))
        if len(tables) == _MERGED:
            tables = [items_of(pa.concat_tables(tables), events, counted=True)]
    items = items_of(pa.concat_tables(tables), events, counted=True)
    items = items.sort_by([(MOMENT, "ascending"), (events.item, "ascending")]).combine_chunks()
    _write(folder / _ITEMS, items)
    drawn = [_thinned(piece, rate, seed) for rate in [_common_rate(pieces)] for piece in pieces]
    sample = pa.concat_tables(drawn).sort_by([(MOMENT, "ascending"), (events.item, "ascending")]).combine_chunks()
    codes = pc.index_in(sample[events.item], value_set=items[events.item].combine_chunks())
    _write(folder / _EVENTS, pa.table({"item": codes, MOMENT: sample[MOMENT]}))
    return int(items.num_rows)


def _common_rate(pieces: Sequence[Piece]) -> float:
    """Returns the sampling rate for all pieces: at most each piece's own, and at most about MOST_DRAWN events in
    total.
    """
    return min(min(piece.rate for piece in pieces), MOST_DRAWN / max(1, sum(piece.rows for piece in pieces)))


def _thinned(piece: Piece, rate: float, seed: int) -> pa.Table:
    table = _read(piece.drawn)
    if rate >= piece.rate:
        return table
    keys = hash_values(f"{seed}/{piece.drawn.stem}", np.arange(table.num_rows))
    return table.filter(pa.array(keys < np.uint64(rate / piece.rate * 2.0**64)))


@dataclasses.dataclass(frozen=True)
class Draw:
    """The rows to sample negatives for.

    Attributes:
        keys: uint64 [N], random seed of each row.
        moments: float64 [N], time of each row.
        available: int64 [N], number of items that may be drawn for each row.
    """

    keys: np.ndarray
    moments: np.ndarray
    available: np.ndarray


class Catalogue:
    """The items of the log. The code of an item is its rank by time of first event.

    Args:
        folder: The folder that `write_catalogue` wrote to.
        draw: "uniform" or "popularity".
        split: "time", to draw only from items and events before a row, or "leave_one_out".

    Attributes:
        items: Table of the items, by code.
        firsts: float64 [items], moment of each item's first event.
    """

    def __init__(self, folder: pathlib.Path, draw: str, split: str):
        self.items = _read(folder / _ITEMS)
        self.firsts = self.items[MOMENT].to_numpy()
        self._names = self.items[0].combine_chunks()
        self._by_popularity = draw == "popularity"
        self._by_time = split == "time"
        if self._by_popularity:
            sample = _read(folder / _EVENTS)
            self._drawn, self._moments = sample["item"].to_numpy(), sample[MOMENT].to_numpy()
            # Sorted (item, index in the sample) keys, to count the events of an item before a moment.
            self._order = np.lexsort((np.arange(len(self._drawn)), self._drawn)).astype(np.int64)
            self._keys = self._drawn[self._order].astype(np.int64) * len(self._drawn) + self._order

    def codes_of(self, items: pa.Array) -> np.ndarray:
        """Returns the codes of items, int64 `[N]`."""
        codes: np.ndarray = pc.index_in(items, value_set=self._names).to_numpy().astype(np.int64)
        return codes

    def known(self, moments: np.ndarray) -> np.ndarray:
        """Returns how many items, the lowest codes, are known at moments `[N]`, int64 `[N]`."""
        if self._by_time:
            before: np.ndarray = np.searchsorted(self.firsts, moments, side="left")
            return before
        return np.full(len(moments), len(self.firsts))

    def draw(self, rows: Draw, count: int, is_seen: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Draws distinct items for each row.

        Returns:
            Codes, int64 `[N, count]`; -1 if no allowed item was found.

        Args:
            rows: The rows.
            count: Number of items per row.
            is_seen: Returns which codes `[M]` must not be drawn for rows `[M]`, bool `[M]`.
        """
        until = self._events_before(rows.moments) if self._by_popularity else self.known(rows.moments)
        drawn = np.full((len(rows.keys), count), -1, np.int64)
        wanted = np.arange(count)[None, :] < np.minimum(rows.available, count)[:, None]
        wanted &= (until > 0)[:, None]
        for attempt in range(_ATTEMPTS):
            row, place = np.nonzero(wanted & (drawn < 0))
            if not len(row):
                break
            with np.errstate(over="ignore"):
                random = splitmix64(rows.keys[row] + (attempt * count + place).astype(np.uint64))
            picked = (random.astype(np.float64) / 2.0**64 * until[row]).astype(np.int64)
            picked = np.minimum(picked, until[row] - 1)
            codes = self._drawn[picked].astype(np.int64) if self._by_popularity else picked
            drawn[row, place] = np.where(is_seen(row, codes), -1, codes)
            touched = np.unique(row)
            drawn[touched] = _once(drawn[touched])
        return drawn

    def weights(self, rows: Draw, codes: np.ndarray) -> np.ndarray:
        """Returns the weight of each drawn item, float32 `[N, count]`: 1 / its expected number of draws.

        The weight is the number of items that a drawn item represents.
        """
        drawn = np.maximum((codes >= 0).sum(axis=1), 1)
        if not self._by_popularity:
            return np.repeat((rows.available / drawn)[:, None], codes.shape[1], axis=1).astype(np.float32)
        size, until = len(self._drawn), self._events_before(rows.moments)
        begin = np.searchsorted(self._keys, codes * size)
        end = np.searchsorted(self._keys, codes * size + until[:, None])
        expected = drawn[:, None] * (end - begin) / np.maximum(until, 1)[:, None]
        weights: np.ndarray = np.divide(1.0, expected, out=np.ones(codes.shape), where=expected > 0)
        return weights.astype(np.float32)

    def _events_before(self, moments: np.ndarray) -> np.ndarray:
        """Returns the number of events in the sample that each row may draw from, int64 `[N]`."""
        if self._by_time:
            before: np.ndarray = np.searchsorted(self._moments, moments, side="left")
            return before
        return np.full(len(moments), len(self._drawn))


def _once(codes: np.ndarray) -> np.ndarray:
    """Replaces repeated codes within each row of `[N, count]` by -1, except the first."""
    order = np.argsort(codes, axis=1, kind="stable")
    ranked = np.take_along_axis(codes, order, axis=1)
    repeated = np.zeros(codes.shape, bool)
    repeated[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    result = codes.copy()
    np.put_along_axis(result, order, np.where(repeated, -1, ranked), axis=1)
    return result


def _read(path: pathlib.Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _write(path: pathlib.Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
