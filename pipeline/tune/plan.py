"""What a study does: a configuration, a search space, a budget and an objective."""

import dataclasses
import math
import re
from typing import Any, Literal

from ctrpipe.common.errors import InputError
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import RunConfig, Source, load_config, path_of
from ctrpipe.pipeline.tune.space import Space, make_space

Objective = Literal["log_loss", "auc"]
LEAST_EVALUATIONS = 8  # of a training, so that one can be stopped before it has cost much
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


@dataclasses.dataclass(frozen=True)
class Budget:
    """When a study ends: at the first of its limits.

    Attributes:
        trials: Trials; None without a limit.
        seconds: Seconds of trials, those of earlier calls included; None without a limit.
    """

    trials: int | None = None
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """A study without its data.

    Attributes:
        name: The configuration's name.
        space: The search space, and the configuration that trials change.
        seed: Seed of the search. That of the trainings is the configuration's.
        refit: Whether the configuration refits, which trials do not.
        objective: The validation metric that is best.
        budget: When the study ends.
        workers: Trials at the same time, each in a process of its own; 1: one after another, in this process.
        p99_ms: The 99th percentile, in milliseconds, that one row may take to be served; None without a limit.
    """

    name: str
    space: Space
    seed: int
    refit: bool
    objective: Objective
    budget: Budget
    workers: int = 1
    p99_ms: float | None = None

    def best_config(self, parameters: dict[str, Any]) -> RunConfig:
        """Returns the configuration that a trial's parameters make, for `ctrpipe run`."""
        config = self.space.config(parameters)
        return config.model_copy(update={"training": config.training.model_copy(update={"refit": self.refit})})


def read_budget(budget: str | None, trials: str | None) -> Budget:
    """Reads the options --budget, as `2h`, `90m` or `1h30m`, and --trials.

    Raises:
        InputError: one is no such text, or neither is given.
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
        raise InputError(f"--budget {text}: expected a time above 0, as 2h, 90m, 1h30m or 45s")
    return total


def _trials(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise InputError(f"--trials {text}: expected a whole number above 0, as 50")
    return int(text)


def make_plan(
    source: Source,
    settings: tuple[str, ...] = (),
    budget: Budget = Budget(trials=50),  # noqa: B008 it is frozen
    objective: Objective | None = None,
    workers: int = 1,
    p99_ms: float | None = None,
) -> Plan:
    """Reads a run's configuration, with its `search` or the model's own space, for a study.

    Trials monitor the objective, do not refit, and are evaluated LEAST_EVALUATIONS times or more.

    Args:
        source: The configuration, as `load_config` takes it.
        settings: Overrides as `training.epochs=2`.
        budget: When the study ends.
        objective: The validation metric; None takes `training.monitor`.
        workers: Trials at the same time.
        p99_ms: The limit on serving one row, in milliseconds.

    Raises:
        InputError: the file, the space or an option cannot be used.
    """
    if p99_ms is not None and workers > 1:
        raise InputError("--p99-ms: trials beside would disturb what is measured; give --workers 1")
    config = load_config(source, settings)
    fixed = [setting.partition("=")[0] for setting in settings]
    if both := [key for key in fixed if key in (config.search or {})]:
        raise InputError(f"--set {both[0]}: the study searches it; leave one of the two out")
    objective = objective or config.training.monitor
    space = make_space(config, path_of(source))
    refit = config.training.refit
    training = config.training.model_copy(update={"monitor": objective, "refit": False})
    base = space.base.model_copy(update={"training": training})
    space = dataclasses.replace(space, base=_evaluated_often(base, space))
    return Plan(config.name, space, config.seed, refit, objective, budget, workers, p99_ms)


def _evaluated_often(config: RunConfig, space: Space) -> RunConfig:
    """Returns the configuration with LEAST_EVALUATIONS or more; what counts evaluations counts as many more of them."""
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
    announce(f"Trials are evaluated {every} times an epoch, so that one that lags behind can be stopped")
    return config.model_copy(update={"training": training.model_copy(update=changes)})
