import pytest

from ctrpipe.common import phases
from ctrpipe.common.phases import begin_phases, listed_phases, seconds_by_phase, start_phase


@pytest.fixture
def clock(monkeypatch):
    """Phases with a clock that the test sets."""

    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(phases, "time", clock)
    monkeypatch.setattr(phases, "_starts", [])
    return clock


def test_a_phase_lasts_until_the_next_one_and_may_come_again(clock):
    begin_phases("reading")
    clock.now = 104.0
    start_phase("training")
    clock.now = 104.5
    start_phase("reading")
    clock.now = 105.5
    assert seconds_by_phase() == {"reading": 5.0, "training": 0.5}


def test_a_second_run_of_a_process_has_phases_of_its_own(clock):
    begin_phases("reading")
    clock.now = 110.0
    begin_phases("checks")
    clock.now = 111.0
    assert seconds_by_phase() == {"checks": 1.0}


def test_short_phases_are_one():
    found = listed_phases({"start": 0.1, "reading": 12.04, "checks": 0.06, "training": 3.0})
    assert found == "15.2 s: reading 12.0, training 3.0, other 0.2"
    assert listed_phases({"reading": 2.0}) == "2.0 s: reading 2.0"


def test_a_process_without_a_run_has_no_phases(clock):
    assert seconds_by_phase() == {} and listed_phases({}) == "0.0 s: "
