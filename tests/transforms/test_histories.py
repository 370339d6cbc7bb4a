"""Event logs to impressions: what a history may hold, how they are cut, and what negatives are drawn."""

import datetime
import json
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.run.prepared import with_histories
from ctrpipe.transforms.histories import EventLog, Prepared, partition, write_log
from ctrpipe.transforms.histories.moments import gap_categories, to_moments

ONE = Workers(processes=1)
USERS, ITEMS, EVENTS = 12, 40, 600


def random_events(seed=0, users=USERS, items=ITEMS, count=EVENTS) -> list[dict]:
    """Events in no order, with many of the same user and time."""
    random = np.random.default_rng(seed)
    return [
        {
            "user": f"u{random.integers(users)}",
            "item": f"i{int(items * random.random() ** 2)}",
            "time": int(random.integers(1000, 1150)),
            "device": f"d{n}",
            "click": int(random.random() < 0.5),
        }
        for n in range(count)
    ]


def write(path, events) -> str:
    names = list(events[0])
    lines = [",".join(names), *(",".join(str(event[name]) for name in names) for event in events)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def prepared(tmp_path, events, name="out", seed=1, **settings) -> tuple[list[dict], Prepared]:
    log = write(tmp_path / f"{name}.csv", events) if isinstance(events, list) else events
    made = with_histories([log], EventLog.model_validate(settings), tmp_path / name, seed, ONE)
    files = sorted((tmp_path / name / "log").glob("*.parquet"))
    rows = pa.concat_tables([pa.parquet.read_table(file) for file in files]).to_pylist()

    def text(value):
        return [text(each) for each in value] if isinstance(value, list) else getattr(value, "decode", lambda: value)()

    return [{key: text(value) for key, value in row.items()} for row in rows], made


def past(events, event, length=50, positive=True, column="item") -> list[str]:
    """The history of an event by its definition, one event at a time."""
    earlier = [e for e in events if e["user"] == event["user"] and int(e["time"]) < int(event["time"])]
    kept = sorted((e for e in earlier if e["click"] or not positive), key=lambda e: int(e["time"]))
    return [e[column] for e in kept][-length:]


@pytest.mark.parametrize("history_of", ["positive", "all"])
def test_a_history_is_what_the_user_had_before_the_event(tmp_path, history_of):
    events = random_events()
    settings = {"label": "click", "history_of": history_of, "max_length": 7, "sequences": ["device"]}
    rows, made = prepared(tmp_path, events, **settings)
    by_device = {event["device"]: event for event in events}
    assert len(rows) == len(events) == made.events and made.users == USERS
    for row in rows:
        event = by_device[row["device"]]
        assert (row["user"], row["item"], row["label"]) == (event["user"], event["item"], event["click"])
        for column in ("item", "device"):
            assert row[f"{column}_history"] == past(events, event, 7, history_of == "positive", column)
    assert made.without_history == sum(not row["item_history"] for row in rows) > 0


def test_another_future_changes_nothing_of_the_past(tmp_path):
    events = random_events()
    cut = 1090
    random = np.random.default_rng(5)
    future = [
        {**event, "item": f"new{random.integers(9)}", "click": 1 - event["click"], "user": f"u{random.integers(99)}"}
        for event in events
        if event["time"] >= cut
    ]
    random.shuffle(future)
    changed = [event for event in events if event["time"] < cut]
    for event in future[::2]:
        changed.insert(random.integers(len(changed)), event)
    settings = {"label": "click", "negatives": 3, "validation_from": str(cut), "test_from": "1100"}
    for draw in ("uniform", "popularity"):
        both = [
            prepared(tmp_path, log, f"{draw}{number}", draw=draw, **settings)[0]
            for number, log in enumerate((events, changed))
        ]
        before = [sorted((row for row in rows if int(row["time"]) < cut), key=str) for rows in both]
        assert before[0] == before[1] and len(before[0]) > 500


def test_a_history_may_say_how_long_ago_each_event_was(tmp_path):
    events = random_events()
    settings = {"label": "click", "max_length": 7, "time_gaps": True, "negatives": 2}
    rows, made = prepared(tmp_path, events, **settings)
    times = {event["device"]: event["time"] for event in events}
    seen = set()
    for row in rows:
        event = {"user": row["user"], "time": row["time"]}
        gaps = [times[row["device"]] - int(time) for time in past(events, event, 7, column="time")]
        assert row["time_gap_history"] == [str(math.floor(math.log2(1 + gap))) for gap in gaps]
        seen |= set(gaps)
    assert {1, 3, 7, 15, 31} < seen  # where 1 + gap is a power of two
    assert made.columns[-2:] == ("item_history", "time_gap_history") and made.rows["training"] > 500


def test_gaps_are_categories_by_powers_of_two():
    gaps = np.array([0.0, 0.99, 1.0, 2.999, 3.0, 2.0**31 - 2, 2.0**31 - 1, 1e12])
    assert gap_categories(gaps).to_pylist() == [b"0", b"0", b"1", b"1", b"2", b"30", b"31", b"39"]


def test_events_at_one_time_do_not_see_each_other_nor_draw_each_other(tmp_path):
    events = [{"user": "a", "item": f"i{n}", "time": 5, "click": 1} for n in range(9)]
    events += [{"user": "b", "item": f"i{n}", "time": 4 + n, "click": 1} for n in range(9)]
    rows, _ = prepared(
        tmp_path, events, negatives=2, validation_from="9", test_from="11", label="click", history_of="all"
    )
    of_a = [row for row in rows if row["user"] == "a"]
    assert all(row["item_history"] == [] for row in of_a)
    # Before 5 only i0 was known, which a has at that time.
    assert [row["label"] for row in of_a] == [1] * 9


def test_leave_one_out_takes_the_last_positive_event_and_the_one_before(tmp_path):
    events = [
        {"user": user, "item": f"i{n}", "time": time, "click": click}
        for user, log in {"a": "11011", "b": "110", "c": "0111"}.items()
        for n, (time, click) in enumerate(zip(range(10, 20), map(int, log), strict=False))
    ]
    rows, made = prepared(tmp_path, events[::-1], split="leave_one_out", label="click")
    parts = {(row["user"], row["item"]): row["part"] for row in rows}
    assert {key[1]: part for key, part in parts.items() if key[0] == "a"} == {
        "i0": 0,
        "i1": 0,
        "i2": 0,
        "i3": 1,
        "i4": 2,
    }
    assert {part for key, part in parts.items() if key[0] == "b"} == {0}  # two positive events are for training
    assert {key[1]: part for key, part in parts.items() if key[0] == "c"} == {"i0": 0, "i1": 0, "i2": 1, "i3": 2}
    assert made.rows == {"training": 3 + 3 + 2, "validation": 2, "test": 2} and made.cuts is None


def test_shares_cut_the_log_at_moments_that_all_events_of_a_moment_share(tmp_path):
    events = random_events(3)
    rows, made = prepared(tmp_path, events, label="click", validation=0.2, test=0.3)
    shares = [sum(row["part"] == part for row in rows) / len(rows) for part in range(3)]
    np.testing.assert_allclose(shares, [0.5, 0.2, 0.3], atol=0.02)
    first, second = made.cuts
    assert all(row["part"] == (int(row["time"]) >= first) + (int(row["time"]) >= second) for row in rows)


def test_uniform_negatives_are_different_unknown_items_whose_weights_are_those_of_all_that_there_were(tmp_path):
    events = [{**event, "click": 1} for event in random_events(1)]
    rows, made = prepared(tmp_path, events, negatives=4, validation_from="1100", test_from="1120")
    positive = [row for row in rows if row["label"] == 1]
    assert len(positive) == len(events)
    by_device = {device: [] for device in (event["device"] for event in events)}
    for row in rows:
        if row["label"] == 0:
            by_device[row["device"]].append(row)
    full = 0
    for row in positive:
        negatives = by_device[row["device"]]
        drawn = [negative["item"] for negative in negatives]
        known = {event["item"] for event in events if event["time"] < int(row["time"])}
        seen = {e["item"] for e in events if e["user"] == row["user"] and e["time"] <= int(row["time"])}
        assert len(set(drawn)) == len(drawn) == min(4, len(known - seen)) and set(drawn) <= known - seen
        assert all(negative["item_history"] == row["item_history"] for negative in negatives)
        assert sum(negative["weight"] for negative in negatives) == pytest.approx(len(known - seen), rel=1e-6)
        full += len(drawn) == 4
    assert made.short == len(events) - full > 0
    assert {row["weight"] for row in positive} == {1.0}


def test_leave_one_out_draws_from_all_items_of_the_log(tmp_path):
    events = [{**event, "click": 1} for event in random_events(1)]
    settings = {"split": "leave_one_out", "negatives": 1, "test_negatives": 10}
    rows, _ = prepared(tmp_path, events, **settings)
    test = [row for row in rows if row["part"] == 2]
    items = {event["item"] for event in events}
    by_user = {}
    for row in test:
        by_user.setdefault(row["user"], []).append(row)
    for user, listed in by_user.items():
        seen = {event["item"] for event in events if event["user"] == user}
        negatives = [row for row in listed if row["label"] == 0]
        assert len(listed) - len(negatives) == 1 and not seen & {row["item"] for row in negatives}
        assert len({row["item"] for row in negatives}) == min(10, len(items - seen))
    assert {row["weight"] for row in rows if row["label"]} == {1.0}


def test_popular_negatives_come_as_often_as_their_events_and_weigh_the_inverse(tmp_path):
    # One user who is asked about, others who make a popular and a rare item.
    events = [{"user": f"o{n}", "item": "rare" if n % 10 == 0 else "popular", "time": n} for n in range(1000)]
    events += [{"user": f"x{n}", "item": "own", "time": 2000 + n % 900} for n in range(3000)]
    rows, _ = prepared(tmp_path, events, negatives=1, draw="popularity", validation_from="2700", test_from="2800")
    drawn = [row for row in rows if row["label"] == 0 and row["user"].startswith("x")]
    counts = Counter(row["item"] for row in drawn)
    assert len(drawn) == 3000 and set(counts) == {"rare", "popular"}
    assert counts["rare"] / 3000 == pytest.approx(0.1, abs=0.02)  # 1 in 10 of the events that are not its own
    first = [row for row in drawn if row["time"] == "2000"]
    expected = {"rare": 1 / 0.1, "popular": 1 / 0.9}
    assert {row["item"]: row["weight"] for row in first} == pytest.approx(
        {item: expected[item] for item in {row["item"] for row in first}}, rel=1e-6
    )


def test_a_negative_has_the_columns_of_its_own_item(tmp_path):
    events = [{**event, "click": 1} for event in random_events(2)]
    genres = {f"i{n}": f"g{n % 5}" for n in range(ITEMS)}
    events = [{**event, "genre": genres[event["item"]]} for event in events]
    rows, _ = prepared(tmp_path, events, negatives=2, item_columns=["genre"], sequences=["genre"], label="click")
    labels = Counter(row["label"] for row in rows)
    assert min(labels[0], labels[1]) > 20
    assert all(row["genre"] == genres[row["item"]] for row in rows)
    assert all(row["genre_history"] == [genres[item] for item in row["item_history"]] for row in rows)


def test_the_result_does_not_depend_on_how_the_log_is_parted(tmp_path, monkeypatch):
    events = random_events(4)
    settings = {"label": "click", "negatives": 2, "draw": "popularity", "validation_from": "1090", "test_from": "1120"}
    first, counts = prepared(tmp_path, events, "first", **settings)
    monkeypatch.setattr(write_log, "_BUCKET_BYTES", 3000)
    monkeypatch.setattr(partition, "PIECE_ROWS", 100)
    monkeypatch.setattr("ctrpipe.transforms.log.lines.CHUNK_BYTES", 500)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 4000)
    second, others = prepared(tmp_path, events, "second", **settings)
    assert len(list((tmp_path / "second" / "log").iterdir())) > 2
    assert sorted(first, key=str) == sorted(second, key=str)
    assert (counts.rows, counts.cuts, counts.items) == (others.rows, others.cuts, others.items)


