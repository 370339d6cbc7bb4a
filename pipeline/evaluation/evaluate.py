"""Computes the metrics of metrics.json from predictions: overall, by task and by slice."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import tensorflow_model_analysis as tfma

from ctrpipe.common.finite import SMALLER_STEPS, check_figures, check_predictions
from ctrpipe.common.grouped_auc import NO_GROUP, group_aucs
from ctrpipe.common.metrics import Weights, reliability, summarise, summarise_numbers
from ctrpipe.common.significance import NORMAL_QUANTILE
from ctrpipe.pipeline.config import Evaluation
from ctrpipe.pipeline.evaluation.elements import MISSING, frequent_slices
from ctrpipe.pipeline.evaluation.judge import PREDICTIONS, TRAINED_BASELINE, UNCALIBRATED_MODEL
from ctrpipe.pipeline.evaluation.predictions import prediction_column
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, baseline_column
from ctrpipe.pipeline.evaluation.tail import TAIL
from ctrpipe.transforms.log.groups import group_numbers
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.weighted import names_alone

MAX_SLICE_VALUES = 20  # per column in metrics.json


def evaluate(
    judged: pathlib.Path,
    baseline: str | None,
    files: Sequence[pathlib.Path],
    spec: LogSpec,
    evaluation: Evaluation,
    rows: str,
) -> tuple[dict[str, Any], ScoredRows, dict[str, np.ndarray]]:
    """Returns the metrics of the candidate and the baseline model, from the predictions that `judge` wrote.

    Args:
        judged: The output folder of `judge`.
        baseline: Name of the baseline model (`evaluation.baseline`); None if there is none.
        files: The payload files that `judge` read.
        spec: The description of the log.
        evaluation: The slices of the metrics.
        rows: The identity of the rows, see ScoredRows.

    Returns:
        A tuple: the contents of metrics.json, without the verdict of the gates; the candidate's predictions; and other
        predictions, if there are any: `baseline_probability` of the baseline, see `baseline_column`, and
        `uncalibrated_probability` of the candidate before its calibration.

    Raises:
        NotFiniteError: a prediction or a metric is not finite.
    """
    labels = _read_columns(files, spec.target_columns)
    weights = labels[spec.data.weight] if spec.data.weight else None
    predicted = payload_files(judged / PREDICTIONS)
    probabilities = _read_probabilities(predicted, tfma.CANDIDATE_KEY, list(spec.data.labels))
    _check_finite("the model", probabilities)
    numbers = tuple(spec.data.number_tasks)
    columns_by_task = spec.data.columns_by_task

    def measured(task: str, predicted: dict[str, np.ndarray]) -> dict[str, Any]:
        of = summarise_numbers if task in numbers else summarise
        return of(labels[columns_by_task[task]], predicted[task], weights)

    tasks = {task: measured(task, probabilities) for task in columns_by_task}
    primary = next(iter(spec.data.labels))
    label = labels[spec.data.columns_by_task[primary]]
    others: dict[str, np.ndarray] = {}
    metrics: dict[str, Any] = {**tasks[primary], "tasks": tasks, "slices": {}, "tail": None, "baseline": None}
    metrics |= {"reliability": reliability(label, probabilities[primary], weights), "uncalibrated": None}
    by_column = {name: _read_codes(files, name, spec) for name in evaluation.slices}
    slices: dict[str, pa.Array] = {}
    for name, (texts, codes) in by_column.items():
        slices[name] = pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(texts, pa.string()))
        separator = spec.separators.get(name, "")
        metrics["slices"][name] = _by_value((texts, codes), separator, label, probabilities[primary], weights)
    is_tail = None
    if evaluation.tail:
        is_tail = pa.Table.from_batches(read_payload(predicted, [TAIL]))[TAIL].is_valid().to_numpy()
        own = None if weights is None else weights[is_tail]
        of_tail = summarise(label[is_tail], probabilities[primary][is_tail], own)
        metrics["tail"] = {**evaluation.tail.model_dump(), **of_tail}
    if baseline:
        known = pa.parquet.read_schema(predicted[0]).names
        answered = [task for task in tasks if prediction_column(TRAINED_BASELINE, task) in known]
        by_baseline = _read_probabilities(predicted, TRAINED_BASELINE, answered)
        _check_finite(f"the baseline {baseline}", by_baseline)
        others |= {baseline_column(list(tasks), task): values for task, values in by_baseline.items()}
        of_tasks = {task: measured(task, by_baseline) for task in answered}
        metrics["baseline"] = {"name": baseline, **of_tasks[primary], "tasks": of_tasks}
    if prediction_column(UNCALIBRATED_MODEL, primary) in pa.parquet.read_schema(predicted[0]).names:
        before = _read_probabilities(predicted, UNCALIBRATED_MODEL, list(spec.data.labels))
        _check_finite("the model before its calibration", before)
        others["uncalibrated_probability"] = before[primary]
        metrics["uncalibrated"] = {
            **summarise(label, before[primary], weights),
            "tasks": {task: measured(task, before) for task in columns_by_task},
            "slices": {
                name: _by_value(codes, spec.separators.get(name, ""), label, before[primary], weights)
                for name, codes in by_column.items()
            },
            "reliability": reliability(label, before[primary], weights),
        }
    groups = None
    if evaluation.group:
        groups = group_numbers(pa.Table.from_batches(read_payload(files, [evaluation.group]))[evaluation.group])
        metrics |= _within_groups(evaluation, groups, label, probabilities[primary], weights)
        if baseline:
            own = others[baseline_column(list(tasks), primary)]
            metrics["baseline"] |= _within_groups(evaluation, groups, label, own, weights)
    by_task = {task: labels[column] for task, column in columns_by_task.items()}
    tail_of = evaluation.tail.model_dump() if evaluation.tail else None
    check_figures("the metrics on the test rows", metrics, SMALLER_STEPS, "test")
    separators = {name: spec.separators[name] for name in slices if name in spec.separators}
    scored = ScoredRows(rows, by_task, probabilities, slices, is_tail, tail_of, weights, separators, numbers=numbers)
    return metrics, dataclasses.replace(scored, groups=groups, group_weight=evaluation.group_weight), others


def _within_groups(
    evaluation: Evaluation, groups: np.ndarray, labels: np.ndarray, probabilities: np.ndarray, weights: Weights
) -> dict[str, Any]:
    """Returns `gauc`, and `gauc_groups`: its 95% interval over groups, and how many groups and rows it leaves out."""
    own = groups != NO_GROUP
    of_rows = None if weights is None else weights[own]
    grouped = group_aucs(groups[own], labels[own], probabilities[own], of_rows, evaluation.group_weight)
    described: dict[str, Any] = {"column": evaluation.group, "weighted_by": evaluation.group_weight}
    described |= {"groups": len(grouped.aucs), "left_out": grouped.one_class, "rows_without_group": int((~own).sum())}
    if len(grouped.aucs) > 1 and grouped.value is not None:
        half = NORMAL_QUANTILE * float(np.linalg.norm(grouped.components))
        described |= {"low": grouped.value - half, "high": grouped.value + half}
    return {"gauc": grouped.value, "gauc_groups": described}


def _check_finite(name: str, probabilities: dict[str, np.ndarray]) -> None:
    """Raises NotFiniteError if a prediction of a test row, by task, is not finite."""
    check_predictions(name, np.stack(list(probabilities.values()), axis=1), "test")


def last_blessed_probabilities(judged: pathlib.Path, task: str) -> np.ndarray | None:
    """Reads the last blessed model's probabilities of a task, [N], written by `judge`; None for a first model."""
    predicted = payload_files(judged / PREDICTIONS)
    if prediction_column(tfma.BASELINE_KEY, task) not in pa.parquet.read_schema(predicted[0]).names:
        return None
    return _read_probabilities(predicted, tfma.BASELINE_KEY, [task])[task]


