"""The tasks of a run in Kubeflow Pipelines' API: all nodes of Argo's workflow, without the nodes' own ids.

As KFP 2.17.0 answers, with Argo Workflows 4.0 and the retries of Kubeflow's own installation; `retried=False` is the
form of installations without them, as KFP 2.14 to 2.16 come.
"""

import base64
import dataclasses
import functools
import gzip
import json
import uuid
from typing import Any

WORKFLOW = "demo-x7k2p"
# Kubeflow's installation sets Argo's `retryStrategy: {limit: 2, retryPolicy: OnError}` for every node. To Argo a pod
# that was lost is an error; a container that failed, was killed for want of memory or was evicted has failed.
RETRIES, RETRIED = 2, "ERROR"


@dataclasses.dataclass(frozen=True)
class Ran:
    """The course of a step: its state, the second of the run in which its container's node starts, and its duration.

    `attempts` are how Argo has ended the container's attempts, none of a step from the cache: ERROR where the pod was
    lost, which the API says as FAILED. `driver` is Kubeflow's own container.
    """

    state: str = "SUCCEEDED"
    start: int = 0
    seconds: int = 0
    attempts: tuple[str, ...] = ("SUCCEEDED",)
    driver: str = "SUCCEEDED"


def argo_id(name: str) -> str:
    """Returns the id of the node with this name below the workflow: the FNV-1a hash of the name."""
    text = f"{WORKFLOW}{name}".encode()
    return f"{WORKFLOW}-{functools.reduce(lambda value, byte: ((value ^ byte) * 16777619) % 2**32, text, 2166136261)}"


def clock(second: int) -> str:
    return f"2026-11-26T23:{second // 60:02d}:{second % 60:02d}Z"


Steps = dict[str, "Ran | None | Steps"]


def tasks(steps: Steps, retried: bool = True) -> list[dict[str, Any]]:
    """Returns the tasks of a run.

    None is a step, or a group of steps, that Argo has left out because another one has failed. Steps as a value are a
    group: its driver has run, and the names of their nodes begin with the name of the group's node.
    """
    try_ = "(0)" if retried else ""
    found: list[dict[str, Any]] = []

    def node(name: str, state: str | None, start: int, end: int, children: list[str] | tuple[str, ...] = ()) -> None:
        found.append(
            {
                "run_id": "r1",
                "task_id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{len(found)}")),
                "display_name": name,
                "create_time": clock(0),
                "start_time": clock(start),
                "end_time": clock(end) if state not in ("RUNNING", "PENDING") else "1970-01-01T00:00:00Z",
                **({"state": state} if state else {}),
                "child_tasks": [{"pod_name": argo_id(child)} for child in children],
            }
        )

    whole = _state(steps)
    for name, path, child in ((WORKFLOW, "", ".root-driver"), ("root", f"{try_}.root", f".{next(iter(steps))}-driver")):
        node(name, whole, 0, 900, [f"{path}(0)" if retried else f"{path}{child}"])
        if retried:
            node(f"{name}(0)", whole, 0, 900, [f"{path}(0){child}"])
    node("root-driver", "SUCCEEDED", 0, 5, [f"{try_}.root-driver(0)" if retried else f"{try_}.root"])

    def step(key: str, ran: Ran | None, path: str) -> None:
        if not ran:
            node(f"{key}-driver", None, 900, 900, [path])
            node(key, None, 900, 900)
            return
        start, end = ran.start, ran.start + ran.seconds
        node(f"{key}-driver", ran.driver, start, start, [f"{path}-driver(0)" if retried else path])
        if retried:
            node(f"{key}-driver(0)", ran.driver, start, start, [path])
        if ran.driver != "SUCCEEDED":
            node(key, None, end, end)
            return
        container = f"{path}{try_}.executor"
        node(key, ran.state, start, end, [f"{path}(0)" if retried else container])
        if retried:
            node(f"{key}(0)", ran.state, start, end, [container, f"{try_}.root{try_}.report-driver"])
        if not ran.attempts:
            node("executor", "SKIPPED", start, start)
            return
        _check_retries(ran.attempts, retried)
        node(
            "executor",
            ran.state,
            start,
            end,
            [f"{container}({n})" for n in range(len(ran.attempts))] if retried else (),
        )
        for number, state in enumerate(ran.attempts if retried else ()):
            node(f"executor({number})", "FAILED" if state == RETRIED else state, start, end)
        # An entry of Kubeflow's cache, which has neither a name nor a state.
        found.append({"run_id": "r1", "task_id": f"cache-{key}", "execution_id": "35", "start_time": clock(start)})

    def add(inside: Steps, above: str) -> None:
        for key, ran in inside.items():
            path = f"{above}{try_}.{key}"
            if not isinstance(ran, dict):
                step(key, ran, path)
                continue
            first = f"{path}{try_}.{next(iter(ran))}-driver"
            node(f"{key}-driver", "SUCCEEDED", 0, 0, [f"{path}-driver(0)" if retried else path])
            node(key, _state(ran), 0, 900, [f"{path}(0)" if retried else first])
            if retried:
                node(f"{key}-driver(0)", "SUCCEEDED", 0, 0, [path])
                node(f"{key}(0)", _state(ran), 0, 900, [first])
            add(ran, path)

    add(steps, f"{try_}.root")
    return found