def test_malformed_events_are_counted_with_their_lines_and_the_others_kept(tmp_path):
    events = [{"user": "u", "item": f"i{n}", "time": n, "click": 1} for n in range(400)]
    events[7]["time"], events[8]["user"], events[9]["item"] = "yesterday", "", ""
    rows, made = prepared(tmp_path, events, label="click")
    assert (made.events, made.rejected, len(rows)) == (397, 3, 397)
    assert made.reasons == {"time: is not a number or an ISO 8601 time": 1, "user: no value": 1, "item: no value": 1}
    letters = [json.loads(line) for line in open(tmp_path / "out" / "dead_letter" / "rejects.jsonl")]
    assert [(letter["line"], letter["reason"]) for letter in letters] == [
        (9, "time: 'yesterday' is not a number or an ISO 8601 time"),
        (10, "user: no value"),
        (11, "item: no value"),
    ]
    for event in events[:50]:
        event["time"] = "never"
    with pytest.raises(InputError, match=r"line 2: time: 'never' is not a number .* 50 of 400 events are malformed"):
        prepared(tmp_path, events, "bad", label="click")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"user": "who"}, "the event log has no column who; it has user, item, time, device"),
        ({"test_from": "soon", "validation_from": "5"}, "test_from: 'soon' is not a time"),
        (
            {"validation_from": "1", "test_from": "2"},
            "the training and the validation part of 600 events would be empty",
        ),
        ({"columns": ["a", "b"]}, "columns: the files name theirs"),
        ({"time_format": "%Q"}, "time_format: 'Q' is a bad directive in format '%Q'; use the directives of strptime"),
    ],
)
def test_what_cannot_be_prepared_is_one_line(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        prepared(tmp_path, random_events(), label="click", **settings)
    assert not (tmp_path / "out" / "log").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "every event would be positive"),
        ({"negatives": 1, "test_from": "3"}, "go together"),
        ({"negatives": 1, "split": "leave_one_out", "validation_from": "1", "test_from": "3"}, "split: time only"),
        ({"negatives": 1, "user": "item"}, "must be three columns"),
        ({"negatives": 1, "sequences": ["item"]}, "which is the item itself"),
        ({"negatives": 1, "sequences": ["time_gap"], "time_gaps": True}, "both make time_gap_history"),
    ],
)
def test_settings_that_contradict_each_other(settings, message):
    with pytest.raises(ValueError, match=message):
        EventLog.model_validate(settings)


