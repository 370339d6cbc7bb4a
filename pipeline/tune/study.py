"""A study in a folder: stores Optuna's trials in SQLite, chooses the next trial, and stops trials.

One process makes all calls to Optuna. With one worker, the trials are a function of the configuration, the log and the
seed, even if the process is killed and restarted: each trial gets a new sampler, seeded with the number of trials
before it, and a trial that was running goes on as the same trial.
"""

import json
import pathlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import optuna
import sqlalchemy.exc
from optuna.trial import FrozenTrial, TrialState

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.pipeline.evaluation.further import further_metrics
from ctrpipe.pipeline.training.progress import measured
from ctrpipe.pipeline.tune.plan import TunePlan

if TYPE_CHECKING:
    from ctrpipe.pipeline.tune.trial import TrialResult

STUDY = "study.sqlite"
# Trials are compared with the median of completed trials, so a few must complete first. Hyperband would need the
# sampler's first trials in each of its brackets, which is more than 50 trials.
COMPLETE_FIRST = 4
STARTUP_TRIALS = 8  # random trials before the sampler models the space
REPEATS = 1000  # repeated points in a row, after which the space counts as searched
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
PARTS = {
    "log": "log",
    "code": "code",
    "configuration": "configuration",
    "space": "search space",
    "objective": "objective",
    "p99_ms": "--p99-ms",
}


class Study:
    """The trials of a folder.

    Args:
        plan: The plan of the study.
        folder: The folder of the database.
        identity: Hashes of the study's inputs, by PARTS.

    Raises:
        InputError: the folder has a study with other inputs, or a damaged one. It is not changed.
    """

    def __init__(self, plan: TunePlan, folder: pathlib.Path, identity: Mapping[str, str]):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._plan = plan
        self._storage, self._study = _open(plan, folder / STUDY, identity)
        self._running: dict[int, optuna.Trial] = {}
        self._since = time.monotonic()
        self._spent = float(self._study.user_attrs.get("seconds", 0.0))
        self.exhausted = False
        self._left = self._left_running()
        self.interrupted = len(self._left)
        if not self._tried():
            self._study.enqueue_trial(plan.space.own_parameters())

    def _left_running(self) -> list[FrozenTrial]:
        """Returns the trials that a killed process left running. Marks those without all parameters as failed."""
        left = []
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if set(trial.params) == set(self._plan.space.distributions):
                left.append(trial)
            else:
                self._study.tell(trial.number, state=TrialState.FAIL)
        return left

    def _tried(self) -> list[FrozenTrial]:
        """Returns all trials except failed ones: repeated points, and trials that a killed process left incomplete."""
        return [trial for trial in self._study.get_trials(deepcopy=False) if trial.state != TrialState.FAIL]

    def number(self, trial: FrozenTrial | optuna.Trial) -> int:
        """Returns a trial's position among the tried ones, from 0. Optuna's number also counts repeated points."""
        return sum(each.number < trial.number for each in self._tried())

    def values_of(self, attribute: str) -> dict[str, Any]:
        """Returns a user attribute of all trials that have it, by their parameters as JSON."""
        having = [trial for trial in self._tried() if attribute in trial.user_attrs]
        return {json.dumps(trial.params, sort_keys=True): trial.user_attrs[attribute] for trial in having}

    @property
    def finished(self) -> list[FrozenTrial]:
        """All trials that have ended, including stopped and refused ones, in the order of their numbers."""
        return self._study.get_trials(deepcopy=False, states=FINISHED)

    @property
    def best(self) -> FrozenTrial | None:
        """The best completed trial, or None if there is none."""
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return self._study.best_trial if complete else None

    @property
    def optuna_study(self) -> optuna.Study:
        """Optuna's study, for its analyses."""
        return self._study

    @property
    def seconds(self) -> float:
        """The seconds of all sessions so far."""
        return self._spent + time.monotonic() - self._since

    @property
    def is_over_time(self) -> bool:
        """Whether the search's time is spent and a trial has completed. Without a completed trial there is no result.

        The search leaves time for the comparison at the end: its number of training runs times the longest completed
        trial, and at most half of the budget.
        """
        limit = self._plan.budget.seconds
        if limit is None or self.best is None:
            return False
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        longest = max(trial.user_attrs.get("trial_seconds", 0.0) for trial in complete)
        return self.seconds >= limit - min(2 * self._plan.seeds * float(longest), limit / 2)

    @property
    def is_spent(self) -> bool:
        """Whether the whole time budget is spent."""
        limit = self._plan.budget.seconds
        return limit is not None and self.seconds >= limit

    def note_seconds(self) -> None:
        """Stores the seconds so far, for later sessions."""
        self._study.set_user_attr("seconds", self.seconds)

    @property
    def is_cut(self) -> bool:
        """Whether a trial has started and not ended, for example because the time is over."""
        return bool(self._running or self._left)

    def ask(self) -> optuna.Trial | None:
        """Returns the next trial, at a new point. None if the budget is spent or no point is left."""
        finished = self.finished
        while self._left and not self.is_over_time:
            left = self._left.pop(0)
            if left.params in [trial.params for trial in finished]:
                self._study.tell(left.number, state=TrialState.FAIL)  # repeated; the process was killed before telling
                continue
            self._running[left.number] = trial = optuna.Trial(self._study, left._trial_id)
            return trial
        known = [trial.params for trial in finished] + [trial.params for trial in self._running.values()]
        most = self._plan.budget.trials
        if self.is_over_time or (most is not None and len(known) >= most):
            return None
        for repeat in range(REPEATS):
            if len(known) >= self._plan.space.points:
                break
            self._study.sampler = _sampler(self._plan.seed, len(known), repeat)
            trial = self._study.ask(dict(self._plan.space.distributions))
            if trial.params not in known:
                self._running[trial.number] = trial
                return trial
            self._study.tell(trial.number, state=TrialState.FAIL)
        self.exhausted = True
        return None

    def resume(self, number: int) -> optuna.Trial | None:
        """Returns a trial that another process has started, by Optuna's number. None if it is not running."""
        for left in [trial for trial in self._left if trial.number == number]:
            self._left.remove(left)
            self._running[number] = trial = optuna.Trial(self._study, left._trial_id)
            return trial
        return None

    @property
    def begun(self) -> list[int]:
        """Optuna's numbers of the trials that another process has started and not ended."""
        return [trial.number for trial in self._left]

    def adopt(self, trial: optuna.Trial, other: FrozenTrial) -> None:
        """Records a trial's progress from a copy of this study: its evaluations, first stages and seconds."""
        for evaluation, value in sorted(other.intermediate_values.items()):
            trial.report(value, evaluation)
        for name, value in other.user_attrs.items():
            trial.set_user_attr(name, value)
        self._spent += float(other.user_attrs.get("trial_seconds", 0.0))

    def report(self, trial: optuna.Trial, evaluation: int, value: float) -> bool:
        """Records the best value up to an evaluation, counted from 1. Returns whether the pruner stops the trial.

        An evaluation that a killed process recorded stays unchanged.
        """
        recorded = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        if evaluation not in recorded:
            trial.report(value, evaluation)
        elif evaluation < max(recorded):
            return False  # the pruner let it continue, because a later evaluation was recorded
        return trial.should_prune()

    def note_stage(self, trial: optuna.Trial, model: str, steps: int) -> None:
        """Stores the steps of a trial's first stage, because a resumed trial does not train the stage again."""
        trial.set_user_attr("stages", {**trial.user_attrs.get("stages", {}), model: steps})

    def note_time(self, trial: optuna.Trial, seconds: float) -> None:
        """Stores the seconds of a trial and of the study so far, which count even if the process is killed."""
        trial.set_user_attr("trial_seconds", seconds)
        self.note_seconds()

    def tell(self, trial: optuna.Trial, result: "TrialResult", seconds: float) -> FrozenTrial:
        """Stores the result of a trial."""
        best = result.best
        trial.set_user_attr("steps", result.steps + sum(trial.user_attrs.get("stages", {}).values()))
        trial.set_user_attr("trial_seconds", seconds)
        if best:
            for metric in ("auc", "log_loss"):
                trial.set_user_attr(metric, best[f"validation_{metric}"])
            trial.set_user_attr("examples", best["examples"])
            further = further_metrics(self._plan.space.base.data.labels)
            known = {name: best[f"validation_{name}"] for name in further if f"validation_{name}" in best}
            if known:
                trial.set_user_attr("further", known)
        elif not result.stopped:
            trial.set_user_attr("refused", result.failure)
        state = TrialState.COMPLETE if best else TrialState.PRUNED
        return self._end(trial, state, measured(self._plan.objective, best) if best else None)

    def refuse(self, trial: optuna.Trial, reason: str, **attributes: Any) -> FrozenTrial:
        """Ends a trial without training. The sampler treats it as a bad trial."""
        for key, value in {"refused": reason, "steps": 0, **attributes}.items():
            trial.set_user_attr(key, value)
        return self._end(trial, TrialState.PRUNED, None)

    def _end(self, trial: optuna.Trial, state: TrialState, value: float | None) -> FrozenTrial:
        ended = self._study.tell(trial, value, state)
        del self._running[trial.number]
        self.note_seconds()
        return ended

    def close(self) -> None:
        """Closes the database."""
        self._storage.remove_session()
        self._storage.engine.dispose()


