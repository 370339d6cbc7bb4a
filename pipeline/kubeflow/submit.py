"""`ctrpipe submit`: uploads a compiled pipeline, starts it once or on a schedule, and follows the run."""

import contextlib
import dataclasses
import hashlib
import ipaddress
import json
import logging
import pathlib
import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import certifi
import kfp
import kfp_server_api
import urllib3
import yaml
from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.pipeline.config import read_yaml
from ctrpipe.pipeline.kubeflow.task import VERDICT

LOG_LINES = 20  # last lines of a failed step's log to print
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
_KILLED = re.compile(r"signal: killed|OOMKilled|exit code 137")
_OWN_ERROR = re.compile(
    r"^ctrpipe: |^Traceback|^(\w+\.)*\w*(Error|Exception|Interrupt)\b|exit status [1-9]", re.MULTILINE
)
_ENDED = ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED")


@dataclasses.dataclass(frozen=True)
class Package:
    """A compiled pipeline: its file, its name, and the file's description of its parameters."""

    path: pathlib.Path
    name: str
    parameters: dict[str, dict[str, Any]]

    @property
    def version(self) -> str:
        """The version's name. It contains a hash of the file's contents."""
        return f"{self.name}-{hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]}"


@dataclasses.dataclass(frozen=True)
class Host:
    """The address of Kubeflow Pipelines' API, with credentials.

    Args:
        url: The address.
        token: A bearer token.
        token_file: A file with a bearer token, read again for every request, because tokens are renewed. Takes
            precedence over `token`.
        namespace: The profile's namespace, for a multi-user Kubeflow.
        ca_cert: PEM file of the certificate authority of the host. None for a public authority.
    """

    url: str
    token: str | None = None
    token_file: pathlib.Path | None = None
    namespace: str | None = None
    ca_cert: pathlib.Path | None = None

    def get(self, path: str, retries: urllib3.Retry) -> urllib3.BaseHTTPResponse:
        """Sends a GET request, for paths that kfp's client does not support. Raises urllib3's HTTPError."""
        pool = urllib3.PoolManager(ca_certs=str(self.ca_cert or certifi.where()))
        return pool.request("GET", self.url.rstrip("/") + path, headers=self._headers(), timeout=30, retries=retries)

    def _headers(self) -> dict[str, str]:
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def read_package(path: pathlib.Path) -> Package:
    """Reads a file of `ctrpipe compile`. Raises InputError if it is not one."""
    try:
        spec: Any = next(yaml.safe_load_all(path.read_text(encoding="utf-8")), None)
        name = spec["pipelineInfo"]["name"]
        parameters = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: no compiled pipeline; make one with ctrpipe compile") from error
    return Package(path, name, parameters)


def read_parameters(package: Package, given: tuple[str, ...]) -> dict[str, Any]:
    """Parses parameters of the form `name=value`. Values are YAML, except those of text parameters.

    Raises:
        InputError: the pipeline has no such parameter, a value has the wrong type, or a value is missing.
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
    missing = [
        name
        for name, description in package.parameters.items()
        if name not in values and "defaultValue" not in description and not description.get("isOptional")
    ]
    if missing:
        raise InputError(f"{package.path}: give --param {missing[0]}=VALUE, which has no default")
    return values


def connect(host: Host) -> kfp.Client:
    """Checks the address, the token and the namespace, and returns a client.

    Raises:
        InputError: the host does not respond, refuses the token, or needs a namespace.
    """
    warnings.filterwarnings("ignore", module="kfp")
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    if not host.url.lower().startswith(("http://", "https://")):
        raise InputError(f"--host {host.url}: expected an address that begins with http:// or https://")
    address = urllib3.util.parse_url(host.url)
    if address.scheme == "http" and (host.token or host.token_file) and not _is_loopback(address.host or ""):
        raise InputError(f"--host {host.url}: a token would go over plain http; give an https address")
    for option, path in (("--ca-cert", host.ca_cert), ("--token-file", host.token_file)):
        if path and not path.is_file():
            raise InputError(f"{option} {path}: no such file")
    with _as_input_errors(host):
        _check_health(host)
        client = kfp.Client(
            host=host.url,
            existing_token=None if host.token_file else host.token,
            credentials=ServiceAccountTokenVolumeCredentials(str(host.token_file)) if host.token_file else None,
            namespace=host.namespace or "kubeflow",
            ssl_ca_cert=str(host.ca_cert) if host.ca_cert else None,
        )
        client.list_experiments(page_size=1, namespace=host.namespace)
        return client


def _is_loopback(name: str) -> bool:
    """Returns whether an address is this machine's own, as with `kubectl port-forward`."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    return name == "localhost"


