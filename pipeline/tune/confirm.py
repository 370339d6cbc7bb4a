"""The end of a study: compares its best configuration with the default one on test rows, with several seeds each.

The best of many trials is partly the best by chance on the validation rows. The search reads no test rows, so test rows
and further seeds show whether the difference is real.
"""

import dataclasses
import json
import pathlib
import shutil
from typing import Any

from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import NotFiniteError
from ctrpipe.common.files import write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.compare.models import compare
from ctrpipe.pipeline.compare.show import verdict
from ctrpipe.pipeline.compare.sides import BETTER
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored, write_scored
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.training.code import TRAINING
from ctrpipe.pipeline.tune.plan import TunePlan
from ctrpipe.pipeline.tune.study import Study

DEFAULT, FOUND = "default", "best"  # the unchanged configuration, and that of the best trial
FAILED = "failed"  # key: the figure that was not finite in a training run
FOLDER = "confirmation"  # with the predictions of the training runs
# By objective. On the same rows, a higher RIG is a lower log loss.
TESTED = {
    "log_loss": "rig",
    "auc": "auc",
    "gauc": "gauc",
    "auc_minus_log_loss": "auc",
    "auc_plus_gauc": "auc",
}


@dataclasses.dataclass(frozen=True)
class _Training:
    side: str
    config: RunConfig
    key: str

    def result(self, folder: pathlib.Path) -> pathlib.Path:
        return folder / f"{self.key}.json"


def confirm(plan: TunePlan, study: Study, log: TransformedLog, output: pathlib.Path) -> dict[str, Any] | None:
    """Trains the best and the default configuration with `plan.seeds` seeds each, and compares them on the test rows.

    Finished training runs are kept in the folder; an interrupted one resumes from its checkpoint. None starts after the
    time budget is spent.

    Args:
        plan: The plan of the study.
        study: The study, with a best trial.
        log: The transformed log, with its test rows.
        output: The folder of the study.

    Returns:
        `proposed` (DEFAULT, FOUND, or None if training runs are missing), `text` (the reason), `trained` and `wanted`
        (numbers of training runs), and `comparison` (the result of `compare`, or None). None if `plan.seeds` is 0 or
        no trial is complete.
    """
    if study.best is None or not plan.seeds:
        return None
    best = plan.best_config(study.best.params)
    default = plan.default_config()
    own = plan.space.own_parameters()
    refused = [
        trial.user_attrs["refused"] for trial in study.finished if trial.params == own and "refused" in trial.user_attrs
    ]
    if refused:
        text = f"the unchanged configuration cannot be used: {refused[0]}"
        return {"proposed": FOUND, "text": text, "trained": 0, "wanted": 0, "comparison": None}
    if study.best.params == own:
        text = f"the unchanged configuration is the best of {len(study.finished)} trials"
        return {"proposed": DEFAULT, "text": text, "trained": 0, "wanted": 0, "comparison": None}
    trainings = [
        _training(side, config, index, log)
        for index in range(plan.seeds)
        for side, config in ((DEFAULT, default), (FOUND, best))
    ]
    folder = output / FOLDER
    folder.mkdir(exist_ok=True)
    missing = [each for each in trainings if not each.result(folder).exists()]
    if missing and not study.is_spent:
        announce(f"The best against the default on test rows: {len(missing)} of {len(trainings)} training runs to do")
    for number, each in enumerate(missing, len(trainings) - len(missing) + 1):
        if study.is_spent:
            break
        _train(each, log, folder)
        study.note_seconds()
        text = f"[{number}/{len(trainings)}] {each.side}, seed {each.config.seed}: trained"
        announce(text, steps=(number, len(trainings)))
    done = [each for each in trainings if each.result(folder).exists()]
    counts = {"trained": len(done), "wanted": len(trainings)}
    if len(done) < len(trainings):
        text = (
            f"not known yet whether the best is better than the default: {len(done)} of {len(trainings)} training runs "
            "are done; a larger --budget continues"
        )
        return {"proposed": None, "text": text, **counts, "comparison": None}
    return {**_compared(plan, trainings, folder), **counts}


def _training(side: str, config: RunConfig, index: int, log: TransformedLog) -> _Training:
    config = config.model_copy(update={"seed": config.seed + 1 + index})  # the search has seen the first seed
    code = stage_version(*TRAINING, "ctrpipe.pipeline.sweep.measure")
    by = config.evaluation.group_weight
    key = fingerprint(log.inputs.training_fingerprint(config, config.model), by, code)
    return _Training(side, config, f"{side}-{key}")


def _train(training: _Training, log: TransformedLog, folder: pathlib.Path) -> None:
    from ctrpipe.pipeline.sweep.measure import (
        train_and_measure,  # lazy: Keras takes 4 s, and showing a study does not need it
    )

    by = training.config.evaluation.group_weight
    test = ScoredRows(log.inputs.test_rows(training.config), {}, {}, group_weight=by)
    work = folder / "work"
    try:
        result, scored = train_and_measure(training.config, log, False, test, work, training.key)
        write_scored(training.result(folder).with_suffix(".parquet"), scored)
    except NotFiniteError as error:
        result = {FAILED: error.what}
    write_json(training.result(folder), result)
    shutil.rmtree(work, ignore_errors=True)


def _compared(plan: TunePlan, trainings: list[_Training], folder: pathlib.Path) -> dict[str, Any]:
    """Returns the comparison, the verdict by the objective, and the proposal."""
    scored: dict[str, list[ScoredRows]] = {DEFAULT: [], FOUND: []}
    for each in sorted(trainings, key=lambda training: training.side):  # the best first
        if failure := json.loads(each.result(folder).read_text()).get(FAILED):
            text = f"the {each.side} configuration failed with seed {each.config.seed}: {failure}"
            return {"proposed": DEFAULT if each.side == FOUND else FOUND, "text": text, "comparison": None}
    for each in trainings:
        scored[each.side].append(read_scored(each.result(folder).with_suffix(".parquet")))
    comparison = compare(scored)
    metric = TESTED[plan.objective]
    difference = comparison["slices"][0]["differences"][FOUND][metric]
    text = verdict(f"best: {metric.upper()}", difference, DEFAULT)
    proposed = FOUND if difference["verdict"] == BETTER else DEFAULT
    return {"proposed": proposed, "text": text, "comparison": comparison}
