"""Saves and loads trained models: a description and one file of weights, for any Keras backend."""

import dataclasses
import json
import pathlib
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ctrpipe.common.arrays import read_arrays, write_arrays
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import check_ends, link_or_copy, write_json
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import create, foreign_code, model_class

if TYPE_CHECKING:
    from ctrpipe.models.base.ctr_model import CTRModel

DESCRIPTION = "model.json"
WEIGHTS = "weights.npz"
STATE = "state.npz"
FORMAT = 1  # version of the description; a file with a higher number was written by newer code


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """The state of a training run in addition to the weights: the optimizer's variables.

    Attributes:
        path: A file written by `write_arrays`.
        names: One name per array. An optimizer variable is named by its weight's name from `weight_names`, a colon and
            its own name. The name "" marks an array that only the same training run can continue from.
    """

    path: pathlib.Path
    names: list[str]


def save_model(
    folder: pathlib.Path,
    name: str,
    model: "CTRModel",
    weights: pathlib.Path | None = None,
    state: TrainingState | None = None,
) -> None:
    """Writes a model's description and weights to a folder, and creates the folder if necessary.

    Args:
        folder: The folder that `load_model` reads.
        name: The model's name in the registry, or `package.module:Class`.
        model: The trained model.
        weights: An existing file of the same weights, in the order of `model.variables`, as written by `write_arrays`.
            The file is linked, or copied if the file system has no links, instead of being written again. None if there
            is no such file.
        state: The training state, linked in the same way, for a training run that continues from this model; None for
            none.
    """
    from ctrpipe.models.base.weight_names import weight_names  # lazy: Keras takes 4 s, and `is_saved` does not need it

    folder.mkdir(parents=True, exist_ok=True)
    target = folder / WEIGHTS
    if weights is None:
        write_arrays(target, [np.asarray(variable) for variable in model.variables])
    else:
        link_or_copy(weights, target)
    if state is not None:
        link_or_copy(state.path, folder / STATE)
    config = model.get_config()
    described = {
        "format": FORMAT,
        "name": name,
        "feature_map": json.loads(config.pop("feature_map")),
        "hyperparameters": config,
        "weights": weight_names(model),
        "state": state.names if state else [],
    }
    write_json(folder / DESCRIPTION, described)


def is_saved(folder: pathlib.Path) -> bool:
    """Returns whether a folder contains a saved model."""
    return (folder / DESCRIPTION).is_file() and (folder / WEIGHTS).is_file()


def read_description(folder: pathlib.Path) -> dict[str, Any]:
    """Returns a saved model's `name`, `hyperparameters`, `feature_map`, and the names of its `weights` and `state`.

    Raises:
        InputError: the file is absent, damaged or not a regular file, or was written by a newer version.
    """
    check_ends(folder / name for name in (DESCRIPTION, WEIGHTS, STATE))
    try:
        description: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
        if description.get("format", 0) > FORMAT:
            raise InputError(f"{folder}: kept by a newer ctrpipe than this; update ctrpipe, or train it again")
        FeatureMap.from_json(json.dumps(description["feature_map"]))
        named = {key: description.get(key, []) for key in ("weights", "state")}  # older files have neither
        return {key: description[key] for key in ("name", "hyperparameters", "feature_map")} | named
    except OSError as error:
        raise InputError(f"{folder}: no kept model ({error.strerror}: {error.filename}); run `ctrpipe run`") from error
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{folder}: the kept model is damaged ({one_line(error, 100)}); train it again") from error


def read_feature_map(folder: pathlib.Path) -> FeatureMap:
    """Returns the feature map of a saved model. Raises InputError as `read_description` does."""
    return FeatureMap.from_json(json.dumps(read_description(folder)["feature_map"]))


def check_code(place: pathlib.Path, name: str, hyperparameters: Mapping[str, Any], trust: bool) -> None:
    """Checks that loading a described model imports no code outside ctrpipe, unless the user trusts the file.

    Args:
        place: The file or folder, for the error.
        name: The model's name.
        hyperparameters: Its hyperparameters.
        trust: Whether the user trusts the file.

    Raises:
        InputError: a module would be imported, which runs it, and `trust` is false.
    """
    if not trust and (code := foreign_code(name, hyperparameters)):
        raise InputError(
            f"{place}: its model needs {', '.join(code)}, a class that is not ctrpipe's, and importing its module "
            "runs it; if you trust the run, give --trust (in Python trust=True)"
        )


def saved_class(folder: pathlib.Path, trust: bool = False) -> type["CTRModel"]:
    """Returns the class of a saved model. Raises InputError as `read_description` and `check_code` do."""
    description = read_description(folder)
    check_code(folder, description["name"], description["hyperparameters"], trust)
    return model_class(description["name"])


def load_model(folder: pathlib.Path, trust: bool = False) -> "CTRModel":
    """Loads a model of `save_model` in float32, on the Keras backend of this process.

    Args:
        folder: The folder.
        trust: Whether a class outside ctrpipe that the folder names may be imported.

    Raises:
        InputError: the files are absent or damaged, the weights do not fit the code of the model, or the code is not
            trusted.
    """
    description = read_description(folder)
    check_code(folder, description["name"], description["hyperparameters"], trust)
    feature_map = FeatureMap.from_json(json.dumps(description["feature_map"]))
    name, hyperparameters = description["name"], description["hyperparameters"]
    try:
        weights = read_arrays(folder / WEIGHTS)
    except (OSError, ValueError, LookupError, zipfile.BadZipFile) as error:
        raise InputError(f"{folder}: the kept model is damaged ({one_line(error, 100)}); train it again") from error
    from ctrpipe.models.base.ctr_model import empty_row  # lazy: Keras takes 4 s, and `is_saved` does not need it

    try:
        model = create(name, feature_map, **hyperparameters)
        model(empty_row(feature_map))
        for variable, value in zip(model.variables, weights, strict=True):
            variable.assign(value)
    except ValueError as error:
        reason = one_line(error, 200)
        raise InputError(f"{folder}: the weights do not fit the model '{name}' of this code: {reason}") from error
    return model
