"""`ctrpipe ranking` on rows whose scores are given: lists, popularity, curves, and what it shows."""

import json
import pathlib
import re

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.ranking import rank as module
from ctrpipe.pipeline.ranking.rank import rank
from ctrpipe.pipeline.ranking.show import print_ranking, write_ranking
from ctrpipe.pipeline.run.trained_model import TrainedModel
from ctrpipe.transforms.log.lists import Columns, columns_of
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"format": "parquet", "labels": {"ctr": "label"}},
        "features": [
            {"columns": ["session", "film", "user"], "kind": "categorical"},
            {"columns": ["seen"], "kind": "sequence", "shared_with": "film", "max_length": 3},
        ],
    }
)
# Session a: the model has the positive one second; b: first. c has no negative.
ROWS = [
    ("a", "x", 1, 0.8),
    ("a", "y", 0, 0.9),
    ("a", "z", 0, 0.1),
    ("b", "z", 1, 0.7),
    ("b", "x", 0, 0.6),
    ("c", "y", 1, 0.5),
]
TRAINING = {"x": 5, "y": 3, "z": 1}


NAMES = {"session": 0, "film": 1, "user": 0}
BATCH = pa.RecordBatch.from_pydict(
    {
        **{name: pa.array([row[place].encode() for row in ROWS]) for name, place in NAMES.items()},
        "label": pa.array([float(row[2]) for row in ROWS], pa.float32()),
        "score": pa.array([row[3] for row in ROWS]),
    }
)


@pytest.fixture
def source(monkeypatch) -> TrainedModel:
    """A run whose test rows are ROWS and whose model answers their last value."""
    training = pa.RecordBatch.from_pydict(
        {
            "film": pa.array([name.encode() for name, count in TRAINING.items() for _ in range(count)] + [b"y"] * 9),
            "label": pa.array([1.0] * sum(TRAINING.values()) + [0.0] * 9, pa.float32()),
        }
    )

    class Answers:
        def __init__(self, version):
            pass

        def __call__(self, rows):
            return {"ctr": rows["score"].to_numpy()}

        def close(self):
            pass

    monkeypatch.setattr(module, "read_log_spec", lambda version: SPEC)
    monkeypatch.setattr(module, "read_rows", lambda *arguments: iter([BATCH.slice(0, 4), BATCH.slice(4)]))
    monkeypatch.setattr(module, "read_payload", lambda files, columns: iter([training]))
    monkeypatch.setattr(module, "split_files", lambda run, split: [])
    monkeypatch.setattr(module, "Scorer", Answers)
    return TrainedModel(pathlib.Path("1"), pathlib.Path("run"))


def test_a_model_and_popularity_order_the_same_lists(source):
    found = rank(source, (), "session", None, [1, 2])
    assert (found["lists"], found["rows"], found["left_out"], found["item"]) == (2, 5, 1, "film")
    model, popularity = found["sides"]["model"], found["sides"]["popularity"]
    assert model["at"]["1"] == {"hit_rate": 0.5, "ndcg": 0.5, "ecs": 2.0, "take_rate": 0.5}
    assert model["mrr"] == 0.75 and model["gauc"] == pytest.approx((0.5 * 3 + 1.0 * 2) / 5)
    assert model["at"]["2"]["ndcg"] == pytest.approx((1 / np.log2(3) + 1) / 2)
    # By popularity x comes first in both: right in a, wrong in b.
    assert popularity["at"]["1"] == {"hit_rate": 0.5, "ndcg": 0.5, "ecs": 1.0, "take_rate": 0.5}
    assert model["strata"]["1"]["head"] == {"lists": 1, "hit_rate": 0.0, "ndcg": 0.0}
    assert model["strata"]["1"]["tail"] == {"lists": 1, "hit_rate": 1.0, "ndcg": 1.0}


def test_without_training_rows_popularity_is_that_of_the_data(source, monkeypatch):
    def none(run, split):
        raise InputError("its train rows are not known; give --data")

    monkeypatch.setattr(module, "split_files", none)
    assert rank(source, ["log.csv"], "session", None, [1])["popularity_of"] == "the lists' own positives"
    with pytest.raises(InputError, match="give --data"):
        rank(source, (), "session", None, [1])


def test_the_curves_end_at_all_that_there_is(source):
    curves = rank(source, (), "session", None, [1])["curves"]
    assert (curves["items"], curves["places"]) == ([1, 2, 3], [1, 2, 3])
    assert curves["ecs_by_popularity"] == [1.0, 1.0, 2.0]  # x is taken, y is not, then z
    assert curves["take_rate_by_rank"] == pytest.approx([0.5, 0.5, 0.4])
    assert curves["take_rate_by_popularity"] == pytest.approx([0.5, 0.5, 0.4])


def test_a_ranking_is_shown_and_written_with_two_plots(source, tmp_path, capsys):
    found = rank(source, (), "session", None, [1, 2])
    print_ranking(found)
    shown = capsys.readouterr().out
    assert "2 lists of 5 candidates" in shown and "1 lists are left out" in shown and "HR@2, popularity" in shown
    data, page = write_ranking(found, tmp_path / "ranking")
    assert json.loads(data.read_text())["lists"] == 2 and page.read_text().count("<svg") == 2
    assert re.search(
        r'class="verdict (good|bad)">A positive \w+ is among the first 2 in [\d.]+% of the lists', page.read_text()
    )
    assert f"<dt>Model</dt><dd>{found['model']}</dd>" in page.read_text() and found["model"] != ""


def test_columns_that_make_no_lists(source):
    assert columns_of(SPEC, None, None) == Columns("user", "film")
    with pytest.raises(InputError, match="--group seen: not a categorical column .* those are session, film, user"):
        rank(source, (), "seen", None, [1])
    with pytest.raises(InputError, match="--group film: the candidates themselves"):
        rank(source, (), "film", None, [1])


def test_an_option_that_is_not_given_is_not_quoted():
    other = SPEC.model_copy(update={"features": SPEC.features[:0]})
    for group, setting in ((None, "--group is not given, and the model has no .* column user"), ("x", "--group x: no")):
        with pytest.raises(InputError, match=setting):
            columns_of(other, group, None)


def test_rows_without_a_list_of_two_classes(source, monkeypatch):
    monkeypatch.setattr(module, "read_rows", lambda *arguments: iter([BATCH.slice(3, 1), BATCH.slice(5)]))
    with pytest.raises(InputError, match="no session has a candidate with label 1 and one with 0"):
        rank(source, (), "session", None, [1])
