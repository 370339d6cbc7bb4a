"""The losses and answers of tasks that predict numbers, against NumPy and SciPy."""

import dataclasses

import keras
import numpy as np
import pytest
import scipy.special

from ctrpipe.models.base.answers import answers, number_losses
from ctrpipe.models.base.feature_map import FeatureMap, NumberTask
from ctrpipe.models.base.losses import TaskLosses
from ctrpipe.models.multi_task.esmm import ESMM
from ctrpipe.models.multi_task.mmoe import MMoE

Z = np.array([[0.5, -1.0, 2.0, 0.1], [-3.0, 0.25, 30.0, 4.0]], np.float32)
NUMBERS = (
    NumberTask("value", "mean", 10.0, 4.0),
    NumberTask("seconds", "count", 0.0, 30.0),
    NumberTask("delay", "median", -1.0, 0.5),
)
MAP = FeatureMap.from_sizes([("ad", "categorical", 3)], tasks=("ctr", "value", "seconds", "delay"))


def with_numbers() -> FeatureMap:
    return dataclasses.replace(MAP, number_tasks=NUMBERS)


def test_answers_are_in_the_unit_of_the_label():
    found = keras.ops.convert_to_numpy(answers(keras.ops.convert_to_tensor(Z), with_numbers()))
    expected = [
        scipy.special.expit(Z[:, 0]),
        10 + 4 * Z[:, 1],
        30 * np.exp(np.minimum(Z[:, 2], 20)),
        -1 + 0.5 * Z[:, 3],
    ]
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-6)
    plain = keras.ops.convert_to_numpy(answers(keras.ops.convert_to_tensor(Z), MAP))
    np.testing.assert_allclose(plain, scipy.special.expit(Z), rtol=1e-6)


def test_a_feature_map_keeps_its_numbers():
    described = with_numbers()
    assert FeatureMap.from_json(described.to_json()) == described
    assert list(described.numbers_by_task.values()) == [None, *NUMBERS]
    with pytest.raises(ValueError, match="scale"):
        NumberTask("value", "mean", 0.0, 0.0)


def test_the_loss_of_a_number_is_least_at_its_mean_median_or_rate():
    labels = np.array([1.0, 2.0, 2.5, 40.0], np.float32)
    grid = np.linspace(-8, 8, 16001)
    for number, expected in zip(NUMBERS, (labels.mean(), labels.mean(), None), strict=True):
        tiled = np.repeat(labels[:, None], len(grid), axis=1)
        losses = keras.ops.convert_to_numpy(number_losses(tiled, np.broadcast_to(grid, tiled.shape), number))
        best = grid[losses.sum(axis=0).argmin()]
        if expected is None:  # any number between the two in the middle
            continue
        found = number.scale * np.exp(best) if number.predicts == "count" else number.center + number.scale * best
        assert found == pytest.approx(expected, rel=2e-3)
    wide = NumberTask("delay", "median", 0.0, 10.0)
    losses = keras.ops.convert_to_numpy(number_losses(tiled, np.broadcast_to(grid, tiled.shape), wide))
    assert 2.0 - 1e-2 <= 10 * grid[losses.sum(axis=0).argmin()] <= 2.5 + 1e-2


def test_a_batch_has_the_mean_of_its_tasks_losses_and_skips_missing_numbers():
    labels = np.array([[1.0, 14.0, 15.0, np.nan], [0.0, np.nan, 0.0, -2.0]], np.float32)
    outputs = np.array([[0.5, 0.5, -0.2, 7.0], [-1.0, 9.0, 0.3, 1.0]], np.float32)
    losses = TaskLosses(("binary_cross_entropy",) * 4, (1.0, 2.0, 1.0, 1.0), numbers=(None, *NUMBERS))
    found = keras.ops.convert_to_numpy(losses.of_rows(labels, outputs, None))
    first = np.log1p(np.exp(-0.5)) + 2 * 0.5 * (0.5 - 1.0) ** 2 + (np.exp(-0.2) + 0.2 * 0.5)
    second = np.log1p(np.exp(-1.0)) + np.exp(0.3) + abs(1.0 - (-2.0 + 1.0) / 0.5)
    np.testing.assert_allclose(found, np.array([first, second]) / 5, rtol=1e-6)
    steep = number_losses(np.float32([0.0]), np.float32([25.0]), NUMBERS[1])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(steep), np.exp(20.0) * 6, rtol=1e-5)  # the tangent beyond 20


def test_experts_know_no_numbers_and_products_refuse_them():
    model = MMoE(with_numbers(), experts=2, expert_units=3, interaction={"name": "mlp", "hidden_units": [4]})
    assert model({"ids": np.array([[1], [2]], np.int32)}).shape == (2, 4)
    with pytest.raises(ValueError, match="esmm multiplies probabilities; value is a number"):
        ESMM(with_numbers())
