"""Finds a trained model: its SavedModel, and the Keras model with weights that a run or a sweep keeps."""

import dataclasses
import json
import os
import pathlib
import shutil

import yaml

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_folder
from ctrpipe.common.output_folder import path_in
from ctrpipe.models.base.saved import is_saved
from ctrpipe.pipeline.components import KEPT_MODEL, SERVABLE
from ctrpipe.serving.layout import PUSHED, RESULTS, Asset, asset_path, check_files, check_run, find_version

LINEAGE = pathlib.Path("report_data") / "lineage.json"
KEPT_BY_VERSION = "keras"  # folder of the pushed versions' Keras models, if artifacts are stored elsewhere


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """The files of a trained model.

    Attributes:
        version: The folder of its SavedModel.
        run: The folder of the finished run that trained it. None if the version is elsewhere, or the run has pushed
            another one since.
        trust: Whether to import classes from modules outside ctrpipe that the files name.
    """

    version: pathlib.Path
    run: pathlib.Path | None
    trust: bool = False

    def kept(self) -> pathlib.Path | None:
        """Returns the folder for `ctrpipe.models.base.saved.load_model`, or None if the Keras model was not kept.

        For a pushed version, the folder of the run that pushed it is searched.
        """
        if self.run is not None:
            return _if_saved(self.version.parent / KEPT_MODEL)
        base = self.version.absolute().parent
        if folder := _if_saved(base.parent.parent / KEPT_BY_VERSION / self.version.name):
            return folder
        try:
            newest = _artifact(base.parent.parent)
            ours = _identity(self.version)
        except (OSError, ValueError, LookupError, TypeError):
            return None
        for artifact in sorted(newest.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
            try:
                if _identity(artifact / SERVABLE) == ours:
                    return _if_saved(artifact / KEPT_MODEL)
            except OSError:
                continue  # an unfinished training run
        return None

    def log(self) -> list[str]:
        """Returns the files of the log that the run read; [] if they are not known."""
        try:
            lineage = json.loads(((self.run or self.version) / LINEAGE).read_text())
            return [str(file["path"]) for file in lineage["data"]]
        except (OSError, ValueError, LookupError, TypeError):
            return []

    def position(self) -> dict[str, str | float]:
        """Returns the position that the served model uses for every request; {} if none is fixed or known."""
        run = self.run or self.version.absolute().parent.parent.parent
        try:
            config = yaml.safe_load((run / "report_data" / "config.yaml").read_text())
            return dict(config["serving"]["position"])
        except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError):
            return {}


def keep_by_version(artifact: pathlib.Path, output: pathlib.Path, version: pathlib.Path) -> None:
    """Copies a trained model's Keras model into a run's folder, and removes the models of deleted versions.

    A step on Kubeflow has the artifacts only in its own container, where a later run cannot find them.

    Args:
        artifact: The folder of the Model artifact.
        output: The run's folder.
        version: The folder of the pushed version.
    """
    folder = output / KEPT_BY_VERSION
    if not (folder / version.name).exists():
        with atomic_folder(folder / version.name) as unfinished:
            shutil.copytree(artifact / KEPT_MODEL, unfinished, dirs_exist_ok=True)
    for kept in folder.iterdir():
        if not (version.parent / kept.name).exists():
            shutil.rmtree(kept)


def find_model(folder: pathlib.Path, trust: bool = False) -> TrainedModel:
    """Returns the model of a finished run (pushed or not), of a folder of versions (the newest) or of a version.

    Args:
        folder: The folder.
        trust: See `TrainedModel`.

    Raises:
        InputError: the folder contains none of them, the run's model was removed, or a file is irregular or too large.
    """
    if not (folder / RESULTS).exists():
        version = find_version(folder)
        return _of_run(version, trust) or TrainedModel(version, None, trust)
    check_run(folder)
    try:
        model = _artifact(folder)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{folder}: no finished run ({one_line(error, 100)}); run `ctrpipe run` again") from error
    version = model / SERVABLE
    if not version.is_dir():
        raise InputError(f"{folder}: its model is no longer at {version}; name a pushed version, or run again")
    check_files(version)
    return TrainedModel(version, folder, trust)


def _of_run(version: pathlib.Path, trust: bool) -> TrainedModel | None:
    """Returns the model of the run that pushed a version; None if the run is not there, or has other results since."""
    place = version.absolute()
    run = place.parent.parent.parent
    try:
        check_run(run)
        pushed = str(json.loads((run / RESULTS).read_text())["model_version"])
        if place != run / PUSHED / place.parent.name / pushed:
            return None
        return find_model(run if version.is_absolute() else pathlib.Path(os.path.relpath(run)), trust)
    except (OSError, ValueError, LookupError, TypeError, InputError):
        return None


def _artifact(run: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the newest model that a run trained. Works after the run's folder was moved."""
    return path_in(run, pathlib.Path(json.loads((run / LINEAGE).read_text())["model"]))


def _identity(version: pathlib.Path) -> tuple[bytes, bytes, bytes]:
    """Returns values that two versions share only if the same code trained the same model."""
    names = (Asset.TRAINING_FINGERPRINT, Asset.CODE_VERSION)
    first, second = (asset_path(version, name).read_bytes() for name in names)
    parent = asset_path(version, Asset.PARENT)
    return first, second, parent.read_bytes() if parent.exists() else b""


def _if_saved(folder: pathlib.Path) -> pathlib.Path | None:
    return folder if is_saved(folder) else None
