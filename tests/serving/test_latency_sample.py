import math

import numpy as np
import pytest

from ctrpipe.serving.latency.papers import batch_seconds, bert4ctr, hiformer
from ctrpipe.serving.latency.ratios import near_ceiling, ratios, targets
from ctrpipe.serving.latency.sample import LatencySample, Recorder, percentiles, summarise, together


def sample(latencies=(), completed=0, seconds=1.0, errors=None, lags=(), cpu=0.0) -> LatencySample:
    return LatencySample(np.array(latencies), completed, seconds, errors or {}, np.array(lags), cpu)


def test_percentiles_are_those_of_the_nearest_rank():
    seconds = np.random.default_rng(1).permutation(np.arange(1, 1001)) / 1000
    assert percentiles(seconds) == {
        "p50_ms": 500.0,
        "p90_ms": 900.0,
        "p95_ms": 950.0,
        "p99_ms": 990.0,
        "p99.9_ms": 999.0,
    }


@pytest.mark.parametrize(
    ("count", "known"),
    [(1, []), (2, ["p50_ms"]), (10, ["p50_ms", "p90_ms"]), (99, ["p50_ms", "p90_ms", "p95_ms"]), (0, [])],
)
def test_a_percentile_above_which_no_request_lies_is_not_given(count, known):
    assert [name for name, value in percentiles(np.ones(count)).items() if value is not None] == known


def test_a_recorder_counts_what_was_intended_within_its_window():
    recorder = Recorder(10.0, 20.0)
    recorder.answered(9.9, 10.5)  # due before it, answered within
    recorder.answered(12.0, 12.25)
    recorder.answered(19.5, 20.5)  # due within, answered after
    recorder.answered(20.0, 20.1)
    recorder.failed(15.0, "HTTP 503")
    recorder.failed(9.0, "HTTP 503")
    recorder.given_up(16.0, 46.0)
    found = recorder.sample(cpu_seconds=2.0)
    assert found.latencies.tolist() == [0.25, 1.0, 30.0]
    assert (found.completed, found.seconds) == (2, 10.0)
    assert found.errors == {"HTTP 503": 1, "timeout": 1}


def test_rounds_are_summarised_together_and_one_by_one():
    rounds = [sample([0.001, 0.003], 20, 2.0, {"HTTP 503": 1}, cpu=1.0), sample([0.005], 40, 2.0, {"timeout": 1})]
    found = summarise(rounds, rows=10)
    assert found["requests"] == 4  # the one that was given up is among the latencies
    assert found["errors"] == {"HTTP 503": 1, "timeout": 1}
    assert (found["p50_ms"], found["mean_ms"], found["max_ms"]) == pytest.approx((3.0, 3.0, 5.0))
    assert (found["requests_per_s"], found["rows_per_s"], found["generator_cpu"]) == (15.0, 150.0, 0.25)
    assert found["rounds"] == [
        {"p50_ms": pytest.approx(2.0), "rows_per_s": 100.0},
        {"p50_ms": pytest.approx(5.0), "rows_per_s": 200.0},
    ]


def test_a_cell_without_an_answer_has_no_latency():
    found = summarise([sample(errors={"ConnectionRefusedError": 7})], rows=1)
    assert found["p50_ms"] is None and found["mean_ms"] is None and found["rounds"][0]["p50_ms"] is None
    assert found["requests"] == 7 and found["rows_per_s"] == 0.0


def test_generators_at_the_same_time_add_up():
    found = together([sample([0.1], 10, 2.0, {"a": 1}, [0.5], 1.0), sample([0.2], 30, 2.0, {"a": 2}, [], 0.5)])
    assert found.latencies.tolist() == [0.1, 0.2] and found.lags.tolist() == [0.5]
    assert (found.completed, found.seconds, found.errors, found.cpu_seconds) == (40, 2.0, {"a": 3}, 1.5)


# Ratios ---------------------------------------------------------------------------------------------------------------


def cell(kind: str, rows: int, concurrency: int, p50s: list, rates: list | None = None, loop: str = "closed") -> dict:
    rates = rates or [0.0] * len(p50s)
    rounds = [{"p50_ms": p50, "rows_per_s": rate} for p50, rate in zip(p50s, rates, strict=True)]
    about = {"kind": kind, "rows": rows, "concurrency": concurrency, "loop": loop, "rounds": rounds}
    return about | {"requests_per_s": 100.0}


