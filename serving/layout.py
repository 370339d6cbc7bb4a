"""The files of a model's versions: their paths, <base path>/<integer>/ as in TF Serving, and checksums.

TensorFlow checks the weights' checksums, but not the files that the graph reads, such as vocabularies: a damaged
vocabulary silently changes the answers. Without the index of the weights, as after an incomplete copy, it loads a graph
whose requests all fail. `check_assets` refuses both.

This module does not import TensorFlow, so commands that only look up a version start at once.
"""

import contextlib
import enum
import hashlib
import json
import os
import pathlib

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import check_ends

PUSHED = "models"  # the folder of a run's pushed models
# What a run writes first: its lock, TFX's folder, and the rows of DataFrames, queries, impressions, joins and labels.
_OF_RUNS = (".lock", "tfx", "data", "impressions", "joined", "prepared")
RESULTS = "metrics.json"  # of a finished run
SAVED_MODEL = "saved_model.pb"
_SAVED_MODEL_TEXT = "saved_model.pbtxt"
_FINGERPRINT = "fingerprint.pb"  # of TensorFlow, which reads it with the graph
GRAPH_ASSETS = "assets"  # TensorFlow's name for the folder of the files that the graph reads
_WEIGHTS = "variables"  # TensorFlow's name for the folder of the weights
ASSETS = "assets.extra"  # TF Serving's name for the folder of a SavedModel's extra files
_MOST_BYTES = (1 << 31) - 1  # of a file that is read whole, as of a protobuf message


class Asset(enum.StrEnum):
    """A file in a version's assets folder.

    TF Serving defines the name of WARMUP; ctrpipe defines the others.
    """

    LOG_SPEC = "log_spec.json"  # the description of the raw log
    FEATURE_MAP = "feature_map.json"  # the description of the packed tensors
    GOLDEN = "golden.npz"  # a few rows with their Keras predictions
    WARMUP = "tf_serving_warmup_requests"
    TRAINING = "training.json"  # the configuration of the model and of the training
    HISTORY = "history.json"  # losses and metrics by epoch
    CALIBRATION = "calibration.json"  # the calibration of the probabilities, if any
    NUMBERS = "numbers.json"  # what the transforms of numbers learned from the training rows
    LIMITS = "limits.json"  # by column, the numbers to which lower and higher ones are clipped
    AGES = "ages.json"  # by column, the number of vocabulary values not seen for 0, 1, 2, ... training runs
    ITEM_INDEX = "item_index.json"  # the number of items in the index, and the recall of the approximate index
    PARENT = "parent.json"  # the parent model of a warm start, if any, and the weights taken from it
    CHECKSUMS = "checksums.json"  # of the files that the graph reads
    CODE_VERSION = "code_version"
    TRAINING_FINGERPRINT = "training_fingerprint"  # equal for two runs that would export the same model
    TRAINING_STATISTICS = "training_statistics.pb"  # of the training rows, to measure the drift of scored logs
    TRAINING_COUNTS = "training_statistics.json"  # the number of rows behind these statistics, and their sampling rate


def asset_path(version: pathlib.Path, asset: Asset) -> pathlib.Path:
    """Returns the path of an asset of a version; the file may not exist."""
    return version / ASSETS / asset


def make_assets_folder(version: pathlib.Path) -> None:
    """Creates the assets folder of a version."""
    (version / ASSETS).mkdir(exist_ok=True)


def graph_file(version: pathlib.Path) -> pathlib.Path:
    """Returns the path of a version's graph: saved_model.pb, or saved_model.pbtxt if only that exists."""
    binary, text = version / SAVED_MODEL, version / _SAVED_MODEL_TEXT
    return text if text.exists() and not binary.exists() else binary