def _read_columns(files: Sequence[pathlib.Path], names: list[str]) -> dict[str, np.ndarray]:
    table = pa.Table.from_batches(read_payload(files, names))
    return {name: table[name].to_numpy() for name in names}


def _read_probabilities(predicted: Sequence[pathlib.Path], model: str, tasks: list[str]) -> dict[str, np.ndarray]:
    """Returns the probabilities by task, float32 [N]."""
    columns = {task: prediction_column(model, task) for task in tasks}
    values = _read_columns(predicted, list(columns.values()))
    return {task: values[column] for task, column in columns.items()}


def _read_codes(files: Sequence[pathlib.Path], column: str, spec: LogSpec) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct values of a column as texts [V], without weights, and the index of each row's value [N]."""
    table = pa.Table.from_batches(read_payload(files, [column]))
    values = table[column].combine_chunks().dictionary_encode()
    names = [_text(value) for value in [*values.dictionary.to_pylist(), None]]
    if before := spec.weight_separators.get(column):
        names = names_alone(names, spec.separators[column], before)
    texts = np.array(names, object)
    texts, same = np.unique(texts, return_inverse=True)
    return texts, same[values.indices.fill_null(len(values.dictionary)).to_numpy()]


def _by_value(
    values: tuple[np.ndarray, np.ndarray], separator: str, label: np.ndarray, probability: np.ndarray, weights: Weights
) -> dict[str, Any]:
    """Returns the metrics of the most frequent values of a slicing column."""
    texts, codes = values
    return {
        value: summarise(label[own], probability[own], None if weights is None else weights[own])
        for value, own in frequent_slices(texts.tolist(), codes, separator, MAX_SLICE_VALUES)
    }


def _text(value: object) -> str:
    if value is None:
        return MISSING
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else f"{value:g}"