def _check_health(host: Host) -> None:
    """Checks the host's health. kfp's client does too, but reports any failure after 25 seconds without a reason."""
    busy = urllib3.Retry(2, redirect=False, status_forcelist=(502, 503, 504), backoff_factor=1.0, raise_on_status=False)
    answer = host.get("/apis/v2beta1/healthz", busy)
    if answer.status in (301, 302, 303, 307, 401, 403):  # a redirection leads to a login page
        raise kfp_server_api.ApiException(status=401)
    if answer.status != 200 or "json" not in answer.headers.get("Content-Type", ""):
        raise InputError(f"{host.url}: HTTP {answer.status}, and no Kubeflow Pipelines; check --host")
    if answer.json().get("multi_user") and not host.namespace:
        raise InputError(f"{host.url}: this Kubeflow has several users; give your profile's namespace as --namespace")


def start(
    client: kfp.Client,
    host: Host,
    package: Package,
    parameters: dict[str, Any],
    recurring: str | None,
    account: str | None,
    experiment: str | None = None,
) -> str:
    """Uploads the pipeline, unless the host has it, and starts a run or a schedule.

    If that fails, deletes the pipeline, version and experiment that it made.

    Args:
        client: The result of `connect`.
        host: The client's host.
        package: The compiled pipeline.
        parameters: Values by name. Other parameters have their defaults.
        recurring: Cron expression of six fields, seconds first. None for a single run that starts immediately.
        account: The service account of the steps. None for the cluster's default.
        experiment: Kubeflow's group of runs. None for the pipeline's name.

    Returns:
        The id of the run or of the schedule.

    Raises:
        InputError: the host refuses a request.
    """
    with _as_input_errors(host), contextlib.redirect_stdout(None), contextlib.ExitStack() as undo:
        pipeline_id, version_id = _upload(client, host, package, undo)
        common = {
            "experiment_id": _experiment(client, host, experiment or package.name, undo),
            "job_name": package.name,
            "params": parameters,
            "pipeline_id": pipeline_id,
            "version_id": version_id,
            "service_account": account,
        }
        if recurring:
            # One run at a time, and none for missed times, because the runs share a folder.
            made = client.create_recurring_run(cron_expression=recurring, max_concurrency=1, no_catchup=True, **common)
            made_id = made.recurring_run_id
        else:
            made_id = client.run_pipeline(**common).run_id
        undo.pop_all()
        return str(made_id)


def _upload(client: kfp.Client, host: Host, package: Package, undo: contextlib.ExitStack) -> tuple[str, str]:
    """Returns the ids of the pipeline and of the version with the package's contents. Uploads them if needed."""
    pipeline_id = _find_pipeline(client, host, package.name)
    if pipeline_id is None:
        made = client.upload_pipeline(str(package.path), package.name, namespace=host.namespace)
        pipeline_id = made.pipeline_id
        undo.callback(_try, _delete_pipeline, client, pipeline_id)
        versions = client.list_pipeline_versions(pipeline_id).pipeline_versions
        return pipeline_id, versions[0].pipeline_version_id
    token = ""
    while True:
        page = client.list_pipeline_versions(pipeline_id, page_token=token)
        for version in page.pipeline_versions or ():
            if version.display_name == package.version:
                return pipeline_id, version.pipeline_version_id
        token = page.next_page_token
        if not token:
            break
    made = client.upload_pipeline_version(str(package.path), package.version, pipeline_id=pipeline_id)
    undo.callback(_try, client.delete_pipeline_version, pipeline_id, made.pipeline_version_id)
    return pipeline_id, made.pipeline_version_id


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
    say: Callable[[str], None],
    start_seconds: float,
    seconds: float = 5.0,
) -> str:
    """Reports each step's state until the run has ended, and the last lines of a failed step's log.

    Args:
        client, host: The result and the argument of `connect`.
        run_id: The result of `start`.
        say: Called with each line.
        start_seconds: The maximum time that the run, or one of its steps, may be pending.
        seconds: The time between two requests.

    Returns:
        SUCCEEDED, SKIPPED, FAILED or CANCELED. BLOCKED if the run failed because a gate blocked the model.

    Raises:
        InputError: a step does not start, or the host stops responding or refuses the token. The run continues.
    """
    known: dict[str, str] = {}
    waiting: dict[str, float] = {}  # the time since which each id is pending
    while True:
        with _as_input_errors(host, f"; run {run_id} goes on"):
            run = _ask(client, run_id, seconds)
        tasks = (run.run_details and run.run_details.task_details) or []
        for task in tasks:
            # A container's own pod is a child of the task. Tasks without a name are Kubeflow's drivers and the graph
            # itself.
            if task.state and task.display_name and known.get(task.task_id) != task.state:
                known[task.task_id] = task.state
                say(f"{task.display_name}: {task.state.lower()}")
        if run.state in _ENDED:
            break
        places = [(run_id, "the run", run.state), *((task.task_id, task.display_name, task.state) for task in tasks)]
        _check_started(places, waiting, start_seconds, run_id)
        time.sleep(seconds)
    for task in tasks:
        if task.state == "FAILED":
            _say_why(host, run_id, task, say)
    names = [(task.display_name or "").lower() for task in tasks if task.state == "FAILED"]
    is_blocked = VERDICT.lower() in names  # Kubeflow may show a step by the lower-case name of its task
    return BLOCKED if is_blocked else str(run.state)


