"""The models of a server, their versions and labels: what REST and gRPC stand before."""

import contextlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from serving.loader import Servable
from serving.server.errors import ServingError, bad_request, from_tensorflow
from serving.server.options import ServerOptions
from serving.versions import Version, VersionManager
from transforms.errors import InputError


class ServedVersion:
    """A loaded version for the length of a request.

    Attributes:
        name: The model's name.
        number: The version.
        signatures: What it can be asked.
    """

    def __init__(self, name: str, number: int, servable: Servable):
        self.name = name
        self.number = number
        self.signatures: dict[str, meta_graph_pb2.SignatureDef] = servable.signatures
        self._servable = servable

    def run(
        self,
        signature: str,
        inputs: dict[str, np.ndarray],
        outputs: list[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """The signature's outputs by alias, all of them or those named.

        Raises:
            ServingError: TensorFlow's own code and message.
        """
        try:
            return self._servable.run(signature, inputs, outputs)
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from error
        except ValueError as error:  # the session's own check of a feed's shape
            raise bad_request(str(error)) from error


class ServerCore:
    """The served models.

    Raises:
        InputError: the options name a folder that does not exist.
    """

    def __init__(self, options: ServerOptions):
        base = options.model_base_path
        if base is None or not base.is_dir():
            raise InputError(f"{base}: no such folder; --model_base_path is the folder of a model's versions")
        self._name = options.model_name
        self._manager = VersionManager(base, options.file_system_poll_wait_seconds)

    def start(self) -> None:
        """Loads what is there, then follows the file system."""
        self._manager.start()

    def stop(self) -> None:
        self._manager.stop()

    @contextlib.contextmanager
    def use(self, name: str, number: int | None = None, label: str | None = None) -> Iterator[ServedVersion]:
        """The newest available version of a model, a given one or a labelled one; it stays loaded while in use.

        Raises:
            ServingError: there is none (P3, P4).
        """
        if name == self._name and label is not None:
            raise bad_request(f"Unrecognized servable version label: {label}")
        wanted = f"Latest({name})" if number is None else f"Specific({name}, {number})"
        with self._manager.use(number) as version:
            if version is None or version.servable is None or name != self._name:
                raise ServingError("NOT_FOUND", f"Servable not found for request: {wanted}")
            yield ServedVersion(name, version.number, version.servable)

    def status(self, name: str, number: int | None = None) -> list[Version]:
        """All versions seen of a model, or one of them; highest first.

        Raises:
            ServingError: there is none (S3).
        """
        versions = self._manager.status() if name == self._name else []
        if not versions:
            raise ServingError("NOT_FOUND", f"Could not find any versions of model {name}")
        chosen = [version for version in versions if number in (None, version.number)]
        if not chosen:
            raise ServingError("NOT_FOUND", f"Could not find version {number} of model {name}")
        return chosen
