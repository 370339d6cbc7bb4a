"""`ctrpipe submit`: uploads a compiled pipeline, starts it once or on a schedule, and follows the run."""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import kfp
import kfp_server_api
import urllib3
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import read_yaml
from ctrpipe.pipeline.kubeflow.causes import Argo, Cause, tell_causes, with_advice
from ctrpipe.pipeline.kubeflow.host import Host, as_input_errors
from ctrpipe.pipeline.kubeflow.run_steps import ENDED, UNSETTLED, RunSteps, Step, StepGroup, Waiting
from ctrpipe.pipeline.kubeflow.task import ACCOUNT, BRACES, VERDICT, text_with_braces

OUTAGE_SECONDS = 600.0  # maximum time without a response, or with status 5xx, before following a run fails
_TYPES: dict[str, tuple[type, ...]] = {
    "STRING": (str,),
    "NUMBER_INTEGER": (int,),
    "NUMBER_DOUBLE": (int, float),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}
BLOCKED = "BLOCKED"  # the state of a run that failed because a gate blocked the model
SETTLE_QUESTIONS = 12  # maximum number of questions after a run has ended, until its tasks have ended too
SILENCE_SECONDS = 600.0  # time without a line after which one says which steps are under way
WAIT_SECONDS = 60.0  # time for which a task is pending, after which the reason is asked for
_UNKNOWN_WAIT = "; has the cluster a node with what kubeflow.resources asks for, and can it pull the image?"
_SAID = re.compile(r"^ctrpipe: ")  # begins the line with which Verdict blocks
# What an error of Verdict's own leaves in its log, in place of the exit code 1 with which it blocks.
_OTHER_END = re.compile(r"^Traceback|exit status (?!1\b)\d|signal: ")


@dataclasses.dataclass(frozen=True)
class Package:
    """A compiled pipeline.

    Args:
        path: The file.
        name: The pipeline's name.
        description: The pipeline's description.
        parameters: The file's description of the parameters, by name.
        steps: The steps' names by the names of their tasks, in the order of the file.
        account: The service account of the steps that the configuration names. None for the cluster's default.
        loops: By the name of a loop's task, the names of its steps by the names of their tasks.
        groups: The groups of steps by the names of their tasks. `steps` has their steps, and not the groups.
    """

    path: pathlib.Path
    name: str
    description: str
    parameters: dict[str, dict[str, Any]]
    steps: dict[str, str]
    account: str | None = None
    loops: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    groups: dict[str, StepGroup] = dataclasses.field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A hash of the file's contents."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]


def read_package(path: pathlib.Path) -> Package:
    """Reads a file of `ctrpipe compile`. Raises InputError if it is not one."""
    try:
        text = path.read_text(encoding="utf-8")
        spec: Any = next(yaml.safe_load_all(text), None)
        name = spec["pipelineInfo"]["name"]
        parameters = spec["root"].get("inputDefinitions", {}).get("parameters", {})
        tasks = spec["root"].get("dag", {}).get("tasks", {})
        names = _names_in_order(tasks)
        loops: dict[str, dict[str, str]] = {}
        groups: dict[str, StepGroup] = {}
        for key, task in tasks.items():
            inside = spec["components"][task["componentRef"]["name"]].get("dag") if "componentRef" in task else None
            if inside and "parameterIterator" in task:
                loops[key] = _names_in_order(inside["tasks"])
            elif inside:
                groups[key] = StepGroup(names[key], _names_in_order(inside["tasks"]))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: not a compiled pipeline; make one with ctrpipe compile") from error
    first = text.partition("\n")[0]
    account = first.removeprefix(ACCOUNT) if first.startswith(ACCOUNT) else None
    description = spec["pipelineInfo"].get("description", "")
    steps: dict[str, str] = {}
    for key, shown in names.items():
        steps |= groups[key].steps if key in groups else {key: shown}
    return Package(path, name, description, parameters, steps, account, loops, groups)


def _names_in_order(tasks: dict[str, Any]) -> dict[str, str]:
    """Returns the tasks' displayed names, each after those that it depends on; the file has them in alphabetical
    order.
    """
    ordered: dict[str, str] = {}
    while left := [key for key in tasks if key not in ordered]:
        ready = [key for key in left if set(tasks[key].get("dependentTasks", ())) <= set(ordered)]
        ordered |= {key: tasks[key].get("taskInfo", {}).get("name", key) for key in ready or left}
    return ordered


