"""What the clients over REST and gRPC have in common."""

import abc
import dataclasses
from typing import Any, Self

import numpy as np

from serving.client.columns import Inputs, to_arrays
from serving.client.label_split import Key, LabelSplit

TIMEOUT_SECONDS = 30.0
RETRIES = 4  # gRPC's own limit is five tries
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class VersionChoice:
    """Which version is asked: a number, what a label points at, or the newest."""

    version: int | None = None
    label: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"version {self.version}"
        return f"label {self.label}" if self.label is not None else "the newest version"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a model answered.

    Attributes:
        outputs: By name (of `serving_raw` and the like: task -> float32 [N]).
        label: The label that was asked, if any was.
        version: The version that answered; None where REST does not say, which is always but for a version asked for.
    """

    outputs: dict[str, np.ndarray]
    label: str | None
    version: int | None


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """A version at the server: START, LOADING, AVAILABLE, UNLOADING or END, with an error's code and message."""

    version: int
    state: str
    error_code: str = "OK"
    error_message: str = ""


class ModelClient(abc.ABC):
    """A client of one model; several threads may use it at once.

    Args:
        address: What errors call the server.
        target: Which version is asked where a call does not say.
        split: Labels that requests are divided between where a call names neither version nor label.
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
        """Returns the outputs by name (task -> float32 [N]), the same over REST and gRPC.

        Args:
            inputs: Columns of raw rows for `serving_raw`, the arrays `ids` and `dense` for `serving_packed`, serialized
                tf.Examples as the column `examples` for `serving_default`; see to_arrays.
            signature_name: The signature.
            version: The version to ask.
            label: The label to ask, instead.
            key: A user's id, for instance: the split gives the same key the same label.

        Raises:
            InputError: there is no answer in time, or it is an error; the server is asked again before that where it is
                busy or out of reach.
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
        """Returns what `predict` returns, and which label and version answered."""
        target = self._chosen(version, label, key)
        return self._predict(to_arrays(inputs), signature_name, target)

    def _chosen(self, version: int | None, label: str | None, key: Key | None = None) -> VersionChoice:
        if version is not None or label is not None:
            return VersionChoice(version, label)
        return VersionChoice(label=self.split.choose(key)) if self.split else self._target

    def version_of(self, label: str | None = None) -> int:
        """Returns the version that a label points at now, or that is asked where there is none."""
        return int(self.metadata(label=label)["model_spec"]["version"])

    def metadata(self, *, version: int | None = None, label: str | None = None) -> dict[str, Any]:
        """Returns the signatures of a version, as TF Serving's REST API writes them (M1)."""
        return self._metadata(VersionChoice(version, label) if (version, label) != (None, None) else self._target)

    @abc.abstractmethod
    def status(self) -> list[VersionStatus]:
        """Returns all versions that the server has seen, newest first."""

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