def _state(steps: Steps) -> str:
    """Returns the state of a run or a group with these steps."""
    states = [_state(ran) if isinstance(ran, dict) else ran.state for ran in steps.values() if ran]
    return next((state for state in ("FAILED", "RUNNING", "PENDING") if state in states), "SUCCEEDED")


def _check_retries(attempts: tuple[str, ...], retried: bool) -> None:
    assert len(attempts) <= (1 + RETRIES if retried else 1)
    assert not {*attempts[:-1]} - {RETRIED}, f"Argo does not retry after {attempts[:-1]}"
    assert attempts[-1] != RETRIED or not retried or len(attempts) == 1 + RETRIES, "Argo retries once more"


def manifest(messages: dict[str, str], arguments: dict[str, str] | None = None) -> dict[str, Any]:
    """Returns Argo's workflow with messages of its nodes, by the names of the nodes.

    A driver's node has the pod of its step, in whose command are the step's `arguments`, here by the step's task.
    """
    nodes = {
        argo_id(name): {"message": message, "templateName": "system-container-impl"}
        for name, message in messages.items()
    }
    for task, given in (arguments or {}).items():
        inputs = {"inputs": {"parameterValues": {"arguments": given}}, "outputs": {}}
        launcher = ["/kfp-launcher/launch", "--run_id", "r1", "--executor_input", json.dumps(inputs), "--"]
        command = {"name": "main", "command": launcher, "args": ["python", "-m", "a_step"]}
        patch = {"name": "pod-spec-patch", "value": json.dumps({"containers": [command]})}
        outputs = {"parameters": [{"name": "cached-decision", "value": "false"}, patch]}
        nodes[argo_id(f"{task}-driver(0)")] = {"displayName": f"{task}-driver(0)", "outputs": outputs}
    return {"metadata": {"name": WORKFLOW}, "status": {"nodes": nodes}}


def compressed(told: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns Argo's workflow with these tasks as nodes, in the compressed form of workflows above 1 MB."""
    nodes = {
        task["task_id"]: {
            "displayName": task["display_name"],
            "phase": task["state"].capitalize() if "state" in task else "Omitted",
            "startedAt": task["start_time"],
            "finishedAt": task["end_time"] if task["end_time"] > task["start_time"] else None,
            "children": [child["pod_name"] for child in task["child_tasks"]],
        }
        for task in told
        if "display_name" in task
    }
    text = base64.b64encode(gzip.compress(json.dumps(nodes).encode())).decode()
    return {"metadata": {"name": WORKFLOW}, "status": {"compressedNodes": text}}
