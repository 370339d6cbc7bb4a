"""seeds.json: the trainings of a run that differ by their seeds alone."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.pipeline.evaluation.seeds import SEEDS, Seeds, SeedSide, SeedTraining, read_seeds, write_seeds


def test_the_file_holds_both_sides_and_leads_to_each_trainings_predictions(tmp_path: pathlib.Path) -> None:
    assert read_seeds(tmp_path) is None
    labels, values = np.array([0, 1, 0], np.float32), np.array([0.25, 0.5, 0.125], np.float32)
    (tmp_path / "scores").mkdir()
    for seed in (1, 2):
        scored = ScoredRows("rows", {"ctr": labels}, {"ctr": values / seed})
        write_scored(tmp_path / "scores" / f"model-{seed}.parquet", scored)
    trainings = tuple(
        SeedTraining(seed, {"auc": 0.5 + seed / 10}, "converged", seed == 1, f"scores/model-{seed}.parquet")
        for seed in (1, 2)
    )
    seeds = Seeds("ctr", SeedSide("fm", trainings), SeedSide("lr", trainings[:1]), {"auc": {"difference": 0.1}})
    write_seeds(tmp_path, seeds)
    assert read_seeds(tmp_path) == seeds
    [_, second] = seeds.model.read_scores(tmp_path)
    np.testing.assert_array_equal(second.probabilities["ctr"], values / 2)
    alone = dataclasses.replace(seeds, baseline=None, difference=None)
    write_seeds(tmp_path, alone)
    assert read_seeds(tmp_path) == alone


@pytest.mark.parametrize("text", ["", "{}", "[]", json.dumps({"task": "ctr", "model": None, "baseline": None})])
def test_a_damaged_file_is_an_error_of_one_line(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / SEEDS).write_text(text)
    with pytest.raises(InputError, match=r"seeds\.json: damaged \(.*\); run `ctrpipe run --seeds` again"):
        read_seeds(tmp_path)
