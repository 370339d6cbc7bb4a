"""Scales a model's regularisation with the number of its training rows."""

from ctrpipe.pipeline.config import Model, Training

PENALTIES = ("table_l2", "network_l2")  # fields of Training
STRENGTHS = ("l2", "embedding_l2", "linear_l2")
DROPOUTS = ("dropout", "embedding_dropout")


def regularised(model: Model, training: Training, rows: int) -> tuple[Model, Training]:
    """Returns the model and the training settings with their regularisation scaled to the number of rows.

    L2 regularisation is a prior on the weights, balanced against the log likelihood of all rows. Relative to the mean
    loss its strength falls as 1 / rows. To second order, dropout with rate p acts as an L2 penalty whose strength is
    proportional to the odds p / (1 - p). The odds therefore fall as 1 / rows too.

    Args:
        model: Hyperparameters as configured, for `training.regularisation_rows` rows.
        training: The training settings; PENALTIES are scaled.
        rows: The number of training rows, at least 1.

    References:
        Wager, Wang and Liang, "Dropout Training as Adaptive Regularization", 2013, equation 12.
    """
    if training.regularisation_rows is None:
        return model, training
    factor = training.regularisation_rows / rows
    scaled = dict(model.hyperparameters)
    for name in STRENGTHS:
        if name in scaled:
            scaled[name] *= factor
    for name in DROPOUTS:
        if name in scaled:
            rates = scaled[name]
            of_one = isinstance(rates, int | float)
            scaled[name] = _with_odds(rates, factor) if of_one else [_with_odds(rate, factor) for rate in rates]
    penalties = {name: getattr(training, name) * factor for name in PENALTIES}
    return model.of_stage(model.name, scaled), training.model_copy(update=penalties)


def _with_odds(rate: float, factor: float) -> float:
    """Returns the rate whose odds are `factor` times the odds of `rate`."""
    return factor * rate / (1 - rate + factor * rate)
