"""Trained models on disk: a description and one file of weights, which any Keras backend loads."""

import dataclasses
import json
import pathlib
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from ctrpipe.common.arrays import read_arrays, write_arrays
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import link_or_copy, write_json
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import create

if TYPE_CHECKING:
    from ctrpipe.models.base.ctr_model import CTRModel

DESCRIPTION = "model.json"
WEIGHTS = "weights.npz"
STATE = "state.npz"
FORMAT = 1  # of the description; a number above it is of code that is newer than this


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """What a training needs to go on besides the weights: the optimizer's numbers.

    Attributes:
        path: A file of `write_arrays`.
        names: Of each array. That of an optimizer's number is its weight's, of `weight_names`, a colon and the number's
            own; "" is the name of what only the same training can go on from.
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
    """Writes a model's description and weights to a folder, which is made where it is absent.

    Args:
        folder: Where `load_model` finds it.
        name: The model's name in the registry, or `package.module:Class`.
        model: The trained model.
        weights: A file of the same weights, in the order of `model.variables`, as `write_arrays` writes it. It is
            linked, or copied where the file system has no links, in place of being written again. None for no such
            file.
        state: The training's state, which is linked too, for a training that goes on from this model; None for none.
    """
    from ctrpipe.models.base.weight_names import weight_names  # Keras: seconds that `is_saved` does without

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
    """Returns whether a folder holds what `save_model` writes."""
    return (folder / DESCRIPTION).is_file() and (folder / WEIGHTS).is_file()


def read_description(folder: pathlib.Path) -> dict[str, Any]:
    """Returns a kept model's `name`, `hyperparameters`, `feature_map`, and the names of its `weights` and `state`.

    Raises:
        InputError: the file is absent or damaged, or of newer code.
    """
    try:
        description: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
        if description.get("format", 0) > FORMAT:
            raise InputError(f"{folder}: kept by a newer ctrpipe than this; update ctrpipe, or train it again")
        FeatureMap.from_json(json.dumps(description["feature_map"]))
        named = {key: description.get(key, []) for key in ("weights", "state")}  # a model of before has none
        return {key: description[key] for key in ("name", "hyperparameters", "feature_map")} | named
    except OSError as error:
        raise InputError(f"{folder}: no kept model ({error.strerror}: {error.filename}); run `ctrpipe run`") from error
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{folder}: the kept model is damaged ({one_line(error, 100)}); train it again") from error


def read_feature_map(folder: pathlib.Path) -> FeatureMap:
    """Returns the description of a kept model's tensors. Raises InputError as `read_description` does."""
    return FeatureMap.from_json(json.dumps(read_description(folder)["feature_map"]))


def load_model(folder: pathlib.Path) -> "CTRModel":
    """Returns the model of a folder that `save_model` wrote, on the backend of this process, in float32.

    Raises:
        InputError: the files are absent or damaged, or the model's code is not that which trained it.
    """
    description = read_description(folder)
    feature_map = FeatureMap.from_json(json.dumps(description["feature_map"]))
    name, hyperparameters = description["name"], description["hyperparameters"]
    try:
        weights = read_arrays(folder / WEIGHTS)
    except (OSError, ValueError, LookupError, zipfile.BadZipFile) as error:
        raise InputError(f"{folder}: the kept model is damaged ({one_line(error, 100)}); train it again") from error
    from ctrpipe.models.base.ctr_model import empty_row  # Keras: seconds that `is_saved` does without

    try:
        model = create(name, feature_map, **hyperparameters)
        model(empty_row(feature_map))
        for variable, value in zip(model.variables, weights, strict=True):
            variable.assign(value)
    except ValueError as error:
        reason = one_line(error, 200)
        raise InputError(f"{folder}: the weights do not fit the model '{name}' of this code: {reason}") from error
    return model
