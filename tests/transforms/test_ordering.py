"""The order of a column's values. Expected moments are Python's own datetime, expected numbers its Fraction."""

import datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.transforms.log.ordering import MISSING, OTHER_KIND, UNREADABLE, Boundary, Ordering, is_after, kind_of


def read(ordering: Ordering, *texts: str | bytes | None):
    values = [text.encode() if isinstance(text, str) else text for text in texts]
    return ordering.compare(pa.array(values, pa.binary()))


def microseconds(*moment: int, zone: float = 0) -> int:
    since = datetime.datetime(*moment) - datetime.datetime(1970, 1, 1) - datetime.timedelta(hours=zone)
    return since // datetime.timedelta(microseconds=1)


MOMENTS = {
    "2026-05-01": microseconds(2026, 5, 1),
    "2026-05-01 12:30": microseconds(2026, 5, 1, 12, 30),
    "2026-05-01T12:30:59": microseconds(2026, 5, 1, 12, 30, 59),
    "2026-05-01T12:30:59.25Z": microseconds(2026, 5, 1, 12, 30, 59, 250_000),
    "2026-05-01 12:30:59,123456789+02:00": microseconds(2026, 5, 1, 12, 30, 59, 123_456, zone=2),
    "2026-05-01T12:30:59.123456789012Z": microseconds(2026, 5, 1, 12, 30, 59, 123_456),
    "2026-05-01T00:30+0530": microseconds(2026, 5, 1, 0, 30, zone=5.5),
    "2026-05-01 00:30:00 -08": microseconds(2026, 5, 1, 0, 30, zone=-8),
    "2026-05-01 12:00:00 UTC": microseconds(2026, 5, 1, 12),
    "1969-12-31": microseconds(1969, 12, 31),
    "2024-02-29": microseconds(2024, 2, 29),
    "0001-01-01": microseconds(1, 1, 1),
    "9999-12-31T23:59:59.999999": microseconds(9999, 12, 31, 23, 59, 59, 999_999),
}


def test_moments_are_read_with_zones_and_fractions():
    found = read(Ordering("moment"), *MOMENTS)
    assert not found.faults.any() and found.keys.tolist() == list(MOMENTS.values())
    bad = ["2026-02-30", "2025-02-29", "2026-13-01", "2026-00-10", "2026-05-01T24:00", "yesterday", "2026-5-1"]
    assert read(Ordering("moment"), *bad).faults.tolist() == [UNREADABLE] * len(bad)
    assert read(Ordering("moment", missing=(b"NULL",)), "", None, "NULL", "7", "1777593600").faults.tolist() == [
        *(MISSING, MISSING, MISSING, OTHER_KIND, OTHER_KIND)
    ]


def test_epochs_are_told_apart_by_their_size():
    moment = microseconds(2026, 5, 1, 0, 0, 1, 999_999)
    texts = ["1777593601", "1777593601999", "1777593601999999", "1777593601999999999", "1777593601.5", "1.777593601e9"]
    found = read(Ordering("epoch"), *texts)
    expected = [moment - 999_999, moment - 999, moment, moment, moment - 499_999, moment - 999_999]
    assert found.keys.tolist() == expected and not found.faults.any()
    assert read(Ordering("epoch"), "874965758").keys[0] == 874_965_758 * 10**6  # MovieLens
    # 0 and -1 are no moments; YYYYMMDDHH, YYYYMMDD and YYYYMMDDHHMM are no epochs.
    others = ["0", "-1", "2026050112", "20260501", "202605011230"]
    assert read(Ordering("epoch"), *others).faults.tolist() == [UNREADABLE] * 5
    assert read(Ordering("epoch"), "2026-05-01").faults.tolist() == [OTHER_KIND]


def test_numbers_are_numbers():
    found = read(Ordering("number"), "9", "28", "+3", "-2", "10")
    assert found.keys.tolist() == [9, 28, 3, -2, 10] and found.keys.dtype == np.int64
    assert read(Ordering("number"), "9", "2.5", "1e3").keys.tolist() == [9.0, 2.5, 1000.0]
    big = [2**53 + 1, 2**53 + 2]
    assert read(Ordering("number"), *map(str, big)).keys.tolist() == big
    faults = read(Ordering("number"), "nine", "inf", "1e999", "2026-05-01", b"\xff9").faults
    assert faults.tolist() == [UNREADABLE, UNREADABLE, UNREADABLE, OTHER_KIND, UNREADABLE]
    assert read(Ordering("number", decimal=","), "1,5", "2").keys.tolist() == [1.5, 2.0]


def test_a_format_of_its_own_is_read_to_the_second():
    ordering = Ordering("moment", "%d.%m.%Y %H:%M:%S")
    found = read(ordering, "01.05.2026 00:00:59", "1.5.", "30.02.2026 00:00:00")
    assert found.keys[0] == microseconds(2026, 5, 1, 0, 0, 59) and found.faults.tolist() == [0, UNREADABLE, UNREADABLE]
    assert ordering.boundary("02.05.2026 00:00:00") == ordering.boundary("2026-05-02") == microseconds(2026, 5, 2)
    assert read(Ordering("moment", "%Y%m%d"), "20260501").keys[0] == microseconds(2026, 5, 1)
    assert read(Ordering("moment", "yymmddhh"), "26050112").keys[0] == microseconds(2026, 5, 1, 12)
    assert read(Ordering("moment", "epoch_milliseconds"), "1500").keys[0] == 1_500_000


def test_boundaries_are_read_as_the_column():
    assert Ordering("epoch").boundary("2026-05-01T02:00+02:00") == microseconds(2026, 5, 1)
    assert Ordering("moment").boundary("1777593600000") == microseconds(2026, 5, 1)
    assert Ordering("number").boundary("25") == 25
    for kind, text in (("number", "2026-05-01"), ("moment", "25"), ("epoch", "monday"), ("number", "25th")):
        with pytest.raises(ValueError, match=f"'{text}' is a"):
            Ordering(kind).boundary(text)


def test_keys_are_behind_a_boundary_exactly():
    keys = np.array([2**53, 2**53 + 1, 2**53 + 2])
    assert Boundary(2**53 + 1).behind(keys).tolist() == [False, True, True]
    assert Boundary(2**53 + 1, after=True).behind(keys).tolist() == [False, False, True]
    assert Boundary(Fraction(5, 2)).behind(np.array([2, 3])).tolist() == [False, True]
    assert Boundary(2.5, after=True).behind(np.array([2.5, 2.6])).tolist() == [False, True]
    assert Boundary(b"b").behind(pa.array([b"a", b"b", b"ba"])).tolist() == [False, True, True]


def test_two_boundaries_have_an_order():
    for first, second in (("9", "28"), ("2026-05-01", "2026-05-01T00:01"), ("2026-05-01T01:00+02:00", "2026-05-01")):
        assert is_after(first, second, "auto", "auto") and not is_after(second, first, "auto", "auto")
    assert not is_after("9", "28", "text", "auto")
    assert is_after("30.04.2026", "01.05.2026", "auto", "%d.%m.%Y")
    for first, second in (("a", "b"), ("9", "2026-05-01"), ("monday", "tuesday")):
        with pytest.raises(ValueError, match="compare_as|different kinds"):
            is_after(first, second, "auto", "auto")
    assert [kind_of(text) for text in ("9", "1777593600", "2026-05-01", "x")] == ["number", "epoch", "moment", "text"]