def test_a_ratio_is_the_median_of_those_of_the_rounds():
    cells = [
        cell("call_packed", 1, 1, [1.0, 2.0, 4.0]),
        cell("rest_columnar", 1, 1, [1.5, 2.5, 8.0]),  # 1.5, 1.25, 2
        cell("grpc_packed", 1, 1, [3.0, 5.0, 8.0]),
        cell("call_packed", 270, 1, [10.0]),
        cell("rest_columnar", 270, 1, [12.0]),
        cell("grpc_packed", 270, 1, [9.0]),
        cell("call_packed", 100, 8, [1.0, 1.0], [1000.0, 2000.0]),
        cell("rest_columnar", 100, 8, [1.0, 1.0], [800.0, 1200.0]),
        cell("rest_columnar", 1, 1, [99.0], loop="open"),
    ]
    cells.append(cell("loader_packed", 1, 1, [1.0, 1.0, 2.0]))
    cells += [cell("call_packed", 100, 1, [4.0, 2.0]), cell("rest_row", 100, 1, [10.0, 3.0])]  # 2.5, 1.5
    found = ratios(cells)
    assert found["rest_packed_over_loader"] == {"1": 2.5}  # 1.5, 2.5, 4
    assert found["rest_packed_over_call"] == {"1": 1.5, "270": 1.2}
    assert found["rest_row_over_call"] == {"100": 2.0}
    assert found["grpc_packed_over_rest"] == {"1": 2.0, "270": 0.75}
    assert (found["rest_fixed_ms"], found["grpc_fixed_ms"]) == (0.5, 3.0)
    assert found["rest_share_of_calls"] == pytest.approx(0.7)
    assert "grpc_share_of_calls" not in found  # not measured
    checks = {one["name"]: one["met"] for one in targets(found)}
    assert checks == {
        "REST packed p50 / call, rows: 1": False,
        "REST row JSON p50 / call, rows: 100": True,
        "gRPC packed p50 / call, rows: 1": True,  # 3, 2.5, 2
        "gRPC packed p50 / REST, rows: 270": True,
        "REST rows/s / calls, 8 x 100 rows": False,
    }
    assert [one["met"] for one in targets({"rest_packed_over_call": {"1": 1.3}, "rest_share_of_calls": 0.86})] == [
        True,
        True,
    ]


def test_the_tail_is_that_of_the_open_loop_at_four_fifths_of_the_rate():
    def opened(kind: str, load: float | None, p50: float, p99: float) -> dict:
        return cell(kind, 1, 64, [p50], loop="open") | {"load": load, "p50_ms": p50, "p99_ms": p99}

    cells = [opened("rest_columnar", 0.5, 1.0, 9.0), opened("rest_columnar", 0.8, 2.0, 9.0)]
    cells += [opened("grpc_packed", None, 1.0, 2.0), opened("grpc_packed", 0.8, 1.0, 5.5)]
    found = ratios(cells)
    assert (found["rest_p99_over_p50"], found["grpc_p99_over_p50"]) == ({"1": 4.5}, {"1": 5.5})
    met = {one["name"]: one["met"] for one in targets(found)}
    assert met == {"REST packed p99 / p50 at 80%, rows: 1": True, "gRPC packed p99 / p50 at 80%, rows: 1": False}


def test_ratios_of_an_interrupted_run_are_of_the_rounds_that_have_both():
    cells = [cell("call_packed", 1, 1, [1.0, 2.0]), cell("rest_columnar", 1, 1, [3.0])]
    assert ratios(cells)["rest_packed_over_call"] == {"1": 3.0}
    assert ratios([]) == {} and targets({}) == []


def test_a_cell_near_the_generators_own_rate_is_named():
    limit = cell("rest_columnar", 1, 8, [1.0]) | {"requests_per_s": 120.0}
    other = cell("rest_columnar", 1, 1, [1.0]) | {"requests_per_s": 1000.0}
    cells = [cell("rest_row", 1, 8, [1.0]), cell("rest_row", 1, 1, [1.0]), cell("grpc_packed", 1, 8, [1.0])]
    assert near_ceiling(cells, [limit, other]) == ["rest_row rows: 1 clients: 8 (closed)"]


def test_an_open_loop_that_was_sent_late_is_named():
    late = cell("grpc_packed", 1, 64, [1.0], loop="open") | {"generator_lag_p99_ms": 6.0, "p99_ms": 10.0}
    punctual = late | {"kind": "rest_columnar", "generator_lag_p99_ms": 0.2}
    assert near_ceiling([late, punctual], []) == ["grpc_packed rows: 1 clients: 64 (open)"]


# The papers' methods --------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only where a prediction says so."""
    now = [0.0]
    monkeypatch.setattr("ctrpipe.serving.latency.papers.time.perf_counter", lambda: now[0])

    def spend(seconds: float) -> None:
        now[0] += seconds

    return spend


def test_hiformers_method_is_the_median_batch_over_that_of_the_baseline(clock):
    batches = [0.5, 0.5, *[0.004] * 9, *[0.008] * 9]
    calls = {"transformer": (clock, [0.002] * 20), "hiformer": (clock, batches)}
    found = hiformer(calls, "transformer")
    assert found["transformer"] == pytest.approx({"batch_ms": 2.0, "relative": 1.0})
    assert found["hiformer"] == pytest.approx({"batch_ms": 8.0, "relative": 4.0})
    assert hiformer(calls, None)["hiformer"]["relative"] is None


def test_models_take_turns_batch_by_batch_after_two_of_warm_up():
    order = []
    calls = {name: (lambda batch, name=name: order.append((name, batch)), [1, 2, 3]) for name in "ab"}
    seconds = batch_seconds(calls)
    assert order[:4] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert order[4:] == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3)]
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_bert4ctrs_method_gives_milliseconds_a_sample_over_twenty_repeats(clock):
    calls_made = []

    def predict(batch: int) -> None:
        calls_made.append(batch)
        repeat = (len(calls_made) - 1) // 4 - 2  # two repeats of four batches are warm-up
        clock(0.010 * (repeat + 1))

    found = bert4ctr({"model": (predict, [0, 1, 2, 3])}, rows=10)
    per_sample = [repeat + 1.0 for repeat in range(20)]  # 4 batches of 10 rows, 10 ms x (repeat + 1) each
    assert len(calls_made) == 4 * 22
    assert found["model"] == pytest.approx(
        {"average": np.mean(per_sample), "median": 10.5, "p90": per_sample[17], "p95": per_sample[18]}
    )
    assert math.isclose(found["model"]["average"], 10.5)
