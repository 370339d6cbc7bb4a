"""Warm start: initialises weights and optimizer state from a trained model, the parent.

A weight is taken if both models have a weight of the same name and shape. A weight with one row per value, such as an
embedding table, takes each row from the parent's row of the same value. See docs/how-to/continuous.md.
"""

import dataclasses
import json
import math
import pathlib
from typing import Any

import numpy as np
import numpy.typing as npt

from ctrpipe.common.arrays import read_arrays, write_arrays
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json
from ctrpipe.common.progress import announce
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.saved import STATE, WEIGHTS, read_description, read_feature_map
from ctrpipe.models.base.weight_names import weight_names
from ctrpipe.pipeline.config import WarmStart
from ctrpipe.pipeline.training.learner import Learner
from ctrpipe.pipeline.training.network import ITERATIONS
from ctrpipe.transforms.features.table_rows import NONE, SourceRows

_ROWS, _PARENT = "rows.npz", "parent.json"
_TAKEN = "taken.json"  # file in a training's work folder with the names of the values that it took from its parent
_MOST_LISTED = 3


@dataclasses.dataclass(frozen=True)
class Start:
    """The initial values that a training run takes from its parent.

    Attributes:
        name: The folder that was named as the parent.
        kept: The folder of the parent's Keras model and training state.
        rows: The parent's row for each new row, by kind of row (see CTRModel.weights_by_row). Kinds that the two models
            do not share are absent.
        same_columns: Whether the parent has the same columns in the same order. If not, weights that depend on the
            columns do not fit.
    """

    name: str
    kept: pathlib.Path
    rows: dict[str, SourceRows]
    same_columns: bool

    def save(self, folder: pathlib.Path) -> None:
        """Writes the start to a folder, for `load` in another process."""
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(folder / _ROWS, [array for rows in self.rows.values() for array in (rows.same, rows.unknown)])
        others = {"name": self.name, "kept": str(self.kept), "same_columns": self.same_columns}
        described = {**others, "rows": list(self.rows)}
        write_json(folder / _PARENT, described)

    @classmethod
    def load(cls, folder: pathlib.Path) -> "Start":
        described = json.loads((folder / _PARENT).read_text())
        arrays = iter(read_arrays(folder / _ROWS))
        rows = {name: SourceRows(next(arrays), next(arrays)) for name in described["rows"]}
        return cls(described["name"], pathlib.Path(described["kept"]), rows, described["same_columns"])


@dataclasses.dataclass(frozen=True)
class Taken:
    """The values that a training run took from its parent.

    Attributes:
        weights: The names of the weights taken.
        left: Descriptions of the weights that were not taken and keep their initial values.
        optimizer: Whether the optimizer continues from the parent's state.
    """

    weights: list[str]
    left: list[str]
    optimizer: bool


def begin_with_parent(learner: Learner, start: pathlib.Path, settings: WarmStart, work: pathlib.Path) -> None:
    """Initialises an untrained learner from the parent, and records the taken values in the work folder.

    Args:
        learner: The learner. Only the chief's process reads the parent.
        start: The folder of a saved `Start`.
        settings: What to take, and what to do if something does not fit.
        work: The work folder of the training, for `read_taken`.

    Raises:
        InputError: see `take`.
    """
    taken = take(learner, Start.load(start) if learner.is_chief else None, settings)
    if taken:
        write_json(work / _TAKEN, dataclasses.asdict(taken))


def unknown_to(start: pathlib.Path) -> npt.NDArray[np.int64]:
    """Returns the ids whose values the parent does not know.

    Args:
        start: The folder of a saved `Start`.
    """
    return np.flatnonzero(Start.load(start).rows["ids"].same == NONE)


def read_taken(work: pathlib.Path) -> dict[str, Any]:
    """Returns what `begin_with_parent` took in this training run or in the one that it resumes, as a dictionary."""
    taken: dict[str, Any] = json.loads((work / _TAKEN).read_text())
    return taken


