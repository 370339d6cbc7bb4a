"""Boosted trees, which LightGBM trains: on the residual error of a trained network, or on rows of any values."""

import time
import types
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from ctrpipe.common.errors import InputError, NotFiniteError, one_line
from ctrpipe.common.finite import SMALLER_STEPS, check_figures, check_predictions
from ctrpipe.common.metrics import has_rates
from ctrpipe.common.processes import cores
from ctrpipe.common.progress import throttled_announce
from ctrpipe.models.layers.tree_ensemble import TreeEnsemble
from ctrpipe.models.text.cascading import CascadingNNGBDT
from ctrpipe.pipeline.training.data import packed_batches, weights_of
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import Batch, split_weight
from ctrpipe.pipeline.training.validation import validation_metrics

LEARNING_RATE = 0.1
ONE_THREAD = 1 << 22  # values of all rows; with fewer, a second thread waits longer than it works
PATIENCE = 10  # early stopping: trees without an improvement on the validation rows


def load_lightgbm() -> types.ModuleType:
    """Imports and returns the module lightgbm.

    Raises:
        InputError: the system lacks the OpenMP library, which LightGBM's wheels do not contain.
    """
    try:
        import lightgbm  # lazy: takes 0.05 s, and only models with trees need it
    except OSError as error:
        raise InputError(
            f"LightGBM, for boosted trees, cannot be loaded ({one_line(error)}); "
            "install OpenMP's library, libgomp1 on Debian and Ubuntu"
        ) from error
    return lightgbm


def train_trees(job: TrainingJob, network: CascadingNNGBDT) -> dict[str, float | None]:
    """Trains the boosted trees of a job's trained network until the validation rows stop them.

    With `refit`, trains the same number of trees again on all rows.

    Returns:
        The validation metrics with the trees, before a refit.

    Raises:
        NotFiniteError: a prediction or a metric with the trees is not finite.
    """

    def rows(files: list[str]) -> Iterable[Batch]:
        return packed_batches(files, job.feature_map, job.training.batch_size, weighted=True)

    count = learn_trees(network, rows(job.train_files), rows(job.validation_files), None, job.seed)
    if job.training.refit:
        learn_trees(network, rows(job.train_files + job.validation_files), None, count, job.seed)
    # `Learner.predict` would wait for the other workers, but only the chief has the trees.
    predicted = [
        (np.asarray(labels), np.asarray(keras.ops.sigmoid(network(split_weight(inputs)[0], training=False))))
        for inputs, labels in rows(job.validation_files)
    ]
    labels, probabilities = (np.concatenate(parts) for parts in zip(*predicted, strict=True))
    in_order = job.feature_map.negative_sampling == 1
    name = f"{job.model.name} with its trees"
    check_predictions(name, probabilities, "validation", in_order=in_order)
    metrics = validation_metrics(labels, probabilities, weights_of(job.validation_files), job.feature_map.tasks)
    check_figures(name, metrics, SMALLER_STEPS, "validation")
    return metrics


def learn_trees(
    network: CascadingNNGBDT, train: Iterable[Batch], validation: Iterable[Batch] | None, trees: int | None, seed: int
) -> int:
    """Trains trees on top of the network's logits, stores them in the network and returns their number.

    Args:
        network: The trained network. Its weights do not change.
        train, validation: Batches. Validation rows stop the boosting early; without them `trees` trees are
            trained.
        trees: The maximum number of trees; None for the maximum of the network.
        seed: LightGBM's seed.
    """
    ensemble = network.trees
    data = _dataset(network, train)
    parameters = {"learning_rate": LEARNING_RATE}
    valid = None if validation is None else _dataset(network, validation, data)
    booster = grow(ensemble, data, valid, ensemble.trees if trees is None else trees, seed, parameters, PATIENCE)
    return store(ensemble, booster)


