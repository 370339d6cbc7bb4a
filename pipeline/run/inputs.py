"""The inputs of a run besides its configuration: files, code, checkpoints, parent and the version to beat."""

import dataclasses
import json
import pathlib
from typing import TYPE_CHECKING, Any

from ctrpipe.common import hooks, stores
from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.monitors import BY_GROUP
from ctrpipe.models.base.registry import source_of
from ctrpipe.pipeline.config import Model, Monitoring, RunConfig, Training
from ctrpipe.pipeline.training.code import TRAINING
from ctrpipe.serving.layout import Asset, asset_path, find_version, versions
from ctrpipe.serving.stored import fetch_model
from ctrpipe.transforms.log.described_files import describe_files, fingerprint_files, states_of
from ctrpipe.transforms.log.files import FileState, find_files
from ctrpipe.transforms.log.pretrained_table import pretrained_tables, table_fingerprint
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import FORMAT_NAMES, Data
from ctrpipe.transforms.log.split import SPLITS
from ctrpipe.transforms.text.checkpoint import checkpoint_fingerprint

if TYPE_CHECKING:
    from ctrpipe.pipeline.training.parent import Parent  # lazy: it imports what learns

MONITORED = ("previous", "serving")
RETRAININGS = 4  # maximum number of earlier versions that the gates score on the test rows
LATEST = "latest"  # as a warm start's parent: the newest version in the run's folder


@dataclasses.dataclass(frozen=True)
class RunInputs:
    """The inputs of a run besides its configuration."""

    files: tuple[str, ...]
    data_fingerprint: str
    states: dict[str, FileState]  # of the files, by path
    output: pathlib.Path
    baseline_version: str  # the version to beat, or ""
    retrained_versions: tuple[str, ...] = ()  # earlier versions of the same configuration as the version to beat
    monitoring: Monitoring = Monitoring()  # the configuration's, with absolute paths to its logs
    monitored_fingerprint: str = ""
    monitored_states: dict[str, FileState] = dataclasses.field(default_factory=dict)
    checkpoints: dict[str, str] = dataclasses.field(default_factory=dict)  # fingerprints by encoder or pretrained table
    parent: "Parent | None" = None  # the warm start's parent, if any
    work: pathlib.Path | None = None  # the folder to work in, where it is not `output`

    @property
    def place(self) -> pathlib.Path:
        """The folder for files that the steps share and that are not results, such as checkpoints."""
        return self.work or self.output

    def training_fingerprint(self, config: RunConfig, model: Model, training: Training | None = None) -> str:
        """Returns a hash of everything that determines a training run. Equal hashes mean the same trained model.

        `training` replaces the configuration's settings, for a baseline.

        Raises:
            InputError: the teacher of a distillation is not there.
        """
        settings = training or config.training
        parts = (config.log_spec, settings, config.seed, model, self.data_fingerprint, self.checkpoints)
        begins_with = self.parent.fingerprint if self.parent and model == config.model else ""
        losses = [hooks.version("losses", name) for name in settings.hook_losses]
        stops_by = config.evaluation.group_weight if settings.monitor in BY_GROUP else ""
        taught_by = _teacher_of(settings) if self.files else ""  # what is compiled for a cluster has no files yet
        code = [source_of(model.name), begins_with, stops_by, taught_by, *losses, *_transforms_of_hooks(config)]
        return fingerprint(*parts, stage_version(*TRAINING), *filter(None, code))

    def version_fingerprint(self, config: RunConfig, model: Model, training: Training | None = None) -> str:
        """Returns a hash of everything that determines a version's probabilities: the training run and the calibration.

        A parent named `latest` is not part of the hash, because this hash is used to look it up.
        """
        start = config.training.warm_start
        named = start is not None and start.parent != LATEST
        trained = (self if named else dataclasses.replace(self, parent=None)).training_fingerprint(
            config, model, training
        )
        return fingerprint(trained, config.calibration) if config.calibration else trained

    def test_rows(self, config: RunConfig) -> str:
        """Returns a hash that identifies the test rows. It is equal for runs on the same files with the same split."""
        split = config.data.split
        return fingerprint(self.data_fingerprint, split.by if split.files else split)

    def transform_version(self, config: RunConfig) -> str:
        """Returns a hash of everything that determines a row's transform: code, also of hooks, tokenizer and tables."""
        code = stage_version("ctrpipe.pipeline.components.log_transform")
        tokenizer = self.checkpoints.get(config.text.encoder) if config.text else None
        tables = [self.checkpoints[table.path] for table in pretrained_tables(config.log_spec).values()]
        others = [*filter(None, [tokenizer, *tables]), *_transforms_of_hooks(config)]
        return fingerprint(code, *others) if others else code


def _teacher_of(training: Training) -> str:
    """Returns a hash of the version whose predictions are learned, "" without distillation."""
    if training.distillation is None:
        return ""
    try:
        version = find_version(fetch_model(training.distillation.teacher))
    except InputError as error:
        raise InputError(f"training.distillation.teacher: {error}") from error
    files = [asset_path(version, name) for name in (Asset.TRAINING_FINGERPRINT, Asset.CODE_VERSION, Asset.PARENT)]
    return fingerprint(version.name, [file.read_text() for file in files if file.exists()])


def _transforms_of_hooks(config: RunConfig) -> list[str]:
    return [hooks.version("transforms", name) for name in config.hook_transforms]


def encoders(config: RunConfig) -> list[str]:
    """Returns the checkpoints that a configuration names, `random` included, sorted by name."""
    models = [model for model in (config.model, config.evaluation.baseline) if model]
    named = {config.text.encoder if config.text else None, *(model.encoder for model in models)}
    return sorted(filter(None, named))