class _Arrays:
    """Named arrays of a file, each read on access."""

    def __init__(self, path: pathlib.Path, names: list[str]):
        self._places = {name: f"arr_{index}" for index, name in enumerate(names) if name}
        self._file = np.load(path) if names else None

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        assert self._file is not None
        array: npt.NDArray[Any] = self._file[self._places[name]]
        return array


def take(learner: Learner, start: Start | None, settings: WarmStart) -> Taken | None:
    """Initialises an untrained learner's weights and optimizer state from the parent.

    The parent's logits are for all rows. If the training rows contain only a share of the negatives, the log of
    that share is subtracted from the logits; after training it is added again.

    Every process of a training run must call this function, because all processes load the values that the chief has
    read.

    Args:
        learner: The learner.
        start: The parent; None in a process that is not the chief.
        settings: What to take, and what to do if something does not fit.

    Returns:
        The values taken; None without a `start`.

    Raises:
        InputError: a weight is not taken and `on_mismatch` is `refuse`, or the parent's files are damaged.
    """
    taken, values, shift = _find(learner, start, settings) if start else (None, learner.state(), 0.0)
    *values, shifts = learner.from_chief([*values, np.array([shift])])
    learner.load_state(values)
    if shifts[0]:
        learner.network.shift_logits(float(shifts[0]))
    return taken


def _find(learner: Learner, start: Start, settings: WarmStart) -> tuple[Taken, list[npt.NDArray[Any]], float]:
    """Returns the values taken, the learner's state with these values, and the shift to add to its logits."""
    network: CTRModel = learner.network
    described = read_description(start.kept)
    try:
        weights = _Arrays(start.kept / WEIGHTS, described["weights"])
        state = _Arrays(start.kept / STATE, described["state"] if settings.optimizer else [])
    except (OSError, ValueError) as error:
        raise InputError(f"training.warm_start: {start.name} is damaged ({error}); name another parent") from error
    fit = _Fit(network, start, settings)
    names, values = learner.state_names(), learner.state()
    taken: list[str] = []
    left: list[str] = []
    trainable = {id(variable) for variable in network.trainable_variables}
    learned = [id(variable) in trainable for variable in network.variables]
    for index, name in enumerate(names[: len(learned)]):
        value = fit.value(name, values[index], weights)
        if value is not None:
            values[index] = value
            taken.append(name)
        elif learned[index]:
            left.append(f"{name} ({fit.why_not(name, values[index], weights)})")
    if left and settings.on_mismatch == "refuse":
        raise InputError(
            f"training.warm_start: {start.name} has another architecture: {listed(left)}; set "
            "training.warm_start.on_mismatch: take to begin with what fits, or name another parent"
        )
    optimizer = _take_state(fit, names[len(learned) :], values, len(learned), state, set(taken))
    share = network.feature_map.negative_sampling
    biases = {id(bias) for bias in network.output_biases()} if share < 1 else set()
    shifted = any(
        id(variable) in biases and name in taken for variable, name in zip(network.variables, names, strict=False)
    )
    return Taken(taken, left, optimizer), values, -math.log(share) if shifted else 0.0


def _take_state(
    fit: "_Fit", names: list[str], values: list[npt.NDArray[Any]], first: int, state: _Arrays, taken: set[str]
) -> bool:
    """Copies the parent's optimizer state into `values` from index `first` on. Returns whether it did.

    Copies all or nothing, because Adam's moments belong to a step count.
    """
    states: dict[int, npt.NDArray[Any]] = {}
    for index, name in enumerate(names, first):
        weight, _, number = name.partition(":")
        if name and name != ITERATIONS and weight in taken:
            value = fit.value(weight, values[index], state, f":{number}", is_state=True)
            if value is None:
                return False
            states[index] = value
    if ITERATIONS not in state or ITERATIONS not in names:
        return False
    place = first + names.index(ITERATIONS)
    values[place] = state[ITERATIONS].astype(values[place].dtype)
    for index, value in states.items():
        values[index] = value
    return bool(states)


