"""The plan of a study: a configuration, a search space, a budget and an objective."""

import dataclasses
import math
import re
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.monitors import BY_GROUP, Monitor
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import RunConfig, Source, load_config, path_of
from ctrpipe.pipeline.tune.space import Space, make_space

Objective = Monitor
SEEDS = 3  # training runs of each side in the comparison at the end
LEAST_EVALUATIONS = 8  # per training run, because a lagging trial can only be stopped after an evaluation
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


@dataclasses.dataclass(frozen=True)
class Budget:
    """The budget of a study. The study ends at the first limit it reaches.

    Attributes:
        trials: Maximum number of trials. None for no limit.
        seconds: Maximum seconds of trials and of the comparison at the end, including earlier calls. None for no limit.
    """

    trials: int | None = None
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class TunePlan:
    """A study without its data.

    Attributes:
        name: The configuration's name.
        space: The search space, and the configuration that trials modify.
        seed: Seed of the search. The seed of training is the configuration's.
        refit: Whether the configuration refits. Trials never do.
        objective: The validation metric to optimize.
        budget: When the study ends.
        workers: Number of parallel trials, each in its own process. 1: sequential trials in this process.
        p99_ms: Maximum p99 latency of serving one row, in milliseconds. None for no limit.
        seeds: Number of training runs of the best and of the default configuration, which are compared on the test
            rows at the end. 0 for no comparison.
    """

    name: str
    space: Space
    seed: int
    refit: bool
    objective: Objective
    budget: Budget
    workers: int = 1
    p99_ms: float | None = None
    seeds: int = SEEDS

    def best_config(self, parameters: dict[str, Any]) -> RunConfig:
        """Returns the configuration of a trial's parameters, for `ctrpipe run`."""
        return self._as_run(self.space.config(parameters))

    def default_config(self) -> RunConfig:
        """Returns the unchanged configuration, for `ctrpipe run`."""
        return self._as_run(self.space.base)

    def _as_run(self, config: RunConfig) -> RunConfig:
        return config.model_copy(update={"training": config.training.model_copy(update={"refit": self.refit})})


def read_budget(budget: str | None, trials: str | None) -> Budget:
    """Parses the options --budget (`2h`, `90m` or `1h30m`) and --trials.

    Raises:
        InputError: an option cannot be parsed, or neither is given.
    """
    if budget is None and trials is None:
        raise InputError("give a budget: --trials 50, or --budget 2h")
    return Budget(_trials(trials), _seconds(budget))


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    match = _TIME.fullmatch(text.strip())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < math.inf:
        raise InputError(f"--budget {text}: expected a time above 0, such as 2h, 90m, 1h30m or 45s")
    return total


def _trials(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise InputError(f"--trials {text}: expected a whole number above 0, such as 50")
    return int(text)


def make_plan(
    source: Source,
    settings: tuple[str, ...] = (),
    budget: Budget = Budget(trials=50),  # noqa: B008 it is frozen
    objective: Objective | None = None,
    workers: int = 1,
    p99_ms: float | None = None,
    seeds: int = SEEDS,
) -> TunePlan:
    """Plans a study of a run's configuration, with its `search` or the model's default space.

    Trials monitor the objective, do not refit, and are evaluated at least LEAST_EVALUATIONS times.

    Args:
        source: The configuration, as in `load_config`.
        settings: Overrides such as `training.epochs=2`.
        budget: When the study ends.
        objective: The validation metric to optimize. None: `training.monitor`.
        workers: Number of parallel trials.
        p99_ms: Maximum p99 latency of serving one row, in milliseconds.
        seeds: Number of training runs of each side in the comparison at the end; 0 for no comparison.

    Raises:
        InputError: the file, the space or an option cannot be used.
    """
    if p99_ms is not None and workers > 1:
        raise InputError("--p99-ms: parallel trials would disturb the measurement; give --workers 1")
    if seeds == 1:
        raise InputError(
            "--seeds 1: one training run says nothing about other seeds; give 2 or more, or 0 for no comparison"
        )
    config = load_config(source, settings)
    fixed = [setting.partition("=")[0] for setting in settings]
    if both := [key for key in fixed if key in (config.search or {})]:
        raise InputError(f"--set {both[0]}: the study searches it; leave one of the two out")
    objective = objective or config.training.monitor
    if objective in BY_GROUP and config.evaluation.group is None:
        raise InputError(f"--objective {objective} needs evaluation.group, the column of the users or lists")
    space = make_space(config, path_of(source))
    refit = config.training.refit
    training = config.training.model_copy(update={"monitor": objective, "refit": False})
    base = space.base.model_copy(update={"training": training})
    space = dataclasses.replace(space, base=_evaluated_often(base, space))
    return TunePlan(config.name, space, config.seed, refit, objective, budget, workers, p99_ms, seeds)


def _evaluated_often(config: RunConfig, space: Space) -> RunConfig:
    """Returns the configuration with at least LEAST_EVALUATIONS evaluations.

    Settings that count evaluations, such as patience, are multiplied by the same factor.
    """
    training = config.training
    epochs = getattr(space.distributions.get("training.epochs"), "low", training.epochs)
    if isinstance(listed := space.values.get("training.epochs"), list):
        epochs = min(listed)
    times = math.ceil(LEAST_EVALUATIONS / (epochs * training.evaluations_per_epoch))
    if times == 1:
        return config
    changes: dict[str, Any] = {"evaluations_per_epoch": training.evaluations_per_epoch * times}
    if "training.patience" not in space.values:
        changes["patience"] = training.patience * times
    if training.plateau:
        changes["plateau"] = training.plateau.model_copy(update={"patience": training.plateau.patience * times})
    if training.averaged_evaluations > 1 and "training.averaged_evaluations" not in space.values:
        changes["averaged_evaluations"] = training.averaged_evaluations * times
    every = changes["evaluations_per_epoch"]
    announce(f"Trials are evaluated {every} times per epoch, so that a lagging trial can be stopped early")
    return config.model_copy(update={"training": training.model_copy(update=changes)})
