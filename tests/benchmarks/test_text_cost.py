"""The benchmark of what features cost a model with a text."""

import pytest

from benchmarks.text_cost import LENGTH, MODELS, batches, feature_map, measure
from models.text_model import TextModel


def test_rows_are_full_of_words_and_numbert_reads_four_tokens_a_feature():
    data = feature_map(3)
    [rows] = batches(data, 5, 1)
    assert rows["tokens"].shape == (5, LENGTH) and (rows["tokens"] != data.text.padding_id).all()
    for column, field in zip(rows["ids"].T, data.fields, strict=True):
        assert ((column >= field.offset + 2) & (column < field.offset + field.size)).all()


def test_every_model_is_measured_and_numbert_pays_for_its_tokens(monkeypatch):
    folded = []
    monkeypatch.setattr(TextModel, "fold", lambda model: folded.append(model.name))
    found = measure(features=20, layers=1, width=64, rows=2, repeats=3)
    assert set(found["models"]) == set(MODELS) and len(folded) == len(MODELS)
    for numbers in found["models"].values():
        assert 0 < numbers["median"] <= numbers["p90"] <= numbers["p95"]
    medians = {name: numbers["median"] for name, numbers in found["models"].items()}
    assert found["numbert over bert4ctr"] == pytest.approx(medians["numbert"] / medians["bert4ctr"], rel=0.9)
