"""The benchmark of many candidates for one user."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import candidates
from benchmarks.candidates import main, measure, target_of, write_log
from ctrpipe.common.errors import InputError


class FakeServable:
    """Answers every signature; `serving_candidates` in a hundredth of the others' time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wrong: float = 0.0):
        self.wrong = wrong
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)

    def run(self, signature: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        shared = signature == candidates.SHARED
        self.now += {candidates.SHARED: 1.0, "serving_raw": 2.0, "serving_default": 4.0}[signature]
        return {"ctr": inputs["x"] + (self.wrong if shared else 0.0)}


REQUESTS = {name: {"x": np.ones(3)} for name in (candidates.SHARED, *candidates.ROWS)}


def test_the_first_history_is_full_and_categories_are_those_of_the_items(tmp_path):
    write_log(tmp_path / "log", rows=30, events=7)
    rows = [line.split("\t") for line in (tmp_path / "log").read_text().splitlines()]
    lengths = [len(row[4].split("|")) if row[4] else 0 for row in rows]
    assert len(rows) == 30 and lengths[0] == 7 and set(lengths) <= set(range(8)) and len(set(lengths)) > 4
    for _, _, item, category, items, categories in rows:
        expected = [f"c{int(one[1:]) % candidates.CATEGORIES}" for one in (item, *filter(None, items.split("|")))]
        assert expected == [category, *filter(None, categories.split("|"))]


@pytest.mark.parametrize(("target", "met"), [(0.5, True), (0.4, False), (None, None)])
def test_the_time_of_a_user_once_is_over_that_of_rows(target, met, monkeypatch):
    found = measure(FakeServable(monkeypatch), REQUESTS, 3, target)
    assert found["over"] == {"serving_raw": 0.5, "serving_default": 0.25} and found["met"] is met
    assert found["calls"]["serving_default"]["ms"] == 4000 and found["difference"] == 0


def test_a_target_holds_for_its_own_number_of_candidates():
    assert target_of("one_trans", 200, 1000) == 0.15 and target_of("din", 200, 500) == 0.5
    assert [target_of("one_trans", 200, 500), target_of("din", 100, 500), target_of("bst", 200, 0)] == [None] * 3


def test_answers_that_differ_are_a_defect(monkeypatch):
    with pytest.raises(InputError, match="differ by 2.0e-05"):
        measure(FakeServable(monkeypatch, 2e-5), REQUESTS, 1, None)


def test_an_unknown_model_is_one_line():
    result = CliRunner().invoke(main, ["--models", "din,dinn"])
    assert result.exit_code == 2 and "--models: " in result.output and "dinn" in result.output


@pytest.mark.large(like="tests/benchmarks/test_candidates.py::test_answers_that_differ_are_a_defect")
@pytest.mark.slow
def test_the_command_measures_an_export(tmp_path):
    arguments = ["--models", "two_tower", "--events", "3", "--candidates", "5", "--repeats", "1"]
    done = CliRunner().invoke(main, [*arguments, "--output", str(tmp_path / "report.json")])
    assert done.exit_code == 0, done.output
    [one] = json.loads((tmp_path / "report.json").read_text())["models"]
    assert one["model"] == "two_tower" and one["target"] is None and one["difference"] < 1e-5
    assert set(one["calls"]) == set(REQUESTS) and min(call["ms"] for call in one["calls"].values()) > 0
