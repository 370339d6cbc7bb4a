"""What the server counts, as TF Serving's Prometheus page prints it (contract X1-X3): its names, labels and buckets.

prometheus_client cannot print these: it ends a counter's name in `_total`, and adds a HELP line.
"""

import bisect
import re
import threading
from collections.abc import Iterator, Sequence

METRICS_PATH = "/monitoring/prometheus/metrics"
CONTENT_TYPE = "text/plain"

MAX_SERIES = 1000  # of label values of a metric, as clients may ask for any name of a model

_MICROSECONDS = 1e6


def _exponential(scale: float, growth: float, count: int) -> list[float]:
    """Returns the limits of `count` buckets; one more, without a limit, follows. A value on a limit is above it."""
    return [scale * growth**power for power in range(count)]


_LATENCY = _exponential(10, 1.8, 33)
_QUEUING = _exponential(100, 1.2, 52)
_EXAMPLES = _exponential(1, 2, 15)


class _Metric:
    """Values by label values. `lines` prints them, in order of their labels."""

    kind = ""

    def __init__(self, name: str, labels: Sequence[str]):
        # "/tensorflow/serving/request_count" is ":tensorflow:serving:request_count" (X2)
        self.name = re.sub(r"[^a-zA-Z0-9_]", ":", f"/tensorflow/serving/{name}")
        self._labels = labels
        self._lock = threading.Lock()

    def _text(self, values: Sequence[str]) -> str:
        return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(self._labels, values, strict=True))

    def lines(self) -> Iterator[str]:
        raise NotImplementedError


class _Counter(_Metric):
    kind = "counter"

    def __init__(self, name: str, *labels: str):
        super().__init__(name, labels)
        self._values: dict[tuple[str, ...], int] = {}

    def add(self, labels: tuple[str, ...], amount: int = 1) -> None:
        with self._lock:
            if labels in self._values or len(self._values) < MAX_SERIES:
                self._values[labels] = self._values.get(labels, 0) + amount

    def lines(self) -> Iterator[str]:
        with self._lock:
            values = sorted(self._values.items())
        for labels, value in values:
            yield f"{self.name}{{{self._text(labels)}}} {value}"


class _Gauge(_Counter):
    kind = "gauge"

    def set(self, labels: tuple[str, ...], value: int) -> None:
        with self._lock:
            self._values[labels] = value


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
                if len(self._cells) == MAX_SERIES:
                    return
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
    """The server's counters; every method may be called from any thread, and takes about a microsecond."""

    def __init__(self) -> None:
        self._request_count = _Counter("request_count", "model_name", "status")
        self._request_latency = _Histogram("request_latency", _LATENCY, "model_name", "API", "entrypoint")
        self._runtime_latency = _Histogram("runtime_latency", _LATENCY, "model_name", "API", "runtime")
        self._example_counts = _Histogram("request_example_counts", _EXAMPLES, "model")
        self._example_total = _Counter("request_example_count_total", "model")
        self._warmup_latency = _Histogram("model_warmup_latency", _LATENCY, "model_path", "status")
        self._warmup_records = _Counter("model_warmup_records_read", "model_path")
        self._queuing_latency = _Histogram("batching_session/queuing_latency", _QUEUING, "thread_pool_name")
        self._wrapped_runs = _Counter("batching_session/wrapped_run_count")
        self._mlmd = _Gauge("mlmd_map", "model_name", "version", "mlmd_uuid")

    def record_request(
        self, model: str, api: str, entrypoint: str, status: str, seconds: float, examples: int | None = None
    ) -> None:
        """Counts a request that was answered.

        Args:
            model: The model's name as it was asked for.
            api: `predict`, `classify`, `regress` over REST; `Predict`, ... over gRPC (X3).
            entrypoint: `REST` or `GRPC`.
            status: The name of its status code; latency is counted for `OK` alone (X3).
            seconds: How long it took.
            examples: How many tf.Examples were in it; None where the API has none.
        """
        self._request_count.add((model, status))
        if status == "OK":
            self._request_latency.observe((model, api, entrypoint), seconds * _MICROSECONDS)
        if examples is not None:
            self._example_counts.observe((model,), examples)
            self._example_total.add((model,), examples)

    def record_runtime(self, model: str, api: str, seconds: float) -> None:
        """Counts time within TensorFlow's session; `api` is `Predict`, `Classify`, `Regress` at both entry points."""
        self._runtime_latency.observe((model, api, "TF1"), seconds * _MICROSECONDS)

    def record_warmup(self, model_path: str, status: str, seconds: float, records: int) -> None:
        """Counts a version's warm-up: its folder, the name of its status code, its duration and its records."""
        self._warmup_latency.observe((model_path, status), seconds * _MICROSECONDS)
        self._warmup_records.add((model_path,), records)

    def record_queuing(self, thread_pool: str, seconds: float) -> None:
        """Counts the time that a request waited for its batch."""
        self._queuing_latency.observe((thread_pool,), seconds * _MICROSECONDS)

    def record_wrapped_run(self) -> None:
        """Counts a batch that was run."""
        self._wrapped_runs.add(())

    def set_mlmd(self, model: str, version: int, uuid: str) -> None:
        """Sets the id of the version's artifact in ML Metadata (W6)."""
        self._mlmd.set((model, str(version), uuid), 1)

    def page(self) -> bytes:
        """Returns the page in Prometheus's text format: a TYPE line for each metric that has values, no HELP."""
        lines = []
        for metric in sorted(vars(self).values(), key=lambda metric: metric.name):
            values = list(metric.lines())
            if values:
                lines += [f"# TYPE {metric.name} {metric.kind}", *values]
        return ("\n".join(lines) + "\n").encode()
