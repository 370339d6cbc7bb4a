import threading

import pytest

from ctrpipe.serving.server.budget import Budget, OverBudget

MIB = 1 << 20


def a_budget(resident=0, **arguments):
    """A budget of 1,000 MiB in a process that takes `resident` MiB before and while requests run."""
    taken = [resident * MIB]
    budget = Budget(1000 * MIB, resident=lambda: taken[0], **arguments)
    return budget, taken


def test_what_fits_is_held_until_its_block_ends():
    budget, _ = a_budget()
    with budget.hold(600 * MIB) as held:
        assert (budget.held_bytes, held.size) == (600 * MIB, 600 * MIB)
        with pytest.raises(OverBudget):
            budget.hold(401 * MIB)
        budget.hold(400 * MIB).close()
    assert budget.held_bytes == 0


def test_a_refusal_is_503_and_resource_exhausted_and_names_the_flag():
    budget, _ = a_budget(resident=100)
    with budget.hold(800 * MIB), pytest.raises(OverBudget) as refused:
        budget.hold(200 * MIB)
    assert (refused.value.code, refused.value.http_status) == ("RESOURCE_EXHAUSTED", 503)
    assert f"{200 * MIB} bytes" in refused.value.message
    assert f"others take {800 * MIB} of the {900 * MIB} that --max_memory={1000 * MIB}" in refused.value.message


def test_a_hold_that_cannot_grow_keeps_what_it_has():
    budget, _ = a_budget()
    with budget.hold(MIB) as held:
        held.grow(9 * MIB)
        with pytest.raises(OverBudget):
            held.grow(991 * MIB)
        assert (held.size, budget.held_bytes) == (10 * MIB, 10 * MIB)
        held.shrink(4 * MIB)
        assert (held.size, budget.held_bytes) == (6 * MIB, 6 * MIB)
        held.shrink(100 * MIB)  # no more than it holds
        assert budget.held_bytes == 0
    held.close()
    held.close()
    assert budget.held_bytes == 0


def test_models_leave_requests_the_rest_and_an_eighth_at_least():
    budget, taken = a_budget()
    assert budget.most_bytes == 1000 * MIB
    taken[0] = 700 * MIB
    budget.measure_base()
    assert budget.most_bytes == 300 * MIB
    taken[0] = 2000 * MIB
    budget.measure_base()
    assert budget.most_bytes == 125 * MIB
    budget.hold(125 * MIB)


def test_the_base_leaves_out_what_requests_hold():
    budget, taken = a_budget()
    with budget.hold(100 * MIB):
        taken[0] = 400 * MIB
        budget.measure_base()
        assert budget.most_bytes == 700 * MIB


def test_a_large_request_is_refused_where_the_process_really_takes_more_than_was_held():
    budget, taken = a_budget(resident=200)
    taken[0] = 950 * MIB
    with pytest.raises(OverBudget, match=f"others take {750 * MIB} of the {800 * MIB}"):
        budget.hold(100 * MIB)
    budget.hold(40 * MIB).close()
    assert budget.excess() == -50 * MIB
    taken[0] = 1100 * MIB
    assert budget.excess() == 100 * MIB


def test_seconds_that_wait_are_bounded_but_the_first_always_runs():
    budget, _ = a_budget(most_seconds=10.0)
    with budget.hold(seconds=60.0):
        with pytest.raises(OverBudget, match="about 60 seconds waits, and this request takes about 0.5 seconds"):
            budget.hold(seconds=0.5)
        budget.hold(MIB).close()  # what takes no time is not kept waiting by those that do
    with budget.hold(seconds=9.5) as held:
        budget.hold(seconds=0.4).close()
        with pytest.raises(OverBudget):
            held.grow(seconds=0.6)


def test_the_seconds_of_many_holds_leave_no_rest():
    budget, _ = a_budget(most_seconds=10.0)
    holds = [budget.hold(seconds=0.1) for _ in range(10)]
    for held in holds:
        held.close()
    assert budget.held_seconds == 0
    budget.hold(seconds=60.0)


def test_threads_never_hold_more_than_fits():
    budget, _ = a_budget()
    most, refused = [0], [0]
    lock = threading.Lock()

    def ask():
        for _ in range(300):
            try:
                with budget.hold(400 * MIB):
                    with lock:
                        most[0] = max(most[0], budget.held_bytes)
            except OverBudget:
                with lock:
                    refused[0] += 1

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 800 * MIB and budget.held_bytes == 0


def test_half_of_the_machine_is_the_default(monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.server.budget.memory_limit", lambda: 3000 * MIB)
    assert Budget(resident=lambda: 0).max_memory == 1500 * MIB
