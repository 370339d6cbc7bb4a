"""An explained row shows the date beside a time that is an epoch number."""

import pytest

from ctrpipe.pipeline.explain.explained_row import ColumnAttribution, RowExplained


@pytest.mark.parametrize(
    ("text", "time_format", "shown"),
    [
        ("1714469400", "auto", "1714469400 (2024-04-30 09:30 UTC)"),
        ("1714469400123", "auto", "1714469400123 (2024-04-30 09:30 UTC)"),
        ("1714469400.25", "epoch_seconds", "1714469400.25 (2024-04-30 09:30 UTC)"),
        ("2024-04-30", "auto", "2024-04-30"),
        ("14102100", "auto", "14102100"),
        (None, "auto", None),
    ],
)
def test_an_epoch_number_is_shown_with_its_date(text, time_format, shown):
    columns = (ColumnAttribution("at", (text,), 0.5, None), ColumnAttribution("id", ("1714469400",), 0.1, None))
    row = RowExplained(0.5, 0.0, 0.0, columns).with_moments({"at": time_format})
    assert [one.value for one in row.columns] == [(shown,), ("1714469400",)]