class _Fit:
    """Finds the initial values of weights in the parent."""

    def __init__(self, network: CTRModel, start: Start, settings: WarmStart):
        names = weight_names(network)
        places = {id(variable): name for variable, name in zip(network.variables, names, strict=True)}
        self._rows = start.rows
        self._by_row = {places[id(weight)]: kind for weight, kind in network.weights_by_row()}
        self._everywhere = start.same_columns
        reads_text = [] if "tokens" not in start.rows else network.encoder_weights()
        self._of_any_columns = {places[id(weight)] for weight in (*reads_text, *_biases(network))}
        self._or_unknown = settings.new_values == "unknown"

    def value(
        self, weight: str, initial: npt.NDArray[Any], source: _Arrays, number: str = "", is_state: bool = False
    ) -> npt.NDArray[Any] | None:
        """Returns the initial values of an array, or None if the parent has nothing that fits.

        Args:
            weight: The name of the weight; "" fits nothing.
            initial: The array's current values.
            source: The parent's arrays.
            number: The suffix of the array's name after the name of the weight.
            is_state: Whether the array is optimizer state. The rows of new values then keep their current values.
        """
        if not weight or weight + number not in source:
            return None
        value = source[weight + number]
        kind = self._by_row.get(weight)
        if kind is not None:
            return self._rows_of(kind, initial, value, not is_state and self._or_unknown)
        fits = self._everywhere or weight in self._of_any_columns
        return value.astype(initial.dtype) if fits and value.shape == initial.shape else None

    def why_not(self, weight: str, initial: npt.NDArray[Any], source: _Arrays) -> str:
        """Returns the reason why `value` returns None for a weight."""
        if weight not in source:
            return "not in the parent"
        there = source[weight].shape
        same = there == initial.shape or weight in self._by_row and there[1:] == initial.shape[1:]
        return "of other columns" if same else f"of shape {initial.shape}, in the parent {there}"

    def _rows_of(
        self, kind: str, initial: npt.NDArray[Any], value: npt.NDArray[Any], or_unknown: bool
    ) -> npt.NDArray[Any] | None:
        rows = self._rows.get(kind)
        if rows is None or initial.shape[1:] != value.shape[1:]:
            return None
        return _extended(rows, len(initial), len(value)).taken(initial, value, or_unknown)


def _extended(rows: SourceRows, count: int, former: int) -> SourceRows:
    """Appends the rows of a model's own tokens, which are the same in both models."""
    own = count - len(rows.same)
    if not own:
        return rows
    behind = np.arange(former - own, former)
    return SourceRows(np.append(rows.same, behind), np.append(rows.unknown, behind))


def _biases(network: CTRModel) -> list[Any]:
    try:
        return list(network.output_biases())
    except ValueError:  # the model has no output biases
        return []


def announce_start(start: Start, fields: FeatureMap) -> dict[str, dict[str, int]]:
    """Announces how many ids the parent knows in total, and returns the counts by field."""
    ids = counts(fields, read_feature_map(start.kept), start.rows["ids"])
    known, new, gone = (sum(field[key] for field in ids.values()) for key in ("known", "new", "gone"))
    announce(f"Warm start from {start.name}: {known:,} known ids, {new:,} new, {gone:,} gone")
    return ids


def counts(today: FeatureMap, former: FeatureMap, rows: SourceRows) -> dict[str, dict[str, int]]:
    """Counts the ids of each field that the parent knows (`known`), that are `new`, and that are `gone`."""
    sizes = {field.name: field.size for field in former.fields}
    by_field = {}
    for field in today.fields:
        if not field.shared_with:
            same = rows.same[field.offset : field.offset + field.size]
            known = int((same != NONE).sum())
            was = sizes.get(field.name, 0)
            by_field[field.name] = {
                "known": known,
                "new": field.size - known,
                "gone": was - len(set(same[same != NONE])),
            }
    return by_field


def listed(phrases: list[str]) -> str:
    """Returns the first phrases, and the number of the remaining ones."""
    more = len(phrases) - _MOST_LISTED
    return "; ".join(phrases[:_MOST_LISTED]) + (f"; and {more} more" if more > 0 else "")