def grow(
    ensemble: TreeEnsemble,
    data: Any,
    valid: Any,
    rounds: int,
    seed: int,
    parameters: dict[str, float],
    patience: int,
) -> Any:
    """Returns LightGBM's booster of trees that fit a layer of trees.

    Args:
        ensemble: The layer. It bounds the leaves and the depth.
        data: The training rows, a dataset of LightGBM.
        valid: The validation rows for early stopping. None for no early stopping.
        rounds: The maximum number of trees.
        seed: LightGBM's seed.
        parameters: Further parameters of LightGBM.
        patience: Number of trees without an improvement on the validation rows after which boosting stops.
    """
    lightgbm = load_lightgbm()
    data.construct()
    known = {
        # `binary` takes a rate between 0 and 1 for a click; `cross_entropy` is the same loss, a little slower.
        "objective": "cross_entropy" if has_rates(data.get_label()) else "binary",
        "num_leaves": ensemble.leaves,
        "max_depth": ensemble.depth,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1 if data.num_data() * data.num_feature() < ONE_THREAD else cores(),
        "verbose": -1,
    }
    valid_sets: list[Any] = [] if valid is None else [valid]
    callbacks: list[Callable[..., Any]] = [_progress(rounds)]
    callbacks += [lightgbm.early_stopping(patience, verbose=False)] if valid_sets else []
    return lightgbm.train({**known, **parameters}, data, rounds, valid_sets=valid_sets, callbacks=callbacks)


def _progress(rounds: int) -> Callable[[Any], None]:
    """Returns a LightGBM callback that announces the trees and the elapsed and remaining time, at most every 10 s."""
    announce_if_due, started = throttled_announce(), time.monotonic()

    def tell(state: Any) -> None:
        trees, seconds = state.iteration + 1, time.monotonic() - started
        left = f"at most {seconds / trees * (rounds - trees):,.0f} s left"
        announce_if_due(f"Boosting: {trees:,} of at most {rounds:,} trees in {seconds:,.0f} s, {left}")

    return tell


def store(ensemble: TreeEnsemble, booster: Any) -> int:
    """Stores a booster's trees, up to the best one, in a layer, and returns their number."""
    kept = booster.dump_model(num_iteration=booster.best_iteration or None)["tree_info"]
    ensemble.assign(*_arrays([tree["tree_structure"] for tree in kept], ensemble.trees, ensemble.nodes))
    return len(kept)


def _dataset(network: CascadingNNGBDT, batches: Iterable[Batch], reference: Any = None) -> Any:
    """Returns a LightGBM dataset of the batches, with the network's logits as initial scores."""
    lightgbm = load_lightgbm()
    parts, weights = [], []
    for inputs, labels in batches:
        others, weight = split_weight(inputs)
        parts.append((*network.boost(others), labels))
        weights += [] if weight is None else [weight]
    values, logits, labels = (np.concatenate([np.asarray(part[i]) for part in parts]) for i in range(3))
    start, weight = logits[:, 0].astype(np.float64), np.concatenate(weights) if weights else None
    if not (np.isfinite(values).all() and np.isfinite(start).all()):  # LightGBM takes NaN for a missing value
        raise NotFiniteError(
            "cascading_nn_gbdt: an output of the network for the trees is not a finite number", SMALLER_STEPS, "train"
        )
    return lightgbm.Dataset(values, labels[:, 0], weight=not_below_rows(weight), init_score=start, reference=reference)


def not_below_rows(weights: np.ndarray | None) -> np.ndarray | None:
    """Returns the row weights, scaled to a mean of 1 if their mean is smaller.

    LightGBM's limits, such as the least sum of second derivatives in a leaf, count rows. With weights that sum to 1 it
    would find no split. Larger weights, such as numbers of impressions, count rows already and are not scaled.
    """
    mean = 1.0 if weights is None else float(np.mean(weights, dtype=np.float64))
    return weights if weights is None or not 0 < mean < 1 else (weights / mean).astype(np.float32)


def _arrays(trees: list[dict[str, Any]], count: int, nodes: int) -> list[np.ndarray]:
    """Converts LightGBM's trees to the arrays that TreeEnsemble.assign takes.

    The arrays are the feature, threshold, left child, right child and value of every node, (count, nodes) each. A leaf
    is its own child.
    """
    feature, left, right = (np.zeros((count, nodes), np.int32) for _ in range(3))
    threshold, value = (np.zeros((count, nodes)) for _ in range(2))
    left[:], right[:] = np.arange(nodes), np.arange(nodes)
    for index, root in enumerate(trees):
        pending, used = [(root, 0)], 1
        while pending:
            node, position = pending.pop()
            if "leaf_value" in node:
                value[index, position] = node["leaf_value"]
                continue
            if node["decision_type"] != "<=":
                raise RuntimeError(f"LightGBM split by {node['decision_type']}, not by <=")
            feature[index, position], threshold[index, position] = node["split_feature"], node["threshold"]
            left[index, position], right[index, position] = used, used + 1
            pending += [(node["left_child"], used), (node["right_child"], used + 1)]
            used += 2
    return [feature, threshold, left, right, value]
