"""The attributions of the exported graph: completeness, and the numbers of `ctrpipe explain --row`."""

import numpy as np
import pytest

from ctrpipe.pipeline.explain.gradients import RowGradients
from ctrpipe.serving.export import attributions as module
from ctrpipe.serving.export.attributions import Attributions
from ctrpipe.transforms.log.spec import TEXT
from tests.models.small_models import batch_of, map_of, unchanged

BASELINE = 4


def columns_of(name: str) -> tuple[list[str], list[str]]:
    """The explained columns, and the column of each slot."""
    feature_map = map_of(name)
    slots = [field.name for field in feature_map.fields for _ in range(field.slots)]
    text = [TEXT] if feature_map.text else []
    return list(dict.fromkeys([*slots, *feature_map.dense, *feature_map.numbers, *text])), slots


def rows_of(name: str, part: slice) -> dict[str, np.ndarray]:
    return {key: value[part] for key, value in batch_of(name).items()}


def explained(name: str) -> tuple[Attributions, tuple[np.ndarray, ...]]:
    columns, slots = columns_of(name)
    missing = rows_of(name, slice(BASELINE, BASELINE + 1))
    found = Attributions(unchanged(name), columns, slots, missing)
    return found, tuple(np.asarray(values) for values in found(batch_of(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["deepfm", "bert4ctr"])
def test_the_sum_is_the_difference_of_the_logits(name):
    model, rows = unchanged(name), batch_of(name)
    _, (logits, baselines, found) = explained(name)
    expected = np.asarray(model(rows))[:, 0]
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    np.testing.assert_allclose(baselines, expected[BASELINE], atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), expected - expected[BASELINE], atol=1e-4)
    assert np.abs(found[BASELINE]).max() < 1e-5 and np.abs(found).max() > 0.01


def apart_from_explain(name: str) -> float:
    """The relative error of three rows' attributions, compared with explain's."""
    columns, slots = columns_of(name)
    _, (_, _, found) = explained(name)
    gradients = RowGradients(unchanged(name), slots)
    start = rows_of(name, slice(BASELINE, BASELINE + 1))
    shares = []
    for row in range(3):
        of_columns, _, _ = gradients.between(start, rows_of(name, slice(row, row + 1)))
        expected = np.array([of_columns.get(column, 0.0) for column in columns])
        shares.append(np.abs(found[row] - expected).sum() / np.abs(expected).sum())
    return max(shares)


# Random weights bend a logit far more than trained ones do.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("fm", 1e-5),
        ("dcn_v2", 0.05),
        pytest.param("din", 0.08, marks=pytest.mark.large),
        pytest.param("attention_net", 0.3, marks=pytest.mark.large),
        ("numbert", 0.02),
    ],
)
def test_they_are_those_of_explain(name, share):
    assert apart_from_explain(name) < share


@pytest.mark.slow
@pytest.mark.parametrize("name", ["din", pytest.param("bert4ctr", marks=pytest.mark.large)])
def test_with_many_points_they_are_exactly_those_of_explain(name, monkeypatch):
    monkeypatch.setattr(module, "POINTS", 300)
    monkeypatch.setattr(module, "TEXT_POINTS", 300)
    assert apart_from_explain(name) < 2e-3


@pytest.mark.slow
def test_blocks_of_rows_answer_what_all_rows_together_answer(monkeypatch):
    _, whole = explained("din")
    monkeypatch.setattr(module, "BLOCK_ROWS", 3)
    _, parts = explained("din")
    for values, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(values, expected, atol=1e-5)


def test_a_change_that_no_gradient_explains_is_dealt_evenly():
    np.testing.assert_allclose(module._shares(np.zeros((1, 4), np.float32)), [[0.25] * 4])
    np.testing.assert_allclose(module._shares(np.array([[3, -1]], np.float32)), [[0.75, 0.25]])
