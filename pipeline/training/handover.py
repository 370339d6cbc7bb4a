"""Trains a job in another process, and reads the trained weights.

A process has only one Keras backend, and workers must connect before any other use of TensorFlow. The work folder of
the training contains the job in JOB. The other process adds the weights and the progress in WEIGHTS and HISTORY.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable

import numpy as np

from ctrpipe.common.arrays import read_arrays
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import derives_from
from ctrpipe.pipeline.training.checkpoint import read_state
from ctrpipe.pipeline.training.cluster import Cluster, text_from_chief
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.process import Report, train_with_others, train_with_worker
from ctrpipe.pipeline.training.progress import Progress
from ctrpipe.pipeline.training.stages import train_here

JOB, WEIGHTS, HISTORY = "task.json", "weights.npz", "history.json"  # files in the work folder


def check_hosts(job: TrainingJob) -> None:
    """Raises InputError for settings that JAX supports on one host only.

    Reading an array that is sharded over several hosts would need all of them.
    """
    training, name = job.training, job.model.name
    if training.backend != "jax":
        return
    stage = training.stages.get("masked_language_model")
    alone = {
        "training.shard_tables": training.shard_tables,
        "training.stages.masked_language_model": stage is not None and not stage.skip,
        f"model.name {name}": derives_from(name, "cascading_nn_gbdt"),
    }
    key = next((key for key, asked in alone.items() if asked), None)
    if key:
        raise InputError(
            f"{key}: JAX supports it on one host only; set training.distribution: mirrored, or use TensorFlow"
        )


# In the process that exports the model --------------------------------------------------------------------------------


def train_on_backend(job: TrainingJob, work: pathlib.Path, report: Report | None) -> TrainResult:
    """Trains a job in a separate process with its Keras backend.

    Args:
        job, work, report: As in `train`.

    Raises:
        InputError: the training failed because of a user's mistake, or the process ended early.
    """
    _write_job(job, work)
    train_with_worker(work, job.training.backend, report)
    return _read_result(job, work)


def train_on_hosts(job: TrainingJob, others: Cluster, work: pathlib.Path, report: Report | None) -> TrainResult:
    """Trains a job as the chief of workers on several hosts.

    Args:
        job, work, report: As in `train`.
        others: The workers.

    Raises:
        InputError: a worker did not join or was lost, or the training failed because of a user's mistake.
    """
    job = job.with_training(distribution="multi_worker")
    _write_job(job, work)
    train_with_others(others, work, job.training.backend, job.training.worker_timeout_seconds, report)
    return _read_result(job, work)


def _write_job(job: TrainingJob, work: pathlib.Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    (work / JOB).write_text(job.to_json())


def _read_result(job: TrainingJob, work: pathlib.Path) -> TrainResult:
    """Loads the weights of a finished training into a learner of this process, for the export."""
    learner, weights = job.served_learner(), work / WEIGHTS
    learner.load_weights(read_arrays(weights))
    progress = Progress(**json.loads((work / HISTORY).read_text()))
    state = read_state(work, job.training.refit)
    return TrainResult(job, learner, progress, trained_here=False, weights_file=weights, state=state)


# In the process that trains -------------------------------------------------------------------------------------------


def run_job(work: pathlib.Path, report: Report) -> None:
    """Trains the job in a work folder, and writes its weights and its progress there."""
    result = train_here(_read_job(work), work, report)
    np.savez(work / WEIGHTS, *result.learner.weights())
    (work / HISTORY).write_text(json.dumps(dataclasses.asdict(result.progress)))


def run_shared_job(
    work: pathlib.Path | None,
    from_chief: Callable[[list[np.ndarray]], list[np.ndarray]],
    joined: Callable[[str], None],
    report: Report,
) -> None:
    """Runs one training run in every worker of a cluster; the chief calls `run_job`.

    Args:
        work: The chief's folder with the job; None in the other workers, which receive the job from the chief.
        from_chief: See `Learner.from_chief`.
        joined: Called with the model's name when all workers are connected.
        report: Called with the metrics of each evaluation.
    """
    message = ""
    if work:
        job = _read_job(work)
        train_files, validation_files = (
            [os.path.abspath(file) for file in files] for files in (job.train_files, job.validation_files)
        )
        absolute = dataclasses.replace(job, train_files=train_files, validation_files=validation_files)
        message = json.dumps({"work": os.path.abspath(work), "task": absolute.to_json()})
    shared = json.loads(text_from_chief(from_chief, message))
    job = TrainingJob.from_json(shared["task"])
    joined(job.model.name)
    if work:
        run_job(work, report)
    else:
        train_here(job, pathlib.Path(shared["work"]), report)


def _read_job(work: pathlib.Path) -> TrainingJob:
    return TrainingJob.from_json((work / JOB).read_text())
