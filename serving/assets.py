"""Reads and writes a version's assets: the log spec, the feature map and the golden rows."""

import dataclasses
import pathlib
import zipfile
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.log.spec import LogSpec

Arrays = Mapping[str, npt.NDArray[np.generic]]


def read_log_spec(version: pathlib.Path) -> LogSpec:
    """Returns the description of the raw log from a version's assets.

    Raises:
        InputError: the file is missing or damaged.
    """
    path = asset_path(version, Asset.LOG_SPEC)
    try:
        return LogSpec.of_model(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); ctrpipe exports it with a model") from error
    except ValueError as error:
        raise InputError(f"{path}: damaged; push the model again") from error


def read_feature_map(version: pathlib.Path) -> FeatureMap:
    """Returns the description of the packed tensors from a version's assets.

    Raises:
        OSError, ValueError: the file is missing or damaged.
    """
    return FeatureMap.load(asset_path(version, Asset.FEATURE_MAP))


def is_click_model(version: pathlib.Path) -> bool:
    """Returns whether a version is a click model that ctrpipe exported. A text encoder is not."""
    try:
        return read_feature_map(version).text is None
    except (OSError, ValueError):  # absent, or damaged, which the load will say
        return False


@dataclasses.dataclass(frozen=True)
class GoldenRows:
    """A few rows of the log with the Keras predictions that the exported graph must reproduce.

    Attributes:
        raw: The raw columns by name, [N]: float32, or bytes as objects.
        packed: The packed tensors of the same rows by name, [N, ...].
        probabilities: The Keras predictions, float32 [N, tasks].
        candidates: The Keras predictions for the rows as candidates for the context of the first row, [N, tasks];
            None if the model has no signature for candidates.
        tolerance: The largest difference allowed between these probabilities and those of the exported graph.
    """

    raw: Arrays
    packed: Arrays
    probabilities: npt.NDArray[np.float32]
    candidates: npt.NDArray[np.float32] | None
    tolerance: float

    def save(self, path: pathlib.Path) -> None:
        """Writes the rows to one .npz file, without pickled objects."""
        arrays = dict(_stored(name, values) for name, values in self.raw.items())
        arrays |= {f"packed.{name}": np.asarray(values) for name, values in self.packed.items()}
        arrays |= {"probabilities": self.probabilities, "tolerance": np.array(self.tolerance)}
        if self.candidates is not None:
            arrays["candidates"] = self.candidates
        np.savez(path, **arrays)  # type: ignore[arg-type]  # numpy's stub mistakes the arrays for its flag allow_pickle

    @classmethod
    def load(cls, path: pathlib.Path) -> "GoldenRows":
        """Reads a file that `save` wrote.

        Raises:
            OSError, KeyError, ValueError: the file is missing or damaged.
        """
        try:
            with np.load(path) as file:
                return cls(
                    dict(_loaded(name, file[name]) for name in file.files if name.startswith(("raw.", "marked."))),
                    {name.removeprefix("packed."): file[name] for name in file.files if name.startswith("packed.")},
                    file["probabilities"],
                    file["candidates"] if "candidates" in file else None,
                    float(file["tolerance"]),
                )
        except (EOFError, RuntimeError, zipfile.BadZipFile) as error:  # RuntimeError: encrypted
            raise ValueError(f"{path}: damaged ({one_line(error, 100)})") from error


def _stored(name: str, values: npt.NDArray[np.generic]) -> tuple[str, npt.NDArray[np.generic]]:
    """Returns the stored key and array of a raw column. A suffix protects NULs at the end of a text, which numpy
    drops.
    """
    texts = values.tolist()
    if values.dtype == object and any(text.endswith(b"\0") for text in texts):
        return f"marked.{name}", np.asarray([text + b"." for text in texts])
    return f"raw.{name}", np.asarray(texts)


def _loaded(key: str, values: npt.NDArray[np.generic]) -> tuple[str, npt.NDArray[np.generic]]:
    stored, _, name = key.partition(".")
    texts = values.astype(object if values.dtype.kind == "S" else np.float32)
    return name, np.array([text[:-1] for text in texts], object) if stored == "marked" else texts
