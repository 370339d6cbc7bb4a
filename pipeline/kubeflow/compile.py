"""`ctrpipe compile`: compiles the graph to a pipeline of containers for Kubeflow Pipelines v2 or Vertex AI."""

import json
import pathlib
import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import yaml
from kfp import compiler, components, dsl, kubernetes

from ctrpipe.common import stores
from ctrpipe.common.code_version import code_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_text
from ctrpipe.common.stores import check_scheme, is_url
from ctrpipe.pipeline.config import Kubeflow, Resources, RunConfig
from ctrpipe.pipeline.kubeflow.groups import RunStep, make_groups, make_steps, nested_groups
from ctrpipe.pipeline.kubeflow.nodes import REPORTED, Node, graph_nodes, key, kind, trains
from ctrpipe.pipeline.kubeflow.task import (
    ACCOUNT,
    BRACES,
    CLASSIFICATION,
    CONFIRM_STUDY,
    PLAN_STUDY,
    PLAN_SWEEP,
    PREPARE,
    REPORT,
    SEARCH_STEPS,
    SECTIONS,
    TENSORBOARD,
    TRAIN_POINT,
    TRAIN_TRIAL,
    VERDICT,
    VIEWERS,
    text_with_braces,
)
from ctrpipe.pipeline.run.run import check_options

DEFAULT = "default"  # key of kubeflow.resources for steps without their own key
TRAINER, TRANSFORM = "Trainer", "LogTransform"
# The step of a run whose work a step of a sweep or a study does, and whose resources it has.
_LIKE = {
    PLAN_SWEEP: TRANSFORM,
    PLAN_STUDY: TRANSFORM,
    TRAIN_POINT: TRAINER,
    TRAIN_TRIAL: TRAINER,
    CONFIRM_STUDY: TRAINER,
}
_OF_SEVERAL = (PLAN_SWEEP, PLAN_STUDY, CONFIRM_STUDY)  # of these, the ones that do the work of several steps
LONGEST_NAME = 100  # characters of a pipeline's name; Kubeflow adds to it, and stores 127
BUCKETS = "/gcs/"  # folder where Vertex AI mounts all buckets in its containers
_BY_URL = ("data", "monitoring", "kubeflow")  # sections whose paths may be URLs of a store
_DEVICE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
STEP = ["python", "-m", "ctrpipe.pipeline.kubeflow.step"]


def compile_pipeline(config: RunConfig, output: pathlib.Path | str, vertex: bool = False) -> list[str]:
    """Writes the pipeline: YAML for Kubeflow Pipelines, or a PipelineJob in JSON for Vertex AI.

    Returns:
        The names of the steps in topological order.

    Raises:
        InputError: the configuration cannot run on Kubeflow, or the file cannot be written.
    """
    folder = check_cluster(config, vertex)
    check_pipeline(config)
    nodes = graph_nodes(config)
    check_steps(config, nodes)
    text = compiled(lambda: _pipeline(config, nodes, folder, not vertex))
    if vertex:
        spec = next(yaml.safe_load_all(text))
        account = {"serviceAccount": config.kubeflow.service_account} if config.kubeflow.service_account else {}
        job = {"displayName": config.name, "pipelineSpec": spec, "runtimeConfig": {}, **account}
        text = json.dumps(job, indent=1, sort_keys=True)
    else:
        text = with_account(config, text)
    write_package(output, text)
    return step_names(nodes)


def check_cluster(config: RunConfig, vertex: bool = False) -> str:
    """Checks that the steps can run on a cluster and can read their files; returns the run's folder.

    Raises:
        InputError: something is missing, or a file is not visible to the steps.
    """
    mounts = [BUCKETS.rstrip("/")] if vertex else list(config.kubeflow.volumes.values())
    missing = []
    if not config.kubeflow.image:
        missing.append("kubeflow.image: name the image that kubeflow/Dockerfile builds, as a registry has it")
    if not mounts and not config.kubeflow.output:
        missing.append(
            "kubeflow.volumes: name the PersistentVolumeClaim of log and models, as in {ctr-data: /data}, or give "
            "kubeflow.output as a URL"
        )
    if missing:
        raise InputError("; ".join(missing) + "; in the configuration, or by --set KEY=VALUE")
    folder = config.kubeflow.output or f"{mounts[0]}/runs/{config.name}"
    for where, path in [*_paths(config), ("kubeflow.output", folder)]:
        _check_path(where, path, mounts)
    if is_url(folder) and config.beam_args:
        raise InputError("kubeflow.output: Beam's workers need a folder that they all see; give one on a volume")
    check_options(config)
    if vertex and config.kubeflow.secrets:
        raise InputError("kubeflow.secrets: Vertex AI has no Kubernetes secrets; leave them out, or compile to YAML")
    if not vertex:
        _check_accelerators(config)
    return folder


