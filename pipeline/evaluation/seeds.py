"""The training runs of a run with different seeds (`ctrpipe run --seeds`), in one file: seeds.json.

A run with several seeds trains its model and its baseline with each of them. The file is written twice, in one format:

- In the artifact of `SeedTrainings`, for the gates. It has the training runs besides the run's own.
- A public file next to metrics.json. It has all training runs of both sides, the run's own first.

    {
      "task": "ctr",
      "model": {"name": "deepfm", "trainings": [
        {"seed": 1, "metrics": {"auc": 0.75, "log_loss": 0.45, "rig": 0.1, "calibration": 1.0, "examples": 8000, ...},
         "tasks": {"ctr": {"auc": 0.75, ...}, ...}, "stopped": "log_loss did not improve for 2 evaluations",
         "converged": true, "scores": "report_data/seeds/model-1.parquet"}, ...]},
      "baseline": {"name": "lr", "trainings": [...]},
      "difference": {"auc": {"difference": 0.01, "seeds": [3, 3], "interval": [0.005, 0.015], ...}, "rig": {...}},
      "differences": {"ctr": {"auc": {...}, "rig": {...}}, ...}
    }

`task` is the first task, and `metrics` are its metrics on the test rows, by the names of `metrics.summarise`; `tasks`
has those of every task. `scores` is a file of
`write_scored`, by its path from the folder of seeds.json: every file has the same rows in the same order. `baseline` is
null without a baseline. `difference` is the model's mean less the baseline's in the first task, as `Compared.to_json`
writes it: over other rows and other seeds. `differences` has it for every task in which it can be known: a task needs
test rows of both classes. Both are null in the artifact, and without a baseline. A side that L-BFGS trains depends on
no seed: its run's own training run is its only one.
"""

import dataclasses
import json
import pathlib
from typing import Any

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import write_json
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored

SEEDS = "seeds.json"


@dataclasses.dataclass(frozen=True)
class SeedTraining:
    """One training run of a side.

    Attributes:
        seed: Its seed.
        metrics: The metrics of the first task on the test rows.
        stopped: The reason for its end.
        converged: Whether more training would hardly change the model, see `has_converged`. None if the history was not
            kept.
        scores: Path of its predictions, from the folder of seeds.json.
        tasks: The metrics of each task.
    """

    seed: int
    metrics: dict[str, Any]
    stopped: str
    converged: bool | None
    scores: str
    tasks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class SeedSide:
    """A model with its training runs."""

    name: str
    trainings: tuple[SeedTraining, ...]

    def read_scores(self, folder: pathlib.Path) -> list[ScoredRows]:
        """Returns the predictions of each training run. `folder` is the one of seeds.json."""
        return [read_scored(folder / training.scores) for training in self.trainings]


@dataclasses.dataclass(frozen=True)
class Seeds:
    """The contents of seeds.json; see the module."""

    task: str
    model: SeedSide
    baseline: SeedSide | None = None
    difference: dict[str, dict[str, Any]] | None = None
    differences: dict[str, dict[str, dict[str, Any]]] | None = None


def write_seeds(folder: pathlib.Path, seeds: Seeds) -> None:
    """Writes seeds.json to a folder, by an atomic rename."""
    write_json(folder / SEEDS, dataclasses.asdict(seeds))


def read_seeds(folder: pathlib.Path) -> Seeds | None:
    """Returns the contents of a folder's seeds.json, or None if there is none.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / SEEDS
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        model, baseline = (_side(value[key]) if value[key] else None for key in ("model", "baseline"))
        assert model
        return Seeds(value["task"], model, baseline, value["difference"], value.get("differences"))
    except (OSError, ValueError, LookupError, TypeError, AssertionError) as error:
        raise InputError(f"{path}: damaged ({one_line(error, 100)}); run `ctrpipe run --seeds` again") from error


def _side(value: dict[str, Any]) -> SeedSide:
    return SeedSide(value["name"], tuple(SeedTraining(**training) for training in value["trainings"]))
