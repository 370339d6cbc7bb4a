"""A loaded version, as used by a request over REST or gRPC and by the warm-up."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from ctrpipe.serving.loader import LoadedServable
from ctrpipe.serving.server.admission import Admission, Turn
from ctrpipe.serving.server.errors import OnError, bad_request, from_tensorflow
from ctrpipe.serving.server.pieces import Key, run_in_pieces


class ServedVersion:
    """A loaded version for the duration of a request.

    Attributes:
        name: The model's name.
        number: The version number.
        servable: The servable that runs the signatures.
        signatures: The signatures by name.
        input_types: The dtypes of each signature's inputs, by alias.
        runtime_seconds: Seconds that the request has spent in TensorFlow so far.

    Args:
        admission: The server's admission control; None without a server.
    """

    def __init__(self, name: str, number: int, servable: LoadedServable, admission: Admission | None = None):
        self.name = name
        self.number = number
        self.signatures: dict[str, meta_graph_pb2.SignatureDef] = servable.signatures
        self.input_types = servable.input_types
        self.runtime_seconds = 0.0
        self.servable = servable
        self._admission = admission

    def run(
        self,
        signature: str,
        inputs: dict[str, np.ndarray],
        outputs: list[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns the signature's outputs by alias: the named ones, or all.

        Raises:
            ServingError: TensorFlow reports an error; code and message are TensorFlow's.
            OverBudget: the memory of the graph does not fit next to other requests.
        """
        with self._admitted((signature,), inputs, timeout_seconds) as turn, self._timed(), _AS_SERVING_ERRORS:
            if turn.piece_rows is None:
                return self.servable.run(signature, inputs, outputs, turn.seconds_left)
            left = _countdown(turn.seconds_left)
            return self._in_pieces(
                lambda piece: self.servable.run(signature, piece, outputs, left()), inputs, turn, turn.piece_rows
            )

    def run_together(
        self, outputs: dict[str, list[str]], values: np.ndarray, timeout_seconds: float | None = None
    ) -> dict[str, dict[str, np.ndarray]]:
        """Returns the named outputs of several signatures with one input each, computed in one run.

        Raises:
            ServingError: TensorFlow reports an error; code and message are TensorFlow's.
            OverBudget: the memory of the graph does not fit next to other requests.
        """
        with self._admitted(outputs, {"": values}, timeout_seconds) as turn, self._timed(), _AS_SERVING_ERRORS:
            if turn.piece_rows is None:
                return self.servable.run_together(outputs, values, turn.seconds_left)
            left = _countdown(turn.seconds_left)

            def run(piece: dict[str, np.ndarray]) -> dict[tuple[str, str], np.ndarray]:
                results = self.servable.run_together(outputs, piece[""], left())
                return {
                    (signature, alias): results[signature][alias]
                    for signature in results
                    for alias in results[signature]
                }

            joined = self._in_pieces(run, {"": values}, turn, turn.piece_rows)
            return {name: {alias: joined[name, alias] for alias in aliases} for name, aliases in outputs.items()}

    def _in_pieces(
        self,
        run: Callable[[dict[str, np.ndarray]], dict[Key, np.ndarray]],
        inputs: Mapping[str, np.ndarray],
        turn: Turn,
        piece_rows: int,
    ) -> dict[Key, np.ndarray]:
        """Runs the rows in pieces, in as many threads as the turn has."""
        pool = self._admission.pool if self._admission else None
        try:
            return run_in_pieces(run, inputs, piece_rows, pool, turn.threads - 1)
        except tf.errors.InvalidArgumentError:
            if turn.threads == 1:
                raise
            return run(dict(inputs))  # for its error, which may name a row

    def holding(self, size: int) -> contextlib.AbstractContextManager[object]:
        """Reserves `size` bytes of the requests' budget inside the block.

        Raises:
            OverBudget: the bytes do not fit next to other requests.
        """
        return contextlib.nullcontext() if self._admission is None else self._admission.holding(size)

    def _admitted(
        self, signatures: Iterable[str], inputs: Mapping[str, np.ndarray], timeout_seconds: float | None
    ) -> contextlib.AbstractContextManager[Turn]:
        """Holds the memory and the turn of a run."""
        if self._admission is None:
            return contextlib.nullcontext(Turn(timeout_seconds, None))
        return self._admission.admitted(self.servable, signatures, inputs, timeout_seconds)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds the seconds of the block to `runtime_seconds`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.runtime_seconds += time.perf_counter() - began


def _raise_serving_error(error: Exception) -> None:
    """Raises the ServingError of a run's error. Returns if the error is of another kind."""
    if isinstance(error, tf.errors.OpError):
        raise from_tensorflow(error) from error
    if isinstance(error, UnicodeDecodeError):  # TensorFlow's message shows a value that is no UTF-8
        raise bad_request(error.object.decode("utf-8", "surrogateescape")) from error
    if isinstance(error, ValueError | TypeError):  # the session's checks of the inputs
        raise bad_request(str(error)) from error


_AS_SERVING_ERRORS = OnError(_raise_serving_error)


def _countdown(seconds: float | None) -> Callable[[], float | None]:
    """Returns a function that returns the remaining seconds."""
    end = None if seconds is None else time.monotonic() + seconds
    return lambda: None if end is None else end - time.monotonic()
