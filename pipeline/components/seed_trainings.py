"""Trains a run's model and its baseline with other seeds (`ctrpipe run --seeds`), and scores the test rows with each.

A single training measures only its own weights; several training runs measure the model.
"""

import dataclasses
import gc
import json
import pathlib
import shutil
from typing import Any

import keras
import numpy as np
import pyarrow as pa
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, ExampleStatistics, ModelEvaluation, TransformGraph

from ctrpipe.common.files import link_or_copy, write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.finite import check_predictions
from ctrpipe.common.metrics import summarise, summarise_numbers
from ctrpipe.common.phases import start_phase
from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.components import SERVABLE
from ctrpipe.pipeline.components.log_trainer import train_and_export
from ctrpipe.pipeline.components.settings import StageSettings
from ctrpipe.pipeline.components.trainer_settings import TrainerInputs, TrainerSettings
from ctrpipe.pipeline.evaluation.predictions import predict, prediction_column
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.pipeline.evaluation.seeds import Seeds, SeedSide, SeedTraining, write_seeds
from ctrpipe.pipeline.training.convergence import has_converged
from ctrpipe.transforms.log.groups import group_numbers
from ctrpipe.transforms.log.outliers import naming_the_number
from ctrpipe.transforms.log.payload import payload_files, read_payload

SEED = "seed"  # the name of the model in prediction_column
TRAINING, SCORES = "training.json", "scores.parquet"  # of a finished training run


class SideSettings(StageSettings):
    """The training of one side, the model or the baseline.

    Args:
        name: The name of the model.
        trainers: The settings of each training besides the run's own. None for a side that depends on no seed.
    """

    name: str
    trainers: list[TrainerSettings]


class SeedSettings(StageSettings):
    """Settings of SeedTrainings.

    Args:
        seeds: The number of training runs of a side, with the run's own.
        task: The first task, whose metrics the gates read.
        model: The model.
        baseline: The baseline; None for none.
        rows: The identity of the test rows, see ScoredRows.
    """

    seeds: int
    task: str
    model: SideSettings
    baseline: SideSettings | None
    rows: str


@component
def SeedTrainings(
    payload: InputArtifact[Examples],
    examples: InputArtifact[Examples],
    transform_graph: InputArtifact[TransformGraph],
    statistics: InputArtifact[ExampleStatistics],
    seeds: OutputArtifact[ModelEvaluation],
    settings: Parameter[str],
    workers: Parameter[str],
    code_version: Parameter[str],
) -> None:
    """Trains both sides with the other seeds, as LogTrainer does, and scores the test rows.

    Args:
        payload: The payload, with the test rows.
        examples: The packed examples.
        transform_graph: The transform graph of the packed examples.
        statistics: The statistics of the splits.
        seeds: seeds.json and the predictions, see ctrpipe.pipeline.evaluation.seeds.
        settings: SeedSettings as JSON.
        workers: See Workers.from_json.
        code_version: See ctrpipe.pipeline.components.
    """
    given = SeedSettings.model_validate_json(settings)
    inputs = TrainerInputs.of(payload, examples, transform_graph, statistics)
    train_seeds(given, inputs, pathlib.Path(seeds.uri), Workers.from_json(workers), code_version)


def train_seeds(
    given: SeedSettings, inputs: TrainerInputs, folder: pathlib.Path, workers: Workers, code_version: str
) -> None:
    """Trains the other seeds of both sides, and writes seeds.json and the predictions of the test rows to a folder.

    Finished training runs are kept in the run's folder and reused by a resumed run, or by a run with more seeds.

    Args:
        given: What to train.
        inputs: The rows.
        folder: The output folder.
        workers: The processes that predict.
        code_version: A hash of the code that trains and predicts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sides: dict[str, SeedSide] = {}
    for side, of_side in (("model", given.model), ("baseline", given.baseline)):
        if of_side is None:
            continue
        name = of_side.name if side == "model" else f"{of_side.name} (baseline)"
        if not of_side.trainers:
            announce(f"{name}: one training run, because L-BFGS ends at the same weights with every seed")
        trainings = []
        for number, trainer in enumerate(of_side.trainers, 2):
            key = fingerprint(trainer.model_dump_json(exclude={"work"}), given.rows, code_version)
            kept = trainer.work.parent / "seeds" / f"{of_side.name}-{key}"
            if (kept / TRAINING).exists():
                announce(f"seed {number} of {given.seeds}: {name}, trained before")
            else:
                announce(f"seed {number} of {given.seeds}: {name} ...", share=(number - 1) / given.seeds)
                scored, described = _train(trainer, given, inputs, folder / "unfinished", workers, code_version)
                kept.mkdir(parents=True, exist_ok=True)
                write_scored(kept / SCORES, scored)
                write_json(kept / TRAINING, described)  # the last one: with it, the training is whole
                shutil.rmtree(trainer.work, ignore_errors=True)
            scores = f"scores/{side}-{trainer.seed}.parquet"
            (folder / "scores").mkdir(exist_ok=True)
            link_or_copy(kept / SCORES, folder / scores)
            trainings.append(SeedTraining(**json.loads((kept / TRAINING).read_text()), scores=scores))
        sides[side] = SeedSide(of_side.name, tuple(trainings))
    write_seeds(folder, Seeds(given.task, sides["model"], sides.get("baseline")))


def _train(
    trainer: TrainerSettings,
    given: SeedSettings,
    inputs: TrainerInputs,
    work: pathlib.Path,
    workers: Workers,
    code_version: str,
) -> tuple[ScoredRows, dict[str, Any]]:
    """Trains with one seed. Returns the test rows with the export's predictions, and the summary of the training.

    Args:
        trainer: What to train.
        given: The settings of all training runs.
        inputs: The rows.
        work: Folder of the export, which is removed again.
        workers: The processes that predict.
        code_version: See `train_seeds`.
    """
    history = train_and_export(trainer, inputs, work, code_version)
    start_phase("SeedTrainings")  # the export has begun a phase of its own
    keras.utils.clear_session()  # otherwise this model stays in memory next to the next one
    gc.collect()
    spec, test = trainer.spec, payload_files(inputs.payload / "Split-test")
    predicted = predict({SEED: work / SERVABLE}, test, spec.target_columns, work / "predictions", workers)
    table = pa.Table.from_batches(read_payload(predicted))
    shutil.rmtree(work)
    labels = {task: table[column].to_numpy() for task, column in spec.data.columns_by_task.items()}
    probabilities = {task: table[prediction_column(SEED, task)].to_numpy() for task in labels}
    with naming_the_number(spec, inputs.payload):
        check_predictions(trainer.model.name, np.stack(list(probabilities.values()), axis=1), "test")
    weights = table[spec.data.weight].to_numpy() if spec.data.weight else None
    tasks = {
        task: (summarise_numbers if task in spec.data.number_tasks else summarise)(
            labels[task], probabilities[task], weights
        )
        for task in labels
    }
    described = {
        "seed": trainer.seed,
        "metrics": tasks[given.task],
        "tasks": tasks,
        "stopped": history["stopped"],
        "converged": has_converged(history),
    }
    scored = ScoredRows(given.rows, labels, probabilities, weights=weights, group_weight=trainer.group_weight)
    if spec.group:
        rows = pa.Table.from_batches(read_payload(test, [spec.group]))
        scored = dataclasses.replace(scored, groups=group_numbers(rows[spec.group]))
    return scored, described
