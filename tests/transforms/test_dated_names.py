"""The order of files whose names hold dates that numbers alone do not order."""

import pytest

from ctrpipe.transforms.log.dated_names import dated_names


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (["log_apr.csv", "log_feb.csv", "log_jan.csv"], "log_apr.csv is read before log_feb.csv"),
        (["x/01-02-2024.csv", "x/31-01-2024.csv"], "01-02-2024.csv is read before 31-01-2024.csv"),
        (["01.13.2024.csv", "02.12.2023.csv"], "01.13.2024.csv is read before 02.12.2023.csv"),
        (["Feb 1 2024.csv", "Jan 5 2024.csv"], "Feb 1 2024.csv is read before Jan 5 2024.csv"),
        (["3march2024.csv", "4january2024.csv"], "3march2024.csv is read before 4january2024.csv"),
        (["1am.csv", "1pm.csv", "2am.csv", "2pm.csv"], "1pm.csv is read before 2am.csv"),
        (["d1_12am.csv", "d1_12pm.csv", "d1_1am.csv"], "d1_12pm.csv is read before d1_1am.csv"),
        (["2026-05-01 3PM.csv", "2026-05-01 4AM.csv"], "2026-05-01 3PM.csv is read before 2026-05-01 4AM.csv"),
        (["log_fri.csv", "log_mon.csv", "log_sat.csv", "log_tue.csv"], "log_fri.csv is read before log_mon.csv"),
        (["fri_2026-05-08.csv", "mon_2026-05-04.csv"], "fri_2026-05-08.csv is read before mon_2026-05-04.csv"),
        (["east_20260501.csv", "east_20260502.csv", "west_20260501.csv"], "east_20260502.csv is read before west_"),
        (["week1_friday.csv", "week1_monday.csv"], "week1_friday.csv is read before week1_monday.csv"),
    ],
)
def test_dates_out_of_order_are_told(names: list[str], first: str) -> None:
    [line] = dated_names(names)
    assert line.startswith(first)


@pytest.mark.parametrize(
    "names",
    [
        ["log_jan.csv", "log_feb.csv"],
        ["log_nov.csv", "log_dec.csv", "log_jan.csv"],  # the turn of a year
        ["05-01-2024.csv", "05-02-2024.csv", "06-01-2024.csv"],  # month first
        ["market.csv", "decoy.csv"],
        ["10pm.csv", "11pm.csv", "12am.csv"],  # midnight
        ["1am.csv", "2am.csv", "12pm.csv"],
        ["fri.csv", "sat.csv", "sun.csv", "mon.csv"],
        ["east_2026-05-01.csv", "west_2026-05-01.csv"],
        ["log_20260501.csv", "log_20260502.csv"],
        ["monitor.csv", "sunny.csv", "friends.csv"],
        ["spam1.csv", "exam2.csv"],
        ["mar.csv", "apr.csv", "b.csv"],
        ["2024-02-01.csv", "2024-01-02.csv"],
        ["a/log_may.csv", "b/log_may.csv"],
        ["log_may.csv"],
        [],
    ],
)
def test_other_names_are_not(names: list[str]) -> None:
    assert not list(dated_names(names))
