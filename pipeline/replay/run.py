"""Trains and scores day by day: progressive validation.

A model trained on rows up to a day predicts the rows of the next day, which no training run has seen by then.

References:
    Blum, Kalai and Langford, "Beating the Hold-Out", 1999.
    McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013, section 5.1.
"""

import dataclasses
import json
import os
import pathlib
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Literal, get_args

import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.files import write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.metrics import summarise, summarise_numbers
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.processes import python_command, start_command, stop_command
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.compare.scoring import read_scoring
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.evaluation.further import further_metrics
from ctrpipe.pipeline.replay.days import Day
from ctrpipe.pipeline.run.inputs import LATEST
from ctrpipe.pipeline.run.trained_model import find_model
from ctrpipe.transforms.log.described_files import describe_files

Policy = Literal["retrain", "warm", "frozen"]
RUNS = "runs"  # in the folder of a seed: its training runs
POLICIES: tuple[Policy, ...] = get_args(Policy)
MEASURED = ("auc", "log_loss", "calibration")
_PROGRAM = (
    "from ctrpipe.common.processes import end_with_parent; end_with_parent({}); "
    "from ctrpipe.pipeline.cli import main; main()"
)
_STOP_SECONDS = 10.0  # for an interrupted training run to end by itself
_MADE_FROM, _COST = "made_from.json", "cost.json"


@dataclasses.dataclass(frozen=True)
class ReplayPlan:
    """The plan of a replay.

    Attributes:
        config: The configuration of every training run.
        days: The log's days, in order.
        window: Number of days that the first training run reads, and every training run of `retrain`.
        policies: `retrain`: trains on the last `window` days, from random weights. `warm`: trains only on the last
            day, starting from the previous day's model. `frozen`: never trains after the first time.
        warm_settings: Overrides of the configuration for training with `warm`, such as `training.epochs=1`.
        seeds: Number of times to run the replay, with the configuration's seed and the following seeds.
    """

    config: RunConfig
    days: tuple[Day, ...]
    window: int
    policies: tuple[Policy, ...]
    warm_settings: tuple[str, ...] = ()
    seeds: int = 1

    def __post_init__(self) -> None:
        made = {
            "data.impressions": ("impressions", self.config.data.impressions),
            "data.join": ("join", self.config.data.join),
            "events": ("history", self.config.events),
            "data.label_delay": ("labels", self.config.data.label_delay),
        }
        for key, (command, section) in made.items():
            if section is None:
                continue
            raise InputError(
                f"{key}: a replay reads each day's log unprepared; prepare the days with `ctrpipe prepare "
                f"{command}`, and leave {key} out"
            )
        if len(self.days) <= self.window:
            raise InputError(
                f"--window {self.window}: {len(self.days)} days leave none to score; give more days or a smaller window"
            )

    def contents(self) -> dict[str, str]:
        """Reads the log once, and returns the SHA-256 of each file by its path."""
        files = describe_files([file for day in self.days for file in day.files])
        return {file["path"]: file["sha256"] for file in files}

    def identity(self, contents: dict[str, str]) -> str:
        """Returns a hash of everything that determines a seed's results, except for the policies.

        Args:
            contents: The result of `contents`, which is the same for all seeds.
        """
        return fingerprint(self.config, list(contents.items()), self.window, list(self.warm_settings))


def policies_of(names: Sequence[str]) -> tuple[Policy, ...]:
    """Returns the policies with these names, in the same order.

    Raises:
        InputError: a name is not a policy, or comes twice.
    """
    policies = tuple(known for name in names for known in POLICIES if known == name)
    if len(policies) < len(names) or len(set(names)) < len(names):
        text = ",".join(names)
        raise InputError(f"--policy {text}: expected some of {', '.join(POLICIES)}, each once, separated by commas")
    return policies


def run_replay(plan: ReplayPlan, output: pathlib.Path) -> list[dict[str, Any]]:
    """Returns a result for each seed, policy and day, including stored ones: the day's metrics and the training cost.

    A result has `seed`, `policy`, `day` (the scored day), `trained_to`, `rows`, AUC, log loss and calibration of the
    first task, the metrics of the other tasks (see `further_metrics`), and `cpu_seconds` and `seconds` of the training
    run. The first training run is the same for all policies. Each seed has its own folder, so further seeds can be
    added later.

    Raises:
        InputError: the folder holds another replay, or training or scoring ended with a user's mistake.
    """
    check_output(output)
    with one_run_at_a_time(output):
        results, contents = [], plan.contents()
        for seed in range(plan.config.seed, plan.config.seed + plan.seeds):
            of_seed = dataclasses.replace(plan, config=plan.config.model_copy(update={"seed": seed}))
            folder = output / f"seed={seed}"
            folder.mkdir(exist_ok=True)
            _check_folder(of_seed, contents, folder)
            for last in range(plan.window - 1, len(plan.days) - 1):
                of_policies = [_result(of_seed, policy, last, folder) for policy in plan.policies]
                results += [{"seed": seed, **result} for result in of_policies]
        return results