def test_the_log_is_kept_until_its_files_or_settings_change(tmp_path):
    log = write(tmp_path / "events.csv", random_events())
    rows, made = prepared(tmp_path, log, label="click")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "log").iterdir()}
    again, kept = prepared(tmp_path, log, label="click")
    assert kept == made and files == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "log").iterdir()}
    others, _ = prepared(tmp_path, log, label="click", max_length=1)
    assert max(len(row["item_history"]) for row in others) == 1 < max(len(row["item_history"]) for row in rows)


def test_times_of_several_forms_are_in_one_order():
    texts = [
        "1700000000",
        "2023-11-14T22:13:20.5Z",
        "2023-11-14 22:13:21",
        "2023-11-15T00:13:22+02:00",
        "14102100",
        None,
    ]
    moments = to_moments(pa.array([text and text.encode() for text in texts]), None)
    assert moments.tolist()[:5] == [1700000000.0, 1700000000.5, 1700000001.0, 1700000002.0, 14102100.0]
    assert np.isnan(moments[5])
    wrong = to_moments(pa.array([b"2023-02-31", b"x", b"", b"nan"]), None)
    assert np.isnan(wrong).all()
    assert to_moments(pa.array([b"1.7e+9", b"+5"]), None).tolist() == [1.7e9, 5.0]  # as Parquet's doubles are written
    formatted = to_moments(pa.array([b"14/Nov/2023:22:13:20 +0000", b"1700000000"]), "%d/%b/%Y:%H:%M:%S %z")
    expected = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC).timestamp()
    assert formatted[0] == expected and np.isnan(formatted[1])


