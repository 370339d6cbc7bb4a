"""What the benchmark of scoring computes and refuses, and that its sides answer the same."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import score
from benchmarks.harness import score_sides, steps
from benchmarks.harness.measured import Usage
from benchmarks.score import Pair, Run
from ctrpipe.common.errors import InputError
from tests.serving.packed_servable import rows, shared_version, write_log

pytestmark = pytest.mark.slow


def pair(seconds: float, more: float, cpu: float = 8.0) -> Pair:
    """200 rows in `seconds`, and 800 rows more in `more`, which take `cpu` seconds of processor time."""
    return Pair(Run(200, Usage(seconds, 1.0, 10, 1), {}), Run(1000, Usage(seconds + more, 1.0 + cpu, 20, 1), {}))


def test_a_pair_leaves_out_the_start():
    found = pair(seconds=5.0, more=4.0).as_json()
    assert (found["rows_per_s"], found["cpu_us_per_row"], found["start_seconds"]) == (200.0, 10_000.0, 4.0)
    assert [run["rows"] for run in found["runs"]] == [200, 1000]


def alone(rows_per_s: float) -> dict:
    return {"rows": 200, "best": {"rows_per_s": rows_per_s, "cpu_us_per_row": 8_000.0, "callers": 1, "batch": 64}}


def test_claims_are_medians_of_the_rounds():
    pairs = [pair(5.0, 4.0), pair(5.0, 8.0), pair(5.0, 5.0)]  # 200, 100 and 160 rows/s
    bulk = {1: pair(9.0, 50.0, cpu=80.0), 4: pair(9.0, 40.0)}
    report = score.report_of(pairs, [alone(250), alone(250), alone(160)], bulk, 0.0)
    model, one, four = report["claims"]
    assert (model["ratio"], model["target"], model["met"]) == ({"median": 0.8, "min": 0.4, "max": 1.0}, 0.8, True)
    assert model["cpu_ratio"]["median"] == pytest.approx(0.8)
    assert (one["ratio"], one["met"], one["workers"]) == ({"median": 10.0, "min": 6.25, "max": 12.5}, True, 1)
    assert one["cpu_ratio"]["median"] == pytest.approx(10.0)
    assert (four["ratio"]["median"], four["target"], four["met"], four["workers"]) == (8.0, None, None, 4)
    assert [claim["against"] for claim in score.report_of(pairs[:1], [alone(1)], {}, None)["claims"]] == ["model"]
    report |= {"model_name": "m", "machine": {"cpu": "c"}, "busy": 0.0}
    assert score.table(report).row_count == 3 + 3 + 2 + 3


def test_what_the_start_hides_is_no_rate_and_no_ratio():
    hidden = pair(seconds=5.0, more=0.4)
    assert (hidden.rows_per_s, hidden.start_seconds, pair(5.0, -1.0).rows_per_s) == (None, None, None)
    report = score.report_of([pair(5.0, 4.0), hidden], [alone(250), alone(250)], {2: hidden}, 0.0)
    model, two = report["claims"]
    assert model["ratio"] == {"median": 0.8, "min": 0.8, "max": 0.8} and (two["ratio"], two["met"]) == (None, None)
    assert [one.name for one in steps.score(report)] == ["scoring, rows/s over model"]
    report |= {"model_name": "m", "machine": {"cpu": "c"}, "busy": 0.0}
    assert score.table(report).row_count == 2 + 2 + 1 + 2


def test_two_sizes_are_needed():
    assert score._two("--rows", "5,3") == [3, 5]
    for text in ("5", "5,5", "1,2,3"):
        with pytest.raises(InputError, match="expected two sizes"):
            score._two("--rows", text)


def answer(*arguments) -> dict:
    result = CliRunner().invoke(score_sides.main, [str(argument) for argument in arguments], catch_exceptions=False)
    return json.loads(result.output.splitlines()[-1])


@pytest.mark.large(like="tests/benchmarks/test_score.py::test_claims_are_medians_of_the_rounds")
def test_the_sides_score_the_same_rows(shared_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(score_sides, "BATCHES", (32,))
    monkeypatch.setattr(score_sides, "PACKED_ROWS", 100)
    version, log = shared_version(shared_folder), tmp_path / "log.tsv"
    write_log(rows(200, 2), log)
    (tmp_path / "examples" / "Split-all").mkdir(parents=True)
    score._write_examples(log, version, tmp_path / "examples" / "Split-all", 2)
    ours = answer("ours", version, log, tmp_path / "ours")
    bulk = answer("bulk-inferrer", version, tmp_path / "examples", tmp_path / "bulk", "--workers", 1)
    assert ours["rows"] == bulk["rows"] == 200
    assert ours["mean"] == pytest.approx(bulk["mean"], abs=1e-6)
    model = answer("model", version, log, 320, "--rounds", 1)
    assert model["best"]["batch"] == 32 and model["best"]["rows_per_s"] > 0
