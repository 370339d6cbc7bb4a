"""The steps of a run, from the answers of Kubeflow Pipelines' API.

The API lists every node of Argo's workflow as a task: for the step Trainer the nodes `trainer-driver` (Kubeflow's own
container, which looks into the cache), `trainer`, and below that `executor`, the step's container. If Argo may retry a
node, as Kubeflow 2.17 configures it, each attempt is a further node: `trainer(0)`, `executor(0)`, `executor(1)`. A task
lists the ids of its children, but not of its own node. Argo computes an id from the node's full name; this module does
the same, to find the `executor` node of a step. A group of steps has the nodes `data-driver` and `data`, and the names
of its steps' nodes begin with the name of `data`.
"""

import dataclasses
import datetime
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfp_server_api import V2beta1PipelineTaskDetail as Task
    from kfp_server_api import V2beta1Run

ENDED = ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED")
UNSETTLED = ("PENDING", "RUNNING", "CANCELING", "PAUSED")
ROOT_DRIVER = "root-driver"  # Kubeflow's container that starts the run
_ATTEMPTS = range(9, -1, -1)  # of a node, that are looked for
_ATTEMPT = re.compile(r"\(\d+\)$")


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a run.

    Args:
        name: The step's name, as in kubeflow.resources.
        state: Kubeflow's state, such as RUNNING. UNKNOWN if Kubeflow says none: the step has not run.
        seconds: The duration. None if the step has not ended, or if Kubeflow does not say it.
        cached: Whether the outputs come from an earlier run.
        attempts: How often the step's container was started, as far as is known.
        nodes: Ids of the nodes that may have the log of the step's last attempt, the likeliest first.
        driver: Whether the step's driver has failed, so that the step itself did not start.
        container: The step's name in kubeflow.resources. Of a loop, the name of the step that it repeats.
        done: Of a loop, how many of its steps have succeeded.
    """

    name: str
    state: str
    seconds: float | None = None
    cached: bool = False
    attempts: int = 1
    nodes: tuple[str, ...] = ()
    driver: bool = False
    container: str = ""
    done: int = 0

    def __str__(self) -> str:
        if self.cached:
            return f"{self.name}: {self.state.lower()}, from cache"
        taken = ""
        if self.seconds is not None:
            taken = f" {'in' if self.state == 'SUCCEEDED' else 'after'} {self.seconds:.0f} s"
        attempt = f", attempt {self.attempts}" if self.attempts > 1 else ""
        return f"{self.name}: {self.state.lower()}{taken}{attempt}{', in its driver' if self.driver else ''}"


@dataclasses.dataclass(frozen=True)
class StepGroup:
    """A group of steps, which is a pipeline within the pipeline.

    Args:
        name: The name that Kubeflow's pages show.
        steps: The steps' names by the names of their tasks.
    """

    name: str
    steps: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A task that has not started.

    Args:
        name: The name of its step or group, or several names if its step is not known.
        nodes: Ids of its nodes.
        container: The step's name in kubeflow.resources. Empty for a driver, and if the step is not known.
    """

    name: str
    nodes: tuple[str, ...]
    container: str = ""


