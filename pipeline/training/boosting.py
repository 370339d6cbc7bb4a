"""The last stage of a model with boosted trees: LightGBM learns them on what the network has left."""

from collections.abc import Callable, Iterable
from typing import Any

import lightgbm
import numpy as np

from models.text.cascading import CascadingNNGBDT
from pipeline.training.learner import Batch

LEARNING_RATE = 0.1
PATIENCE = 10  # trees without an improvement on the validation rows


def learn_trees(
    network: CascadingNNGBDT, train: Iterable[Batch], validation: Iterable[Batch] | None, trees: int | None, seed: int
) -> int:
    """Learns trees that start from the network's logits, and gives them to it; how many.

    Args:
        network: Trained.
        train, validation: Batches; without validation rows exactly `trees` are learned.
        trees: The most trees, or None for as many as the network has room for.
        seed: Of LightGBM.
    """
    room = network.trees
    parameters = {
        "objective": "binary",
        "learning_rate": LEARNING_RATE,
        "num_leaves": room.leaves,
        "max_depth": room.depth,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbose": -1,
    }
    data = _dataset(network, train)
    watched: list[lightgbm.Dataset] = [] if validation is None else [_dataset(network, validation, data)]
    callbacks: list[Callable[..., Any]] = [lightgbm.early_stopping(PATIENCE, verbose=False)] if watched else []
    most = room.trees if trees is None else trees
    booster = lightgbm.train(parameters, data, most, valid_sets=watched, callbacks=callbacks)
    kept = booster.dump_model(num_iteration=booster.best_iteration or None)["tree_info"]
    room.assign(*_arrays([tree["tree_structure"] for tree in kept], room.trees, room.nodes))
    return len(kept)


def _dataset(
    network: CascadingNNGBDT, batches: Iterable[Batch], reference: lightgbm.Dataset | None = None
) -> lightgbm.Dataset:
    parts = [(*network.boost(inputs), labels) for inputs, labels in batches]
    values, logits, labels = (np.concatenate([np.asarray(part[i]) for part in parts]) for i in range(3))
    return lightgbm.Dataset(values, labels[:, 0], init_score=logits[:, 0].astype(np.float64), reference=reference)


def _arrays(trees: list[dict[str, Any]], count: int, nodes: int) -> list[np.ndarray]:
    """Returns feature, threshold, left, right and value of every node, (count, nodes) each; see TreeEnsemble.assign."""
    feature, left, right = (np.zeros((count, nodes), np.int32) for _ in range(3))
    threshold, value = (np.zeros((count, nodes)) for _ in range(2))
    left[:], right[:] = np.arange(nodes), np.arange(nodes)
    for index, root in enumerate(trees):
        waiting, used = [(root, 0)], 1
        while waiting:
            node, at = waiting.pop()
            if "leaf_value" in node:
                value[index, at] = node["leaf_value"]
                continue
            if node["decision_type"] != "<=":
                raise RuntimeError(f"LightGBM split by {node['decision_type']}, not by <=")
            feature[index, at], threshold[index, at] = node["split_feature"], node["threshold"]
            left[index, at], right[index, at] = used, used + 1
            waiting += [(node["left_child"], used), (node["right_child"], used + 1)]
            used += 2
    return [feature, threshold, left, right, value]
