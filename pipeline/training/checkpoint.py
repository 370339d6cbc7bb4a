"""The checkpoint of a training run: the learner's state, its averaged weights and the progress."""

import dataclasses
import json
import os
import pathlib
from typing import Any

import numpy as np

from ctrpipe.common.arrays import read_arrays
from ctrpipe.common.files import atomic_folder, restore_folder, write_json
from ctrpipe.models.base.saved import TrainingState
from ctrpipe.pipeline.training.averaging import WeightAverage
from ctrpipe.pipeline.training.cluster import text_from_chief
from ctrpipe.pipeline.training.learner import Learner
from ctrpipe.pipeline.training.progress import Progress

CHECKPOINT, REFIT = "checkpoint", "refit"  # folders below a training's work folder
STATE, BEST_STATE, NAMES = "state.npz", "best_state.npz", "state_names.json"  # files in these folders
BEST, PROGRESS = "best.npz", "progress.json"  # files in CHECKPOINT


def write_state(folder: pathlib.Path, learner: Learner) -> None:
    """Writes the learner's state, and the names of its arrays, to STATE and NAMES in a folder."""
    folder.mkdir(exist_ok=True)
    np.savez(folder / STATE, *learner.state())
    write_json(folder / NAMES, learner.state_names())


def read_state(work: pathlib.Path, refit: bool) -> TrainingState | None:
    """Returns the state with the best weights of a finished training run, or with the last weights after a refit.

    Returns None without such a state. For the chief alone, and for its parent process after the training: another
    worker could find the files half written.
    """
    folder = work / (REFIT if refit else CHECKPOINT)
    path = folder / (STATE if refit else BEST_STATE)
    return TrainingState(path, json.loads((folder / NAMES).read_text())) if path.exists() else None


def saved_evaluations(work: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the metrics of the evaluations up to the checkpoint of a training run; none without a checkpoint."""
    return list(_saved(work).get("evaluations", []))


def saved_seconds(work: pathlib.Path) -> float:
    """Returns the seconds of a training up to its checkpoint, over all processes; 0 without a checkpoint."""
    return float(_saved(work).get("seconds", 0.0))


def _saved(work: pathlib.Path) -> dict[str, Any]:
    """Returns the progress in the checkpoint of a training run; {} without a checkpoint."""
    restore_folder(work / CHECKPOINT)
    path = work / CHECKPOINT / PROGRESS
    progress: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return progress


class Checkpoint:
    """Checkpoint folder with a learner's state, its averaged weights and the progress.

    A save replaces the folder as a whole. With several workers, only the chief reads and
    writes it, and sends the contents to the others.

    Args:
        work: The work folder of the training.
        learner: The learner of the training.
        average: The average of the learner's weights.

    Attributes:
        best: The file with the weights of the best evaluation.
    """

    def __init__(self, work: pathlib.Path, learner: Learner, average: WeightAverage):
        self._folder = work / CHECKPOINT
        self._learner = learner
        self._average = average
        self.best = self._folder / BEST

    def save(self, progress: Progress) -> None:
        """Saves the state after an evaluation, and keeps the weights of the best evaluation."""
        if not self._learner.is_chief:
            return
        with atomic_folder(self._folder) as unfinished:
            write_state(unfinished, self._learner)
            self._average.save(unfinished)
            if progress.improved:
                self._write_best(unfinished)
            else:
                os.link(self.best, unfinished / BEST)
                os.link(self._folder / BEST_STATE, unfinished / BEST_STATE)
            (unfinished / PROGRESS).write_text(json.dumps(dataclasses.asdict(progress)))

    def _write_best(self, folder: pathlib.Path) -> None:
        """Writes the evaluated weights, and the training state with these weights instead of the trained ones."""
        trained = self._learner.weights()
        evaluated = self._average.of(trained)
        np.savez(folder / BEST, *evaluated)
        if evaluated is trained:
            os.link(folder / STATE, folder / BEST_STATE)
        else:
            np.savez(folder / BEST_STATE, *evaluated, *self._learner.state()[len(evaluated) :])

    def restore(self) -> Progress | None:
        """Loads the checkpoint and returns its progress, or None if there is no checkpoint."""
        learner, folder = self._learner, self._existing() if self._learner.is_chief else None
        progress = text_from_chief(learner.from_chief, (folder / PROGRESS).read_text() if folder else "")
        if not progress:
            return None
        learner.load_state(learner.from_chief(read_arrays(folder / STATE) if folder else learner.state()))
        self._average.restore(learner, folder)
        return Progress(**json.loads(progress))

    def _existing(self) -> pathlib.Path | None:
        restore_folder(self._folder)
        return self._folder if (self._folder / PROGRESS).exists() else None

    def restore_best(self) -> None:
        """Loads the weights of the best evaluation into the learner."""
        learner = self._learner
        best = read_arrays(self.best) if learner.is_chief else learner.weights()
        learner.load_weights(learner.from_chief(best))
