"""The `kubeflow` section of a run's configuration."""

from typing import Annotated

import pydantic

from ctrpipe.transforms.log.section import Section

Name = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]  # name of a Kubernetes object
Folder = Annotated[str, pydantic.Field(pattern=r"^/.*[^/]$")]


class Resources(Section):
    """Resources of the container of one pipeline step.

    Example:
        kubeflow: {resources: {Trainer: {cpu: 4, memory: 16Gi, accelerator: nvidia.com/gpu}}}
    """

    model_config = pydantic.ConfigDict(coerce_numbers_to_str=True)

    cpu: str | None = pydantic.Field(None, pattern=r"^([0-9]*[.])?[0-9]+m?$", examples=["4", "500m"])
    """CPU request and limit, in cores or thousandths of a core (`m`); null: the cluster's default."""
    memory: str | None = pydantic.Field(None, pattern=r"^[0-9]+(E|Ei|P|Pi|T|Ti|G|Gi|M|Mi|K|Ki)?$", examples=["16Gi"])
    """Memory request and limit, in bytes or with a unit such as Gi; null: the cluster's default."""
    accelerator: str | None = pydantic.Field(None, min_length=1, examples=["nvidia.com/gpu", "google.com/tpu"])
    """Resource name of the accelerator; null: no accelerator."""
    accelerators: int = pydantic.Field(1, ge=1)
    """Number of accelerators of that kind."""
    node_selector: dict[str, str] = pydantic.Field({}, examples=[{"pool": "large"}])
    """Labels that a node must have to run the step."""


class Kubeflow(Section):
    """Settings for Kubeflow Pipelines; they do not change what the pipeline computes.

    Example:
        kubeflow:
          image: registry.example.com/ctrpipe:1
          volumes: {ctr-data: /data}
          resources: {default: {memory: 8Gi}}
    """

    image: str | None = pydantic.Field(None, min_length=1, examples=["registry.example.com/ctrpipe:1"])
    """Registry name of the container image that kubeflow/Dockerfile builds; required by `ctrpipe compile`."""
    volumes: dict[Name, Folder] = pydantic.Field({}, examples=[{"ctr-data": "/data"}])
    """Maps each PersistentVolumeClaim to the path where every step mounts it. The log and `output` must be on one of
    these volumes.
    """
    output: Folder | None = pydantic.Field(None, examples=["/data/runs/mine"])
    """Absolute path of the run's folder; null: `runs/<name>` on the first volume."""
    resources: dict[str, Resources] = pydantic.Field({}, examples=[{"default": {"memory": "8Gi"}}])
    """Resources by step name; `default` applies to every step that is not listed."""
