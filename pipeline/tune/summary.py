"""The summary of a study: its trials, its best configuration, and the importance of each key."""

import dataclasses
from typing import Any

import optuna
import yaml
from optuna.trial import FrozenTrial, TrialState

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.evaluation.further import further_titles
from ctrpipe.pipeline.sweep.plan import value_text
from ctrpipe.pipeline.tune.plan import TunePlan
from ctrpipe.pipeline.tune.study import Study

LEAST_FOR_IMPORTANCE = 4  # minimum of completed trials


@dataclasses.dataclass(frozen=True)
class Summary:
    """The summary of a study.

    Attributes:
        best: The best configuration, as YAML for `ctrpipe run`.
        proposed: The proposed configuration as YAML: the best one if it is significantly better, otherwise the default.
            None if nothing is proposed.
        report: The contents of tune.json.
    """

    best: str
    proposed: str | None
    report: dict[str, Any]


def summarise(plan: TunePlan, study: Study, confirmation: dict[str, Any] | None = None) -> Summary:
    """Returns the summary of a study.

    Args:
        plan: The plan of the study.
        study: The study.
        confirmation: The result of `confirm`.

    Raises:
        InputError: no trial has a result.
    """
    best, finished = study.best, study.finished
    if best is None:
        raise InputError(f"no trial has a result: {_why_none(finished)}")
    trials = [_trial(plan, trial, study.number(trial)) for trial in finished]
    report = {
        "name": plan.name,
        "model": plan.space.base.model.name,
        "objective": f"validation_{plan.objective}",
        "p99_limit_ms": plan.p99_ms,
        "seed": plan.seed,
        "seconds": study.seconds,
        "steps": sum(trial["steps"] for trial in trials),
        "exhausted": study.exhausted,
        "space": _space(plan),
        "best": next(trial for trial in trials if trial["number"] == study.number(best)),
        "confirmation": confirmation,
        "importance": importance(study),
        "further": further_titles(trial["further"] for trial in trials),
        "trials": trials,
    }
    head = f"The best of {len(trials)} trials by validation {plan.objective.replace('_', ' ')}, {best.value:.6f}."
    best_config = plan.best_config(best.params)
    proposed = None
    if confirmation and confirmation["proposed"]:
        config = best_config if confirmation["proposed"] == "best" else plan.default_config()
        proposed = _as_yaml(config, f"Proposed: the {confirmation['proposed']} configuration. {confirmation['text']}.")
    return Summary(_as_yaml(best_config, head), proposed, report)


def _as_yaml(config: RunConfig, head: str) -> str:
    settings = config.model_dump(mode="json", exclude_unset=True, exclude={"search"})
    return f"# {head}\n{yaml.safe_dump(settings, sort_keys=False)}"


def _why_none(finished: list[FrozenTrial]) -> str:
    reasons = [trial.user_attrs["refused"] for trial in finished if "refused" in trial.user_attrs]
    if not reasons:
        return "the budget is too small; give a larger one, and the same study continues"
    measured = [trial.user_attrs["p99_ms"] for trial in finished if "p99_ms" in trial.user_attrs]
    fastest = f", the fastest {min(measured):.2f} ms" if measured else ""
    return f"{len(reasons)} were refused, the last as {reasons[-1]}{fastest}; change the search space or the limit"


def _space(plan: TunePlan) -> dict[str, Any]:
    return {
        key: values if isinstance(values, list) else values.model_dump(exclude_none=True)
        for key, values in plan.space.values.items()
    }


def _trial(plan: TunePlan, trial: FrozenTrial, number: int) -> dict[str, Any]:
    attributes = trial.user_attrs
    refused = attributes.get("refused")
    complete = trial.state == TrialState.COMPLETE
    return {
        "number": number,
        "state": "complete" if complete else "refused" if refused else "stopped",
        "settings": plan.space.settings(trial.params),
        "value": trial.value if complete else None,
        "auc": attributes.get("auc"),
        "log_loss": attributes.get("log_loss"),
        "further": attributes.get("further", {}),
        "p99_ms": attributes.get("p99_ms"),
        "steps": attributes.get("steps", 0),
        "seconds": attributes.get("trial_seconds", 0.0),
        "refused": refused,
        "curve": [[step, value] for step, value in sorted(trial.intermediate_values.items())],
    }


def importance(study: Study) -> dict[str, float] | None:
    """Returns each key's share of the variance of the completed trials' values, by fANOVA (Hutter 2014).

    None if too few trials are complete, or all values are equal. Optuna's other method, PED-ANOVA, is not used. It
    compares densities of few trials, in which the points of a range form spikes that hide the keys with lists.
    """
    complete = study.optuna_study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(complete) < LEAST_FOR_IMPORTANCE or len({trial.value for trial in complete}) < 2:
        return None
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    shares = optuna.importance.get_param_importances(study.optuna_study, evaluator=evaluator)
    return {key: float(share) for key, share in shares.items()}


def best_first(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the completed trials of tune.json, the best first."""
    complete = [trial for trial in report["trials"] if trial["state"] == "complete"]
    return sorted(complete, key=lambda trial: trial["value"], reverse=report["objective"] != "validation_log_loss")


def setting_text(value: object) -> str:
    """Formats a setting's value for tables."""
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)