def _sampler(seed: int, trials: int, repeat: int) -> optuna.samplers.BaseSampler:
    """Returns the sampler of a trial. If the previous attempt repeated a point, it samples at random."""
    of_trial = (seed * 1_000_003 + trials * REPEATS + repeat) % 2**32
    if repeat:
        return optuna.samplers.RandomSampler(seed=of_trial)
    return optuna.samplers.TPESampler(seed=of_trial, n_startup_trials=STARTUP_TRIALS, multivariate=True)


def _open(
    plan: TunePlan, database: pathlib.Path, identity: Mapping[str, str]
) -> tuple[optuna.storages.RDBStorage, optuna.Study]:
    url = sqlalchemy.URL.create("sqlite", database=str(database)).render_as_string()
    try:
        storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 60}})
        study = optuna.create_study(
            storage=storage,
            study_name="tune",
            direction="minimize" if plan.objective == "log_loss" else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=COMPLETE_FIRST),
            load_if_exists=True,
        )
        kept = study.user_attrs.get("identity")
    except (sqlalchemy.exc.DatabaseError, optuna.exceptions.OptunaError, RuntimeError) as error:
        reason = one_line(getattr(error, "orig", None) or error, 200)
        raise InputError(f"{database}: not a study of this version ({reason}); choose another --output") from error
    if kept is None:
        study.set_user_attr("identity", dict(identity))
    elif different := [title for part, title in PARTS.items() if kept.get(part) != identity[part]]:
        raise InputError(
            f"{database.parent}: holds a study of another {', '.join(different)}; choose another --output, or tune as "
            "before"
        )
    return storage, study
