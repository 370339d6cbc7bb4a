"""Finds columns whose values occur in several splits with one label each, such as sessions divided by a random
split.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.metrics import auc
from ctrpipe.transforms.log.column_values import numbers_of, plain_chunks
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.suspects import LEAST_ROWS, MOST_AUC, Suspect, gives_away

_FEWEST_VALUES = 50  # different ones: fewer are no groups of rows


def shared_labels(spec: LogSpec, rows: Mapping[str, pa.Table]) -> Iterator[Suspect]:
    """Yields the columns whose values have predictable labels: the label of a value in the training rows predicts the
    label of test rows with the same value.

    Args:
        spec: The description of the log.
        rows: Rows of each split, by its name.
    """
    if not all(name in rows and rows[name].num_rows for name in ("train", "test")):
        return
    train, test = rows["train"], rows["test"]
    for column in (name for name in spec.feature_columns if spec.inputs[name].is_single):
        values = plain_chunks(train[column])
        if pa.types.is_floating(values.type):
            continue
        different = pc.unique(values.drop_null())
        if not _FEWEST_VALUES <= len(different) <= len(values) / 2:
            continue
        of_train, of_test = (_places(split[column], different) for split in (train, test))
        for task in spec.data.click_tasks:
            labels = spec.data.columns_by_task[task]
            label = numbers_of(train[labels])
            score = _auc_of_train_rates(of_train, label, of_test, numbers_of(test[labels]), len(different))
            if score > MOST_AUC and not gives_away(train[column], label):
                yield Suspect(
                    column,
                    "test",
                    f"the rows of one value have one label, which the training rows tell with an AUC of {score:.4f}; "
                    f"split by: group, column: {column}, unless the labels of earlier rows are known at the click",
                )
                break


def _places(column: pa.ChunkedArray, different: pa.Array) -> np.ndarray:
    """Returns the index of each value in `different`; -1 if it is absent."""
    places: np.ndarray = pc.index_in(plain_chunks(column), different).fill_null(-1).to_numpy().astype(np.int64)
    return places


def _auc_of_train_rates(
    of_train: np.ndarray, label: np.ndarray, of_test: np.ndarray, judged: np.ndarray, count: int
) -> float:
    """Returns the test AUC of each value's click rate in the training rows; 0 if too few test rows have such a
    value.
    """
    learnt = (of_train >= 0) & np.isfinite(label)
    shows = np.bincount(of_train[learnt], minlength=count)
    clicks = np.bincount(of_train[learnt], label[learnt], count)
    known = (of_test >= 0) & np.isfinite(judged)
    known[known] = shows[of_test[known]] > 0
    positive = judged[known] > 0.5
    if min(positive.sum(), (~positive).sum()) < LEAST_ROWS:
        return 0.0
    base = label[learnt].mean()
    rates = (clicks + base) / (shows + 1)
    return float(auc(positive, rates[of_test[known]]) or 0.0)
