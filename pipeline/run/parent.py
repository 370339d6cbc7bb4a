"""Resolves the parent of a run's warm start before anything is read or trained."""

import dataclasses
import pathlib
import zipfile
from typing import Any

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.output_folder import LOCK, is_locked
from ctrpipe.common.progress import announce
from ctrpipe.models.base.saved import DESCRIPTION, WEIGHTS, read_description
from ctrpipe.pipeline.components import SERVABLE
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.inputs import LATEST, RunInputs, complete
from ctrpipe.pipeline.run.trained_model import find_model
from ctrpipe.pipeline.training.parent import Parent, check_alike
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.stored import fetch_model


def complete_with_parent(config: RunConfig, inputs: RunInputs, monitored: dict[str, Any]) -> RunInputs:
    """Returns the RunInputs with the fields of `complete` and the parent of `training.warm_start`.

    `latest` is the version to beat. A repeated run therefore has the same parent, and every node is a cache hit.

    Raises:
        InputError: the parent is missing, unfinished or lacks what a warm start needs, or it differs and `on_mismatch`
            is `refuse`.
    """
    start = config.training.warm_start
    if start is None:
        return complete(config, inputs, monitored)
    if start.parent != LATEST:
        parent = find_parent(fetch_model(start.parent), inputs.output)
        inputs = complete(config, dataclasses.replace(inputs, parent=parent), monitored)
    else:
        inputs = complete(config, inputs, monitored)
        if not inputs.baseline_version:
            announce("Warm start: no version is pushed yet, so the training begins with random weights")
            return inputs
        newest = inputs.output / "models" / config.serving.model_name / inputs.baseline_version
        inputs = dataclasses.replace(inputs, parent=find_parent(newest, inputs.output))
    assert inputs.parent is not None
    fake = config.training.fake_negative_calibration
    for difference in check_alike(inputs.parent, config.log_spec, config.model.name, start, fake):
        announce(f"Warm start: the parent has {difference}")
    return inputs


def find_parent(folder: pathlib.Path, output: pathlib.Path) -> Parent:
    """Returns the trained model of a run, of a folder of versions or of a version.

    Args:
        folder: The folder of the run, of the versions or of the version.
        output: The folder of the run that starts from the model. It may be the same.

    Raises:
        InputError: there is no such model, it is being written, or it lacks what a warm start needs.
    """
    if not (folder / "metrics.json").exists() and (folder / "tfx").is_dir():
        raise InputError(
            f"training.warm_start: {folder}: its run has not finished; wait for it, or name another parent"
        )
    if folder.resolve() != output.resolve() and is_locked(folder / LOCK):
        raise InputError(
            f"training.warm_start: {folder}: a run is writing it; wait for it, or name one of its versions"
        )
    try:
        model = find_model(folder)
        kept = model.kept()
    except InputError as error:
        raise InputError(f"training.warm_start: {error}") from error
    if kept is None:
        raise InputError(
            f"training.warm_start: {folder}: its Keras model is not there; name the run that trained it, or a version "
            "in that run's folder"
        )
    described, beside = read_description(kept), kept.parent / SERVABLE
    version = beside if beside.is_dir() else model.version
    if not described["weights"] or not asset_path(version, Asset.AGES).exists():
        raise InputError(f"training.warm_start: {folder}: saved by a ctrpipe without warm starts; train it again")
    try:
        contents = [(item.filename, item.CRC) for item in zipfile.ZipFile(kept / WEIGHTS).infolist()]
    except (OSError, zipfile.BadZipFile) as error:
        reason = one_line(error, 100)
        raise InputError(f"training.warm_start: {kept}: damaged ({reason}); name another parent") from error
    assets = (Asset.LOG_SPEC, Asset.NUMBERS, Asset.AGES, Asset.TRAINING)
    graph = [asset_path(version, name).read_text() for name in assets]
    hashed = fingerprint(contents, graph, (kept / DESCRIPTION).read_text())
    return Parent(str(folder.resolve()), str(version), str(kept), hashed)
