"""Converts the events of a bucket of users to impressions with histories and negatives."""

import dataclasses
import functools
import pathlib
from collections import Counter

import numpy as np
import pyarrow as pa

from ctrpipe.common.hashing import hash_values, splitmix64
from ctrpipe.transforms.histories.catalogue import Catalogue, Draw
from ctrpipe.transforms.histories.moments import gap_categories
from ctrpipe.transforms.histories.partition import MOMENT, ORDER, POSITIVE, hashes_of, read_bucket
from ctrpipe.transforms.histories.settings import LABEL, PART, WEIGHT, EventLog
from ctrpipe.transforms.log.payload import PayloadWriter

TRAINING, VALIDATION, TEST = range(3)
PARTS = ("training", "validation", "test")
_CHUNK_ROWS = 1 << 16  # impressions whose histories are in memory at once
_LEAST_POSITIVES = 3  # for leave-one-out: one each for training, validation and test


@dataclasses.dataclass(frozen=True)
class Written:
    """Counts of the impressions written for a bucket.

    Attributes:
        users: Number of users with events.
        rows, positives: Number of rows by part: all rows, and rows with label 1.
        without_history: Number of rows with an empty history.
        short: Number of positive events with fewer negatives than requested, because too few items are allowed.
    """

    users: int
    rows: Counter[str]
    positives: Counter[str]
    without_history: int
    short: int


_catalogue = functools.lru_cache(maxsize=1)(Catalogue)  # one catalogue per process