def run_inputs(
    config: RunConfig,
    files: list[str],
    data: list[dict[str, Any]],
    output: pathlib.Path,
    work: pathlib.Path | None = None,
) -> RunInputs:
    """Returns the RunInputs for a run up to Transform. `complete` adds the inputs of the later stages.

    Args:
        config: The run's configuration, as `RunConfig.placed` returns it.
        files: The log's files.
        data: The result of `describe_files`.
        output: The run's folder, as an absolute path.
        work: The folder to work in, as an absolute path. None for the run's.
    """
    checkpoints = {name: checkpoint_fingerprint(name) for name in encoders(config)}
    checkpoints |= {table.path: table_fingerprint(table.path) for table in pretrained_tables(config.log_spec).values()}
    return RunInputs(
        tuple(absolute(files)),
        _data_fingerprint(config.data, data),
        states_of(data),
        output,
        baseline_version="",
        checkpoints=checkpoints,
        work=work,
    )


def _data_fingerprint(described: Data, data: list[dict[str, Any]]) -> str:
    """Returns a hash of the files' contents; with `by: files`, also of the number of files in each split.

    If another package provides the reader or the store, the hash includes its code.
    """
    contents, files = fingerprint_files(data), described.split.files
    counts = [len(getattr(files, name)) for name in SPLITS] if files else []
    reader = [] if described.format in FORMAT_NAMES else [hooks.version("readers", described.format)]
    schemes = sorted({stores.scheme_of(file["path"]) for file in data} - {"", *stores.SCHEMES})
    code = [*reader, *(hooks.version("stores", scheme) for scheme in schemes if scheme in hooks.names("stores"))]
    return fingerprint(contents, counts, *code) if counts or code else contents


def complete(config: RunConfig, inputs: RunInputs, monitored: dict[str, Any]) -> RunInputs:
    """Returns the RunInputs with the version to beat and the logs to compare with."""
    push_folder = inputs.output / "models" / config.serving.model_name
    own = inputs.version_fingerprint(config, config.model)
    newest = version_to_beat(push_folder, own)
    retrained = versions_retrained(push_folder, newest, own)
    return dataclasses.replace(inputs, baseline_version=newest, retrained_versions=retrained, **monitored)


def find_monitored(monitoring: Monitoring) -> dict[str, Any]:
    """Returns the fields of RunInputs that describe the logs to compare with.

    Raises:
        InputError: a log cannot be read.
    """
    logs = {kind: find_files(getattr(monitoring, kind)) for kind in MONITORED if getattr(monitoring, kind)}
    placed = {kind: absolute(paths) for kind, paths in logs.items()}
    every = describe_files([path for paths in logs.values() for path in paths])
    return {
        "monitoring": monitoring.model_copy(update=placed),
        "monitored_fingerprint": fingerprint_files(every) if every else "",
        "monitored_states": states_of(every),
    }


def check_monitored(config: RunConfig, files: list[str], monitoring: Monitoring) -> None:
    """Raises InputError if equal values of the log and of a log to compare with would be different categories."""
    if config.data.join or config.data.impressions or config.data.label_delay:
        return  # the configuration describes the log that is prepared from the files
    for paths in filter(None, (getattr(monitoring, kind) for kind in MONITORED)):
        LogReader(config.log_spec, labels=False).check_all([*files, *paths])


def version_to_beat(push_folder: pathlib.Path, version_fingerprint: str) -> str:
    """Returns the newest version with a different fingerprint, or "" if there is none.

    Versions of the same training run and calibration are skipped. A repeated run therefore compares with the same
    version as before, and every node is a cache hit.
    """
    for version in reversed(versions(push_folder)):
        made_by = asset_path(version, Asset.TRAINING_FINGERPRINT)
        if not made_by.exists() or made_by.read_text() != version_fingerprint:
            return version.name
    return ""


def versions_retrained(push_folder: pathlib.Path, version: str, version_fingerprint: str) -> tuple[str, ...]:
    """Returns earlier versions with the same configuration of model, training and features as `version`.

    They differ from it in the seed or in the training rows. A training run that was pushed twice is returned once. The
    one with `version_fingerprint` is left out. The newest version is first, and there are at most RETRAININGS.
    """
    names: list[str] = []
    if not version:
        return ()
    own = _configuration(push_folder / version)
    seen = {version_fingerprint, _fingerprint(push_folder / version)}
    for each in reversed(versions(push_folder)):
        made_by = _fingerprint(each)
        if int(each.name) < int(version) and made_by not in seen and own and _configuration(each) == own:
            seen.add(made_by)
            names.append(each.name)
    return tuple(names[:RETRAININGS])


def _fingerprint(version: pathlib.Path) -> str:
    """Returns the fingerprint of a version's training run, or the version's name if it has none."""
    made_by = asset_path(version, Asset.TRAINING_FINGERPRINT)
    return made_by.read_text() if made_by.exists() else version.name


def _configuration(version: pathlib.Path) -> dict[str, Any] | None:
    """Returns the configuration of a version's model, training and features; None if unknown."""
    try:
        training = json.loads(asset_path(version, Asset.TRAINING).read_text())
        spec = json.loads(asset_path(version, Asset.LOG_SPEC).read_text())
        return {"training": training, "labels": spec["data"]["labels"], "features": spec["features"]}
    except (OSError, ValueError, LookupError):
        return None


def absolute(files: list[str]) -> list[str]:
    """Returns the files' absolute paths, and URLs as they are."""
    return [stores.absolute(path) for path in files]
