"""What kubeflow/ holds, read and checked as the tests need it."""

import pathlib
from typing import Any

import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).parents[2] / "kubeflow"
KUBERNETES = ("1.27", "1.37")  # the oldest and newest that is checked


def documents(name: str) -> list[dict[str, Any]]:
    """The manifests of a folder, without kustomize's own."""
    files = [file for file in sorted((FOLDER / name).glob("*.yaml")) if file.name != "kustomization.yaml"]
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def by_kind(name: str, kind: str) -> dict[str, Any]:
    [found] = [document for document in documents(name) if document["kind"] == kind]
    return found


def invalid(document: dict[str, Any], versions: tuple[str, ...] = KUBERNETES) -> str | None:
    """What Kubernetes' schemas have against a manifest."""
    for version in versions:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            return str(error)
    return None
