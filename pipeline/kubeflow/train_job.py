"""Compiles a run that trains on several hosts to a TrainJob of Kubeflow Trainer, for `kubectl apply`.

The file contains the configuration as a ConfigMap, the runtime of the pods, and the job. The first pod is `ctrpipe
run`; the others train with it. Trainer creates a JobSet, whose pods have predictable names, so each pod can compute its
TF_CONFIG.
"""

import pathlib
from typing import Any

import yaml

from ctrpipe.common.code_version import code_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import BLOCKED, FAILED
from ctrpipe.common.stores import is_url
from ctrpipe.pipeline.config import Kubeflow, Resources, RunConfig
from ctrpipe.pipeline.kubeflow.compile import (
    TRAINER,
    as_it_is,
    check_cluster,
    check_steps,
    pipeline_name,
    resources_of,
    write_package,
)
from ctrpipe.pipeline.kubeflow.nodes import graph_nodes

HOSTS = 1000  # maximum number
API = "trainer.kubeflow.org/v1alpha1"
NODE = "node"  # the name that Trainer looks for, of the job and of its container
_PORT = 2222
_SETTINGS, _FILE = "/etc/ctrpipe", "run.yaml"
_USER = 1000  # of the image
_SHARING = ("auto", "multi_worker")  # values of training.distribution with which several hosts train
# A pod is called NAME-node-0-INDEX-RANDOM, which may have 63 characters.
_LONGEST_NAME = 63 - len(f"-{NODE}-0-{HOSTS}-abcde")
# $JOB is the JobSet's name. What ends an other host is no verdict on the model, so its exit code is never BLOCKED.
_START = f"""\
hosts=$(seq -s, -f "\\"$JOB-{NODE}-0-%g.$JOB:{_PORT}\\"" 0 $((NODES - 1)))
task="{{\\"type\\": \\"worker\\", \\"index\\": $JOB_COMPLETION_INDEX}}"
export TF_CONFIG="{{\\"cluster\\": {{\\"worker\\": [$hosts]}}, \\"task\\": $task}}"
[ "$JOB_COMPLETION_INDEX" = 0 ] && exec ctrpipe run "$@"
trap 'kill $!' TERM
python -m ctrpipe.pipeline.training.follow --backend "$BACKEND" &
wait $! || exit {FAILED}
"""


def compile_train_job(config: RunConfig, hosts: int, output: pathlib.Path | str) -> list[str]:
    """Writes the manifests of a run on several hosts.

    Args:
        config: The run's configuration.
        hosts: Their number.
        output: The file, or its URL in a store, as text.

    Returns:
        The kinds of the manifests.

    Raises:
        InputError: the configuration cannot run so, or the file cannot be written.
    """
    folder = check_cluster(config)
    check_steps(config, graph_nodes(config))
    if hosts > HOSTS:
        raise InputError(f"--hosts {hosts}: more than {HOSTS}; give fewer")
    if is_url(folder):
        raise InputError(f"kubeflow.output: {folder}: the hosts share the run's folder; give one on a volume")
    if config.training.distribution not in _SHARING:
        raise InputError(
            f"training.distribution: {config.training.distribution} takes one host; for several set it to auto"
        )
    if not (config.data.paths or config.data.split.files and config.data.split.files.train):
        raise InputError("data.paths: a TrainJob has no parameters; name the log, as by --set data.paths=[/data/log]")
    name = _job_name(config.name)
    documents = [_settings(config, name), _runtime(config, name, hosts), _job(config, name, hosts, folder)]
    head = (
        f"# {config.model.name} on the log {config.name}, on {hosts} hosts; code {code_version()}\n"
        "# kubectl apply -n NAMESPACE -f FILE, with Kubeflow Trainer 2.0 or newer on Kubernetes 1.31 or newer\n"
    )
    write_package(output, head + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
    return [document["kind"] for document in documents]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, for readers."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, _Dumper.represent_text)


def _job_name(name: str) -> str:
    """Returns the name of the job. Raises InputError if its pods cannot have this name."""
    made = pipeline_name(name)
    made = made if made[0].isalpha() else f"ctr-{made}"  # a job's name begins with a letter
    if len(made) > _LONGEST_NAME:
        raise InputError(
            f"name: {name[:40]!r} has {len(name)} characters, and pods are called after it; give at most "
            f"{_LONGEST_NAME - 4}, as by --set name=NAME"
        )
    return made


def _metadata(name: str, **labels: str) -> dict[str, Any]:
    return {"name": name, "labels": {"app.kubernetes.io/part-of": "ctrpipe", **labels}}


def _settings(config: RunConfig, name: str) -> dict[str, Any]:
    values = config.model_dump(mode="json", exclude_unset=True, exclude={"kubeflow"})
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(name), "data": {_FILE: text}}


