"""Prunes a run's configuration: drops columns that together cost the model little AUC."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pydantic
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_text
from ctrpipe.common.progress import throttled_announce
from ctrpipe.models.base.registry import model_class
from ctrpipe.models.base.saved import check_code
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.explain.importance import Importance, Loss, Permuter
from ctrpipe.pipeline.run.trained_model import TrainedModel

PRUNED = "pruned.yaml"


@dataclasses.dataclass(frozen=True)
class Pruned:
    """The columns that a configuration can do without, by permutation.

    Attributes:
        limit: The maximum loss of AUC of all dropped columns together.
        groups: The names of the dropped groups.
        columns: The dropped columns.
        auc, log_loss: The loss without all of them, permuted together with new permutations.
        alone: The sum of the losses of AUC without each. It is less than `auc` if the columns can replace each other.
        needed: Columns that cost less alone, but that the configuration requires.
        left: The number of remaining columns.
    """

    limit: float
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    auc: Loss
    log_loss: Loss
    alone: float
    needed: tuple[str, ...]
    left: int


def config_of_run(source: TrainedModel) -> RunConfig:
    """Returns the configuration of the run that trained a model.

    Raises:
        InputError: a version was given, the run's configuration is missing or damaged, or its model is code that is not
            trusted.
    """
    if source.run is None:
        raise InputError(f"--prune: {source.version} is a version, which has no run's configuration; name the run")
    file = source.run / "report_data" / "config.yaml"
    config = load_config(file)
    check_code(file, config.model.name, config.model.hyperparameters, source.trust)
    return config


def prune(
    config: RunConfig,
    importances: Iterable[Importance],
    permuter: Permuter,
    measure: Callable[[str, Sequence[str]], Importance],
    limit: float,
) -> Pruned:
    """Returns the columns that can be dropped.

    The columns are tried in the order of their own loss. A column is dropped if all columns dropped so far and this one
    together cost less than the limit. Two columns with the same information cost nothing alone, and much together.
    Finally the chosen columns are permuted with new permutations, because the choice favors permutations that cost
    little. The columns dropped last are restored until this loss is below the limit too.

    Args:
        config: The run's configuration.
        importances: The importances of all groups of columns.
        permuter: Scores permuted rows. Each column takes as many scorings as one importance.
        measure: `importance` of a permuter with other permutations.
        limit: The maximum loss of AUC.

    Raises:
        InputError: no column costs less than the limit.
    """
    report = throttled_announce()
    chosen: list[Importance] = []
    needed: list[str] = []
    cheap = sorted((one for one in importances if one.auc.value < limit), key=lambda one: one.auc.value)
    for count, one in enumerate(cheap):
        report(f"Pruning: {count} of {len(cheap)} columns")
        if without(config, _columns([*chosen, one])) is None:
            needed += one.columns
        elif permuter.importance(PRUNED, _columns([*chosen, one])).auc.value < limit:
            chosen.append(one)
    while chosen:
        together = measure(PRUNED, _columns(chosen))
        if together.auc.value < limit:
            columns = _columns(chosen)
            return Pruned(
                limit,
                tuple(one.name for one in chosen),
                columns,
                together.auc,
                together.log_loss,
                sum(one.auc.value for one in chosen),
                tuple(needed),
                len(config.feature_columns) - len(columns),
            )
        chosen.pop()
    raise InputError(
        f"--prune {limit:g}: no column that the configuration can do without costs less AUC; give a higher limit"
    )


def _columns(chosen: Sequence[Importance]) -> tuple[str, ...]:
    return tuple(column for one in chosen for column in one.columns)


def without(config: RunConfig, columns: Sequence[str]) -> RunConfig | None:
    """Returns the configuration without some feature columns, or None if it requires one of them.

    Required are: columns that derived ones are made of; columns named by its slices, gates and calibration; a
    vocabulary that another column shares; a position; the text and the history that its model reads; for a model with
    towers, at least one column of the user and one of the item; at least one column.
    """
    model = model_class(config.model.name)
    if any(source in columns for derived in config.derived.values() for source in derived.sources()):
        return None
    kinds = {config.feature_by_column[column].kind for column in columns}
    positions = {column for feature in config.features for column in feature.columns if feature.is_position}
    if (model.needs_text and "text" in kinds) or (model.needs_history and "sequence" in kinds):
        return None
    items, left = set(config.log_spec.item_columns), set(config.log_spec.feature_columns) - set(columns)
    if model.needs_items and (left <= items or not left & items):
        return None
    if positions & set(columns):
        return None
    settings = config.model_dump(mode="json")
    features = [_without(feature, columns) for feature in settings["features"]]
    settings["features"] = [feature for feature in features if feature["columns"]]
    settings["name"] = f"{config.name}_pruned"
    try:
        return RunConfig.model_validate(settings)
    except pydantic.ValidationError:
        return None


def _without(feature: dict[str, object], columns: Sequence[str]) -> dict[str, object]:
    """Returns a feature's settings without some of its columns and their entries in `shared_with`."""
    names = feature["columns"]
    assert isinstance(names, list)
    kept = [place for place, name in enumerate(names) if name not in columns]
    changed = {**feature, "columns": [names[place] for place in kept]}
    shared = feature.get("shared_with")
    if isinstance(shared, list) and shared:
        changed["shared_with"] = [shared[place] for place in kept]
    return changed


def write_pruned(folder: pathlib.Path, config: RunConfig, pruned: Mapping[str, Any]) -> pathlib.Path:
    """Writes the pruned configuration to a folder, and returns the file. Makes the folder if it is missing.

    Args:
        folder: The folder.
        config: The run's configuration.
        pruned: The fields of Pruned.

    Raises:
        InputError: the file cannot be written.
    """
    columns, auc = pruned["columns"], pruned["auc"]
    smaller = without(config, columns)
    assert smaller is not None  # checked by `prune`
    low, high = auc["interval"]
    head = (
        f"# {config.name} without {len(columns)} of {len(config.feature_columns)} columns: "
        f"{', '.join(columns)}.\n# Permuted together they cost {auc['value']:+.5f} AUC "
        f"(95% {low:+.5f} .. {high:+.5f}).\n"
    )
    path = folder / PRUNED
    settings = smaller.model_dump(mode="json", exclude_defaults=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, head + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another --output") from error
    return path
