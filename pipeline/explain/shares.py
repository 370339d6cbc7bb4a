"""Each column's share of a model's attributions on a log, and the change of this share between two logs."""

import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.progress import announce
from ctrpipe.common.significance import holm, two_sided
from ctrpipe.common.store_names import with_urls
from ctrpipe.models.base.saved import load_model, saved_class
from ctrpipe.models.layers.boosted import Boosted
from ctrpipe.pipeline.config import Monitoring
from ctrpipe.pipeline.explain.explain import with_position
from ctrpipe.pipeline.monitoring.drift import LEVEL, SIDES
from ctrpipe.pipeline.run.model_rows import good_rows
from ctrpipe.pipeline.run.trained_model import TrainedModel
from ctrpipe.serving import explained
from ctrpipe.serving.export.attributions import Attributions
from ctrpipe.serving.rows import Scorer
from ctrpipe.transforms.features.slots import column_of_slot
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.payload import payload_schema
from ctrpipe.transforms.log.row_sample import RowSample
from ctrpipe.transforms.log.spec import LogSpec

SAMPLED_ROWS = 2000  # of each log
Floats = npt.NDArray[np.floating]
Attribute = Callable[[pa.Table], Floats]  # maps rows to attributions, [N, columns]


def check_monitored(columns: Sequence[str], limits: Monitoring) -> None:
    """Raises InputError if `limits` names a column without attributions."""
    if unknown := [name for name in limits.attributions if name not in columns]:
        raise InputError(
            f"monitoring.attributions: {unknown[0]} is not among the model's explanations; it has {', '.join(columns)}"
            f"{did_you_mean(unknown[0], columns)}"
        )


def compare_attributions(
    source: TrainedModel, data: Sequence[str], against: Sequence[str], kind: str, limits: Monitoring, seed: int
) -> dict[str, Any]:
    """Compares each column's share of the attributions between two logs.

    A column's share is its mean absolute attribution, relative to the sum over all columns. Attributions are integrated
    gradients from a row of missing values, see ctrpipe.serving.export.attributions. A change above its limit is a
    breach if sampling noise does not explain it, at LEVEL for all columns together (Holm).

    Args:
        source: The model.
        data, against: Files and globs of the two logs. They need no labels.
        kind: `drift` or `skew`, which determines the logs' names.
        limits: The maximum change of each share.
        seed: Seed of the samples.

    Returns:
        The model, the logs, and the columns, with columns above their limit first: `attributions` of drift.json.

    Raises:
        InputError: the model cannot read a log, it has no gradients, or a limit names an unknown column.
    """
    scorer = Scorer(source.version)
    try:
        columns = scorer.spec.explained_columns
        check_monitored(columns, limits)
        attribute = _attribute(source, scorer)
        sides = []
        for name, patterns in zip(SIDES[kind], (data, against), strict=True):
            rows = _sample(list(patterns), scorer, seed)
            announce(f"Explaining {rows.num_rows:,} rows of the {name} log")
            attributions = attribute(rows)
            sides.append((name, rows.num_rows, shares(attributions), share_errors(attributions)))
    finally:
        scorer.close()
    (name, rows_of, own, error), (other_name, other_rows, others, other_error) = sides
    moved = np.abs(own - others) / np.maximum(np.hypot(error, other_error), 1e-12)
    chances = holm([two_sided(each) for each in moved.tolist()])
    compared = []
    for column, share, other, chance in zip(columns, own.tolist(), others.tolist(), chances.tolist(), strict=True):
        limit = limits.attributions.get(column, limits.max_distance.attribution)
        breached = abs(share - other) > limit and chance < 1 - LEVEL
        compared.append({"column": column, "share": share, "other": other, "threshold": limit, "breached": breached})
    compared.sort(key=lambda one: (not one["breached"], -abs(one["share"] - one["other"])))
    return {
        "model": with_urls(str(source.version)),
        "breached": any(one["breached"] for one in compared),
        "log": {"name": name, "rows": rows_of},
        "other": {"name": other_name, "rows": other_rows},
        "columns": compared,
    }


def shares(attributions: Floats) -> Floats:
    """Returns each column's share of the mean absolute attributions, [columns]. Equal shares if all are 0."""
    size = np.abs(np.asarray(attributions, np.float64)).mean(axis=0)
    whole = size.sum()
    return size / whole if whole else np.full(len(size), 1 / len(size))


def share_errors(attributions: Floats) -> Floats:
    """Returns the standard errors of the shares over other rows, [columns], by linearisation; infinite for one row."""
    sizes = np.abs(np.asarray(attributions, np.float64))
    whole = sizes.sum(axis=1, keepdims=True)
    if len(sizes) < 2:
        return np.full(sizes.shape[1], np.inf)
    if not whole.any():
        return np.zeros(sizes.shape[1])
    around = (sizes - shares(attributions) * whole) / whole.mean()
    return np.asarray(around.std(axis=0, ddof=1) / math.sqrt(len(sizes)))


def _sample(patterns: list[str], scorer: Scorer, seed: int) -> pa.Table:
    sample = RowSample(SAMPLED_ROWS, np.random.default_rng(seed))
    for batch in good_rows(find_files(patterns), scorer.spec, scorer.own, labels=False):
        sample.add(batch)
    rows = sample.table()
    if rows is None or not rows.num_rows:
        raise InputError(f"{patterns[0]}: no good row in it for --model; give a log that the model reads")
    return rows


def _attribute(source: TrainedModel, scorer: Scorer) -> Attribute:
    """Returns a function that attributes rows' logits, with the served graph or the Keras model.

    Raises:
        InputError: the model has neither, or it has no gradients.
    """
    if scorer.explains:
        return lambda rows: _stacked(explained.attributions(scorer.explained(rows)), scorer.spec)
    kept = source.kept()
    if kept is None or not scorer.packs:
        raise InputError(
            f"{source.version}: it has no signature {explained.SIGNATURE}, and its Keras model was not kept with its "
            "run; give the run, or train it with serving.explain true"
        )
    if issubclass(saved_class(kept, source.trust), Boosted):
        raise InputError(f"{source.version}: --model compares gradients, which boosted trees do not have")
    return _by_keras(kept, source, scorer)


def _by_keras(kept: pathlib.Path, source: TrainedModel, scorer: Scorer) -> Attribute:
    position = source.position()

    def packed(rows: pa.Table) -> Iterator[dict[str, npt.NDArray[Any]]]:
        return scorer.packed(with_position(rows, scorer.spec, position))

    missing = pa.table(
        {
            field.name: pa.nulls(1, field.type)
            for field in payload_schema(scorer.spec)
            if field.name in scorer.spec.feature_columns
        }
    )
    [start] = packed(missing)
    model = Attributions(
        load_model(kept, source.trust), scorer.spec.explained_columns, column_of_slot(scorer.spec), start
    )
    compiled = tf.function(model.__call__, reduce_retracing=True)

    def attribute(rows: pa.Table) -> Floats:
        batches = ({name: tf.constant(value) for name, value in batch.items()} for batch in packed(rows))
        return np.concatenate([compiled(batch)[2].numpy() for batch in batches])

    return attribute


def _stacked(by_column: dict[str, Floats], spec: LogSpec) -> Floats:
    return np.stack([by_column[name] for name in spec.explained_columns], axis=1)
