"""Compiles `ctrpipe sweep` and `ctrpipe tune` to pipelines for Kubeflow, with each training run in a pod of its own."""

import json
import math
import pathlib
from collections.abc import Callable
from typing import Any

from kfp import dsl

from ctrpipe.common.code_version import code_version
from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import RunConfig, Source, load_config
from ctrpipe.pipeline.kubeflow.compile import (
    check_cluster,
    check_pipeline,
    check_steps,
    compiled,
    pipeline_name,
    set_container,
    step_component,
    with_account,
    write_package,
)
from ctrpipe.pipeline.kubeflow.nodes import graph_nodes
from ctrpipe.pipeline.kubeflow.task import (
    BRACES,
    CONFIRM_STUDY,
    MAX_ARGUMENTS,
    PLAN_STUDY,
    PLAN_SWEEP,
    PROPOSE_TRIALS,
    SUMMARISE_SWEEP,
    TRAIN_POINT,
    TRAIN_TRIAL,
    sent_bytes,
)
from ctrpipe.pipeline.sweep.plan import make_plan, read_sweep
from ctrpipe.pipeline.tune.plan import SEEDS, Budget, Objective
from ctrpipe.pipeline.tune.plan import make_plan as make_study

PARALLEL = 4  # training runs at the same time
ROUNDS = 100  # of a study: KFP 2.17 makes a workflow of 1.05 MB of so many, and Kubernetes stores 1.5
_ITEMS = "List[str]"


def compile_sweep(
    source: Source,
    settings: tuple[str, ...],
    grid: tuple[str, ...],
    output: pathlib.Path | str,
    seeds: int | None = None,
    parallel: int = PARALLEL,
) -> list[str]:
    """Writes the pipeline of a sweep: one step plans it, one pod trains each point with each seed, one step compares.

    Args:
        source: A run's configuration, or a sweep file.
        settings: Overrides for every point, such as `training.epochs=2`.
        grid: Values of a key, such as `model.top_k=2,5,10`, for a run's configuration.
        output: The file, or its URL in a store, as text.
        seeds: The number of training runs per point. None: the number in the sweep file, or 3.
        parallel: The number of training runs at the same time.

    Returns:
        The names of the steps.

    Raises:
        InputError: a point, the configuration or the file cannot be used.
    """
    plan = make_plan(source, settings, grid, seeds)
    file, config = read_sweep(source, grid)
    values = {
        "sweep": file.model_dump(mode="json"),
        "config": _values(load_config(config, settings)),
        "settings": list(settings),
        "seeds": plan.seeds,
    }
    make = _Steps(plan.base, json.dumps(values), {"table": "Markdown"})

    def steps(given: dict[str, Any]) -> None:
        planned = make.task(PLAN_SWEEP, **given)
        made = {"arguments": planned.outputs["arguments"]}
        with dsl.ParallelFor(planned.outputs["items"], name="Trainings", parallelism=parallel) as item:
            trained = make.task(TRAIN_POINT, item=item, **made)
        make.task(SUMMARISE_SWEEP, **made).after(trained)

    description = f"{len(plan.points)} points with {plan.seeds} seeds on the log {plan.base.name}; code {make.version}"
    return make.write(plan.name, description, steps, output)


def compile_study(
    source: Source,
    settings: tuple[str, ...],
    trials: int,
    output: pathlib.Path | str,
    objective: Objective | None = None,
    seeds: int = SEEDS,
    parallel: int = PARALLEL,
) -> list[str]:
    """Writes the pipeline of a study, in rounds: one step chooses the points of a round, one pod trains each of them.

    Args:
        source: A run's configuration.
        settings: Overrides for every trial.
        trials: The number of trials.
        output: The file, or its URL in a store, as text.
        objective, seeds: As in `ctrpipe.pipeline.tune.plan.make_plan`.
        parallel: The number of trials of a round. With 1, the trials are those of `ctrpipe tune`.

    Returns:
        The names of the steps.

    Raises:
        InputError: the space, the configuration or the file cannot be used.
    """
    rounds = math.ceil(trials / parallel)
    if rounds > ROUNDS:
        raise InputError(
            f"--tune {trials} --parallel {parallel}: {rounds} rounds, more than the {ROUNDS} that Kubernetes can "
            f"store; give --parallel {math.ceil(trials / ROUNDS)} or more"
        )
    plan = make_study(source, settings, Budget(trials=trials), objective, seeds=seeds)
    base = plan.space.base
    values = {
        "config": _values(load_config(source, settings)),
        "settings": list(settings),
        "trials": trials,
        "objective": objective,
        "seeds": seeds,
        "parallel": parallel,
    }
    make = _Steps(base, json.dumps(values), {"page": "HTML"})

    def steps(given: dict[str, Any]) -> None:
        last = make.task(PLAN_STUDY, **given)
        made = {"arguments": last.outputs["arguments"]}
        for number in range(1, rounds + 1):
            proposed = make.task(PROPOSE_TRIALS, **made).after(last)
            with dsl.ParallelFor(proposed.outputs["items"], name=f"Round {number}") as item:
                last = make.task(TRAIN_TRIAL, item=item, **made)
        make.task(CONFIRM_STUDY, **made).after(last)

    description = f"{trials} trials of {base.model.name} on the log {base.name}; code {make.version}"
    return make.write(f"{plan.name}-tune", description, steps, output)


