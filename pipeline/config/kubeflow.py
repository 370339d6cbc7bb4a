"""The `kubeflow` part of a run's configuration."""

from typing import Annotated

import pydantic

from ctrpipe.transforms.log.spec import Section

Name = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]  # of a Kubernetes object
Folder = Annotated[str, pydantic.Field(pattern=r"^/.*[^/]$")]


class Resources(Section):
    """Resources of one step's container.

    Example:
        kubeflow: {resources: {Trainer: {cpu: 4, memory: 16Gi, accelerator: nvidia.com/gpu}}}
    """

    model_config = pydantic.ConfigDict(coerce_numbers_to_str=True)

    cpu: str | None = pydantic.Field(None, pattern=r"^([0-9]*[.])?[0-9]+m?$", examples=["4", "500m"])
    """Processors, in cores or thousandths of a core (m), as request and limit; null: the cluster's default."""
    memory: str | None = pydantic.Field(None, pattern=r"^[0-9]+(E|Ei|P|Pi|T|Ti|G|Gi|M|Mi|K|Ki)?$", examples=["16Gi"])
    """Memory, in bytes or with a unit such as Gi, as request and limit; null: the cluster's default."""
    accelerator: str | None = pydantic.Field(None, min_length=1, examples=["nvidia.com/gpu", "google.com/tpu"])
    """Kind of accelerator; null: none."""
    accelerators: int = pydantic.Field(1, ge=1)
    """How many accelerators of that kind."""
    node_selector: dict[str, str] = pydantic.Field({}, examples=[{"pool": "large"}])
    """Labels of the nodes on which the step may run."""


class Kubeflow(Section):
    """Settings of the pipeline on Kubeflow Pipelines; none of them changes what it computes.

    Example:
        kubeflow:
          image: registry.example.com/ctrpipe:1
          volumes: {ctr-data: /data}
          resources: {default: {memory: 8Gi}}
    """

    image: str | None = pydantic.Field(None, min_length=1, examples=["registry.example.com/ctrpipe:1"])
    """The container image that kubeflow/Dockerfile builds, by its name in a registry; `ctrpipe compile` needs it."""
    volumes: dict[Name, Folder] = pydantic.Field({}, examples=[{"ctr-data": "/data"}])
    """The path at which every step mounts each PersistentVolumeClaim. The log and `output` lie in one of them."""
    output: Folder | None = pydantic.Field(None, examples=["/data/runs/mine"])
    """The run's folder, an absolute path; null: `runs/<name>` in the first volume."""
    resources: dict[str, Resources] = pydantic.Field({}, examples=[{"default": {"memory": "8Gi"}}])
    """Resources by the step's name; `default` is for every step that is not named."""
