"""TF Serving's status codes over REST."""

import tensorflow as tf


class ServingError(Exception):
    """An answer other than 200: `message` goes into {"error": ...}; without one the body is empty."""

    def __init__(self, status: int, message: str | None):
        super().__init__(message)
        self.status = status
        self.message = message


HTTP_STATUS = {
    tf.errors.CANCELLED: 499,
    tf.errors.UNKNOWN: 500,
    tf.errors.INVALID_ARGUMENT: 400,
    tf.errors.DEADLINE_EXCEEDED: 504,
    tf.errors.NOT_FOUND: 404,
    tf.errors.ALREADY_EXISTS: 409,
    tf.errors.PERMISSION_DENIED: 403,
    tf.errors.RESOURCE_EXHAUSTED: 429,
    tf.errors.FAILED_PRECONDITION: 400,
    tf.errors.ABORTED: 409,
    tf.errors.OUT_OF_RANGE: 400,
    tf.errors.UNIMPLEMENTED: 501,
    tf.errors.INTERNAL: 500,
    tf.errors.UNAVAILABLE: 503,
    tf.errors.DATA_LOSS: 500,
    tf.errors.UNAUTHENTICATED: 401,
}


def bad_request(message: str) -> ServingError:
    return ServingError(400, message)


def from_tensorflow(error: tf.errors.OpError) -> ServingError:
    return ServingError(HTTP_STATUS.get(error.error_code, 500), error.message)