def node_id(workflow: str, name: str) -> str:
    """Returns the id that Argo gives to the node `name` of a workflow: FNV-1a of 32 bits, as a decimal number."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{workflow}-{value}"


class RunSteps:
    """The tasks of a run at one time."""

    def __init__(
        self,
        run: "V2beta1Run",
        names: dict[str, str],
        loops: Mapping[str, dict[str, str]] | None = None,
        groups: Mapping[str, StepGroup] | None = None,
    ):
        """Reads the tasks.

        Args:
            run: The API's answer.
            names: The steps' names by the names of their tasks, in the pipeline's order. Empty if they are not known:
                every task that is no node of Kubeflow's own is then a step.
            loops: By the name of a loop's task, the names of its steps by the names of their tasks.
            groups: The groups by the names of their tasks. Their steps are in `names` too.
        """
        details = (run.run_details and run.run_details.task_details) or []
        # Tasks without a name are Kubeflow's entries for its cache.
        self._tasks = [task for task in details if task.display_name]
        self._names = names
        self._loops = loops or {}
        self._groups = groups or {}
        self._group_of = {key: task for task, group in self._groups.items() for key in group.steps}
        shown = {key.lower(): name for key, name in names.items()}
        self._shown = shown | {name.lower(): name for name in names.values()}
        self._children = {task.task_id: _children(task) for task in self._tasks}
        self._workflow = next((ids[0].rpartition("-")[0] for ids in self._children.values() if ids), "")
        self._executors = [task for task in self._tasks if task.display_name == "executor"]
        self._by_name = {task.display_name: task for task in self._tasks}

    def steps(self) -> list[Step]:
        """Returns the steps that Kubeflow knows of, in the pipeline's order."""
        steps = {}
        for task in self._tasks:
            if name := self._step_name(task):
                steps[name] = self._step(task, name)
        root = self._by_name.get(ROOT_DRIVER)
        if root and root.state == "FAILED":
            steps[ROOT_DRIVER] = Step(ROOT_DRIVER, "FAILED", _seconds(root), nodes=self._pods(root, ROOT_DRIVER))
        for key, group in self._groups.items():
            if driver := self._failed_driver(key):
                steps[group.name] = self._not_started(group.name, driver, "root")
        order = {name: place for place, name in enumerate(self._names.values())}
        return sorted(steps.values(), key=lambda step: order.get(step.name, len(order)))

    def is_settled(self) -> bool:
        """Returns whether no task is running or pending."""
        return not any(task.state in UNSETTLED for task in self._tasks)

    def pending(self) -> dict[str, Waiting]:
        """Returns the tasks that have not started, by id."""
        return {task.task_id: self._waiting(task) for task in self._tasks if task.state == "PENDING"}

    def _step_name(self, task: "Task") -> str | None:
        """Returns the name of the step whose node a task is; None for Kubeflow's own nodes."""
        display = task.display_name
        if self._names:
            return self._shown.get(display.lower())
        own = display in ("root", "executor", self._workflow) or display.endswith("-driver") or _ATTEMPT.search(display)
        return None if own else str(display)

    def _step(self, task: "Task", name: str) -> Step:
        if driver := self._failed_driver(task.display_name):
            return self._not_started(name, driver, *self._above(task.display_name))
        executor = self._executor(task)
        state = task.state or "UNKNOWN"
        nodes = tuple(reversed(self._children[executor.task_id])) if executor else self._likely_pods(task)
        attempts = len(self._children[executor.task_id]) if executor else 1
        cached = state == "SUCCEEDED" and not executor and self._is_cached(task)
        repeated = self._loops.get(task.display_name, {})
        done = sum(other.display_name in repeated and other.state == "SUCCEEDED" for other in self._tasks)
        seconds = _seconds(task) if state in ENDED else None
        container = next(iter(repeated.values()), name)
        return Step(name, state, seconds, cached, attempts, nodes, container=container, done=done)

    def _failed_driver(self, key: str) -> "Task | None":
        """Returns the task of the driver of a step or group, if it has failed, or None."""
        driver = self._by_name.get(f"{key}-driver")
        return driver if driver is not None and driver.state == "FAILED" else None

    def _not_started(self, name: str, driver: "Task", *above: str) -> Step:
        """Returns a step or group whose driver has failed. `above` are the displayed names of the nodes above."""
        nodes = self._pods(driver, *above, driver.display_name)
        return Step(name, "FAILED", _seconds(driver), nodes=nodes, driver=True, container=name)

    def _above(self, key: str) -> tuple[str, ...]:
        """Returns the displayed names of the nodes above a step's node."""
        group = self._group_of.get(key)
        return ("root", group) if group else ("root",)

    def _executor(self, task: "Task") -> "Task | None":
        """Returns the node `executor` of a step with a node per attempt, or None."""
        parents = {child: executor for executor in self._executors for child in self._children[executor.task_id]}
        key = task.display_name
        for name in _node_names(self._workflow, *self._above(key), key, "executor"):
            if executor := parents.get(node_id(self._workflow, name)):
                return executor
        return None

    def _is_cached(self, task: "Task") -> bool:
        """Returns whether Argo has skipped the executor of a step that succeeded.

        Skipped nodes have no children that tell whose they are. For a cached step, its own node, which ends with its
        executor, starts and ends in the same second.
        """
        return task.end_time == task.start_time and any(
            executor.state == "SKIPPED" and executor.start_time == task.start_time for executor in self._executors
        )

    def _pods(self, task: "Task", *path: str) -> tuple[str, ...]:
        """Returns the nodes that may be the container of a driver: its attempts, or itself."""
        return (*reversed(self._children[task.task_id]), *self._known_ids(*path))

    def _likely_pods(self, task: "Task") -> tuple[str, ...]:
        """Returns the nodes that may be the container of a step whose executor's attempts are not known."""
        ids = list(self._known_ids(*self._above(task.display_name), task.display_name, "executor"))
        if task.state == "FAILED":
            failed = [executor for executor in self._executors if executor.state == "FAILED" and executor.start_time]
            failed.sort(key=lambda executor: abs(_since(executor, task)))
            ids += [child for executor in failed for child in reversed(self._children[executor.task_id])]
        own = [task.pod_name] if task.pod_name else []
        return tuple(dict.fromkeys([*ids, *own, *self._children[task.task_id]]))

    def _known_ids(self, *path: str) -> Iterator[str]:
        """Yields the ids of a path's possible nodes that some task has as its child."""
        known = {child for children in self._children.values() for child in children}
        for name in _node_names(self._workflow, *path):
            if (identity := node_id(self._workflow, name)) in known:
                yield identity

    def _waiting(self, task: "Task") -> Waiting:
        display = _ATTEMPT.sub("", task.display_name)
        if display != "executor":
            key, children = display.lower(), self._children[task.task_id]
            if name := self._shown.get(key):
                return Waiting(name, children, name)
            key = key.removesuffix("-driver")
            group = self._groups.get(key)
            return Waiting(group.name if group else self._shown.get(key, display), children)
        steps: list[str] = []
        nodes: list[str] = []
        for other in self._tasks:
            executor = self._executor(other) if self._step_name(other) and other.state not in ENDED else None
            if executor and executor.start_time == task.start_time:
                steps.append(str(self._step_name(other)))
                nodes += self._children[executor.task_id]
        for key, repeated in self._loops.items():
            if not steps and (loop := self._by_name.get(key)) and loop.state == "RUNNING":
                steps += repeated.values()
        return Waiting(" or ".join(steps) or "a step", tuple(nodes), steps[0] if len(steps) == 1 else "")


def _node_names(workflow: str, *path: str) -> Iterator[str]:
    """Yields the names that a node at this path of the workflow may have, later attempts first.

    With retries of every node `demo-x(0).root(0).trainer(0).executor(1)`, without them `demo-x.root.trainer.executor`.
    """
    *above, own = path
    parents = [workflow, *above]
    retried = [".".join(f"{name}(0)" for name in parents[:-1]) + f".{parents[-1]}({attempt})" for attempt in _ATTEMPTS]
    for parent in (*(name.lstrip(".") for name in retried), ".".join(parents)):
        yield from (f"{parent}.{own}({attempt})" for attempt in _ATTEMPTS)
        yield f"{parent}.{own}"


def _children(task: "Task") -> tuple[str, ...]:
    return tuple(child.pod_name for child in task.child_tasks or () if child.pod_name)


def _seconds(task: "Task") -> float | None:
    """Returns a task's duration; None if the API does not report both times."""
    if not task.start_time or not task.end_time or task.end_time < task.start_time:
        return None
    taken: datetime.timedelta = task.end_time - task.start_time
    return taken.total_seconds()


def _since(later: "Task", earlier: "Task") -> float:
    return (later.start_time - earlier.start_time).total_seconds() if earlier.start_time else 0.0
