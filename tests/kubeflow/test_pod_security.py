"""Every pod of the manifests keeps Kubernetes' Pod Security Standard `restricted`, and writes into volumes only.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted. KServe's own runtime gives an
InferenceService's pod its rights. The pods of a TrainJob are in test_training_job.py.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubeflow.manifests import broken_rules, documents
from tests.serving.deploy_files import documents as deploy_documents

FOLDERS = ("base", "flink", "schedule")


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


@pytest.mark.parametrize("where", PODS)
def test_a_pod_has_no_more_rights_than_it_needs(where):
    assert broken_rules(PODS[where]) == set()


def test_every_kind_of_pod_is_looked_at():
    assert sorted(where.split()[0] for where in PODS) == [
        "CronJob",
        "Deployment",
        "Deployment",
        "FlinkDeployment",
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
