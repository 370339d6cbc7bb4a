"""Ranks the candidates of a log's lists by a model and by popularity, and measures both rankings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.grouped_auc import group_aucs
from ctrpipe.common.store_names import with_urls
from ctrpipe.pipeline.evaluation.lists import (
    Lists,
    candidate_lists,
    hit_rate,
    ndcg,
    popularity_strata,
    reciprocal_rank,
    shown_catalogue,
    take_rate,
    taken_catalogue,
)
from ctrpipe.pipeline.run.model_rows import read_rows, split_files
from ctrpipe.pipeline.run.trained_model import TrainedModel
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.rows import Scorer
from ctrpipe.transforms.log.lists import Columns, columns_of
from ctrpipe.transforms.log.payload import read_payload
from ctrpipe.transforms.log.spec import LogSpec

STRATA = ("head", "middle", "tail")
CURVE_POINTS = 40


def rank(
    source: TrainedModel, data: Sequence[str], group: str | None, item: str | None, depths: Sequence[int]
) -> dict[str, Any]:
    """Returns the metrics of the model's ranking and of the ranking by popularity, for the first task.

    Args:
        source: The model.
        data: A log with labels. Empty for the run's test rows.
        group: The column that identifies the lists. None for `user`.
        item: The column of the candidates. None for `LogSpec.item_column`.
        depths: Values of k. Empty for 10.

    Returns:
        The contents of ranking.json: counts; for each side ("model", "popularity") the metrics at each k, also by
        popularity stratum; and the curves over k.

    Raises:
        InputError: as in `columns_of` and `read_rows`; or no list has both a positive and a negative candidate.
    """
    depths = sorted(set(depths)) or [10]
    spec = read_log_spec(source.version)
    columns = columns_of(spec, group, item)
    lists, scores, items = _scored(source, data, spec, columns)
    judged = lists.judged()
    if not judged.any():
        raise InputError(
            f"no {columns.group} has a candidate with label 1 and one with 0; name the column of the lists with --group"
        )
    counts = _training_events(source, data, spec, columns.item, items)
    popularity = counts if counts is not None else np.bincount(lists.items, lists.labels, len(items))
    lists, kept = lists.only(judged)
    orders = {"model": scores[kept], "popularity": popularity[lists.items].astype(np.float64)}
    strata = popularity_strata(popularity.astype(np.int64))
    sides = {name: _side(lists, order, strata, depths) for name, order in orders.items()}
    return {
        "version": with_urls(str(source.version)),
        "model": with_urls(str(source.run or source.version)),
        "group": columns.group,
        "item": columns.item,
        "rows": int(kept.sum()),
        "lists": lists.count,
        "left_out": int(len(judged) - judged.sum()),
        "items": len(items),
        "popularity_of": "training rows" if counts is not None else "the lists' own positives",
        "depths": list(depths),
        "sides": sides,
        "curves": _curves(lists, orders, popularity),
    }


def _scored(
    source: TrainedModel, data: Sequence[str], spec: LogSpec, columns: Columns
) -> tuple[Lists, np.ndarray, pa.Array]:
    """Returns the candidates, the model's probabilities [N], and the items' names by number."""
    task, label = next(iter(spec.data.columns_by_task.items()))
    scorer = Scorer(source.version)
    names, labels, scores = [], [], []
    try:
        for batch in read_rows(source, data, spec):
            rows = pa.Table.from_batches([batch.filter(batch[label].is_valid())])
            scores.append(scorer(rows)[task])
            labels.append(rows[label].to_numpy())
            names.append(rows.select([columns.group, columns.item]))
    finally:
        scorer.close()
    read = pa.concat_tables(names)
    lists, items = candidate_lists(read[columns.group], read[columns.item], np.concatenate(labels))
    return lists, np.concatenate(scores), items


def _training_events(
    source: TrainedModel, data: Sequence[str], spec: LogSpec, item: str, items: pa.Array
) -> np.ndarray | None:
    """Returns the number of positive training rows of each item, int64 [items].

    None if the run is not known, or, with `data`, if its rows are not: a run in a store does not contain them.
    """
    if source.run is None:
        return None
    try:
        files = split_files(source.run, "train")
    except InputError:
        if data:
            return None
        raise
    label = spec.label_columns[0]
    counts = np.zeros(len(items), np.int64)
    for batch in read_payload(files, [item, label]):
        positive = batch[item].filter(pc.greater(batch[label], 0.5))
        codes = pc.index_in(positive, value_set=items).drop_null().to_numpy()
        counts += np.bincount(codes, minlength=len(items))
    return counts


def _side(lists: Lists, scores: np.ndarray, strata: np.ndarray, depths: Sequence[int]) -> dict[str, Any]:
    """Returns the metrics of a ranking of all lists."""
    ranks = lists.ranks(scores)
    first = np.zeros(lists.count, np.int64)
    positive = lists.labels == 1
    first[lists.lists[positive]] = strata[lists.items[positive]]
    side: dict[str, Any] = {
        "gauc": group_aucs(lists.lists, lists.labels, scores).value,
        "mrr": float(reciprocal_rank(lists, ranks).mean()),
        "at": {},
        "strata": {},
    }
    for k in depths:
        hits, gains = hit_rate(lists, ranks, k), ndcg(lists, ranks, k)
        side["at"][str(k)] = {
            "hit_rate": float(hits.mean()),
            "ndcg": float(gains.mean()),
            "ecs": shown_catalogue(lists, ranks, k),
            "take_rate": take_rate(lists, ranks, k),
        }
        side["strata"][str(k)] = {
            name: {"lists": int(of.sum()), "hit_rate": float(hits[of].mean()), "ndcg": float(gains[of].mean())}
            for code, name in enumerate(STRATA)
            if (of := first == code).any()
        }
    return side


def _curves(lists: Lists, orders: dict[str, np.ndarray], popularity: np.ndarray) -> dict[str, Any]:
    """Returns ECS and take-rate over k: for the k most popular items, and for the first k places of each list."""
    ranks = {name: lists.ranks(scores) for name, scores in orders.items()}
    items = _steps(len(popularity))
    places = _steps(int(ranks["model"].max()))
    return {
        "items": items,
        "places": places,
        "ecs_by_popularity": [taken_catalogue(lists, popularity, k) for k in items],
        "ecs_by_rank": [shown_catalogue(lists, ranks["model"], k) for k in places],
        "take_rate_by_popularity": [take_rate(lists, ranks["popularity"], k) for k in places],
        "take_rate_by_rank": [take_rate(lists, ranks["model"], k) for k in places],
    }


def _steps(most: int) -> list[int]:
    """Returns integers from 1 to `most`, evenly spaced on a logarithmic scale."""
    steps: list[int] = np.unique(np.geomspace(1, max(most, 1), CURVE_POINTS).round().astype(int)).tolist()
    return steps
