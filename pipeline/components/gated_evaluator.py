"""Replaces TFX's Evaluator, which cannot read Parquet.

Writes the same artifacts and the metrics of the report.
"""

import json
import pathlib
from typing import Any

import numpy as np
from tfx.components.evaluator import constants
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types.standard_artifacts import Examples, Model, ModelBlessing, ModelEvaluation

from ctrpipe.common.processes import Workers
from ctrpipe.common.progress import throttled_announce
from ctrpipe.pipeline.components import SERVABLE
from ctrpipe.pipeline.components.settings import StageSettings
from ctrpipe.pipeline.config import Evaluation, Gates
from ctrpipe.pipeline.evaluation.artifact import write_evaluation
from ctrpipe.pipeline.evaluation.catalogue import catalogue_gates
from ctrpipe.pipeline.evaluation.evaluate import evaluate, last_blessed_probabilities
from ctrpipe.pipeline.evaluation.gates import eval_config, read_gates
from ctrpipe.pipeline.evaluation.hooked import hook_gates, hook_metrics, judged_rows
from ctrpipe.pipeline.evaluation.judge import judge
from ctrpipe.pipeline.evaluation.scored_rows import baseline_column
from ctrpipe.pipeline.evaluation.seeds import read_seeds
from ctrpipe.pipeline.evaluation.trainings import retrained_probabilities
from ctrpipe.pipeline.training.convergence import has_converged
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.transforms.log.outliers import naming_the_number
from ctrpipe.transforms.log.payload import payload_files
from ctrpipe.transforms.log.spec import LogSpec


class EvaluatorSettings(StageSettings):
    """Settings of GatedEvaluator.

    Args:
        spec: The description of the log.
        gates: The conditions of a blessing.
        evaluation: The metrics and slices, and the baseline.
        rows: The identity of the test rows, see ScoredRows.
        retrained: The folders of earlier versions of the last blessed model's configuration, the newest first.
        hook_metrics, hook_gates: The metrics and gates of packages, each with a hash of its code.
    """

    spec: LogSpec
    gates: Gates
    evaluation: Evaluation
    rows: str
    retrained: list[pathlib.Path] = []
    hook_metrics: dict[str, str] = {}
    hook_gates: dict[str, str] = {}


@component
def GatedEvaluator(
    examples: InputArtifact[Examples],
    model: InputArtifact[Model],
    last_blessed: InputArtifact[Model],
    evaluation: OutputArtifact[ModelEvaluation],
    blessing: OutputArtifact[ModelBlessing],
    settings: Parameter[str],
    workers: Parameter[str],
    code_version: Parameter[str],
    baseline: InputArtifact[Model] = None,
    seeds: InputArtifact[ModelEvaluation] = None,
) -> None:
    """Evaluates the model on the test rows, and blesses it if it passes the gates.

    Args:
        examples: The payload.
        model: The candidate model.
        last_blessed: The model to compare with in bounds on changes; an artifact without a model in a first run.
        evaluation: TFMA's files, and the files that ctrpipe.pipeline.evaluation.artifact describes.
        blessing: The blessing, in the format of TFX's Evaluator.
        settings: EvaluatorSettings as JSON.
        workers: See Workers.from_json.
        code_version: See ctrpipe.pipeline.components.
        baseline: The model of `evaluation.baseline`. Its metrics are reported, and no gate applies to it.
        seeds: The model's training runs with other seeds on the same rows, see ctrpipe.pipeline.evaluation.seeds.
    """
    given = EvaluatorSettings.model_validate_json(settings)
    log, by, bounds = given.spec, given.evaluation, given.gates
    payload, folder = pathlib.Path(examples.uri), pathlib.Path(evaluation.uri)
    test = payload_files(payload / "Split-test")
    to_beat = pathlib.Path(last_blessed.uri) / SERVABLE
    has_to_beat = to_beat.exists()
    on_workers = Workers.from_json(workers)
    passed = judge(
        pathlib.Path(model.uri) / SERVABLE,
        to_beat if has_to_beat else None,
        test,
        eval_config(bounds, by, log.data.columns_by_task, log.data.weight),
        folder,
        on_workers,
        throttled_announce(),
        (by.tail, payload_files(payload / "Split-train")) if by.tail else None,
        pathlib.Path(baseline.uri) / SERVABLE if baseline else None,
    )
    baseline_name = by.baseline.name if by.baseline else None
    with naming_the_number(log, payload):
        metrics, scored, others = evaluate(folder, baseline_name, test, log, by, given.rows)
    metrics |= _end_of_training(model)
    if baseline and metrics["baseline"]:
        metrics["baseline"] |= _end_of_training(baseline)
    task = next(iter(log.data.labels))
    to_compare = last_blessed_probabilities(folder, task)
    last = [] if to_compare is None else [to_compare]
    if last and bounds.max_drop and bounds.max_drop_confidence:
        last += retrained_probabilities(given.retrained, test, task, folder, on_workers)
    others_of_run = _seed_probabilities(pathlib.Path(seeds.uri), task) if seeds else []
    table = read_gates(folder, bounds, scored, last, others_of_run)
    if bounds.ecs:
        table += catalogue_gates(bounds.ecs, log, test, scored.probabilities[task], to_compare)
    if given.hook_metrics:
        metrics["hooks"] = hook_metrics(given.hook_metrics, judged_rows(scored, scored.probabilities[task], None, {}))
        if metrics["baseline"]:
            of_baseline = others[baseline_column(list(scored.labels), task)]
            metrics["baseline"]["hooks"] = hook_metrics(given.hook_metrics, judged_rows(scored, of_baseline, None, {}))
    if given.hook_gates:
        rows = judged_rows(scored, scored.probabilities[task], to_compare, metrics)
        table += hook_gates(given.hook_gates, rows)
    write_evaluation(folder, metrics, scored, others, table)
    passed = passed and all(row["passed"] for row in table)  # TFMA lacks intervals, slice bounds and list metrics
    # The properties of TFX's Evaluator. Pusher and the lookup of the last blessed model read them.
    blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY, model.uri)
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id)
    if has_to_beat:
        blessing.set_string_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY, last_blessed.uri)
        blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY, last_blessed.id)
    value = constants.BLESSED_VALUE if passed else constants.NOT_BLESSED_VALUE
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, value)
    verdict = pathlib.Path(blessing.uri)
    verdict.mkdir(parents=True, exist_ok=True)
    (verdict / (constants.BLESSED_FILE_NAME if passed else constants.NOT_BLESSED_FILE_NAME)).touch()


def _end_of_training(model: Model) -> dict[str, Any]:
    """Returns why the training of a model ended and whether it has converged; None if its history was not kept."""
    path = asset_path(pathlib.Path(model.uri) / SERVABLE, Asset.HISTORY)
    history = json.loads(path.read_text()) if path.exists() else None
    return {"stopped": history and history["stopped"], "converged": history and has_converged(history)}


def _seed_probabilities(folder: pathlib.Path, task: str) -> list[np.ndarray]:
    """Returns the probabilities of a task, [N], of each training run of the model in seeds.json."""
    seeds = read_seeds(folder)
    return [each.probabilities[task] for each in seeds.model.read_scores(folder)] if seeds else []