def read_parameters(package: Package, given: tuple[str, ...]) -> dict[str, Any]:
    """Parses parameters of the form `name=value`. Values are YAML, except those of text parameters.

    Raises:
        InputError: the pipeline has no such parameter, a value has the wrong type or is missing, or Argo would change
            it.
    """
    values: dict[str, Any] = {}
    for setting in given:
        name, equals, text = setting.partition("=")
        if not equals or name not in package.parameters:
            raise InputError(f"--param {setting}: expected NAME=VALUE, NAME one of {', '.join(package.parameters)}")
        kind = package.parameters[name]["parameterType"]
        try:
            values[name] = text if kind == "STRING" else read_yaml(text)
        except yaml.YAMLError as error:
            raise InputError(f"--param {setting}: the value is not valid YAML") from error
        wrong = not isinstance(values[name], _TYPES[kind]) or (kind != "BOOLEAN" and isinstance(values[name], bool))
        if wrong:
            raise InputError(f"--param {setting}: expected a value of type {kind.lower()}")
        if text_with_braces(values[name]):
            raise InputError(f"--param {setting}: Argo would replace what follows {BRACES}; write it without")
    missing = [
        name
        for name, description in package.parameters.items()
        if name not in values and "defaultValue" not in description and not description.get("isOptional")
    ]
    if missing:
        raise InputError(f"{package.path}: give --param {missing[0]}=VALUE, which has no default")
    return values


def start(
    client: kfp.Client,
    host: Host,
    package: Package,
    parameters: dict[str, Any],
    cron: str | None,
    account: str | None,
    experiment: str | None = None,
    replace: bool = False,
) -> str:
    """Uploads the pipeline, unless the host has it, and starts a run or a schedule.

    If that fails, deletes the pipeline, version, experiment and schedule that it made.

    Args:
        client: The result of `connect`.
        host: The client's host.
        package: The compiled pipeline.
        parameters: Values by name. Other parameters have their defaults.
        cron: The result of `ctrpipe.pipeline.kubeflow.cron.read_cron`. None for a single run that starts immediately.
        account: The service account of the steps. None: the account in the package.
        experiment: Kubeflow's group of runs. None for the pipeline's name.
        replace: Whether a schedule takes the place of those that the pipeline has.

    Returns:
        The id of the run or of the schedule.

    Raises:
        InputError: the host refuses a request, or the pipeline has a schedule that is not to be replaced.
    """
    with as_input_errors(host), contextlib.redirect_stdout(None), contextlib.ExitStack() as undo:
        known = _find_pipeline(client, host, package.name)
        schedules = _schedules(client, host, known) if cron and known else []
        if schedules and not replace:
            raise InputError(
                f"{package.name} is scheduled already: {', '.join(map(_describe, schedules))}; "
                "two schedules would both run; give --replace to replace it"
            )
        pipeline_id, version_id = _upload(client, host, package, known, undo)
        common = {
            "experiment_id": _experiment(client, host, experiment or package.name, undo),
            "params": parameters,
            "pipeline_id": pipeline_id,
            "version_id": version_id,
            "service_account": account or package.account,
        }
        if not cron:
            name = f"{package.name} {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S}"
            made_id = client.run_pipeline(job_name=name, **common).run_id
        else:
            # Kubeflow names the schedule's runs after it, with random letters added: the dash separates them.
            # One run at a time, and none for missed times, because the runs share a folder.
            made = client.create_recurring_run(
                job_name=f"{package.name}-", cron_expression=cron, max_concurrency=1, no_catchup=True, **common
            )
            made_id = made.recurring_run_id
            undo.callback(_try, client.delete_recurring_run, made_id)
            for schedule in schedules:
                client.delete_recurring_run(schedule.recurring_run_id)
        undo.pop_all()
        return str(made_id)


def _schedules(client: kfp.Client, host: Host, pipeline_id: str) -> list[kfp_server_api.V2beta1RecurringRun]:
    """Returns the pipeline's schedules, of all its versions and experiments."""
    pages = _pages(lambda token: client.list_recurring_runs(token, page_size=100, namespace=host.namespace))
    schedules = [schedule for page in pages for schedule in page.recurring_runs or ()]
    return [
        schedule
        for schedule in schedules
        if schedule.pipeline_version_reference and schedule.pipeline_version_reference.pipeline_id == pipeline_id
    ]


def _describe(schedule: kfp_server_api.V2beta1RecurringRun) -> str:
    """Returns a schedule's id and, if it has one, its cron expression."""
    trigger = schedule.trigger and schedule.trigger.cron_schedule
    return f"{schedule.recurring_run_id} ({trigger.cron})" if trigger else str(schedule.recurring_run_id)