def _ask(client: kfp.Client, run_id: str, seconds: float) -> Any:
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


def _check_started(
    places: list[tuple[str, str, str]], waiting: dict[str, float], start_seconds: float, run_id: str
) -> None:
    """Raises InputError if the run or a step has been pending for `start_seconds`.

    Args:
        places: Id, name and state of the run and of each step.
        waiting: The time since which each id is pending. Updated in place.
        start_seconds: The maximum time.
        run_id: The run's id, for the error message.
    """
    now = time.monotonic()
    for identity, name, state in places:
        if state != "PENDING":
            waiting.pop(identity, None)
        elif now - waiting.setdefault(identity, now) >= start_seconds:
            raise InputError(
                f"{name or 'a step'} has not started within {start_seconds:.0f} s; has the cluster a node with what "
                f"kubeflow.resources asks for, and can it pull the image? run {run_id} goes on"
            )


def _log(host: Host, run_id: str, pod: str) -> list[str] | None:
    """Returns the last lines of a pod's log, or None if the cluster has deleted the pod."""
    try:
        answer = host.get(f"/apis/v1alpha1/runs/{run_id}/nodes/{pod}/log", urllib3.Retry(1))
    except urllib3.exceptions.HTTPError:
        return None
    return answer.data.decode("utf-8", "replace").splitlines()[-LOG_LINES:] if answer.status == 200 else None


def _say_why(host: Host, run_id: str, task: Any, say: Callable[[str], None]) -> None:
    """Reports the end of a failed step's log, and whether the step was killed."""
    pods = [task.pod_name, *(child.pod_name for child in task.child_tasks or ())]
    logs = [lines for pod in pods if pod and (lines := _log(host, run_id, pod)) is not None]
    if not logs:
        return
    lines = next(filter(None, logs), [])
    if lines:
        say("\n".join([f"{task.display_name}, the end of its log:", *lines]))
    if _was_killed(lines):
        say(
            f"{task.display_name}: no error of its own ends the log, as where a step is killed that wants more memory "
            f"than it may have; raise kubeflow.resources.{task.display_name}.memory, and compile again"
        )


def _was_killed(lines: list[str]) -> bool:
    """Returns whether the end of a failed step's log contains no error, or a signal as its error.

    The API does not say why a pod has failed. If a memory limit is exceeded, the system kills the step's process, and
    Kubeflow's launcher logs "signal: killed". Or it kills the whole container, and the log just ends.
    """
    text = "\n".join(lines)
    return bool(_KILLED.search(text)) or not _OWN_ERROR.search(text)


@contextlib.contextmanager
def _as_input_errors(host: Host, more: str = "") -> Iterator[None]:
    """Raises the errors of kfp's client and of urllib3 as InputErrors, with `more` at the end of the message."""
    try:
        yield
    except kfp_server_api.ApiException as error:
        if error.status in (401, 403):
            what = "refuses the token" if host.token or host.token_file else "wants a token"
            where = f"in {host.token_file}" if host.token_file else "in KFP_TOKEN, or as --token-file if it is renewed"
            raise InputError(f"{host.url}: {what} (HTTP {error.status}); give a valid one {where}{more}") from error
        raise InputError(f"{host.url}: HTTP {error.status}: {_reason(error)}{more}") from error
    except urllib3.exceptions.HTTPError as error:
        reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
        if isinstance(reason, urllib3.exceptions.SSLError):
            raise InputError(
                f"{host.url}: {one_line(reason, 300)}; its authority's certificate goes to --ca-cert"
            ) from error
        raise InputError(f"{host.url}: no answer; is this the address of Kubeflow Pipelines?{more}") from error
    except ValueError as error:
        raise InputError(f"{host.url}: {one_line(error, 300)}{more}") from error


def _reason(error: kfp_server_api.ApiException) -> str:
    """Returns the API's error message, on one line."""
    try:
        answer = json.loads(error.body)
        text = str(answer.get("error") or answer.get("message") or error.reason)
    except (TypeError, ValueError, AttributeError):
        text = str(error.reason)
    return one_line(text, 300)
