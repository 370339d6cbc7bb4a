"""TF Serving's status codes: names inside the server, numbers over REST and gRPC.

docs/contract.md has the table of HTTP statuses.
"""

from collections.abc import Callable

import grpc
import tensorflow as tf

HTTP_STATUS = {
    "OK": 200,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}


_NAMES = {status.value[0]: status.name for status in grpc.StatusCode}  # TensorFlow's numbers are gRPC's


class ServingError(Exception):
    """Raised to answer a request with a status other than OK.

    Args:
        code: A key of HTTP_STATUS; gRPC's status has the same name.
        message: REST answers {"error": message}; an empty body if None.
    """

    def __init__(self, code: str, message: str | None):
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def http_status(self) -> int:
        return HTTP_STATUS[self.code]


class OnError:
    """Passes an exception that leaves the block to a function, which may raise another one in its place.

    Since Python 3.12, a generator-based context manager that replaces an exception leaves a reference cycle: the frame
    of its `__exit__` holds the exception, whose traceback holds that frame and those of all callers. A failed request
    and its gRPC stream would then stay in memory until the garbage collector runs.

    Args:
        replace: The function.
    """

    def __init__(self, replace: Callable[[Exception], None]):
        self._replace = replace

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._replace(error)


def bad_request(message: str) -> ServingError:
    """Returns an INVALID_ARGUMENT error."""
    return ServingError("INVALID_ARGUMENT", message)


def from_tensorflow(error: tf.errors.OpError) -> ServingError:
    """Converts a TensorFlow error. Code and message stay the same."""
    return ServingError(_NAMES.get(error.error_code, "UNKNOWN"), error.message)


def number_of(code: str) -> int:
    """Returns the number of a code in the protos of TensorFlow and gRPC."""
    return int(grpc.StatusCode[code].value[0])
