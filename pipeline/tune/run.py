"""`ctrpipe tune`: the loop that gets trials from the study, trains them and reports their results.

Importing Keras takes 3 s. Modules that need it are imported inside functions, after TensorFlow is loaded with its log
messages off.
"""

import dataclasses
import functools
import json
import math
import multiprocessing.connection
import pathlib
import shutil
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import optuna

from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.progress import announce
from ctrpipe.models.base.registry import source_of
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.run.inputs import run_inputs
from ctrpipe.pipeline.run.run import transform
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.sweep.plan import value_text
from ctrpipe.pipeline.sweep.summary import show
from ctrpipe.pipeline.training.code import TRAINING
from ctrpipe.pipeline.training.progress import measured
from ctrpipe.pipeline.tune import workers
from ctrpipe.pipeline.tune.plan import TunePlan
from ctrpipe.pipeline.tune.results import write_results
from ctrpipe.pipeline.tune.study import Study
from ctrpipe.pipeline.tune.summary import Summary, summarise
from ctrpipe.transforms.log.described_files import describe_files

if TYPE_CHECKING:
    from ctrpipe.pipeline.tune.trial import TrialResult


def run_tune(plan: TunePlan, files: list[str], output: pathlib.Path) -> Summary:
    """Searches until the budget is spent, and writes the results. Resumes a study that the folder contains.

    Raises:
        InputError: the data, the space or the output folder cannot be used, the folder has another study, or no trial
            has a result.
    """
    placed, paths = plan.space.base.placed(files)
    load_tensorflow()
    check_output(output)
    with one_run_at_a_time(output):
        study = Study(plan, output, identity(plan, placed, paths, output))
        try:
            log = transform(plan.space.base, files, output)
            session = Session(plan, study, dataclasses.replace(log, test=[]), output)
            session.announce_start()
            if plan.workers == 1:
                _one_after_another(session)
            else:
                _beside_each_other(session)
            if not study.is_cut:
                shutil.rmtree(session.work, ignore_errors=True)
            from ctrpipe.pipeline.tune.confirm import confirm  # lazy, see the module's docstring

            summary = summarise(plan, study, confirm(plan, study, log, output))
        finally:
            study.close()
        write_results(summary, output)
        return summary


def identity(plan: TunePlan, base: RunConfig, paths: list[str], output: pathlib.Path) -> dict[str, str]:
    """Returns hashes of everything that determines a trial's result, by the names of study.PARTS."""
    inputs = run_inputs(base, paths, describe_files(paths), output.resolve())
    space = {key: repr(values) for key, values in plan.space.values.items()}
    return {
        "log": inputs.data_fingerprint,
        "code": fingerprint(stage_version(*TRAINING, "ctrpipe.pipeline.tune.trial"), source_of(base.model.name)),
        "configuration": fingerprint(
            *(base.log_spec, base.model, base.training, base.seed, base.evaluation.group_weight), inputs.checkpoints
        ),
        "space": fingerprint(space),
        "objective": plan.objective,
        "p99_ms": str(plan.p99_ms),
    }


@dataclasses.dataclass
class RunningTrial:
    """A trial in training.

    Attributes:
        trial: Optuna's trial.
        config: Its configuration.
        work: The folder of its checkpoint.
        steps_of_epoch: Training steps per epoch.
        started: Its start time, in seconds of the monotonic clock, minus its time in earlier processes.
        best: The best value so far. None before the first.
        lags: Whether the pruner has stopped it.
    """

    trial: optuna.Trial
    config: RunConfig
    work: pathlib.Path
    steps_of_epoch: int
    started: float
    best: float | None = None
    lags: bool = False