def _values(config: RunConfig) -> dict[str, Any]:
    """Returns the values that a configuration sets, without defaults, as in a study's best.yaml."""
    return config.model_dump(mode="json", exclude_unset=True)


class _Steps:
    """Makes the steps of a pipeline whose pods share a folder, on a volume or in a store.

    Args:
        config: The configuration of the steps' containers.
        plan: The first step's input in addition to the pipeline's parameters, as JSON.
        shown: The type, by name, of what the last step shows in addition to metrics.
    """

    def __init__(self, config: RunConfig, plan: str, shown: dict[str, str]):
        if sent_bytes(plan) > MAX_ARGUMENTS:
            raise InputError(
                f"{config.name}: points and configuration have {sent_bytes(plan):,} bytes, at most {MAX_ARGUMENTS:,} "
                "go to a step; compile fewer points, or a grid in place of single points"
            )
        if BRACES in plan:
            raise InputError(
                f"{config.name}: a point or setting has {BRACES}, which Argo would replace; write it without"
            )
        self.version = code_version()
        self._config = config
        self._plan = plan
        last = {"metrics": "Metrics", **shown}
        arguments = {"arguments": "String"}
        self._outputs = {
            PLAN_SWEEP: {**arguments, "items": _ITEMS},
            PLAN_STUDY: arguments,
            PROPOSE_TRIALS: {"items": _ITEMS},
            SUMMARISE_SWEEP: last,
            CONFIRM_STUDY: last,
        }
        self._names: list[str] = []

    def task(self, name: str, **values: Any) -> Any:
        """Returns the task of a step. It is never cached, because its results are in the shared folder."""
        if name in (PLAN_SWEEP, PLAN_STUDY):
            values["plan"] = self._plan
        inputs = {key: _TYPES.get(key, "String") for key in values}
        made = step_component(self._config, self.version, name, inputs, self._outputs.get(name, {}))(**values)
        if name not in self._names:
            self._names.append(name)
        return set_container(self._config, made.set_display_name(name).set_caching_options(False), name, True)

    def write(
        self, name: str, description: str, steps: Callable[[dict[str, Any]], None], output: pathlib.Path | str
    ) -> list[str]:
        """Writes the pipeline, and returns the names of its steps."""
        config = self._config
        run_folder = check_cluster(config)
        check_pipeline(config)
        check_steps(config, graph_nodes(config))
        parent = run_folder.rpartition("/")[0]
        folder = f"{run_folder}/{name}" if parent.endswith(":/") else f"{parent}/{name}"  # a bucket has no parent

        def run(data: list, output: str, settings: list) -> None:  # type: ignore[type-arg]  # kfp reads them
            steps({"data": data, "output": output, "settings": settings})

        run.__doc__ = _DESCRIPTIONS
        of_split = config.data.split.files.train if config.data.split.files else []
        defaults: tuple[Any, ...] = (folder, [])
        run.__defaults__ = (config.data.paths, *defaults) if config.data.paths or of_split else defaults
        title = pipeline_name(name)
        text = compiled(lambda: dsl.pipeline(name=title, description=description)(run))
        write_package(output, with_account(config, text))
        return self._names


_TYPES = {"data": "List", "settings": "List"}  # of the inputs that are not texts
# kfp reads the parameters' descriptions, which Kubeflow's form for a run shows, from the pipeline's docstring.
_DESCRIPTIONS = """Trains many settings on one log, each training in a pod of its own.

Args:
    data: Paths of the log's files, below a mounted volume, or URLs of a store.
    output: Folder of the results, below a mounted volume, or its URL in a store. The same folder again continues.
    settings: Settings of every training as KEY=VALUE, such as training.epochs=2.
"""
