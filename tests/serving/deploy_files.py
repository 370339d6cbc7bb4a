"""Readers of the files in serving/deploy/, for the tests."""

import pathlib
from typing import Any

import yaml

from ctrpipe.serving.server import ServerOptions, parse_flags

FOLDER = pathlib.Path(__file__).parents[2] / "serving" / "deploy"
CONFIG = FOLDER / "config"


def documents(*names: str) -> list[dict[str, Any]]:
    """Returns the YAML documents of these files or folders, without kustomize's own."""
    files = [file for name in names for file in sorted((FOLDER / name).rglob("*.yaml") or [])]
    files += [FOLDER / name for name in names if (FOLDER / name).is_file()]
    found = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    return [document for document in found if document.get("kind") != "Kustomization" and "kind" in document]


def compose() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose" / "compose.yaml").read_text())


def by_kind(kind: str, folder: str = "kubernetes") -> dict[str, Any]:
    return next(document for document in documents(folder) if document["kind"] == kind)


def container() -> dict[str, Any]:
    return by_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]


def flags() -> dict[str, list[str]]:
    """Returns the server's flags in each kind of deployment; KServe's own runtime adds ports, name and folder."""
    model = by_kind("InferenceService", "kserve")["spec"]["predictor"]["model"]
    runtime = ["--port=9000", "--rest_api_port=8080", "--model_name=ctr", "--model_base_path=/mnt/models"]
    return {
        "compose": compose()["services"]["serving"]["command"],
        "kubernetes": container()["args"],
        "kserve": [*runtime, *model["args"]],
    }


def options(flags: list[str], models: pathlib.Path) -> ServerOptions:
    """Returns the flags with this folder instead of the container's /models, on free ports."""
    models_config = models / "models.config"
    models_config.write_text((CONFIG / "models.config").read_text().replace("/models/", f"{models}/"))
    places = {"/config/models.config": models_config, "/mnt/models": models / "ctr"}
    for place, path in {**places, "/config": CONFIG}.items():
        flags = [flag.replace(f"={place}", f"={path}") for flag in flags]
    return parse_flags(flags)