def _upload(
    client: kfp.Client, host: Host, package: Package, known: str | None, undo: contextlib.ExitStack
) -> tuple[str, str]:
    """Returns the ids of the pipeline and of the version with the package's contents. Uploads them if needed.

    A version is found again by the hash of its file, which its description has: the first version of a pipeline has the
    pipeline's name.
    """
    described = f"{package.description}; file {package.digest}".removeprefix("; ")
    if known is None:
        made = client.upload_pipeline(str(package.path), package.name, description=described, namespace=host.namespace)
        pipeline_id = made.pipeline_id
        undo.callback(_try, _delete_pipeline, client, pipeline_id)
        versions = client.list_pipeline_versions(pipeline_id).pipeline_versions
        return pipeline_id, versions[0].pipeline_version_id
    for page in _pages(lambda token: client.list_pipeline_versions(known, page_token=token, page_size=100)):
        for version in page.pipeline_versions or ():
            if package.digest in f"{version.display_name} {version.description}":
                return known, version.pipeline_version_id
    name = f"{package.name}-{package.digest}"
    made = client.upload_pipeline_version(str(package.path), name, pipeline_id=known, description=described)
    undo.callback(_try, client.delete_pipeline_version, known, made.pipeline_version_id)
    return known, made.pipeline_version_id


def _pages(ask: Callable[[str], Any]) -> Iterator[Any]:
    """Yields all pages of a list."""
    token = ""
    while True:
        page = ask(token)
        yield page
        token = page.next_page_token
        if not token:
            return


def _find_pipeline(client: kfp.Client, host: Host, name: str) -> str | None:
    """Returns a pipeline's id. kfp's get_pipeline_id finds only pipelines without a namespace."""
    asked = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    pipelines = client.list_pipelines(filter=json.dumps({"predicates": [asked]}), namespace=host.namespace).pipelines
    return pipelines[0].pipeline_id if pipelines else None


def _experiment(client: kfp.Client, host: Host, name: str, undo: contextlib.ExitStack) -> str:
    """Returns the id of the experiment with this name. Creates it if there is none."""
    asked = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    experiments = client.list_experiments(
        filter=json.dumps({"predicates": [asked]}), namespace=host.namespace
    ).experiments
    if experiments:
        return str(experiments[0].experiment_id)
    made = str(client.create_experiment(name, namespace=host.namespace).experiment_id)
    undo.callback(_try, client.delete_experiment, made)
    return made


def _try(undo: Callable[..., object], *arguments: object) -> None:
    """Calls `undo` and suppresses the host's errors, to keep the original error for the user."""
    with contextlib.suppress(kfp_server_api.ApiException, urllib3.exceptions.HTTPError):
        undo(*arguments)


def _delete_pipeline(client: kfp.Client, pipeline_id: str) -> None:
    for version in client.list_pipeline_versions(pipeline_id).pipeline_versions or ():
        client.delete_pipeline_version(pipeline_id, version.pipeline_version_id)
    client.delete_pipeline(pipeline_id)


def follow(
    client: kfp.Client,
    host: Host,
    run_id: str,
    package: Package,
    say: Callable[[str], None],
    start_seconds: float,
    seconds: float = 5.0,
) -> str:
    """Reports each step's end until the run has ended, and why a step has failed.

    Args:
        client, host: The result and the argument of `connect`.
        run_id: The result of `start`.
        package: The compiled pipeline.
        say: Called with each line.
        start_seconds: The maximum time that the run, or one of its steps, may be pending.
        seconds: The time between two requests.

    Returns:
        SUCCEEDED, SKIPPED, FAILED or CANCELED. BLOCKED if the run failed because a gate blocked the model.

    Raises:
        InputError: a step does not start, or the host stops responding or refuses the token. The run continues.
    """
    told: set[str] = set()
    waits = _Waits(host, run_id, say, start_seconds)
    after_end = 0  # the questions since the run's end
    last = time.monotonic()
    while True:
        with as_input_errors(host, f"; run {run_id} continues"):
            run = _ask(client, run_id, seconds)
        tasks = RunSteps(run, package.steps, package.loops, package.groups)
        if waits.is_compressed or (run.state in ENDED and not tasks.is_settled()):
            argo = Argo(host, run_id)
            if argo.is_compressed:
                tasks = RunSteps(argo.run(), package.steps, package.loops, package.groups)
        steps = tasks.steps()
        is_terminated = _is_terminated(run)
        for step in steps:
            # What is stopped with its run has failed only to Argo.
            is_stopped = is_terminated and step.state != "SUCCEEDED"
            if step.state in ENDED and step.name not in told and not is_stopped:
                told.add(step.name)
                say(str(step))
                last = time.monotonic()
        failed = [step for step in steps if step.state == "FAILED"]
        if run.state in ENDED:
            # Kubeflow sets the run's state before those of its tasks.
            is_complete = tasks.is_settled() and (failed or is_terminated or run.state != "FAILED")
            if is_complete or after_end == SETTLE_QUESTIONS:
                break
            after_end += 1
        else:
            waits.check(run.state, tasks)
            if time.monotonic() - last >= SILENCE_SECONDS:
                last = time.monotonic()
                working = [_under_way(step) for step in steps if step.state in UNSETTLED]
                say(f"under way: {', '.join(working) or 'no step yet'}")
        time.sleep(seconds)
    if run.state == "SUCCEEDED":
        return str(run.state)
    known = {step.name: step for step in steps}
    if is_terminated:
        done = {step.name for step in steps if step.state == "SUCCEEDED"}
        left = [name for name in package.steps.values() if name not in told | done]
        say(f"terminated in Kubeflow, before the end of {', '.join(left) or 'the run'}")
        return "CANCELED"
    if absent := [name for name in package.steps.values() if not _has_run(known.get(name))]:
        say(f"not run: {', '.join(absent)}")
    if run.state == "FAILED" and not failed:
        say(f"Kubeflow reports no failed step; {host.url} shows the run {run_id}")
    causes = tell_causes(host, run_id, failed, say)
    verdict = next((step for step in failed if step.name.lower() == VERDICT.lower()), None)
    if verdict is None or verdict.driver:
        return str(run.state)
    is_blocked = _is_a_block(causes[verdict.name])
    if is_blocked is None:
        say(f"{VERDICT}: neither a log nor Argo says whether a gate blocked the model; report.html of the run does")
    return BLOCKED if is_blocked else str(run.state)


