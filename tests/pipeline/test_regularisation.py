"""A model's regularisation by the number of training rows."""

import pytest

from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.job_settings import regularised

MODEL = Model(
    name="deepfm", encoder="random", embedding_l2=0.1, l2=0.02, linear_l2=0.3, dropout=0.5, embedding_dropout=0.2
)


def test_strengths_and_the_odds_of_dropout_fall_with_the_rows() -> None:
    scaled, training = regularised(MODEL, Training(regularisation_rows=10_000, table_l2=0.8, network_l2=0.4), 40_000)
    hyperparameters = scaled.hyperparameters
    assert (hyperparameters["embedding_l2"], hyperparameters["l2"]) == pytest.approx((0.025, 0.005))
    assert (hyperparameters["linear_l2"], training.table_l2, training.network_l2) == pytest.approx((0.075, 0.2, 0.1))
    for name in ("dropout", "embedding_dropout"):
        rate, before = hyperparameters[name], MODEL.hyperparameters[name]
        assert rate / (1 - rate) == pytest.approx(before / (1 - before) / 4)
    assert hyperparameters["dropout"] == pytest.approx(0.2)  # odds of 1 become odds of 1/4
    assert (scaled.name, scaled.encoder) == ("deepfm", "random")


def test_fewer_rows_than_stated_regularise_more() -> None:
    scaled = regularised(MODEL, Training(regularisation_rows=30_000), 10_000)[0].hyperparameters
    assert scaled["embedding_l2"] == pytest.approx(0.3)
    assert scaled["dropout"] == pytest.approx(0.75)


def test_each_layers_own_dropout_is_scaled() -> None:
    model = Model(name="mlp", dropout=[0.5, 0.0])
    scaled = regularised(model, Training(regularisation_rows=10_000), 40_000)[0].hyperparameters
    assert scaled["dropout"] == pytest.approx([0.2, 0.0])


def test_other_hyperparameters_and_other_trainings_stay() -> None:
    assert regularised(MODEL, Training(table_l2=0.5), 10) == (MODEL, Training(table_l2=0.5))
    wide = Model(name="deepfm", embedding_dim=8, hidden_units=(4,), dropout=0.0)
    assert regularised(wide, Training(regularisation_rows=10), 1000)[0].hyperparameters == wide.hyperparameters
