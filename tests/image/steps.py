"""Runs each task of a compiled pipeline in a container of the image that the file names.

As in a cluster, a container has its own inputs, read-only, a folder for its outputs, and the volumes, the environment
and the limits that the compiled file gives it; nothing else of the other tasks.
"""

import pathlib
import uuid
from typing import Any

import yaml

from tests.image.containers import engine, options, writable
from tests.kubeflow.launcher import Launcher

STORE = "mlpipeline/v2/artifacts"
SAID = "/kfp"  # where a task puts what it tells its launcher
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "K": 10**3, "M": 10**6, "G": 10**9, "": 1}


def quantity(text: str) -> int:
    """Returns Kubernetes' quantity of memory in bytes."""
    number = text.rstrip("KMGi")
    return int(number) * UNITS[text[len(number) :]]


class ContainerLauncher(Launcher):
    """Attributes:
    claims: The folder here of each PersistentVolumeClaim, with `:ro` at its end for one that is mounted read-only.
    containers: The name of each task's container.
    """

    def __init__(self, package: pathlib.Path, *arguments: Any, claims: dict[str, str], **options: Any):
        super().__init__(package, *arguments, **options)
        self._platform = list(yaml.safe_load_all(package.read_text()))[1]["platforms"]["kubernetes"]
        self.claims = claims
        self.containers: dict[str, str] = {}

    def uri(self, name: str, key: str) -> str:
        return f"minio://{STORE}/{name}/{key}"

    def written(self, name: str) -> str:
        return SAID

    def execute(self, name: str, command: list[str], container: dict[str, Any]) -> tuple[int, str]:
        label = self.spec["components"][self.tasks[name]["componentRef"]["name"]]["executorLabel"]
        volumes = {}
        for mount in self._platform["deploymentSpec"]["executors"][label]["pvcMount"]:
            claim = mount.get("constant") or mount["pvcNameParameter"]["runtimeValue"]["constant"]
            folder, colon, rights = self.claims[claim].partition(":")
            volumes[pathlib.Path(folder)] = mount["mountPath"] + colon + rights
        for artifact in self._inputs(name):
            if (self.bucket / artifact).exists():  # a bucket has no empty folders
                volumes[self.bucket / artifact] = f"/minio/{STORE}/{artifact}:ro"
        own = writable(self.bucket / name)
        more = [f"--volume={own}:/minio/{STORE}/{name}", f"--volume={own}:{SAID}"]
        more += [f"--env={variable['name']}={variable['value']}" for variable in container.get("env", [])]
        limits = container.get("resources", {})
        if "resourceMemoryLimit" in limits:
            memory = quantity(limits["resourceMemoryLimit"])
            more += [f"--memory={memory}", f"--memory-swap={memory}"]
        if "resourceCpuLimit" in limits:
            more.append(f"--cpus={limits['resourceCpuLimit']}")
        self.containers[name] = running = f"ctrpipe-step-{name}-{uuid.uuid4().hex[:8]}"
        first, *rest = command
        try:
            arguments = [*options(volumes), *more, f"--entrypoint={first}", container["image"], *rest]
            ended = engine("run", f"--name={running}", *arguments, seconds=600)
        finally:
            engine("rm", "--force", running)
        return ended.code, ended.text

    def _inputs(self, name: str) -> list[str]:
        """The places in the bucket of a task's input artifacts."""
        sources = self.tasks[name].get("inputs", {}).get("artifacts", {}).values()
        outputs = [source["taskOutputArtifact"] for source in sources]
        return [f"{output['producerTask']}/{output['outputArtifactKey']}" for output in outputs]