def check_pipeline(config: RunConfig) -> None:
    """Raises InputError if a training needs several pods, or if Kubeflow would replace a text."""
    if config.training.distribution == "multi_worker":
        raise InputError("training.distribution: a step is one pod; compile a TrainJob, with --hosts 2 or more")
    if braced := text_with_braces(config.model_dump(mode="json", exclude_unset=True)):
        where, text = braced
        raise InputError(f"{where}: Argo would replace what follows {BRACES} in {text[:60]!r}; write it without")


def _check_accelerators(config: RunConfig) -> None:
    for step, resources in config.kubeflow.resources.items():
        if resources.accelerator and not _DEVICE.fullmatch(resources.accelerator):
            raise InputError(
                f"kubeflow.resources.{step}.accelerator: {resources.accelerator!r} is not a resource of Kubernetes; "
                "write the name that its nodes offer, such as nvidia.com/gpu"
            )


def pipeline_name(name: str) -> str:
    """Returns the name of a run as a pipeline has it: in lower case, with - in place of other characters.

    Raises:
        InputError: Kubeflow would refuse it.
    """
    made = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not made or len(made) > LONGEST_NAME:
        raise InputError(
            f"name: {name[:40]!r} makes a pipeline's name of {len(made)} characters; give one of 1 to {LONGEST_NAME} "
            "letters, digits and -"
        )
    return made


def _paths(config: RunConfig) -> list[tuple[str, str]]:
    """Returns the keys of the configuration that name files and folders, with their paths."""
    named = [("data.paths", path) for path in config.data.paths]
    if files := config.data.split.files:
        for name in ("train", "validation", "test"):
            named += [(f"data.split.files.{name}", path) for path in getattr(files, name)]
    named += [("monitoring.previous", path) for path in config.monitoring.previous]
    named += [("monitoring.serving", path) for path in config.monitoring.serving]
    if config.training.distillation:
        named.append(("training.distillation.teacher", config.training.distillation.teacher))
    return named + config.checkpoints


def _check_path(where: str, path: str, mounts: list[str]) -> None:
    if is_url(path) and where.split(".")[0] in _BY_URL:
        check_scheme(path)
        return
    if not any(path.startswith(f"{mount}/") for mount in mounts) or ".." in path.split("/"):
        place = " or ".join(mounts) or "one of kubeflow.volumes"
        raise InputError(f"{where}: {path} is not visible to the steps in the cluster; put it below {place}")


def step_names(nodes: list[Node]) -> list[str]:
    """Returns the names of a run's steps in topological order."""
    return [PREPARE, *(node.name for node in nodes), REPORT, VERDICT]


def check_steps(config: RunConfig, nodes: list[Node]) -> None:
    """Raises InputError if `kubeflow.resources` names an unknown step.

    The steps of a run and of a search are known, because both may use the same configuration.

    Args:
        config: The configuration.
        nodes: The nodes of its graph.
    """
    names = step_names(nodes)
    absent = sorted(set(config.kubeflow.resources) - {DEFAULT, *names, *SEARCH_STEPS})
    if absent:
        raise InputError(
            f"kubeflow.resources: {', '.join(absent)} is not a step; the steps are {', '.join(names)}, and of a sweep "
            f"or a study {', '.join(SEARCH_STEPS)}"
        )


def compiled(make: Callable[[], Any]) -> str:
    """Returns the compiled file of the pipeline that `make` creates.

    Runs `make` in a thread, because kfp inspects the whole stack for every setting, and a thread's stack is short.
    """
    with ThreadPoolExecutor(1) as thread, tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "pipeline.yaml"
        thread.submit(lambda: compiler.Compiler().compile(make(), str(file))).result()
        return file.read_text(encoding="utf-8")


def with_account(config: RunConfig, text: str) -> str:
    """Returns a compiled file that begins with the service account, for `ctrpipe submit`, if there is one."""
    account = config.kubeflow.service_account
    return f"{ACCOUNT}{account}\n{text}" if account else text


def write_package(output: pathlib.Path | str, text: str) -> None:
    """Writes a compiled file.

    Args:
        output: The file, or its URL in a store, as text.
        text: The compiled pipeline or manifests, as YAML or JSON.

    Raises:
        InputError: the file cannot be written, or the store refuses a request or does not answer.
    """
    if isinstance(output, str):
        stores.write_bytes(output, text.encode())
        return
    try:
        write_text(output, text)
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror}); choose another --output") from error


