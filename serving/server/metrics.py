"""The server's metrics, printed like TF Serving's Prometheus page (contract X1-X5).

Names, labels and buckets are TF Serving's. prometheus_client cannot print them: it appends `_total` to the name of a
counter, and adds a HELP line.
"""

import bisect
import re
import threading
from collections.abc import Iterable, Iterator, Sequence

METRICS_PATH = "/monitoring/prometheus/metrics"
CONTENT_TYPE = "text/plain"

_NOT_SERVED = ""  # the model label of all requests for models that are not served
_MICROSECONDS = 1e6


def _exponential(scale: float, growth: float, count: int) -> list[float]:
    """Returns the limits of `count` buckets; an unbounded bucket follows.

    A value equal to a limit belongs to the bucket above it.
    """
    return [scale * growth**power for power in range(count)]


_LATENCY = _exponential(10, 1.8, 33)
_QUEUING = _exponential(100, 1.2, 52)
_EXAMPLES = _exponential(1, 2, 15)
_ROWS = _exponential(1, 2, 14)
_DIFFERENCES = _exponential(1e-6, 10**0.5, 13)  # of probabilities: up to 1


class _Metric:
    """A value for each set of label values. `lines` prints them in the order of their labels.

    Attributes:
        path: The internal name, such as /tensorflow/serving/request_count.
        name: The name on the page, such as :tensorflow:serving:request_count (X2).
    """

    kind = ""

    def __init__(self, name: str, labels: Sequence[str]):
        self.path = f"/tensorflow/{name}"
        self.name = re.sub(r"[^a-zA-Z0-9_]", ":", self.path)
        self._labels = labels
        self._lock = threading.Lock()

    def _text(self, values: Sequence[str]) -> str:
        return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(self._labels, values, strict=True))

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    def first(self) -> int:
        """Returns the value of the first label set; 0 if there is none, or if the metric is a histogram."""
        return 0


class _Counter(_Metric):
    kind = "counter"

    def __init__(self, name: str, *labels: str):
        super().__init__(name, labels)
        self._values: dict[tuple[str, ...], int] = {}

    def add(self, labels: tuple[str, ...], amount: int = 1) -> None:
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + amount

    def first(self) -> int:
        with self._lock:
            return self._values[min(self._values)] if self._values else 0

    def lines(self) -> Iterator[str]:
        with self._lock:
            values = sorted(self._values.items())
        for labels, value in values:
            yield f"{self.name}{{{self._text(labels)}}} {value}"


class _Gauge(_Counter):
    kind = "gauge"


