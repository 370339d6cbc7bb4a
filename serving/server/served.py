"""A loaded version as a request sees it, over REST, over gRPC and in the warm-up."""

import time

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from serving.loader import LoadedServable
from serving.server.errors import ServingError, bad_request, from_tensorflow
from serving.server.tensors import dtype_name


class ServedVersion:
    """A loaded version for the length of a request.

    Attributes:
        name: The model's name.
        number: The version.
        servable: The servable that runs its signatures.
        signatures: The signatures by name.
        input_types: The types of each signature's inputs, by alias.
        runtime_seconds: Seconds that the request has spent in TensorFlow so far.
    """

    def __init__(self, name: str, number: int, servable: LoadedServable):
        self.name = name
        self.number = number
        self.signatures: dict[str, meta_graph_pb2.SignatureDef] = servable.signatures
        self.input_types = servable.input_types
        self.runtime_seconds = 0.0
        self.servable = servable

    def run(
        self,
        signature: str,
        inputs: dict[str, np.ndarray],
        outputs: list[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns the signature's outputs by alias, all of them or those named.

        Raises:
            ServingError: TensorFlow reports an error; it has TensorFlow's code and message.
        """
        began = time.perf_counter()
        try:
            return self.servable.run(signature, inputs, outputs, timeout_seconds)
        except tf.errors.OpError as error:
            raise self._wrong_type(signature, inputs) or from_tensorflow(error) from error
        except (ValueError, TypeError) as error:  # the session's own checks of a feed
            raise bad_request(str(error)) from error
        finally:
            self.runtime_seconds += time.perf_counter() - began

    def _wrong_type(self, signature: str, inputs: dict[str, np.ndarray]) -> ServingError | None:
        """Returns the error of the first input of another type, in the words of TensorFlow's Session::Run.

        The callable that runs here has other words for it. Inputs are numbered in the order of their tensors' names.
        """
        tensors = self.signatures[signature].inputs
        for number, alias in enumerate(sorted(tensors, key=lambda alias: tensors[alias].name)):
            expected = self.input_types[signature][alias]
            if alias in inputs and tf.as_dtype(inputs[alias].dtype) != expected:
                provided = dtype_name(tf.as_dtype(inputs[alias].dtype))
                return bad_request(f"Expects arg[{number}] to be {dtype_name(expected)} but {provided} is provided")
        return None
