"""The base class of the clients over REST and gRPC."""

import abc
import dataclasses
from typing import Any, Self

import numpy as np

from ctrpipe.serving.client.columns import Inputs, to_arrays
from ctrpipe.serving.client.label_split import Key, LabelSplit

TIMEOUT_SECONDS = 30.0
RETRIES = 4  # gRPC allows at most five attempts
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class VersionChoice:
    """The version to use: by number, by label, or the newest."""

    version: int | None = None
    label: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"version {self.version}"
        return f"label {self.label}" if self.label is not None else "the newest version"


@dataclasses.dataclass(frozen=True)
class Answer:
    """A model's response to a predict request.

    Attributes:
        outputs: The outputs by name. Prediction signatures return float32 [N] by task.
        label: The label in the request, if any.
        version: The version that answered. None over REST, which does not report it, unless the request named its
            number.
    """

    outputs: dict[str, np.ndarray]
    label: str | None
    version: int | None


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """A version's error and state: START, LOADING, AVAILABLE, UNLOADING or END."""

    version: int
    state: str
    error_code: str = "OK"
    error_message: str = ""


class ModelClient(abc.ABC):
    """A thread-safe client of one model.

    Args:
        address: The server's name in errors.
        target: The version for calls that name no version or label.
        split: Divides such calls between labels, instead of `target`.
    """

    def __init__(self, address: str, target: VersionChoice, split: LabelSplit | None):
        self.address = address
        self.split = split
        self._target = target

    def predict(
        self,
        inputs: Inputs,
        signature_name: str = "serving_raw",
        *,
        version: int | None = None,
        label: str | None = None,
        key: Key | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns the outputs by name (task -> float32 [N]), equal over REST and gRPC.

        Args:
            inputs: Columns of raw rows for `serving_raw`, the arrays `ids` and `dense` for `serving_packed`, serialized
                tf.Examples as the column `examples` for `serving_default`; see to_arrays.
            signature_name: The signature.
            version: The number of the version to use.
            label: The label to use, instead of a version.
            key: The split chooses the label by this key, such as a user's id; None: at random.

        Raises:
            InputError: an input is malformed, the server responds with an error, or it does not respond in time. Calls
                are retried first if the server is busy or unreachable.
        """
        return self.ask(inputs, signature_name, version=version, label=label, key=key).outputs

    def ask(
        self,
        inputs: Inputs,
        signature_name: str = "serving_raw",
        *,
        version: int | None = None,
        label: str | None = None,
        key: Key | None = None,
    ) -> Answer:
        """Returns the outputs of `predict`, with the label and the version. Raises the same errors."""
        target = self._chosen(version, label, key)
        return self._predict(to_arrays(inputs), signature_name, target)

    def _chosen(self, version: int | None, label: str | None, key: Key | None = None) -> VersionChoice:
        if version is not None or label is not None:
            return VersionChoice(version, label)
        return VersionChoice(label=self.split.choose(key)) if self.split else self._target

    def version_of(self, label: str | None = None) -> int:
        """Returns the version that a label points at.

        Without a label, returns the version that requests use by default.
        """
        return int(self.metadata(label=label)["model_spec"]["version"])

    def metadata(self, *, version: int | None = None, label: str | None = None) -> dict[str, Any]:
        """Returns a version's name, number and signatures, in the format of TF Serving's REST API (M1)."""
        return self._metadata(VersionChoice(version, label) if (version, label) != (None, None) else self._target)

    @abc.abstractmethod
    def status(self) -> list[VersionStatus]:
        """Returns the status of all versions that the server has seen, newest first."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the connections."""

    @abc.abstractmethod
    def _predict(self, arrays: dict[str, np.ndarray], signature_name: str, target: VersionChoice) -> Answer: ...

    @abc.abstractmethod
    def _metadata(self, target: VersionChoice) -> dict[str, Any]: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
