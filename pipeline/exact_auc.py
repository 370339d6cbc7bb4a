"""TFMA's AUC without thresholds.

TFMA and Keras count on a grid of thresholds, evenly spaced from 0 to 1: where click-through rates are a few in a
thousand, nearly all predictions lie between two of them.
"""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import config_pb2

MERGE_AT = 10_000  # pairs held as they came before equal ones are counted together
Counts = tuple[np.ndarray, np.ndarray, np.ndarray]  # distinct predictions, clicks and rows of each


class ExactAUC(metric_types.Metric):
    """Area under the ROC curve by ranks, ties counted half; 0 where a slice has one class only, as TFMA's is."""

    def __init__(self, name: str = "auc"):
        super().__init__(metric_util.merge_per_key_computations(_computations), name=name)


def _computations(
    name: str,
    eval_config: config_pb2.EvalConfig | None = None,
    model_name: str = "",
    output_name: str = "",
    sub_key: metric_types.SubKey | None = None,
    aggregation_type: metric_types.AggregationType | None = None,
    class_weights: dict[int, float] | None = None,
    example_weighted: bool = False,
) -> list[metric_types.MetricComputation]:
    key = metric_types.MetricKey(name, model_name, output_name, sub_key, example_weighted=example_weighted)
    combiner = _ExactAUC(key, eval_config)
    return [metric_types.MetricComputation(keys=[key], preprocessors=None, combiner=combiner)]


class _ExactAUC(beam.CombineFn):
    """Collects predictions and labels, equal predictions together: 24 bytes for each distinct one."""

    def __init__(self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None):
        self._key, self._eval_config = key, eval_config

    def create_accumulator(self) -> list[Any]:
        return [[], []]  # counted, and pairs as they came

    def add_input(self, accumulator: list[Any], element: metric_types.StandardMetricInputs) -> list[Any]:
        found = metric_util.to_label_prediction_example_weight(
            element, eval_config=self._eval_config, model_name=self._key.model_name, output_name=self._key.output_name
        )
        accumulator[1] += [(float(prediction[0]), float(label[0])) for label, prediction, _ in found]
        return self.compact(accumulator) if len(accumulator[1]) >= MERGE_AT else accumulator

    def compact(self, accumulator: list[Any]) -> list[Any]:
        counted, pairs = accumulator
        if pairs:
            values, clicks = np.array(pairs).T
            counted = [*counted, (values, clicks, np.ones(len(values)))]
        return [[_merged(counted)] if counted else [], []]

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        counted, pairs = [], []
        for accumulator in accumulators:
            counted += accumulator[0]
            pairs += accumulator[1]
        return self.compact([counted, pairs])

    def extract_output(self, accumulator: list[Any]) -> dict[metric_types.MetricKey, float]:
        [counted] = self.compact(accumulator)[0] or [(np.zeros(0),) * 3]
        return {self._key: _auc(*counted)}


def _merged(parts: list[Counts]) -> Counts:
    values, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    clicks = np.bincount(places, np.concatenate([part[1] for part in parts]), len(values))
    return values, clicks, np.bincount(places, np.concatenate([part[2] for part in parts]), len(values))


def _auc(values: np.ndarray, clicks: np.ndarray, rows: np.ndarray) -> float:
    others = rows - clicks
    pairs = clicks.sum() * others.sum()
    won = clicks @ (np.cumsum(others) - others / 2)
    return float(won / pairs) if pairs else 0.0
