"""Times as seconds since 1970."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.transforms.log.epochs import epoch_seconds


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
