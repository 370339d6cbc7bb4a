"""Paths of a model's versions and of their files: <base path>/<integer>/, as TF Serving reads them.

It does not import TensorFlow, so that commands which only look for a version start at once.
"""

import enum
import pathlib

from ctrpipe.common.errors import InputError

SAVED_MODEL = "saved_model.pb"
_SAVED_MODEL_TEXT = "saved_model.pbtxt"
_FILE_URI = "file://"
ASSETS = "assets.extra"  # TF Serving's name for the folder of files that travel with a SavedModel


class Asset(enum.StrEnum):
    """A file that travels with a version. The names of WARMUP and MLMD_UUID are TF Serving's, the others ours."""

    LOG_SPEC = "log_spec.json"  # the description of the raw log
    FEATURE_MAP = "feature_map.json"  # the description of the packed tensors
    GOLDEN = "golden.npz"  # a few rows and what Keras answers to them
    WARMUP = "tf_serving_warmup_requests"
    MLMD_UUID = "mlmd_uuid"  # shown among the server's metrics
    TRAINING = "training.json"  # the model's and the training's configuration
    HISTORY = "history.json"  # losses and metrics by epoch
    CALIBRATION = "calibration.json"  # how probabilities are corrected, where they are
    NUMBERS = "numbers.json"  # what the transforms of numbers have learned of the training rows
    AGES = "ages.json"  # by column, for how many trainings the values of its vocabulary have not been seen
    ITEM_INDEX = "item_index.json"  # how many items a version can find, and the recall of its approximate index
    PARENT = "parent.json"  # the model that the training began with, where it did, and what it took of it
    CODE_VERSION = "code_version"
    TRAINING_FINGERPRINT = "training_fingerprint"  # equal for two runs that would export the same model
    TRAINING_STATISTICS = "training_statistics.pb"  # of the training rows, for comparing scored logs with them
    TRAINING_COUNTS = "training_statistics.json"  # how many rows the statistics are of


def local_path(text: str) -> pathlib.Path:
    """Returns what a path or a URI file://HOST/PATH names; the host is not read, nothing is percent-decoded.

    That is how TensorFlow's file system reads it (PosixFileSystem, io::ParseURI).
    """
    if not text.startswith(_FILE_URI):
        return pathlib.Path(text)
    _, slash, path = text.removeprefix(_FILE_URI).partition("/")
    return pathlib.Path(slash + path or "/")


def asset_path(version: pathlib.Path, asset: Asset) -> pathlib.Path:
    """Returns the path of a version's file, which may not exist."""
    return version / ASSETS / asset


def make_assets_folder(version: pathlib.Path) -> None:
    """Makes the folder of a version's assets."""
    (version / ASSETS).mkdir(exist_ok=True)


def graph_file(version: pathlib.Path) -> pathlib.Path:
    """Returns the file of a version's graph: saved_model.pb, or saved_model.pbtxt where only that exists."""
    binary, text = version / SAVED_MODEL, version / _SAVED_MODEL_TEXT
    return text if text.exists() and not binary.exists() else binary


def model_files(version: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files that decide what a version answers: its graph, its weights and its assets."""
    return [graph_file(version), *sorted((version / "variables").glob("*")), *sorted((version / ASSETS).glob("*"))]


def versions(base_path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folders with an integer name, lowest first."""
    if not base_path.is_dir():
        return []
    folders = [path for path in base_path.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name))


def newest_version(base_path: pathlib.Path) -> pathlib.Path | None:
    """Returns the folder with the highest integer name, or None."""
    folders = versions(base_path)
    return folders[-1] if folders else None


def find_version(model: pathlib.Path) -> pathlib.Path:
    """Returns the newest version in a model's folder, or the folder itself where it is a version.

    Raises:
        InputError: the folder holds no version.
    """
    version = model if graph_file(model).exists() else newest_version(model)
    if version is None:
        raise InputError(f"{model}: no model version here; give DIR/models/<name> of a finished run")
    return version
