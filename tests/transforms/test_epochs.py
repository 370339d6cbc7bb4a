"""Times as seconds since 1970."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.transforms.log.epochs import epoch_seconds, outside_calendar


@pytest.mark.parametrize(
    ("text", "time_format", "expected"),
    [
        ("2026-11-01T05:06:00Z", "auto", "2026-11-01T05:06+00:00"),
        ("2026-11-01 05:06:59.5", "auto", "2026-11-01T05:06+00:00"),
        ("2026-11-01T05:06:00-01:30", "auto", "2026-11-01T05:06-01:30"),
        ("2024-02-29", "auto", "2024-02-29T00:00+00:00"),
        ("14102123", "auto", "2014-10-21T23:00+00:00"),
        ("1414281600", "auto", "2014-10-26T00:00+00:00"),
        ("1414281600123", "auto", "2014-10-26T00:00+00:00"),
        ("01/Nov/2026:05:07:08 +0100", "%d/%b/%Y:%H:%M:%S %z", "2026-11-01T05:07+01:00"),
        ("3.4.1999 11 PM", "%d.%m.%Y %I %p", "1999-04-03T23:00+00:00"),
    ],
)
def test_a_time_is_the_second_that_python_reads(text, time_format, expected):
    found = epoch_seconds(pa.array([text.encode(), b"soon", None, text.encode()]), time_format)
    moment = datetime.datetime.fromisoformat(expected).timestamp()
    np.testing.assert_array_equal(found, [moment, np.nan, np.nan, moment])


@pytest.mark.parametrize(
    ("time_format", "wrong", "right"),
    [
        ("auto", "2026-02-30 10:00", "2028-02-29 10:00"),
        ("auto", "2026-04-31", "2026-04-30"),
        ("%d/%m/%y", "31/06/26", "30/06/26"),
        ("yyyymmdd", "20260229", "20240229"),
        ("epoch_seconds", None, "1777600000"),
    ],
)
def test_days_that_no_month_has_are_found(time_format, wrong, right):
    texts = [text.encode() for text in (right, wrong, "no time") if text]
    found = outside_calendar(pa.array(texts, pa.binary()), time_format).to_pylist()
    assert found == ([wrong.encode()] if wrong else [])