def model_files(version: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files that determine a version's responses: its graph, its weights and its assets."""
    return [graph_file(version), *sorted((version / _WEIGHTS).glob("*")), *sorted((version / ASSETS).glob("*"))]


def check_files(version: pathlib.Path) -> None:
    """Checks that the graph, the weights and the assets of a version are regular files of a readable size.

    Raises:
        InputError: a file is a named pipe, a socket or a device, or too large to be read whole.
    """
    warmup = asset_path(version, Asset.WARMUP)
    assets = [path for path in (version / ASSETS).glob("*") if path != warmup]
    check_ends([graph_file(version), version / _FINGERPRINT, weights_index(version), *assets], _MOST_BYTES)
    check_ends([*(version / _WEIGHTS).glob("*"), *(version / GRAPH_ASSETS).rglob("*"), warmup])


def check_run(run: pathlib.Path) -> None:
    """Checks that the files in a run's folder and in its `report_data` are regular files.

    Raises:
        InputError: a file is a named pipe, a socket or a device.
    """
    check_ends([*run.glob("*"), *run.glob("report_data/*")])


def weights_index(version: pathlib.Path) -> pathlib.Path:
    """Returns the path of the index of a version's weights. Without the index TensorFlow loads no weights."""
    return version / _WEIGHTS / "variables.index"


def versions(base_path: pathlib.Path) -> list[pathlib.Path]:
    """Returns the version folders, which have integer names, lowest first."""
    if not base_path.is_dir():
        return []
    folders = [path for path in base_path.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(folders, key=lambda path: int(path.name))


def newest_version(base_path: pathlib.Path) -> pathlib.Path | None:
    """Returns the version folder with the highest number, or None."""
    folders = versions(base_path)
    return folders[-1] if folders else None


def base_path_of(model: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the versions that a run pushed, or the folder itself if it is not a run's.

    Raises:
        InputError: the run pushed no model, or models of several names.
    """
    if graph_file(model).exists() or newest_version(model) or not (model / RESULTS).exists():
        return model
    pushed = sorted(path for path in (model / PUSHED).glob("*") if newest_version(path))
    if not pushed:
        raise InputError(f"{model}: this run pushed no model; its report says which gate blocked it")
    if len(pushed) > 1:
        names = ", ".join(path.name for path in pushed)
        raise InputError(f"{model}: this run pushed models of several names, {names}; give {model / PUSHED}/<name>")
    return pushed[0]


def is_unfinished(folder: pathlib.Path) -> bool:
    """Returns whether a folder is the output of a run that has not finished."""
    is_run = any((folder / name).exists() for name in _OF_RUNS)
    return is_run and not (folder / RESULTS).exists() and newest_version(folder) is None


def run_of(model: pathlib.Path) -> pathlib.Path:
    """Returns the run that pushed a model, given the run, its versions' folder or a version; other paths unchanged.

    Raises:
        InputError: the run has pushed another version since, or contains a file that is not a regular file.
    """
    check_run(model)
    place = model.absolute()
    base_path = place.parent if graph_file(place).exists() else place
    run = base_path.parent.parent
    metrics = run / RESULTS
    if base_path.parent.name != PUSHED or not newest_version(base_path) or not metrics.exists():
        return model
    check_run(run)
    if base_path != place:
        with contextlib.suppress(ValueError, AttributeError):  # who reads the run reports damaged results
            if (newest := str(json.loads(metrics.read_text()).get("model_version"))) != place.name:
                raise InputError(f"{model}: the results of its run, {run}, are of version {newest}; name that one")
    return run if model.is_absolute() else pathlib.Path(os.path.relpath(run))


def find_version(model: pathlib.Path) -> pathlib.Path:
    """Returns the newest version of a run or of a model's folder, or the folder itself if it is a version.

    Raises:
        InputError: the folder contains no version, or the version contains a file that is not a regular file.
    """
    base_path = base_path_of(model)
    version = base_path if graph_file(base_path).exists() else newest_version(base_path)
    if version is None:
        raise InputError(f"{model}: no model version here; give DIR of a finished run, or DIR/models/<name>")
    check_files(version)
    return version


def write_checksums(version: pathlib.Path) -> None:
    """Writes the checksums and sizes of the files that the graph reads into the version's assets."""
    files = {name: version / GRAPH_ASSETS / name for name in _names(version)}
    sums = {name: _sum(file) for name, file in files.items()}
    sizes = {name: file.stat().st_size for name, file in files.items()}
    asset_path(version, Asset.CHECKSUMS).write_text(json.dumps({"sha256": sums, "bytes": sizes}, indent=1))


def check_assets(version: pathlib.Path) -> None:
    """Compares the files that the graph reads with their checksums, and looks for the index of the weights.

    A version without checksums is not checked.

    Raises:
        InputError: a file is missing or has changed, or the checksums cannot be read.
    """
    path = asset_path(version, Asset.CHECKSUMS)
    if not os.path.lexists(path):  # a link that leads nowhere is a mistake
        return
    try:
        kept = json.loads(path.read_bytes())
        sums, sizes = dict(kept["sha256"]), dict(kept.get("bytes", {}))  # earlier exports have no sizes
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); push the model again") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged; push the model again") from error
    index = weights_index(version)
    if not index.is_file():
        raise InputError(f"{index}: is missing; push the model again")
    for name, expected in sums.items():
        file = version / GRAPH_ASSETS / name
        try:
            # A file that is far too long is not read.
            is_equal = file.stat().st_size == sizes.get(name, file.stat().st_size) and _sum(file) == expected
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror}); push the model again") from error
        if not is_equal:
            raise InputError(f"{file}: differs from what was exported; push the model again")


def _names(version: pathlib.Path) -> list[str]:
    folder = version / GRAPH_ASSETS
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _sum(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
