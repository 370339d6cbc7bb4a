"""What `python -m benchmarks.scale` reckons, by hand."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from benchmarks.scale import Assumptions, breaks_first, device_training, main, stage, table
from ctrpipe.common.errors import InputError

GIVEN = Assumptions(fixed_seconds=10, job_seconds=20, efficiency=0.5, machine_cores=8, core_price=3.6)
SEVERAL = ("Flink", 2)


def test_work_that_one_core_does_in_time_takes_one_core():
    found = stage("reading", 9000, 100, 100, SEVERAL, GIVEN)  # 10 s + 90 s
    assert (found.cores, found.seconds, found.engine) == (1, 100, "one machine")
    assert found.price == pytest.approx(0.1)  # 100 s of one core at 0.001 a second


def test_further_cores_are_worth_less_than_the_first():
    found = stage("reading", 18_000, 100, 100, SEVERAL, GIVEN)  # 180 s of one core: 4 at half their speed
    assert (found.cores, found.seconds) == (4, 100)


def test_several_machines_take_over_where_one_has_no_more_cores_and_their_jobs_have_to_start():
    at_most = stage("reading", 36_000, 100, 100, SEVERAL, GIVEN)
    assert (at_most.cores, at_most.engine) == (8, "one machine")
    more = stage("reading", 37_500, 100, 100, SEVERAL, GIVEN)  # 2 x 20 s leave 50 s: 375 / (50 x 0.5)
    assert (more.cores, more.seconds, more.engine) == (15, 100, "Flink")


def test_a_time_that_the_fixed_part_fills_is_refused():
    with pytest.raises(InputError, match="^--hours: reading has 10 s that do not shrink, and 10 s in all; give more$"):
        stage("reading", 1, 100, 10, SEVERAL, GIVEN)
    with pytest.raises(InputError, match="^--hours: reading has 50 s that do not shrink, and 50 s in all"):
        stage("reading", 1e6, 100, 50, SEVERAL, GIVEN)


def test_a_table_takes_devices_by_its_optimizer():
    """10^9 rows of width 16 are 238, 179 and 63 GiB with their state; two hours of a device at 5."""
    given = Assumptions(device_gib=80, dim=16, device_price=5)
    found = {each["optimizer"]: (each["devices"], each["price"]) for each in table(1e9, given, 2)}
    assert found == {"adam": (3, 30), "lazy_adam": (3, 30), "rowwise_adagrad": (1, 10)}
    assert table(1e9, Assumptions(dim=32), 1)[0]["bytes"] == 512e9


def test_a_device_trains_all_epochs_at_its_own_price():
    """2 x 500 rows at 10/s and 10 s to start are 110 s of a device at 36 an hour."""
    given = dataclasses.replace(GIVEN, epochs=2, device_train_rows=10, device_price=36)
    found = device_training(500, given)
    assert (found.rows, found.cores, found.seconds, found.price) == (1000, 1, 110, pytest.approx(1.1))


def test_what_breaks_is_named_with_the_largest_excess_first():
    given = Assumptions(machine_gib=256, device_gib=80, dim=16, machine_cores=1, read_rows=1, train_rows=1e9)
    over = breaks_first(rows=10 * 86_400, table_rows=2**33, given=given)  # 512 GiB of values; ids to 2^31
    assert [text.partition(":")[0].split(",")[0] for text in over] == [
        "reading on one machine's cores",
        "the table's values in one device's memory",
        "the ids",
        "the table's values",
    ]
    assert over[0].endswith("10.0 times what there is") and over[2].endswith("4.0 times what there is")
    assert breaks_first(rows=1, table_rows=1, given=given) == []


def test_the_command_prints_the_day(tmp_path):
    result = CliRunner().invoke(
        main, ["--log-tb", "0.001", "--row-bytes", "1000", "--output", str(tmp_path / "r.json")]
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.output.splitlines()[-1])
    assert report == json.loads((tmp_path / "r.json").read_text()) and report["rows"] == 1e6
    assert [each["name"] for each in report["stages"]] == ["raw log to packed files", "training", "scoring the day"]
    assert CliRunner().invoke(main, ["--hours", "0.002"]).exit_code == 2
