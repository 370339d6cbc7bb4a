import pytest

from ctrpipe.common import progress


def test_a_busy_stage_is_heard_now_and_then(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(progress, "_started", 90.0)
    say = progress.throttled_announce(10)
    for seconds, text in ((0, "1"), (9.9, "2"), (10, "3"), (10.1, "4"), (19.9, "5"), (25, "6")):
        clock[0] = 100.0 + seconds
        say(text)
    assert capsys.readouterr().err.splitlines() == ["[  20.0s] 3", "[  35.0s] 6"]


@pytest.mark.parametrize(("seconds", "shown"), [(0.04, "[   0.0s] x"), (12345.6, "[12345.6s] x")])
def test_a_line_begins_with_the_time(monkeypatch, capsys, seconds, shown):
    monkeypatch.setattr(progress, "_started", 0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds)
    progress.announce("x")
    assert capsys.readouterr().err == shown + "\n"
