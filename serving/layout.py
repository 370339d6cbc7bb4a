"""Where versions of a model lie: <base path>/<integer>/, as TF Serving reads them."""

import pathlib

import pydantic

from common.errors import InputError
from transforms.log.spec import LogSpec


def versions(base_path: pathlib.Path) -> list[pathlib.Path]:
    """The folders with an integer name, lowest first."""
    if not base_path.is_dir():
        return []
    found = [path for path in base_path.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


def newest_version(base_path: pathlib.Path) -> pathlib.Path | None:
    """The folder with the highest integer name, or None."""
    found = versions(base_path)
    return found[-1] if found else None


def find_version(model: pathlib.Path) -> pathlib.Path:
    """The newest version in a model's folder, or the folder itself where it is a version.

    Raises:
        InputError: there is none.
    """
    version = model if (model / "saved_model.pb").exists() else newest_version(model)
    if version is None:
        raise InputError(f"{model}: no model version here; give DIR/models/<name> of a finished run")
    return version


def read_log_spec(version: pathlib.Path) -> LogSpec:
    """The description of the raw log that travels with a version.

    Raises:
        InputError: it is absent or damaged.
    """
    path = version / "assets.extra" / "log_spec.json"
    try:
        return LogSpec.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); ctrpipe exports it with a model") from error
    except pydantic.ValidationError as error:
        raise InputError(f"{path}: damaged; push the model again") from error