def test_times_that_are_numbers_and_dates_are_not_one_log(tmp_path):
    events = [{"user": f"u{n % 5}", "item": f"i{n}", "time": 1_777_593_600 + n, "click": n % 2} for n in range(100)]
    events[70]["time"] = "2026-05-01 00:01"
    with pytest.raises(InputError, match=r"line 72: time: '2026-05-01 00:01' is a date or moment.*1777593600.*line 2"):
        prepared(tmp_path, events, label="click")


@pytest.mark.parametrize("unit", [1, 10**3, 10**9])
def test_a_date_cuts_epochs_of_any_unit_and_an_epoch_cuts_dates(tmp_path, unit):
    events = [
        {"user": f"u{n % 5}", "item": f"i{n}", "time": (1_777_593_600 + 3600 * n) * unit, "click": n % 2}
        for n in range(96)
    ]
    cuts = {"validation_from": "2026-05-03", "test_from": "2026-05-04T00:00:00Z"}
    assert prepared(tmp_path, events, label="click", **cuts)[1].rows == {"training": 48, "validation": 24, "test": 24}
    for event in events:
        moment = datetime.datetime.fromtimestamp(event["time"] // unit, datetime.UTC)
        event["time"] = f"{moment:%Y-%m-%dT%H:%M}"
    cuts = {"validation_from": str(1_777_766_400 * unit), "test_from": str(1_777_852_800 * unit)}
    made = prepared(tmp_path, events, "dates", label="click", **cuts)[1]
    assert made.rows == {"training": 48, "validation": 24, "test": 24}


def test_a_date_does_not_cut_a_log_of_day_numbers(tmp_path):
    events = [{"user": f"u{n % 5}", "item": f"i{n}", "time": n, "click": n % 2} for n in range(30)]
    with pytest.raises(InputError, match=r"validation_from: '2026-05-03' cannot be compared with .* as 0; write it"):
        prepared(tmp_path, events, label="click", validation_from="2026-05-03", test_from="2026-05-04")