@dataclasses.dataclass(frozen=True)
class WriteImpressions:
    """Writes the impressions of a bucket of users.

    Args:
        parts: The event files of all pieces of the log (see Partition).
        columns: Columns of the events.
        events: The settings.
        cuts: First moments of validation and test; None for leave-one-out.
        catalogue: The folder that `write_catalogue` wrote to.
        folder: The output folder of the impressions.
        seed: Seed of the negatives and the row order.
    """

    parts: tuple[pathlib.Path, ...]
    columns: tuple[str, ...]
    events: EventLog
    cuts: tuple[float, float] | None
    catalogue: pathlib.Path
    folder: pathlib.Path
    seed: int

    def __call__(self, bucket: int) -> Written:
        table = read_bucket(list(self.parts), bucket)
        catalogue = _catalogue(self.catalogue, self.events.draw, self.events.split)
        users = _Users(table, self.events, catalogue)
        part = users.last_left_out() if self.cuts is None else np.searchsorted(self.cuts, users.moments, "right")
        rows, short = self._rows(users, part, catalogue)
        order = np.argsort(hash_values(f"{self.seed}/{bucket}/order", np.arange(len(rows.event))), kind="stable")
        schema = self._schema(table.schema)
        with PayloadWriter(self.folder, f"part-{bucket:06d}", schema) as writer:
            for start in range(0, len(order), _CHUNK_ROWS):
                chosen = rows.take(order[start : start + _CHUNK_ROWS])
                writer.write(self._batch(users, part, chosen, catalogue, schema))
        of_part, labels = part[rows.event], rows.is_event & users.positive[rows.event]
        lengths = users.history_ends - users.history_starts
        return Written(
            users.count,
            Counter({name: int((of_part == code).sum()) for code, name in enumerate(PARTS)}),
            Counter({name: int((labels & (of_part == code)).sum()) for code, name in enumerate(PARTS)}),
            int((lengths[rows.event] == 0).sum()),
            short,
        )

    def _rows(self, users: "_Users", part: np.ndarray, catalogue: Catalogue) -> tuple["_Rows", int]:
        """Returns the events followed by their negatives, and the number of events with too few negatives."""
        size = len(users.moments)
        parts = [_Rows(np.arange(size), users.codes, np.ones(size, bool), np.ones(size, np.float32))]
        short = 0
        keys, available = users.keys(self.seed), users.available()
        counts = np.where(part == TEST, self.events.negatives_of_test, self.events.negatives) * users.positive
        for count in np.unique(counts[counts > 0]).tolist():
            chosen = np.flatnonzero(counts == count)
            draw = Draw(keys[chosen], users.moments[chosen], available[chosen])
            codes = catalogue.draw(draw, count, functools.partial(users.has_seen, chosen))
            weights = catalogue.weights(draw, codes)
            row, place = np.nonzero(codes >= 0)
            short += int((codes < 0).any(axis=1).sum())
            parts.append(_Rows(chosen[row], codes[row, place], np.zeros(len(row), bool), weights[row, place]))
        return _Rows.joined(parts), short

    def _schema(self, events: pa.Schema) -> pa.Schema:
        own = [(LABEL, pa.int8()), (PART, pa.int8()), *([(WEIGHT, pa.float32())] if self.events.has_weight else [])]
        logged = [(name, pa.binary()) for name in self.columns]
        lists = [(new, pa.list_(events.field(name).type)) for name, new in self.events.history_columns.items()]
        lists += [(self.events.gap_column, pa.list_(pa.binary()))] if self.events.gap_column else []
        return pa.schema([*own, *logged, *lists])

    def _batch(
        self, users: "_Users", part: np.ndarray, rows: "_Rows", catalogue: Catalogue, schema: pa.Schema
    ) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {
            LABEL: pa.array((rows.is_event & users.positive[rows.event]).astype(np.int8)),
            PART: pa.array(part[rows.event].astype(np.int8)),
            WEIGHT: pa.array(rows.weight),
        }
        events, codes = pa.array(rows.event), pa.array(rows.code)
        of_item = {self.events.item, *self.events.item_columns}
        for name in self.columns:
            source, places = (catalogue.items, codes) if name in of_item else (users.table, events)
            columns[name] = source[name].take(places).combine_chunks()
        offsets, places = users.histories(rows.event)
        for name, new in self.events.history_columns.items():
            values = users.table[name].take(pa.array(places)).combine_chunks()
            columns[new] = pa.ListArray.from_arrays(pa.array(offsets), values)
        if self.events.gap_column:
            gaps = np.repeat(users.moments[rows.event], np.diff(offsets)) - users.moments[places]
            columns[self.events.gap_column] = pa.ListArray.from_arrays(pa.array(offsets), gap_categories(gaps))
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Impressions as arrays [N]: event index, item code, whether the row is the event itself, and weight."""

    event: np.ndarray
    code: np.ndarray
    is_event: np.ndarray
    weight: np.ndarray

    @classmethod
    def joined(cls, parts: list["_Rows"]) -> "_Rows":
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def take(self, chosen: np.ndarray) -> "_Rows":
        return _Rows(*(getattr(self, field.name)[chosen] for field in dataclasses.fields(self)))


class _Users:
    """The events of a bucket of users, sorted by user, moment and position in the log.

    Args:
        table: Events, in any order.
        events: The settings.
        catalogue: The items of the log.

    Attributes:
        table: The events, sorted; text columns of the histories as dictionaries.
        count: Number of users.
        moments: float64 [N].
        positive: bool [N].
        codes: int64 [N], item codes.
        history_starts, history_ends: int64 [N], range of each event's history within the events that histories can
            contain.
    """

    def __init__(self, table: pa.Table, events: EventLog, catalogue: Catalogue):
        self._catalogue = catalogue
        self._item = events.item
        self._by_time = events.split == "time"
        user = table[events.user].combine_chunks().dictionary_encode()
        codes = user.indices.to_numpy()
        order = np.lexsort((table[ORDER].to_numpy(), table[MOMENT].to_numpy(), codes))
        self.table = table.take(pa.array(order)).combine_chunks()
        self._user = codes[order].astype(np.int64)
        self._hashes = hashes_of(user.dictionary)[self._user]
        self.count = len(user.dictionary)
        self.moments = self.table[MOMENT].to_numpy()
        self.positive = self.table[POSITIVE].to_numpy(zero_copy_only=False)
        self.codes = catalogue.codes_of(self.table[events.item].combine_chunks())
        size = len(order)
        is_first = np.append(True, self._user[1:] != self._user[:-1])[:size]
        is_new = is_first | np.append(True, self.moments[1:] != self.moments[:-1])[:size]
        self._start = _starts(is_first)  # index of the first event of the same user
        self._run = _starts(is_new)  # index of the first event of the same user and moment
        self._run_end = _ends(is_new)
        kept = self.positive if events.history_of == "positive" else np.ones(size, bool)
        self._pool = np.flatnonzero(kept)
        before = np.append(0, np.cumsum(kept))
        self.history_ends = before[self._run]
        self.history_starts = np.maximum(before[self._start], self.history_ends - events.max_length)
        pairs = self._user * len(catalogue.firsts) + self.codes
        # The events of a user are sorted by moment, so the first of equal pairs is the earliest.
        self._pairs, self._pair_event = np.unique(pairs, return_index=True)

    def histories(self, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the histories of events `[N]`: offsets int32 `[N + 1]`, and indices of the history events."""
        starts, lengths = self.history_starts[events], (self.history_ends - self.history_starts)[events]
        offsets = np.append(0, np.cumsum(lengths))
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return offsets.astype(np.int32), self._pool[places]

    def last_left_out(self) -> np.ndarray:
        """Returns the leave-one-out part of each event.

        Test: from a user's last positive event on. Validation: from the second to last positive event up to there.
        """
        counted = np.append(0, np.cumsum(self.positive))
        end = _ends(np.append(True, self._user[1:] != self._user[:-1])[: len(self._user)])
        total = counted[end] - counted[self._start]
        left = counted[end] - counted[:-1] - self.positive  # positive events after this one
        part = np.where(left == 0, TEST, np.where(left == 1, VALIDATION, TRAINING))
        return np.where(total >= _LEAST_POSITIVES, part, TRAINING)

    def keys(self, seed: int) -> np.ndarray:
        """Returns the random seed of each event, uint64 [N], a hash of seed, user, moment and item."""
        with np.errstate(over="ignore"):
            keys = splitmix64(self._hashes + splitmix64(np.array([seed], np.uint64)))
            keys = splitmix64(keys + self.moments.view(np.uint64))
            return splitmix64(keys + hashes_of(self.table[self._item].combine_chunks()))

    def has_seen(self, chosen: np.ndarray, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Returns whether the user of each event `chosen[rows]` had the item `codes` by then, bool `[M]`."""
        events = chosen[rows]
        wanted = self._user[events] * len(self._catalogue.firsts) + codes
        places = np.minimum(np.searchsorted(self._pairs, wanted), len(self._pairs) - 1)
        seen: np.ndarray = (self._pairs[places] == wanted) & (
            self.moments[self._pair_event[places]] <= self.moments[events]
        )
        return seen

    def available(self) -> np.ndarray:
        """Returns the number of possible negatives of each event, int64 [N]: known items that the user has not had."""
        first = np.zeros(len(self.moments), np.int64)
        first[self._pair_event] = 1
        known = first if not self._by_time else first * (self._catalogue.firsts[self.codes] < self.moments)
        had, had_known = np.append(0, np.cumsum(first)), np.append(0, np.cumsum(known))
        seen = had[self._run] - had[self._start] + had_known[self._run_end] - had_known[self._run]
        unseen: np.ndarray = np.maximum(self._catalogue.known(self.moments) - seen, 0)
        return unseen


def _starts(is_start: np.ndarray) -> np.ndarray:
    """Returns the index of the last start at or before each index, int64 [N]."""
    starts: np.ndarray = np.maximum.accumulate(np.where(is_start, np.arange(len(is_start)), 0))
    return starts


def _ends(is_start: np.ndarray) -> np.ndarray:
    """Returns the index of the first start after each index, int64 [N]; N if there is none."""
    starts = np.flatnonzero(np.append(is_start, True))
    following: np.ndarray = starts[np.cumsum(is_start)]
    return following
