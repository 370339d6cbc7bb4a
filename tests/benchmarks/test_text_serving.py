"""The benchmark of requests to a model with a text."""

import io

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import text_serving
from benchmarks.harness.turns import in_turn, ratio
from benchmarks.text_serving import log_spec, main, sharing, tables
from ctrpipe.common.errors import InputError
from ctrpipe.serving.latency.papers import WARM_UP


class FakeExports:
    """Requests of one number a candidate, which is also the answer."""

    def request(self, candidates: int) -> dict[str, dict[str, np.ndarray]]:
        return {name: {"x": np.ones(candidates)} for name in ("serving_raw", "serving_candidates")}


class FakeServable:
    def __init__(self, wrong: float = 0.0):
        self.asked: list[str] = []
        self.wrong = wrong

    def run(self, signature: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.asked.append(signature)
        return {"ctr": inputs["x"] + (self.wrong if signature == "serving_candidates" else 0.0)}


def test_calls_are_made_in_turn_and_the_first_ones_are_not_counted():
    made: list[str] = []
    found = in_turn({"a": lambda: made.append("a"), "b": lambda: made.append("b")}, 3)
    assert made == ["a", "b"] * (WARM_UP + 3)
    assert {len(values) for one in found.values() for values in one.values()} == {3}


def test_a_ratio_is_the_median_of_the_ratios_within_a_repeat():
    assert ratio({"cpu_seconds": [2.0, 12.0, 40.0]}, {"cpu_seconds": [1.0, 2.0, 10.0]}) == 4.0


def test_both_ways_are_asked_alike_and_must_answer_alike():
    servable = FakeServable()
    [one, two] = sharing(FakeExports(), servable, [1, 7], repeats=2)
    assert (one["candidates"], two["candidates"], two["difference"]) == (1, 7, 0.0)
    assert servable.asked.count("serving_raw") == servable.asked.count("serving_candidates") == 2 * (1 + WARM_UP + 2)
    with pytest.raises(InputError, match="7 candidates: the answers differ by 1.0e-05"):
        sharing(FakeExports(), FakeServable(1e-5), [7], repeats=1)


def test_the_log_has_two_texts_of_the_length():
    text = log_spec(24).text
    assert text is not None and (text.columns, text.length) == (["query", "title"], 24)


def test_quality_stands_beside_size_and_time_of_the_same_precision():
    times = {"ms": 3.0, "cpu_ms": 2.0, "over_float32": 1.0, "difference": 0.0}
    bits = [{"precision": name, "bytes": 5e6, "encoder_bytes": 4e6, **times} for name in ("float32", "int8")]
    report = {"busy": 0.0, "sharing": [], "precisions": bits}
    report["quality"] = [{"precision": "int8", "auc": 0.91234, "log_loss": 0.2}]
    console = Console(file=io.StringIO(), width=140)
    console.print(tables(report))
    [exact] = [line for line in console.file.getvalue().splitlines() if "float32 " in line and "5.0" in line]
    [lower] = [line for line in console.file.getvalue().splitlines() if "int8" in line]
    assert "0.91234" in lower and "0.91234" not in exact


def test_the_reviews_need_their_encoder():
    result = CliRunner().invoke(main, ["--reviews", "somewhere"], standalone_mode=True)
    assert result.exit_code == 2 and "--reviews and --encoder: give both or none" in result.output


def test_a_folder_without_a_trained_model_is_named(tmp_path):
    with pytest.raises(InputError, match="best.npz is absent; run studies.reviews with this --output"):
        text_serving.quality(tmp_path, tmp_path, None)