def _pipeline(config: RunConfig, nodes: list[Node], folder: str, volumes: bool) -> Any:
    """Returns kfp's pipeline.

    Only Prepare takes the pipeline's parameters. The other steps take arguments from Prepare. A changed parameter
    therefore reruns only the steps whose arguments change.
    """
    version = code_version()
    rest = config.model_dump(mode="json", exclude={"kubeflow", "seed", *SECTIONS})

    steps = _run_steps(config, nodes, version)
    component = _component(config, version, PREPARE, parameters=PREPARED, returned=[*(n.name for n in nodes), REPORT])

    def task(component: Any, name: str, cached: bool, **values: Any) -> Any:
        made = component(**values).set_display_name(name).set_caching_options(cached and config.kubeflow.cache)
        return set_container(config, made, name, volumes)

    groups = nested_groups(steps, task) if config.kubeflow.groups else []

    def run(  # kfp reads the names and types
        data: list,  # type: ignore[type-arg]
        output: str,
        model: str,
        training: str,
        gates: str,
        seed: int,
        settings: list,  # type: ignore[type-arg]
    ) -> None:
        given = dict(zip(PARAMETERS, (data, output, model, training, gates, seed, settings), strict=True))
        prepare = task(component, PREPARE, False, config=json.dumps(rest), place=folder, **given)
        channels = {(PREPARE, name): channel for name, channel in prepare.outputs.items()}
        if groups:
            make_groups(groups, channels)
        else:
            make_steps(steps, channels, task)

    # Sections are JSON texts, because kfp does not accept null inside an object.
    sections = (getattr(config, section).model_dump_json() for section in SECTIONS)
    defaults: tuple[Any, ...] = (folder, *sections, config.seed, [])
    run.__doc__ = _DESCRIPTIONS
    # A parameter without a default is required. `data` is required if the configuration names no log.
    of_split = config.data.split.files.train if config.data.split.files else []
    run.__defaults__ = (config.data.paths, *defaults) if config.data.paths or of_split else defaults
    description = f"{config.model.name} on the log {config.name}; code {version}"
    return dsl.pipeline(name=pipeline_name(config.name), description=description)(run)


def _run_steps(config: RunConfig, nodes: list[Node], version: str) -> list[RunStep]:
    """Returns the steps after Prepare in topological order."""
    types = {(node.name, name): kind(type_) for node in nodes for name, type_ in node.outputs.items()}
    steps = []
    for node in nodes:
        inputs = {name: types[source] for name, source in node.inputs.items()}
        component = _component(config, version, node.name, node=node, artifacts=inputs, parameters=ARGUMENTS)
        outputs = {name: types[node.name, name] for name in node.outputs}
        steps.append(RunStep(node.name, component, {**_prepared(node.name), **node.inputs}, outputs))
    reported = {key(*source): source for source in REPORTED if source in types}
    component = _component(
        config,
        version,
        REPORT,
        artifacts={name: types[source] for name, source in reported.items()},
        parameters=ARGUMENTS,
        returned=[VERDICT],
        shown={"metrics": "Metrics", CLASSIFICATION: "ClassificationMetrics", "page": "HTML"},
    )
    to_verdict = key(VERDICT)
    report = RunStep(REPORT, component, {**_prepared(REPORT), **reported}, {to_verdict: "String"}, cached=False)
    component = _component(config, version, VERDICT, parameters=ARGUMENTS)
    return [*steps, report, RunStep(VERDICT, component, {"arguments": (REPORT, to_verdict)}, {}, cached=False)]


def _prepared(name: str) -> dict[str, tuple[str, str]]:
    """Returns the source of a step's arguments."""
    return {"arguments": (PREPARE, key(name))}


# kfp reads the parameters' descriptions, which Kubeflow's form for a run shows, from the pipeline's docstring.
_DESCRIPTIONS = """Trains, evaluates and pushes a model.

Args:
    data: Paths of the log's files, below a mounted volume, or URLs of a store.
    output: Folder or URL of the run, with its report and the pushed models.
    model: The section model of the configuration, as YAML.
    training: The section training of the configuration, as YAML.
    gates: The section gates of the configuration, as YAML: what a model must reach to be pushed.
    seed: Seed of everything random.
    settings: Other settings as KEY=VALUE, such as gates.auc.min=0.7.
"""
PARAMETERS = ("data", "output", *SECTIONS, "seed", "settings")
PREPARED = {name: "String" for name in ("config", "place", *PARAMETERS)} | {
    "data": "List",
    "seed": "Integer",
    "settings": "List",
}
ARGUMENTS = {"arguments": "String"}


