"""Exact metrics of click-through rates, in numpy. A metric that is undefined (no rows, one class only) is None."""

import numpy as np

ECE_BINS = 20
EPSILON = 1e-7  # probabilities are float32; keeps log loss finite


def auc(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Returns the area under the ROC curve, by ranks, ties counted half. Exact, in O(N log N).

    Args:
        labels: 0 or 1, (N,).
        probabilities: Predictions, (N,).
    """
    positive = np.asarray(labels) > 0.5
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return None
    return float(
        (ranks(np.asarray(probabilities))[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    )


def ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value, float64 `[N]` from 1; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse.reshape(-1)]


def auc_of_counts(clicks: np.ndarray, others: np.ndarray) -> float:
    """Returns the area under the ROC curve from counts of rows.

    Args:
        clicks, others: Rows of each class at each distinct probability, in ascending order of the probabilities; each
            class has a row.
    """
    return float((clicks @ np.cumsum(others) - clicks @ others / 2) / (clicks.sum() * others.sum()))


def log_loss(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Returns the mean of -(y ln p + (1 - y) ln(1 - p)), in nats; p is kept 1e-7 away from 0 and 1."""
    return float(log_losses(labels, probabilities).mean()) if len(labels) else None


def log_losses(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Returns -(y ln p + (1 - y) ln(1 - p)) of each row, float64 `[N]`, in nats; p is kept 1e-7 away from 0 and 1."""
    y = np.asarray(labels, np.float64)
    p = np.clip(np.asarray(probabilities, np.float64), EPSILON, 1 - EPSILON)
    return -(y * np.log(p) + (1 - y) * np.log1p(-p))


def rig(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Returns the relative information gain, 1 - log loss / entropy of the base rate (BERT4CTR, section 4)."""
    base = entropy(float(np.mean(labels, dtype=np.float64))) if len(labels) else 0.0
    loss = log_loss(labels, probabilities)
    return None if loss is None or not base else float(1 - loss / base)


def entropy(rate: float) -> float:
    """Returns the log loss, in nats, of always predicting the base rate `rate`; 0 where there is one class."""
    return 0.0 if rate in (0.0, 1.0) else float(-(rate * np.log(rate) + (1 - rate) * np.log1p(-rate)))


def calibration(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Returns the mean predicted over the mean observed probability: above 1, the model predicts too much."""
    observed = float(np.sum(labels, dtype=np.float64))
    return float(np.sum(probabilities, dtype=np.float64) / observed) if observed else None


def ece(labels: np.ndarray, probabilities: np.ndarray, bins: int = ECE_BINS) -> float | None:
    """Returns the expected calibration error: mean |mean predicted - mean observed| over `bins` bins of equal mass.

    Rows with equal predictions are in one bin, so that their order never matters: the base rate for every row has 0.
    """
    if not len(labels):
        return None
    p, y = np.asarray(probabilities, np.float64), np.asarray(labels, np.float64)
    return float(np.abs(np.bincount(_bins_of_equal_mass(p, bins), p - y)).sum() / len(p))


def ece_if_calibrated(probabilities: np.ndarray, bins: int = ECE_BINS) -> float | None:
    """Returns the mean of `ece` over labels that are drawn by the predictions themselves: what chance alone makes it.

    An ECE near it says nothing against the model. It takes the error of a bin's mean as normal: its mean absolute
    value is sqrt(2 / pi) times its standard deviation.
    """
    if not len(probabilities):
        return None
    p = np.asarray(probabilities, np.float64)
    variances = np.bincount(_bins_of_equal_mass(p, bins), p * (1 - p))
    return float(np.sqrt(2 / np.pi) * np.sqrt(variances).sum() / len(p))


def _bins_of_equal_mass(values: np.ndarray, bins: int) -> np.ndarray:
    """Returns the bin of each row by the middle of its value's ranks, int64 `[N]`: equal values share a bin."""
    return ((ranks(values) - 0.5) * bins / len(values)).astype(np.int64)


def summarise(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, float | int | None]:
    """Returns all metrics by name, and the number of rows as `examples`."""
    return {
        "auc": auc(labels, probabilities),
        "log_loss": log_loss(labels, probabilities),
        "rig": rig(labels, probabilities),
        "calibration": calibration(labels, probabilities),
        "ece": ece(labels, probabilities),
        "ece_if_calibrated": ece_if_calibrated(probabilities),
        "examples": len(labels),
    }