def _check_folder(plan: ReplayPlan, contents: dict[str, str], output: pathlib.Path) -> None:
    """Writes the folder's identity and the training configuration, or compares the identity with the stored one."""
    path, identity = output / _MADE_FROM, plan.identity(contents)
    if path.exists():
        if json.loads(path.read_text()) != identity:
            raise InputError(
                f"{output}: holds another replay, of another configuration, window or log; choose another --output"
            )
        return
    start = plan.config.training.warm_start  # keeps its settings; a new folder has no model for `latest`
    training = plan.config.training.model_copy(
        update={"warm_start": start and start.model_copy(update={"parent": LATEST})}
    )
    evaluation = plan.config.evaluation.model_copy(update={"baseline": None, "seeds": 1})
    settings = plan.config.model_copy(update={"training": training, "evaluation": evaluation}).model_dump(mode="json")
    (output / "config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    write_json(path, identity)


def _result(plan: ReplayPlan, policy: Policy, last: int, output: pathlib.Path) -> dict[str, Any]:
    """Returns the result of a policy's model, trained up to the day `last`, on the next day. Reuses a stored result."""
    day = plan.days[last + 1]
    path = output / "results" / policy / f"{day.name}.json"
    if path.exists():
        result: dict[str, Any] = json.loads(path.read_text())
        return result
    run, cost = _train(plan, policy, last, output)
    metrics = _score(plan, run, day, output)
    result = {"policy": policy, "day": day.name, "trained_to": plan.days[last].name, **metrics, **cost}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result)
    auc = "-" if metrics["auc"] is None else f"{metrics['auc']:.4f}"
    announce(f"{output.name}, {policy}, {day.name}: AUC {auc}, {cost['cpu_seconds']:.0f} CPU seconds")
    return result


def _train(plan: ReplayPlan, policy: Policy, last: int, output: pathlib.Path) -> tuple[pathlib.Path, dict[str, float]]:
    """Returns the run folder and the cost of a policy's model of the day `last`. Trains the model if needed."""
    first = plan.window - 1
    if policy == "frozen" and last > first:
        return _folder(plan, policy, first, output), {"cpu_seconds": 0.0, "seconds": 0.0}
    folder = _folder(plan, policy, last, output)
    is_warm = policy == "warm" and last > first
    days = plan.days[last if is_warm else last - first : last + 1]
    if not (folder / _COST).exists():
        # An interrupted training run starts again, because a resumed run would report only the rest of its cost.
        shutil.rmtree(folder, ignore_errors=True)
        arguments = ["run", str(output / "config.yaml"), "--output", str(folder)]
        arguments += [argument for day in days for file in day.files for argument in ("--data", file)]
        if is_warm:
            arguments += ["--warm-start", str(_folder(plan, policy, last - 1, output))]
            arguments += [argument for setting in plan.warm_settings for argument in ("--set", setting)]
        write_json(folder / _COST, _call(arguments, folder))
    cost: dict[str, float] = json.loads((folder / _COST).read_text())
    return folder, cost


def _folder(plan: ReplayPlan, policy: Policy, last: int, output: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the run that trains a policy's model of the day `last`."""
    return output / RUNS / ("first" if last < plan.window else policy) / plan.days[last].name


def _score(plan: ReplayPlan, run: pathlib.Path, day: Day, output: pathlib.Path) -> dict[str, Any]:
    """Returns the number of rows and the metrics of a run's model on a day."""
    folder = output / "scores" / f"{run.parent.name}-{run.name}" / day.name
    if not (folder / "_summary.json").exists():
        model = find_model(run).version
        inputs = [argument for file in day.files for argument in ("--input", file)]
        _call(["score", "--model", str(model), "--output", str(folder), *inputs], folder.parent)
    scored = read_scoring(folder, plan.config)
    by_task = {
        task: (summarise_numbers if task in scored.numbers else summarise)(
            labels, scored.probabilities[task], scored.weights
        )
        for task, labels in scored.labels.items()
    }
    first = next(iter(by_task))
    further = {
        name: by_task[task][metric]
        for name, (task, metric, _) in further_metrics(by_task).items()
        if metric in by_task[task]
    }
    return {"rows": len(scored.labels[first]), **{name: by_task[first][name] for name in MEASURED}, **further}


def _call(arguments: Sequence[str], folder: pathlib.Path) -> dict[str, float]:
    """Runs a command of ctrpipe in its own process, and returns its CPU seconds (with child processes) and seconds.

    Raises:
        InputError: the command failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before, started = _cpu_seconds(), time.monotonic()
    command = python_command(_PROGRAM.format(os.getpid()), *arguments)
    process = start_command(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = process.communicate()
    finally:
        stop_command(process, _STOP_SECONDS)
    (folder / "output.txt").write_text(said)
    if process.returncode not in (0, BLOCKED):  # a replay uses the model even if a gate blocks it
        mistakes = [line for line in said.splitlines() if line.startswith("ctrpipe: ")]
        why = mistakes[-1].removeprefix("ctrpipe: ") if mistakes else f"see {folder / 'output.txt'}"
        raise InputError(f"ctrpipe {arguments[0]} in {folder}: {why}")
    return {"cpu_seconds": round(_cpu_seconds() - before, 2), "seconds": round(time.monotonic() - started, 2)}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
