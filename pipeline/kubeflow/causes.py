"""Why a step on Kubeflow has failed or does not start: the end of its log, and the reason that Argo has noted."""

import base64
import dataclasses
import datetime
import gzip
import json
import re
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import urllib3

from ctrpipe.common.errors import one_line
from ctrpipe.pipeline.kubeflow.host import Host
from ctrpipe.pipeline.kubeflow.run_steps import Step

LOG_LINES = 40  # last lines of a failed step's log to print
# Templates of Kubeflow's compiler for a step's container and for its driver. A pod's name contains its template's.
_TEMPLATES = ("system-container-impl", "retry-system-container-impl", "system-container-driver", "system-dag-driver")
_KILLED = re.compile(r"signal: killed")  # of the launcher, whose child alone is killed
_POD = "pod-spec-patch"  # the output of a driver with the command of the step's container
_ATTEMPT = re.compile(r"\(\d+\)$")  # of a node, at the end of its name
_EXIT_CODE = re.compile(r"^(main: )?Error \(exit code \d+\)$")  # says no more than that the step has failed
_NO_POD = re.compile(r"^pods .* is forbidden")  # the cluster has refused to make it
_CONTAINER = re.compile(r"^([a-z0-9-]+): \w+ \(exit code \d+\)")  # of the pod, that has failed: not always `main`
# A part of Argo's reason, in lower case, with what to do. `<name>` is the step's name.
_ADVICE = (
    # The scheduler's: before its own word for them all, and before preemption, of which it says that it would not help.
    (
        re.compile("persistentvolumeclaim"),
        "the claims of kubeflow.volumes must be in the run's namespace, and bound; kubectl describe pvc says why one "
        "is not",
    ),
    (
        re.compile("unschedulable|insufficient|exceeded quota"),
        "lower kubeflow.resources.<name>, correct its node_selector or tolerations, or add a node that has what it "
        "asks for",
    ),
    (re.compile("oomkilled|signal: killed"), "raise kubeflow.resources.<name>.memory, and compile again"),
    (re.compile("longer than the specified deadline"), "raise kubeflow.resources.<name>.timeout, and compile again"),
    (
        re.compile("evicted|low on resource|preempt|pod deleted|node lost|node shutdown"),
        "submit again: what has succeeded comes from the cache",
    ),
    (
        re.compile("imagepullbackoff|errimagepull|invalidimagename|errimageneverpull"),
        "check kubeflow.image, and that the cluster may pull it",
    ),
    (
        re.compile("createcontainerconfigerror"),
        "the secrets of kubeflow.secrets must be in the run's namespace, with their keys",
    ),
    (
        re.compile("serviceaccount .* not found"),
        "create it in the run's namespace, as kubectl apply -k kubeflow/base does, or give another --service-account",
    ),
    # Argo reads neither a pod's events nor its init containers.
    (
        re.compile("^(podinitializing|containercreating)$"),
        "kubectl describe pod says which volume it waits for, or which image of Argo's or Kubeflow's",
    ),
)


@dataclasses.dataclass(frozen=True)
class Cause:
    """The cause of a step's failure.

    Args:
        log: The last lines of its log. None if the log cannot be read.
        reason: The reason that was read, on one line. Empty if there is none beyond the step's own error.
        arguments: The arguments that the step was started with. None if they cannot be read.
    """

    log: list[str] | None
    reason: str = ""
    arguments: str | None = None


# Kubeflow's state by Argo's phase. It says none of a node that was left out.
_STATES = {
    "Pending": "PENDING",
    "Running": "RUNNING",
    "Succeeded": "SUCCEEDED",
    "Skipped": "SKIPPED",
    "Failed": "FAILED",
    "Error": "FAILED",
}