def _component(
    config: RunConfig,
    version: str,
    name: str,
    node: Node | None = None,
    artifacts: dict[str, str] | None = None,
    parameters: dict[str, str] | None = None,
    returned: list[str] | None = None,
    shown: dict[str, str] | None = None,
) -> Any:
    """Returns kfp's component of one step of a run.

    Args:
        config: The run's configuration.
        version: The hash of the code. The container checks it.
        name: The step's name.
        node: The step's node of the graph. None for Prepare, Report and Verdict.
        artifacts: The types of the input artifacts by name.
        parameters: The types of the input parameters by name.
        returned: The steps for which this step outputs arguments.
        shown: The types, by name, of outputs that Kubeflow's pages show.
    """
    outputs = {key(output): "String" for output in returned or ()} | (shown or {})
    arguments = []
    if node:
        outputs |= {output: kind(type_) for output, type_ in node.outputs.items()}
        outputs |= {TENSORBOARD: "Artifact", VIEWERS: "Artifact"} if trains(node) else {}
        arguments += ["--executor", node.executor]
        for output, type_ in node.outputs.items():
            arguments += ["--output", f"{output}={type_.__module__}.{type_.__name__}"]
    return step_component(config, version, name, {**(parameters or {}), **(artifacts or {})}, outputs, arguments)


def step_component(
    config: RunConfig,
    version: str,
    name: str,
    inputs: dict[str, str],
    outputs: dict[str, str],
    arguments: Sequence[str] = (),
) -> Any:
    """Returns kfp's component of a container that runs one step.

    Args:
        config: The run's configuration.
        version: The hash of the code. The container checks it.
        name: The step's name.
        inputs, outputs: The types of parameters and artifacts by name.
        arguments: More arguments of the container's command.
    """
    specification = {
        "name": name,
        "inputs": [{"name": input_name, "type": type_} for input_name, type_ in inputs.items()],
        "outputs": [{"name": output, "type": type_} for output, type_ in outputs.items()],
        "implementation": {
            "container": {
                "image": config.kubeflow.image,
                "command": STEP,
                "args": [
                    "--stage",
                    name,
                    "--code_version",
                    version,
                    *arguments,
                    "--executor_input",
                    {"executorInput": None},
                ],
            }
        },
    }
    return components.load_component_from_text(yaml.safe_dump(specification))


def resources_of(config: RunConfig, name: str) -> Resources:
    """Returns the resources of a step: its own, else those of the step whose work it does, else the default, else none.

    A search step that does the work of several steps has only its own time limit.
    """
    resources = config.kubeflow.resources
    if own := resources.get(name):
        return own
    if like := resources.get(_LIKE.get(name, "")):
        return like.model_copy(update={"timeout": None}) if name in _OF_SEVERAL else like
    return resources.get(DEFAULT) or Resources()


def set_container(config: RunConfig, task: Any, name: str, in_cluster: bool) -> Any:
    """Sets the resources and the environment of a step's task, mounts its volumes, and returns the task.

    Args:
        config: The run's configuration.
        task: kfp's task.
        name: The step's name.
        in_cluster: Whether the task gets settings that only Kubernetes has. Vertex AI has no volumes, tolerations or
        secrets.
    """
    resources = resources_of(config, name)
    if resources.cpu:
        task.set_cpu_request(resources.cpu).set_cpu_limit(resources.cpu)
    if resources.memory:
        task.set_memory_request(resources.memory).set_memory_limit(resources.memory)
    if resources.accelerator:
        task.set_accelerator_type(resources.accelerator).set_accelerator_limit(resources.accelerators)
    if resources.retries and name != VERDICT:  # a blocked model stays blocked
        task.set_retry(resources.retries, backoff_duration="30s", backoff_factor=2.0, backoff_max_duration="600s")
    for variable, value in config.kubeflow.environment.items():
        task.set_env_variable(variable, as_it_is(value) if in_cluster else value)
    if in_cluster:
        _set_pod(config.kubeflow, resources, task)
    return task


def as_it_is(text: str) -> str:
    """Escapes $(NAME) in a text, which Kubernetes would replace by a variable."""
    return text.replace("$(", "$$(")


def _set_pod(kubeflow: Kubeflow, resources: Resources, task: Any) -> None:
    for claim, mount in kubeflow.volumes.items():
        kubernetes.mount_pvc(task, pvc_name=claim, mount_path=mount)
    for label, value in resources.node_selector.items():
        kubernetes.add_node_selector(task, label, value)
    for taint in resources.tolerations:
        operator = "Exists" if taint.value is None else "Equal"
        kubernetes.add_toleration(task, taint.key, operator, taint.value, taint.effect)
    if resources.timeout:
        kubernetes.set_timeout(task, resources.timeout)
    for variable, secret in kubeflow.secrets.items():
        kubernetes.use_secret_as_env(task, secret.name, {secret.key: variable})
    if kubeflow.image_pull_secrets:
        kubernetes.set_image_pull_secrets(task, kubeflow.image_pull_secrets)
