"""Replays a sample of the requests on a second version (shadow traffic), and records the differences."""

import contextlib
import functools
import logging
import pathlib
import time
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.sampling import FILE_BYTES, FILE_SECONDS, SampleFiles, SamplingThread
from ctrpipe.serving.server.served import ServedVersion

log = logging.getLogger(__name__)

Outputs = Mapping[str, np.ndarray]
SCHEMA = pa.schema(
    [
        ("time", pa.int64()),
        ("signature", pa.string()),
        ("output", pa.string()),
        ("row", pa.int32()),
        ("version", pa.int64()),
        ("served", pa.float64()),
        ("shadow_version", pa.int64()),
        ("shadow", pa.float64()),
    ]
)


class Shadow:
    """Shadow traffic: the version of a label answers a sample of the requests again, in a separate thread.

    No client gets the shadow's responses. Requests that the label's version has answered itself are not compared.

    Args:
        label: The label of the shadow version, `--shadow`.
        sampling_rate: The share of the Predict requests to compare, above 0 and at most 1.
        use: Returns a context manager that keeps the labelled version of a model loaded.
        metrics: Counts comparisons and differences.
        folder: Where to write each compared value; None = nowhere.
        file_bytes: The size at which a file is closed.
        file_seconds: The age at which a file is closed, in seconds.

    Raises:
        InputError: the folder is not writable.
    """

    def __init__(
        self,
        label: str,
        sampling_rate: float,
        use: Callable[[str, None, str], contextlib.AbstractContextManager[ServedVersion]],
        metrics: Metrics,
        folder: pathlib.Path | None = None,
        file_bytes: int = FILE_BYTES,
        file_seconds: float = FILE_SECONDS,
    ):
        self._label, self._use, self._metrics = label, use, metrics
        self._files: SampleFiles | None = None
        if folder:
            self._files = SampleFiles(folder, ".parquet", "--shadow_log", _ParquetFile, file_bytes, file_seconds)
        self._thread = SamplingThread("shadow", sampling_rate, self._close_due, file_seconds / 4)
        self.picks = self._thread.picks
        self.close = self._thread.close

    def add(
        self,
        version: ServedVersion,
        signature: str,
        size: int,
        served: Outputs,
        ask: Callable[[ServedVersion], Outputs],
    ) -> None:
        """Passes a request to the thread. Counts it as lost if too much is waiting.

        Args:
            version: The version that answered.
            signature: The signature that answered.
            size: Approximate bytes of the request and the response.
            served: The outputs that were sent, by alias.
            ask: Runs the same request on a given version.
        """
        job = functools.partial(self._compare, version.name, version.number, signature, served, ask, int(time.time()))
        if not self._thread.add(size, job):
            self._metrics.record_shadow(version.name, "RESOURCE_EXHAUSTED")

    def _compare(
        self,
        model: str,
        number: int,
        signature: str,
        served: Outputs,
        ask: Callable[[ServedVersion], Outputs],
        asked: int,
    ) -> None:
        status = "INTERNAL"
        try:
            with self._use(model, None, self._label) as shadow:
                if shadow.number == number:
                    status = ""
                    return
                answered = ask(shadow)
            for name, values in served.items():
                if np.issubdtype(values.dtype, np.floating):
                    self._note((model, number, shadow.number, signature, name, asked), values, answered.get(name))
            status = "OK"
        except ServingError as error:
            status = error.code
        except KeyError:  # the version has no such signature, input or output
            status = "FAILED_PRECONDITION"
        finally:
            if status:
                self._metrics.record_shadow(model, status)

    def _note(
        self, about: tuple[str, int, int, str, str, int], values: np.ndarray, answered: np.ndarray | None
    ) -> None:
        """Counts and writes the differences of one output.

        Raises:
            ServingError: the shadow's output has another shape or is missing.
        """
        model, number, shadow_number, signature, name, asked = about
        if answered is None or answered.shape != values.shape:
            raise ServingError("FAILED_PRECONDITION", f"{name}: the versions' outputs differ in shape")
        served, shadow = (array.astype(np.float64).ravel() for array in (values, answered))
        for difference in np.abs(served - shadow).tolist():
            self._metrics.record_difference(model, name, difference)
        if self._files:
            size = len(served)
            rows = np.repeat(np.arange(len(values)) if values.ndim else [0], size // max(len(np.atleast_1d(values)), 1))
            columns = {
                "time": np.full(size, asked),
                "signature": [signature] * size,
                "output": [name] * size,
                "row": rows,
                "version": np.full(size, number),
                "served": served,
                "shadow_version": np.full(size, shadow_number),
                "shadow": shadow,
            }
            table = pa.table(columns, SCHEMA)
            self._files.write(model, table, table.nbytes)

    def _close_due(self, all_of_them: bool) -> None:
        if self._files:
            self._files.close_due(all_of_them)


class _ParquetFile:
    """Collects tables and writes them as one row group: a request has too few rows for its own."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._tables: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        self._tables.append(table)

    def flush(self) -> None:
        """Does nothing: the file is readable only as a whole."""

    def close(self) -> None:
        pa.parquet.write_table(pa.concat_tables(self._tables), self._path)