def _runtime(config: RunConfig, name: str, hosts: int) -> dict[str, Any]:
    resources = resources_of(config, TRAINER)
    job: dict[str, Any] = {
        "completionMode": "Indexed",
        "backoffLimit": 0,
        # The others only follow: they end when the run has ended.
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        # A blocked model stays blocked. All else is tried again: a host that was lost is a mistake by its exit code.
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": NODE, "operator": "In", "values": [BLOCKED]},
                }
            ]
        },
        "template": {"spec": _pod(config, resources, name)},
    }
    if resources.timeout:
        job["activeDeadlineSeconds"] = resources.timeout
    ancestor = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    return {
        "apiVersion": API,
        "kind": "TrainingRuntime",
        "metadata": _metadata(name, **{"trainer.kubeflow.org/framework": "tensorflow"}),
        "spec": {
            "mlPolicy": {"numNodes": hosts},
            "template": {
                "spec": {
                    # Where one host fails all start anew, and go on from the last checkpoint.
                    "failurePolicy": {
                        "maxRestarts": resources.retries,
                        "rules": [
                            {"name": "final", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
                        ],
                    },
                    "replicatedJobs": [{"name": NODE, "template": {"metadata": {"labels": ancestor}, "spec": job}}],
                }
            },
        },
    }


def _pod(config: RunConfig, resources: Resources, name: str) -> dict[str, Any]:
    kubeflow = config.kubeflow
    claims = {f"claim-{number}": claim for number, claim in enumerate(kubeflow.volumes)}
    mounts: list[dict[str, Any]] = [
        {"name": volume, "mountPath": kubeflow.volumes[claim]} for volume, claim in claims.items()
    ]
    volumes: list[dict[str, Any]] = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()
    ]
    mounts.append({"name": "settings", "mountPath": _SETTINGS, "readOnly": True})
    volumes.append({"name": "settings", "configMap": {"name": name}})
    if "/tmp" not in kubeflow.volumes.values():
        mounts.append({"name": "scratch", "mountPath": "/tmp"})
        volumes.append({"name": "scratch", "emptyDir": {}})
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": NODE,
                "image": kubeflow.image,
                "command": ["/bin/sh", "-c", _START, "ctrpipe"],
                "env": _environment(config),
                "ports": [{"name": "workers", "containerPort": _PORT, "protocol": "TCP"}],
                "securityContext": {
                    "readOnlyRootFilesystem": True,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if resources.node_selector:
        spec["nodeSelector"] = resources.node_selector
    if resources.tolerations:
        spec["tolerations"] = [
            {"operator": "Exists" if taint.value is None else "Equal", **taint.model_dump(exclude_none=True)}
            for taint in resources.tolerations
        ]
    if kubeflow.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in kubeflow.image_pull_secrets]
    if kubeflow.service_account:
        spec["serviceAccountName"] = kubeflow.service_account
    return spec


def _environment(config: RunConfig) -> list[dict[str, Any]]:
    kubeflow: Kubeflow = config.kubeflow
    job = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
    # Several hosts never train by themselves on JAX, where the backend is left to the run.
    backend = "jax" if config.training.backend == "jax" else "tensorflow"
    variables: list[dict[str, Any]] = [{"name": "JOB", "valueFrom": job}, {"name": "BACKEND", "value": backend}]
    variables += [{"name": key, "value": as_it_is(value)} for key, value in kubeflow.environment.items()]
    for key, secret in kubeflow.secrets.items():
        variables.append({"name": key, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}})
    return variables


def _job(config: RunConfig, name: str, hosts: int, folder: str) -> dict[str, Any]:
    resources = resources_of(config, TRAINER)
    amounts: dict[str, str] = {}
    if resources.cpu:
        amounts["cpu"] = resources.cpu
    if resources.memory:
        amounts["memory"] = resources.memory
    if resources.accelerator:
        amounts[resources.accelerator] = str(resources.accelerators)
    trainer: dict[str, Any] = {
        "numNodes": hosts,
        "env": [{"name": "NODES", "value": str(hosts)}],
        "args": [f"{_SETTINGS}/{_FILE}", f"--output={folder}"],
    }
    if amounts:
        trainer["resourcesPerNode"] = {"requests": amounts, "limits": amounts}
    runtime = {"apiGroup": API.partition("/")[0], "kind": "TrainingRuntime", "name": name}
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": _metadata(name),
        "spec": {"runtimeRef": runtime, "trainer": trainer},
    }