def _is_terminated(run: kfp_server_api.V2beta1Run) -> bool:
    """Returns whether a user terminated the run. Kubeflow then reports the run and its running steps as failed."""
    return any(status.state in ("CANCELING", "CANCELED") for status in run.state_history or ())


def _under_way(step: Step) -> str:
    return f"{step.name}, {step.done} done" if step.done else step.name


def _has_run(step: Step | None) -> bool:
    return step is not None and step.state in (*ENDED, *UNSETTLED)


def _is_a_block(cause: Cause) -> bool | None:
    """Returns whether Verdict failed because a gate blocked the model; None if unknown.

    The arguments of Verdict state whether the model is blocked.
    """
    lines = cause.log or ()
    if cause.reason or any(_OTHER_END.search(line) for line in lines):
        return False
    if any(_SAID.search(line) for line in lines):
        return True
    return None if cause.arguments is None else bool(cause.arguments)


def _ask(client: kfp.Client, run_id: str, seconds: float) -> kfp_server_api.V2beta1Run:
    """Returns the run's state. Retries for OUTAGE_SECONDS if the host does not respond, or responds with 5xx."""
    started = time.monotonic()
    while True:
        try:
            return client.get_run(run_id)
        except (kfp_server_api.ApiException, urllib3.exceptions.HTTPError) as error:
            temporary = not isinstance(error, kfp_server_api.ApiException) or error.status >= 500
            if not temporary or time.monotonic() - started > OUTAGE_SECONDS:
                raise
        time.sleep(seconds)


class _Waits:
    """The tasks of a run that wait for their start.

    Attributes:
        is_compressed: Whether they seemed to wait because Argo has compressed the nodes, which Kubeflow does not read.
    """

    def __init__(self, host: Host, run_id: str, say: Callable[[str], None], start_seconds: float):
        self._host = host
        self._run_id = run_id
        self._say = say
        self._start_seconds = start_seconds
        self._since: dict[str, float] = {}  # the time since which each id is pending
        self._asked: dict[str, float] = {}  # the time of the last question for each id's reason
        self._told: dict[str, str] = {}  # the last reason that was told of each id
        self.is_compressed = False

    def check(self, state: str, tasks: RunSteps) -> None:
        """Reports why a task waits, if it has waited for WAIT_SECONDS and Argo has a reason, and another one later.

        A pod whose image is pulled waits first for its containers. `state` is the run's state.

        Raises:
            InputError: the run or a step has been pending for `start_seconds`.
        """
        now = time.monotonic()
        pending = tasks.pending()
        if state == "PENDING":
            pending[self._run_id] = Waiting("the run", ())
        self._since = {identity: self._since.get(identity, now) for identity in pending}
        for identity, task in pending.items():
            waited = now - self._since[identity]
            is_too_long = waited >= self._start_seconds
            if not is_too_long and now - self._asked.get(identity, self._since[identity]) < WAIT_SECONDS:
                continue
            self._asked[identity] = now
            argo = Argo(self._host, self._run_id)
            if argo.is_compressed and not self.is_compressed:
                self.is_compressed = True
                return
            reason = argo.reason(task.nodes)
            if is_too_long:
                why = f": {with_advice(task.container, reason)}" if reason else _UNKNOWN_WAIT
                raise InputError(
                    f"{task.name} has not started within {self._start_seconds:.0f} s{why}; run {self._run_id} continues"
                )
            if reason and reason != self._told.get(identity):
                self._told[identity] = reason
                self._say(f"{task.name}: waits; {with_advice(task.container, reason)}")
