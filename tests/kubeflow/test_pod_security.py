"""Every pod of the manifests keeps Kubernetes' Pod Security Standard `restricted`, and writes into volumes only.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted. KServe's own runtime gives an
InferenceService's pod its rights.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubeflow.manifests import documents
from tests.serving.deploy_files import documents as deploy_documents

FOLDERS = ("base", "flink", "schedule", "training")
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
WRITES_INTO_ITS_IMAGE = {"flink-main-container"}  # Flink's own image


def pod_specs(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The specs of pods, at any depth of a manifest, with the keys that lead there."""
    if isinstance(value, dict) and "containers" in value:
        yield where, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from pod_specs(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from pod_specs(inner, f"{where}[{index}]")


PODS = dict(
    pod
    for document in [*deploy_documents("kubernetes"), *(one for name in FOLDERS for one in documents(name))]
    for pod in pod_specs(document, f"{document['kind']} {document['metadata']['name']}")
)


def broken_rules(pod: dict[str, Any]) -> set[str]:
    """What `restricted` has against a pod, and containers that could write into their image."""
    own = pod.get("securityContext", {})
    broken = {key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)}
    broken |= {f"volume {volume['name']}" for volume in pod.get("volumes", []) if not set(volume) & VOLUMES}
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        name, rights = container["name"], {**own, **container.get("securityContext", {})}
        kept = {
            "runAsNonRoot": rights.get("runAsNonRoot") is True,
            "runAsUser": rights.get("runAsUser", 0) != 0,
            "seccompProfile": rights.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "privileged": not rights.get("privileged"),
            "allowPrivilegeEscalation": rights.get("allowPrivilegeEscalation") is False,
            "capabilities": rights.get("capabilities") == {"drop": ["ALL"]},
            "hostPort": not any("hostPort" in port for port in container.get("ports", [])),
            "readOnlyRootFilesystem": rights.get("readOnlyRootFilesystem") is True or name in WRITES_INTO_ITS_IMAGE,
            "/tmp": name in WRITES_INTO_ITS_IMAGE or "/tmp" in [m["mountPath"] for m in container["volumeMounts"]],
        }
        broken |= {f"{name} {rule}" for rule, is_kept in kept.items() if not is_kept}
    return broken


@pytest.mark.parametrize("where", PODS)
def test_a_pod_has_no_more_rights_than_it_needs(where):
    assert broken_rules(PODS[where]) == set()


def test_every_kind_of_pod_is_looked_at():
    assert sorted(where.split()[0] for where in PODS) == [
        "CronJob",
        "Deployment",
        "Deployment",
        "FlinkDeployment",
        "TrainingRuntime",
    ]


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (("securityContext", "seccompProfile"), {}, "submit seccompProfile"),
        (("securityContext", "runAsUser"), 0, "submit runAsUser"),
        (("containers", 0, "securityContext", "capabilities"), {"drop": ["NET_RAW"]}, "submit capabilities"),
        (("containers", 0, "volumeMounts"), [], "submit /tmp"),
        (("volumes", 0), {"name": "host", "hostPath": {"path": "/"}}, "volume host"),
    ],
)
def test_a_right_too_many_is_found(path, value, rule):
    pod = copy.deepcopy(next(spec for where, spec in PODS.items() if where.startswith("CronJob")))
    inner = pod
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert broken_rules(pod) == {rule}
