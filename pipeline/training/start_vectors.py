"""Initialises embeddings with pretrained vectors, which the training then changes."""

import pathlib

import numpy as np
import numpy.typing as npt

from ctrpipe.common.progress import announce
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import Learner
from ctrpipe.pipeline.training.network import constrained
from ctrpipe.transforms.features.start_vectors import StartVectors, read_start_vectors


def begin_with_vectors(job: TrainingJob, learner: Learner, ids: npt.NDArray[np.int64] | None = None) -> None:
    """Sets the embeddings of an untrained learner to the vectors of their values.

    A model without embeddings of single values, such as the baseline lr, is not changed.

    Args:
        job: The training job.
        learner: The learner.
        ids: The ids to set; None for all ids that have a vector.
    """
    network = learner.network
    tables = [table.table for table in network.value_tables()]
    if not tables:
        return
    starts = read_start_vectors(pathlib.Path(job.start_vectors), job.feature_map)
    weights = learner.weights()
    places = {id(variable): place for place, variable in enumerate(network.variables)}
    for field, start in starts.items():
        chosen = slice(None) if ids is None else np.isin(start.ids, ids)
        for table in tables:
            rows = weights[places[id(table)]] = np.array(weights[places[id(table)]])
            vectors = start.fitted(rows.shape[1])[chosen]
            rows[start.ids[chosen], : vectors.shape[1]] = vectors
            rows[start.ids[chosen]] = np.asarray(constrained(table, rows[start.ids[chosen]]))
        if learner.is_chief and (ids is not None or not job.start):
            announce(f"{job.model.name}: {_said(field, start, len(start.ids[chosen]), tables[0].shape[1])}")
    learner.load_weights(weights)


def _said(field: str, start: StartVectors, count: int, width: int) -> str:
    """Returns a line with the number of a field's embeddings that start from vectors, and the share that they keep."""
    length = start.vectors.shape[1]
    line = f"{count:,} embeddings of {field} start from pretrained vectors"
    if length <= width:
        return line
    whole = float((start.vectors.astype(np.float64) ** 2).sum())
    kept = float((start.fitted(width).astype(np.float64) ** 2).sum()) / whole if whole else 1.0
    return f"{line}; embedding_dim {width} keeps {kept:.1%} of the squares of their {length} numbers"
