"""The `kubeflow` part of a run's configuration."""

from typing import Annotated

import pydantic

from transforms.log.spec import Section

Name = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]  # of a Kubernetes object
Folder = Annotated[str, pydantic.Field(pattern=r"^/.*[^/]$")]


class Resources(Section):
    """What one step's container gets: `cpu` (4, 500m), `memory` (16Gi), `accelerators` of the kind `accelerator`
    (nvidia.com/gpu, google.com/tpu), on a node with the labels `node_selector`."""

    model_config = pydantic.ConfigDict(coerce_numbers_to_str=True)

    cpu: str | None = pydantic.Field(None, pattern=r"^([0-9]*[.])?[0-9]+m?$")
    memory: str | None = pydantic.Field(None, pattern=r"^[0-9]+(E|Ei|P|Pi|T|Ti|G|Gi|M|Mi|K|Ki)?$")
    accelerator: str | None = pydantic.Field(None, min_length=1)
    accelerators: int = pydantic.Field(1, ge=1)
    node_selector: dict[str, str] = {}


class Kubeflow(Section):
    """How the pipeline runs on Kubeflow Pipelines, nothing of what it computes.

    `image` is what kubeflow/Dockerfile builds. `volumes` are PersistentVolumeClaims and where every step sees them;
    the log, and `output` (by default runs/<name> in the first volume), lie in one of them. `resources` are those of a
    step by its name, and of every other step by `default`.
    """

    image: str | None = pydantic.Field(None, min_length=1)
    volumes: dict[Name, Folder] = {}
    output: Folder | None = None
    resources: dict[str, Resources] = {}
