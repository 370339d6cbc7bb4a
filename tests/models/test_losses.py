"""The losses by name against loops in numpy: values, unknown labels, and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.losses import TaskLosses
from ctrpipe.pipeline.config import load_config

Z = np.array([0.7, -1.2, 2.0, 0.1, -0.4, 1.5, -2.2, 0.3])
Y = np.array([1, 0, 0, 1, 1, 0, 0, 1.0])
GROUPS = np.array([4, 4, 4, 7, 7, 7, 0, 0])  # the last two have none
HALVES = np.stack([GROUPS, GROUPS], axis=1).astype(np.int32)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def group_of(row: int) -> list[int]:
    return [row] if GROUPS[row] == 0 else [j for j in range(len(GROUPS)) if GROUPS[j] == GROUPS[row]]


def cross_entropy(row: int) -> float:
    p = sigmoid(Z[row])
    return -(Y[row] * np.log(p) + (1 - Y[row]) * np.log(1 - p))


def focal(row: int, gamma: float, alpha: float | None) -> float:
    p = sigmoid(Z[row]) if Y[row] else 1 - sigmoid(Z[row])
    weight = 1 if alpha is None else alpha if Y[row] else 1 - alpha
    return -weight * (1 - p) ** gamma * np.log(p)


def pairwise(row: int) -> float:
    others = [j for j in group_of(row) if not Y[j]]
    return Y[row] * np.mean([np.log(1 + np.exp(Z[j] - Z[row])) for j in others]) if others else 0.0


def softmax(row: int, sign: float = 1.0) -> float:
    return -np.log(np.exp(sign * Z[row]) / sum(np.exp(sign * Z[j]) for j in group_of(row)))


def jrc(row: int, share: float) -> float:
    ranking = softmax(row) if Y[row] else softmax(row, -1.0)
    return share * cross_entropy(row) + (1 - share) * ranking


EXPECTED = {
    "binary_cross_entropy": (TaskLosses(("binary_cross_entropy",)), cross_entropy),
    "focal": (TaskLosses(("focal",), gamma=1.5, alpha=0.3), lambda row: focal(row, 1.5, 0.3)),
    "focal, no alpha": (TaskLosses(("focal",)), lambda row: focal(row, 2.0, None)),
    "pairwise_logistic": (TaskLosses(("pairwise_logistic",)), pairwise),
    "softmax": (TaskLosses(("softmax",)), lambda row: Y[row] * softmax(row)),
    "jrc": (TaskLosses(("jrc",), share=0.3), lambda row: jrc(row, 0.3)),
}


def of_rows(losses: TaskLosses, labels, logits) -> np.ndarray:
    return np.asarray(losses.of_rows(tf.constant(labels, tf.float32), tf.constant(logits, tf.float32), HALVES))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_loss_is_its_equation(name):
    losses, expected = EXPECTED[name]
    found = of_rows(losses, Y[:, None], Z[:, None])
    np.testing.assert_allclose(found, [expected(row) for row in range(len(Y))], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["pairwise_logistic", "softmax", "jrc", "focal"])
def test_a_row_without_a_label_is_in_no_group(name):
    losses, _ = EXPECTED[name]
    labels = np.where(np.arange(len(Y)) == 2, np.nan, Y)
    kept = np.arange(len(Y)) != 2
    alone = np.asarray(
        losses.of_rows(tf.constant(Y[kept, None], tf.float32), tf.constant(Z[kept, None], tf.float32), HALVES[kept])
    )
    found = of_rows(losses, labels[:, None], Z[:, None])
    np.testing.assert_allclose(found[kept], alone, rtol=1e-5, atol=1e-6)
    assert found[2] == 0


def test_tasks_have_losses_and_weights_of_their_own():
    losses = TaskLosses(("softmax", "binary_cross_entropy"), (3.0, 1.0))
    found = of_rows(losses, np.stack([Y, 1 - Y], axis=1), np.stack([Z, -Z], axis=1))
    expected = [(3 * Y[row] * softmax(row) + cross_entropy(row)) / 4 for row in range(len(Y))]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_gradient_is_finite_where_logits_are_large(name):
    logits = tf.constant([[90.0], [-90.0], [60.0], [-60.0], [0.0], [0.0], [30.0], [-30.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_sum(EXPECTED[name][0].of_rows(tf.constant(Y[:, None], tf.float32), logits, HALVES))
    assert np.isfinite(float(loss)) and np.isfinite(tape.gradient(loss, logits)).all()


CONFIG = {
    "name": "mine",
    "data": {"format": "csv", "header": True, "labels": {"ctr": "click", "cvr": "order"}},
    "features": [
        {"columns": ["user", "ad"], "kind": "categorical"},
        {"columns": ["tags"], "kind": "multivalent", "separator": "|", "max_length": 3},
    ],
    "model": {"name": "mlp"},
}
GROUPED = {"evaluation": {"group": "user"}}
CALIBRATED = {"calibration": {"method": "platt"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"loss": "focal"}}, "training.loss: focal gives scores.*add calibration"),
        ({"training": {"loss": "jrc"}}, "training.loss: jrc needs evaluation.group"),
        ({"training": {"loss": "softmax"}, **GROUPED}, "training.loss: softmax gives scores"),
        (
            {"training": {"loss": "softmax"}, **GROUPED, **CALIBRATED},
            "log_loss is meaningless for the scores of softmax",
        ),
        ({"training": {"loss": {"buy": "focal"}}}, "training.loss: buy is not a task; the tasks are ctr, cvr"),
        ({"training": {"loss": {"cvr": "focal"}}}, "training.loss: focal gives scores"),
        ({"training": {"monitor": "gauc"}}, "training.monitor: gauc needs evaluation.group"),
        ({"training": {"monitor": "auc_plus_gauc"}}, "training.monitor: auc_plus_gauc needs evaluation.group"),
        ({"gates": {"gauc": {"min": 0.6}}}, "gates.gauc needs evaluation.group"),
        ({"gates": {"max_drop": {"gauc": 0.01}}}, "gates.max_drop: gauc needs evaluation.group"),
        ({"evaluation": {"group": "nobody"}}, "evaluation.group: nobody is not a feature column with one value"),
        ({"evaluation": {"group": "tags"}}, "evaluation.group: tags is not a feature column with one value"),
        ({"group": "user"}, "group: write evaluation"),
        (
            {"training": {"loss": "jrc", "fake_negative_weighting": True}, **GROUPED},
            "needs loss: binary_cross_entropy|needs a single label",
        ),
        ({"training": {"loss": "jrc"}, "model": {"name": "starspace"}, **GROUPED}, "starspace has a loss of its own"),
        (
            {"training": {"loss": "jrc"}, "model": {"name": "fcn"}, **GROUPED},
            "fcn adds cross-entropies of its two netw",
        ),
    ],
)
def test_a_loss_or_a_group_that_cannot_be_is_one_line(changes, message):
    with pytest.raises(InputError, match=message) as error:
        load_config({**CONFIG, **changes})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"loss": "jrc"}, **GROUPED},
        {"training": {"loss": {"cvr": "focal"}}, **CALIBRATED},
        {"training": {"loss": "pairwise_logistic", "monitor": "gauc"}, **GROUPED, **CALIBRATED},
        {"training": {"monitor": "auc_minus_log_loss"}},
    ],
)
def test_what_can_be_is_read(changes):
    config = load_config({**CONFIG, **changes})
    assert config.log_spec.group == config.evaluation.group
    assert len(config.training.losses(list(config.data.labels))) == 2