class _Histogram(_Metric):
    kind = "histogram"

    def __init__(self, name: str, limits: list[float], *labels: str):
        super().__init__(name, labels)
        self._limits = limits
        self._cells: dict[tuple[str, ...], list[float]] = {}  # a count per bucket, then the sum

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        bucket = bisect.bisect_right(self._limits, value)
        with self._lock:
            cell = self._cells.get(labels)
            if cell is None:
                cell = self._cells[labels] = [0] * (len(self._limits) + 2)
            cell[bucket] += 1
            cell[-1] += value

    def lines(self) -> Iterator[str]:
        with self._lock:
            cells = sorted((labels, list(cell)) for labels, cell in self._cells.items())
        for labels, (*counts, total) in cells:
            text = self._text(labels)
            prefix = f"{text}," if text else ""
            seen = 0
            for limit, count in zip([*(f"{limit:g}" for limit in self._limits), "+Inf"], counts, strict=True):
                seen += int(count)
                yield f'{self.name}_bucket{{{prefix}le="{limit}"}} {seen}'
            yield f"{self.name}_sum{{{text}}} {total:g}"
            yield f"{self.name}_count{{{text}}} {seen}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Metrics:
    """The server's metrics. Every method is thread-safe; recording a value takes about a microsecond."""

    def __init__(self) -> None:
        self._served: set[str] = set()
        self._request_count = _Counter("serving/request_count", "model_name", "status")
        self._request_latency = _Histogram("serving/request_latency", _LATENCY, "model_name", "API", "entrypoint")
        self._runtime_latency = _Histogram("serving/runtime_latency", _LATENCY, "model_name", "API", "runtime")
        self._example_counts = _Histogram("serving/request_example_counts", _EXAMPLES, "model")
        self._example_total = _Counter("serving/request_example_count_total", "model")
        self._warmup_latency = _Histogram("serving/model_warmup_latency", _LATENCY, "model_path", "status")
        self._warmup_records = _Counter("serving/model_warmup_records_read", "model_path", "status")
        self._queuing_latency = _Histogram("serving/batching_session/queuing_latency", _QUEUING, "thread_pool_name")
        self._wrapped_runs = _Counter("serving/batching_session/wrapped_run_count")
        self._batch_rows = _Histogram("serving/batching_session/processed_batch_size", _ROWS)
        self._request_log_count = _Counter("serving/request_log_count", "model_name", "status_code")
        self._shadow_count = _Counter("serving/shadow_request_count", "model_name", "status_code")
        self._shadow_difference = _Histogram("serving/shadow_difference", _DIFFERENCES, "model_name", "output")
        self._mlmd = _Gauge("serving/mlmd_map", "model_name", "version")  # always without a value (W6)
        self._loads = _Counter("cc/saved_model/load_attempt_count", "model_path", "status")

    def add_model(self, name: str) -> None:
        """Gives a model its own series. The model keeps it when it is no longer served."""
        self._served.add(name)

    def record_request(self, model: str, api: str, entrypoint: str, status: str, seconds: float) -> None:
        """Counts an answered request (X3).

        Args:
            model: The model's name as requested.
            api: Over REST `predict`, `classify` or `regress`, or "" for status and metadata; over gRPC `Predict` and so
                on.
            entrypoint: `REST` or `GRPC`.
            status: The name of the status code. Only `OK` has a latency.
            seconds: The duration.
        """
        name = model if model in self._served else _NOT_SERVED
        self._request_count.add((name, status))
        if status == "OK":
            self._request_latency.observe((name, api, entrypoint), seconds * _MICROSECONDS)

    def record_examples(self, model: str, examples: int) -> None:
        """Counts the tf.Examples of a MultiInference. TF Serving counts examples of no other method (X3)."""
        self._example_counts.observe((model,), examples)
        self._example_total.add((model,), examples)

    def record_load(self, model_path: str, is_loaded: bool) -> None:
        """Counts an attempt to load the SavedModel of a version's folder (X5)."""
        self._loads.add((model_path, "success" if is_loaded else "fail"))

    def record_runtime(self, model: str, api: str, seconds: float) -> None:
        """Records time spent in TensorFlow's session.

        `api` is `Predict`, `Classify` or `Regress`, over REST as well as gRPC.
        """
        self._runtime_latency.observe((model, api, "TF1"), seconds * _MICROSECONDS)

    def record_warmup(self, model_path: str, status: str, seconds: float, records: int) -> None:
        """Records a version's warm-up: folder, status code with its text, duration and number of records."""
        self._warmup_latency.observe((model_path, status), seconds * _MICROSECONDS)
        self._warmup_records.add((model_path, status), records)

    def record_queuing(self, thread_pool: str, seconds: float) -> None:
        """Records the time that a request waited for its batch."""
        self._queuing_latency.observe((thread_pool,), seconds * _MICROSECONDS)

    def record_wrapped_run(self) -> None:
        """Counts a batch that was run."""
        self._wrapped_runs.add(())

    def record_batch_rows(self, rows: int) -> None:
        """Records the number of rows of a batch, including padding."""
        self._batch_rows.observe((), rows)

    def record_logged(self, model: str, status: str) -> None:
        """Counts a request picked by --request_log, by the name of its status code (core/request_logger.cc)."""
        self._request_log_count.add((model, status))

    def record_shadow(self, model: str, status: str) -> None:
        """Counts a request picked by --shadow, by the name of the status code of the shadow's response."""
        self._shadow_count.add((model, status))

    def record_difference(self, model: str, output: str, difference: float) -> None:
        """Records the absolute difference between the shadow's value of an output and the value sent."""
        self._shadow_difference.observe((model, output), difference)

    def first_values(self, paths: Iterable[str]) -> dict[str, int]:
        """Returns the first value of each counter, as in HandleReloadConfigRequest; 0 for other metrics."""
        values = {metric.path: metric.first() for metric in self._all()}  # once: a request may have a million paths
        return {path: values.get(path, 0) for path in paths}

    def _all(self) -> list[_Metric]:
        return [value for value in vars(self).values() if isinstance(value, _Metric)]

    def page(self) -> bytes:
        """Returns the page in Prometheus's text format: a TYPE line for each metric, no HELP lines."""
        lines = []
        for metric in sorted(self._all(), key=lambda metric: metric.name):
            lines += [f"# TYPE {metric.name} {metric.kind}", *metric.lines()]
        return ("\n".join(lines) + "\n").encode()
