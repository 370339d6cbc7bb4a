"""The `kubeflow` section of a run's configuration."""

from typing import Annotated, Literal

import pydantic

from ctrpipe.transforms.log.section import Section

Name = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]  # name of a Kubernetes object
Account = Annotated[str, pydantic.Field(pattern=r"^[a-z0-9]([a-z0-9.@-]*[a-z0-9])?$")]  # Vertex AI's is an address
Folder = Annotated[str, pydantic.Field(pattern=r"^/.*[^/]$")]
FolderOrUrl = Annotated[str, pydantic.Field(pattern=r"^(/|s3://|gs://|abfss?://|hdfs://).*[^/]$")]
Variable = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]  # name of an environment variable


class Toleration(Section):
    """A taint of nodes on which a pipeline step may run all the same.

    Example:
        kubeflow: {resources: {Trainer: {tolerations: [{key: nvidia.com/gpu, effect: NoSchedule}]}}}
    """

    key: str | None = pydantic.Field(None, min_length=1, examples=["nvidia.com/gpu"])
    """The taint's key; null: every taint."""
    value: str | None = pydantic.Field(None, examples=["present"])
    """The taint's value; null: any value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = pydantic.Field(
        None, examples=["NoSchedule"]
    )
    """The taint's effect; null: every effect."""

    @pydantic.model_validator(mode="after")
    def _value_has_key(self) -> "Toleration":
        if self.value is not None and self.key is None:
            raise ValueError("value: give the taint's key too")
        return self


class Secret(Section):
    """One entry of a Kubernetes secret.

    Example:
        kubeflow: {secrets: {AWS_SECRET_ACCESS_KEY: {name: store, key: secret}}}
    """

    name: Name = pydantic.Field(examples=["store"])
    """Name of the secret."""
    key: str = pydantic.Field(min_length=1, examples=["secret"])
    """Key of the entry."""


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
    tolerations: list[Toleration] = pydantic.Field([], examples=[[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]])
    """Taints of nodes on which the step may run all the same."""
    retries: int = pydantic.Field(0, ge=0, examples=[2])
    """Number of retries of the step after a failure. The step Verdict is never retried."""
    timeout: int | None = pydantic.Field(None, ge=1, examples=[86400])
    """Seconds after which the step's container is stopped; null: no limit. Vertex AI ignores it."""


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
    these volumes, or be URLs of a store.
    """
    output: FolderOrUrl | None = pydantic.Field(None, examples=["/data/runs/mine", "s3://bucket/runs/mine"])
    """Absolute path or URL of the run's folder; null: `runs/<name>` on the first volume."""
    cache: bool = True
    """Whether a step takes its outputs from an earlier run with the same arguments, inputs and code."""
    environment: dict[Variable, str] = pydantic.Field({}, examples=[{"TF_CPP_MIN_LOG_LEVEL": "1"}])
    """Environment variables of every step."""
    secrets: dict[Variable, Secret] = pydantic.Field({}, examples=[{"HF_TOKEN": {"name": "hub", "key": "token"}}])
    """Environment variables of every step, taken from Kubernetes secrets; the pipeline contains only their names."""
    image_pull_secrets: list[Name] = pydantic.Field([], examples=[["registry"]])
    """Names of the secrets with which the cluster may pull `image`."""
    service_account: Account | None = pydantic.Field(None, examples=["ctrpipe"])
    """Service account of every step, such as one with the cloud's workload identity; null: the cluster's default.
    `ctrpipe submit --service-account` takes precedence.
    """
    resources: dict[str, Resources] = pydantic.Field({}, examples=[{"default": {"memory": "8Gi"}}])
    """Resources by step name; `default` applies to every step that is not listed."""
