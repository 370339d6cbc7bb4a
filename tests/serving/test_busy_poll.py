"""The event loop polls between requests in quick succession, and sleeps after them."""

import pytest

from ctrpipe.serving.server import busy_poll
from ctrpipe.serving.server.busy_poll import BusyPoll
from ctrpipe.serving.server.core import ServerCore
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.server.rest import RestApi


class Loop:
    """Runs due callbacks one at a time, on its own clock; each takes a second."""

    def __init__(self):
        self.now = 100.0
        self.due = []

    def call_soon(self, callback, *arguments):
        self.due.append((callback, arguments))

    def steps(self):
        """Runs callbacks until none is due: the loop sleeps."""
        count = 0
        while self.due and count < 100:
            callback, arguments = self.due.pop(0)
            callback(*arguments)
            self.now += 1
            count += 1
        return count


@pytest.fixture
def loop(monkeypatch):
    loop = Loop()
    monkeypatch.setattr(busy_poll.time, "perf_counter", lambda: loop.now)
    return loop


def ask(poll, loop, after=0):
    loop.now += after
    poll.asked()
    poll.answered(loop)


def test_the_loop_stays_awake_once_a_request_has_followed_another_closely(loop):
    poll = BusyPoll(5)
    ask(poll, loop)
    assert loop.steps() == 0
    ask(poll, loop, after=2)
    assert loop.steps() == 6  # the last one ends it


def test_requests_that_are_far_apart_are_not_waited_for(loop):
    poll = BusyPoll(5)
    for _ in range(5):
        ask(poll, loop, after=6)
        assert loop.steps() == 0


def test_each_answer_is_a_new_start_without_a_second_callback(loop):
    poll = BusyPoll(5)
    for _ in range(10):
        ask(poll, loop, after=1)
    assert len(loop.due) == 1
    assert loop.steps() == 6


def test_it_ends_where_others_need_the_processor(loop):
    poll = BusyPoll(5)
    ask(poll, loop)
    ask(poll, loop, after=1)
    poll.stop()
    assert loop.steps() == 1


def test_zero_seconds_are_never(loop):
    poll = BusyPoll(0)
    for _ in range(3):
        ask(poll, loop)
        assert loop.steps() == 0


@pytest.mark.parametrize(("micros", "steps"), [(0, 0), (10_000_000, 11)])
def test_a_server_waits_as_long_as_its_options_say(loop, tmp_path, micros, steps):
    options = ServerOptions(model_base_path=tmp_path, rest_api_busy_poll_micros=micros)
    poll = RestApi(ServerCore(options), options, Metrics()).server().config.app.busy_poll
    ask(poll, loop)
    ask(poll, loop)
    assert loop.steps() == steps
