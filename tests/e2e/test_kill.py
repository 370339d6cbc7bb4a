"""A push that is killed at any moment is not done twice, nor lost."""

import json
import multiprocessing
import random

import pytest

from tests.e2e import push_runs

random.seed(0)
NAMED = ["before:1", "after:1", "before:2"]  # there is one rename
RANDOM = [f"{random.uniform(0.1, 1.2):.3f}" for _ in range(70)]


@pytest.mark.slow
@pytest.mark.parametrize("moments", [NAMED, pytest.param(RANDOM, marks=pytest.mark.large)], ids=["named", "random"])
def test_a_push_is_done_once_wherever_it_is_killed(tmp_path, moments):
    process = multiprocessing.get_context("spawn").Process(target=push_runs.main, args=(tmp_path, moments))
    process.start()
    process.join(550)
    assert process.exitcode == 0
    found = json.loads((tmp_path / push_runs.FOUND).read_text())
    assert [moment for moment, *_ in found] == moments
    for moment, ended, between, after, recorded, hidden in found:
        assert ended in (0, -9) and len(after) == 1 and recorded == after[0] and not hidden, moment
        assert between in ([], after), moment
    assert sum(ended == -9 for _, ended, *_ in found) >= len(moments) / 2
    if moments == NAMED:
        assert [(ended, len(between)) for _, ended, between, *_ in found] == [(-9, 0), (-9, 1), (0, 1)]