class Argo:
    """What Argo has noted of a run's nodes. Only Kubeflow's older API answers it, and it may be absent.

    Attributes:
        is_compressed: Whether Argo has compressed the nodes, as it does where the workflow has more than 1 MB. Kubeflow
            2.17 does not read them then: the run's tasks stay what they were.
    """

    def __init__(self, host: Host, run_id: str):
        self._nodes: dict[str, Any] = {}
        self.is_compressed = False
        try:
            answer = host.get(f"/apis/v1beta1/runs/{run_id}", urllib3.Retry(1))
            manifest = json.loads(answer.json()["pipeline_runtime"]["workflow_manifest"])
            status = manifest["status"]
            if compressed := status.get("compressedNodes"):
                self._nodes = json.loads(gzip.decompress(base64.b64decode(compressed)))
                self.is_compressed = True
            else:
                self._nodes = status["nodes"] or {}
        except (urllib3.exceptions.HTTPError, OSError, EOFError, ValueError, KeyError, TypeError):
            return

    def run(self) -> Any:
        """Returns the nodes as the tasks of a run, in the form of Kubeflow's API."""
        tasks = [
            SimpleNamespace(
                task_id=identity,
                display_name=node["displayName"],
                pod_name="",
                state=_STATES.get(node.get("phase")),
                start_time=_time(node.get("startedAt")),
                end_time=_time(node.get("finishedAt")),
                child_tasks=[SimpleNamespace(pod_name=child) for child in node.get("children") or ()],
            )
            for identity, node in self._nodes.items()
        ]
        return SimpleNamespace(run_details=SimpleNamespace(task_details=tasks))

    def reason(self, nodes: Iterable[str]) -> str:
        """Returns the first message of these nodes that is more specific than "a container ended with an error"."""
        messages = (one_line(self._nodes.get(node, {}).get("message") or "", 300) for node in nodes)
        return next((message for message in messages if message and not _EXIT_CODE.search(message)), "")

    def arguments(self, step: str) -> str | None:
        """Returns the parameter `arguments` of a step, which its driver's node has; None if it cannot be read."""
        driver = f"{step.lower().replace('.', '-')}-driver"
        for node in self._nodes.values():
            if _ATTEMPT.sub("", node.get("displayName") or "") != driver:
                continue
            for output in (node.get("outputs") or {}).get("parameters") or ():
                if output.get("name") == _POD and (value := _arguments_of(output.get("value") or "")) is not None:
                    return value
        return None

    def pods(self, node: str) -> list[str]:
        """Returns the names that the pod of a node may have."""
        workflow, dash, number = node.rpartition("-")
        if not dash:
            return [node]
        template = self._nodes.get(node, {}).get("templateName")
        templates = [template] if template else _TEMPLATES
        return [*(f"{workflow}-{template}-{number}" for template in templates), node]


def tell_causes(host: Host, run_id: str, steps: list[Step], say: Callable[[str], None]) -> dict[str, Cause]:
    """Reports once why each of these steps failed, and returns the causes by the step's name."""
    argo = Argo(host, run_id)
    causes = {}
    for step in steps:
        pod_log = _read_log(host, run_id, argo, step.nodes)
        reason = argo.reason(step.nodes)
        if pod_log:
            pod, lines = pod_log
            if lines:
                say("\n".join([f"{step.name}, the end of its log:", *lines]))
            say(f"{step.name}, all of its log: {host.command(_log_path(run_id, pod))}")
            if not reason and any(_KILLED.search(line) for line in lines):
                reason = "its log ends with signal: killed, as where it wanted more memory than it may have"
        elif not _NO_POD.search(reason):
            pod = argo.pods(step.nodes[0])[0] if step.nodes else ""
            container = match[1] if (match := _CONTAINER.match(reason)) else "main"
            command = f"kubectl -n {host.namespace or 'kubeflow'} logs {pod} -c {container}"
            look = command if pod else "see the run's page"
            say(f"{step.name}: Kubeflow gives no log of it, neither its pod's nor an archived one; {look}")
        if reason:
            say(f"{step.name}: {reason if step.driver else with_advice(step.container or step.name, reason)}")
        causes[step.name] = Cause(pod_log[1] if pod_log else None, reason, argo.arguments(step.name))
    return causes


def _arguments_of(pod: str) -> str | None:
    """Returns the parameter `arguments` from a driver's description of a pod; None if it is absent."""
    try:
        [main] = [each for each in json.loads(pod)["containers"] if each["name"] == "main"]
        command = [*main.get("command", ()), *main.get("args", ())]
        given = json.loads(command[command.index("--executor_input") + 1])
        return str(given["inputs"]["parameterValues"]["arguments"])
    except (ValueError, LookupError, TypeError):
        return None


def _time(text: str | None) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(text) if text else None


def with_advice(name: str, reason: str) -> str:
    """Returns a reason, with advice if there is any for it.

    Args:
        name: The step's name in kubeflow.resources. Empty for what has no resources there, such as a driver.
        reason: The reason that Argo or Kubeflow gives.
    """
    found = (advice for pattern, advice in _ADVICE if pattern.search(reason.lower()))
    advice = next(found, None)
    if advice is None or (not name and "<name>" in advice):
        return reason
    return f"{reason.rstrip('. ')}; {advice.replace('<name>', name)}"


def _log_path(run_id: str, pod: str) -> str:
    return f"/apis/v1alpha1/runs/{run_id}/nodes/{pod}/log"


def _read_log(host: Host, run_id: str, argo: Argo, nodes: Iterable[str]) -> tuple[str, list[str]] | None:
    """Returns the pod's name and the log's last lines of the first node that has a log.

    Kubeflow reads the log of the pod with the given name, and if it is gone, the archived log of the pod or node with
    that name.
    """
    for node in nodes:
        for pod in argo.pods(node):
            try:
                answer = host.get(_log_path(run_id, pod), urllib3.Retry(1))
            except urllib3.exceptions.HTTPError:
                return None
            text = answer.data.decode("utf-8", "replace")
            if answer.status == 200 and not _is_error(text):
                return pod, text.splitlines()[-LOG_LINES:]
    return None


def _is_error(text: str) -> bool:
    """Returns whether an answer is an error. Kubeflow returns it with the status 200 instead of the log."""
    try:
        answer = json.loads(text)
    except ValueError:
        return False
    return isinstance(answer, dict) and "error_message" in answer
