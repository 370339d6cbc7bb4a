"""The benchmark of what features cost a model with a text."""

import pytest

from benchmarks import text_cost
from benchmarks.harness.ours_server import Job, Spec
from benchmarks.harness.text_batches import LENGTH, batches, feature_map
from benchmarks.text_cost import MODELS, measure
from ctrpipe.models.text.text_model import TextModel


def test_rows_are_full_of_words_and_numbert_reads_four_tokens_a_feature():
    data = feature_map(3)
    [rows] = batches(data, 5, 1)
    assert rows["tokens"].shape == (5, LENGTH) and (rows["tokens"] != data.text.padding_id).all()
    for column, field in zip(rows["ids"].T, data.fields, strict=True):
        assert ((column >= field.offset + 2) & (column < field.offset + field.size)).all()


@pytest.mark.slow
@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.large), "mixed_bfloat16"])
def test_a_model_of_a_text_trains_beside_the_others(precision):
    sizes = {"encoder_layers": 1, "encoder_width": 64, "encoder_heads": 2, "encoder_ffn": 64}
    spec = Spec("bert4ctr", sizes, (5,) * 3, batch=4, text=True, batches=2, training={"precision": precision})
    job = Job(spec)
    assert 0 < job.run(2) < 10
    assert job.learner.network.compute_dtype == precision.removeprefix("mixed_")


@pytest.mark.large(like="tests/benchmarks/test_text_cost.py::test_a_ratio_is_the_median_of_the_ratios_within_a_repeat")
@pytest.mark.slow
def test_every_model_is_measured_and_served_folded(monkeypatch):
    folded = []
    monkeypatch.setattr(TextModel, "fold", lambda model: folded.append(model.name))
    found = measure(features=20, layers=1, width=64, rows=2, repeats=3)
    assert set(found["models"]) == set(MODELS) and len(folded) == len(MODELS)
    for numbers in found["models"].values():
        assert 0 < numbers["median"] <= numbers["p90"] <= numbers["p95"]


def test_a_ratio_is_the_median_of_the_ratios_within_a_repeat(monkeypatch):
    seconds = dict.fromkeys(MODELS, [1.0, 1.0, 1.0])
    seconds |= {"bert4ctr": [1.0, 2.0, 10.0], "numbert": [5.0, 12.0, 40.0], "shallow_interaction_n": [1.0, 1.0, 4.0]}
    monkeypatch.setattr(text_cost, "batch_seconds", lambda calls: seconds)
    monkeypatch.setattr(text_cost, "predictor", lambda *arguments: None)
    found = measure(features=2, layers=1, width=64, rows=10, repeats=3)
    assert found["numbert over bert4ctr"] == 5.0 and found["bert4ctr over shallow_interaction_n"] == 2.0
    assert found["models"]["bert4ctr"]["median"] == pytest.approx(200.0)  # ms of one of ten rows