class Session:
    """One call of `run_tune`, with the state that the sequential and the parallel loop share."""

    def __init__(self, plan: TunePlan, study: Study, log: TransformedLog, output: pathlib.Path):
        from ctrpipe.pipeline.training.data import count_rows  # lazy, see the module's docstring

        self.plan, self.study, self.log = plan, study, log
        self.work = output / "work"
        self.work.mkdir(exist_ok=True)
        self._rows = count_rows(log.train)
        # By model configuration. A second measurement must not change the decision about a trial of an earlier process.
        self._p99: dict[str, float] = {
            plan.space.config(json.loads(parameters)).model.model_dump_json(): p99
            for parameters, p99 in study.values_of("p99_ms").items()
        }

    def announce_start(self) -> None:
        budget, done = self.plan.budget, len(self.study.finished)
        limits = [f"{budget.trials} trials"] if budget.trials else []
        limits += [f"{budget.seconds:,.0f} s, {self.study.seconds:,.0f} of them spent"] if budget.seconds else []
        there = f"; {done} trials are already done" if done else ""
        again = f", {self.study.interrupted} interrupted trials resume from their checkpoints"
        announce(
            f"Tune {self.plan.name}: {len(self.plan.space.values)} keys, budget {' or '.join(limits)}{there}"
            + (again if self.study.interrupted else "")
        )

    def next(self) -> RunningTrial | None:
        """Returns the next trial to train, or None if the budget is spent."""
        while trial := self.study.ask():
            try:
                config = self.plan.space.config(trial.params)
                reason, attributes = self._refusal(config)
            except InputError as error:
                reason, attributes = str(error), {}
            if not reason:
                for key, value in attributes.items():
                    trial.set_user_attr(key, value)
                return self.begin(trial)
            self.study.refuse(trial, reason, **attributes)
            self._announce(trial, f"not trained: {reason}")
        return None

    def begin(self, trial: optuna.Trial) -> RunningTrial:
        """Returns the RunningTrial for a trial, with its configuration, checkpoint folder and time so far."""
        config = self.plan.space.config(trial.params)
        # The checkpoint's folder depends on the configuration, so an interrupted trial finds it again.
        work = self.work / self.log.inputs.training_fingerprint(config, config.model)
        steps = math.ceil(self._rows / config.training.batch_size)
        spent = trial.user_attrs.get("trial_seconds", 0.0)
        return RunningTrial(trial, config, work, steps, time.monotonic() - spent)

    def _refusal(self, config: RunConfig) -> tuple[str, dict[str, Any]]:
        """Returns the reason not to train a configuration ("" for none), and the measured attributes.

        A model that is too slow is refused before it is trained. A constraint in Optuna would need a trained trial.
        """
        from ctrpipe.pipeline.training.buildable import why_impossible  # lazy, see the module's docstring

        if reason := why_impossible(config.model, config):
            return reason, {}
        if self.plan.p99_ms is None:
            return "", {}
        from ctrpipe.pipeline.tune.latency import serving_p99  # lazy, see the module's docstring

        key = config.model.model_dump_json()
        if key not in self._p99:
            self._p99[key] = serving_p99(config, self.log, self.work)
        p99 = self._p99[key]
        slow = p99 > self.plan.p99_ms
        return f"p99 of {p99:.2f} ms is above {self.plan.p99_ms:g} ms" if slow else "", {"p99_ms": p99}

    def judge(self, running: RunningTrial, numbers: dict[str, Any]) -> bool:
        """Records an evaluation, and returns whether to stop the trial.

        If the time budget is spent, the trial stays open with its checkpoint, for a call with a larger budget. For a
        first stage, only the steps are recorded.
        """
        self.study.note_time(running.trial, time.monotonic() - running.started)
        if numbers["model"] != running.config.model.name:
            self.study.note_stage(running.trial, numbers["model"], numbers["step"])
            return False
        value = measured(self.plan.objective, numbers)
        if value is not None:
            better = min if self.plan.objective == "log_loss" else max
            running.best = value if running.best is None else better(value, running.best)
        evaluation = numbers["step"] * running.config.training.evaluations_per_epoch // running.steps_of_epoch
        # The best value so far, because the best weights are kept. An AUC that is not defined is reported as NaN.
        worth = running.best if running.best is not None else math.nan
        running.lags = self.study.report(running.trial, evaluation, worth)
        return running.lags or self.study.is_over_time

    def end(self, running: RunningTrial, result: "TrialResult") -> None:
        """Reports a trial's result to the study, unless the trial was stopped because the time budget is spent."""
        if result.stopped and not running.lags:
            return
        ended = self.study.tell(running.trial, result, time.monotonic() - running.started)
        shutil.rmtree(running.work, ignore_errors=True)
        best = self.study.best
        leader = f"; best: trial {self.study.number(best)}, {show(best.value)}" if best else ""
        result_text = "stopped" if result.stopped else show(ended.value)
        self._announce(running.trial, f"{result_text} after {result.steps:,} steps{leader}")

    def _announce(self, trial: optuna.Trial, text: str) -> None:
        settings = self.plan.space.settings(trial.params)
        numbers = " ".join(f"{key.partition('.')[2]}={_short(value)}" for key, value in settings.items())
        done, most = len(self.study.finished), self.plan.budget.trials
        announce(f"Trial {self.study.number(trial)}, {numbers}: {text}", steps=(done, most) if most else None)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else value_text(value)


def _one_after_another(session: Session) -> None:
    from ctrpipe.pipeline.tune.trial import train_trial  # lazy, see the module's docstring

    while running := session.next():
        judge = functools.partial(session.judge, running)
        session.end(running, train_trial(running.config, session.log, running.work, session.work / "stages", judge))


def _beside_each_other(session: Session) -> None:
    with workers.started(session.plan.workers, session.log, session.work) as connections:
        trained: dict[Connection, RunningTrial] = {}

        def give(connection: Connection) -> None:
            if running := session.next():
                trained[connection] = running
                workers.send(connection, running.config, running.work)

        for connection in connections:
            give(connection)
        while trained:
            ready = multiprocessing.connection.wait(list(trained))
            for connection in [each for each in trained if each in ready]:
                kind, value = workers.receive(connection)
                if kind == workers.REPORT:
                    connection.send(session.judge(trained[connection], value))
                else:
                    session.end(trained.pop(connection), value)
                    give(connection)
