"""Readers and checks of the manifests in kubeflow/."""

import pathlib
from typing import Any

import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).parents[2] / "kubeflow"
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
WRITES_INTO_ITS_IMAGE = {"flink-main-container"}  # Flink's own image
KUBERNETES = ("1.27", "1.37")  # the oldest and newest that is checked


def documents(name: str) -> list[dict[str, Any]]:
    """Returns the manifests of a folder, without kustomize's own."""
    files = [file for file in sorted((FOLDER / name).glob("*.yaml")) if file.name != "kustomization.yaml"]
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def by_kind(name: str, kind: str) -> dict[str, Any]:
    [found] = [document for document in documents(name) if document["kind"] == kind]
    return found


def invalid(document: dict[str, Any], versions: tuple[str, ...] = KUBERNETES) -> str | None:
    """Returns the violations of Kubernetes' schemas in a manifest."""
    for version in versions:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            return str(error)
    return None


def broken_rules(pod: dict[str, Any]) -> set[str]:
    """Returns a pod's violations of the standard `restricted`, and containers that could write to their image."""
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
