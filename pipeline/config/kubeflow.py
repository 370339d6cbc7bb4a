"""The `kubeflow` section of a run's configuration."""

import re
from typing import Annotated, Literal

import pydantic

from ctrpipe.transforms.log.section import Section


def _like(pattern: str, what: str, form: str, longest: int = 253) -> pydantic.AfterValidator:
    """Returns a validator that accepts only texts of a pattern, which a cluster would otherwise refuse hours later.

    Args:
        pattern: The pattern of the whole text.
        what: What the text is, for the message.
        form: The expected form, for the message.
        longest: The maximum number of characters.
    """
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if len(text) > longest:
            raise ValueError(f"{text[:40]}... has {len(text)} characters; {what} has {longest} at most")
        if not compiled.fullmatch(text):
            raise ValueError(f"{text!r} is not {what}; write {form}")
        return text

    return pydantic.AfterValidator(check)


# Kubernetes' rules: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and .../labels/.
_PART = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = rf"{_PART}(\.{_PART})*"
_WORD = "[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_KEY = rf"({_NAME}/)?(?=[^/]{{1,63}}$){_WORD}"
# An image, by the grammar of registries: HOST:PORT/PATH:TAG@DIGEST.
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"({_LABEL}(\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?"
_PATH = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = rf"({_HOST}/)?{_PATH}(/{_PATH})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?"

_lower = "lower-case letters and digits, with - and . between them"
Name = Annotated[str, _like(_NAME, "a name of Kubernetes", _lower)]
# Kubeflow names a pod's volume like its claim, and the name of a volume has no dots.
Claim = Annotated[str, _like(_PART, "a claim that Kubeflow mounts", "lower-case letters, digits and - between", 63)]
Account = Annotated[str, _like(rf"{_NAME}(@{_NAME})?", "a service account", _lower)]  # Vertex AI's is an address
Image = Annotated[
    str, _like(_IMAGE, "an image", "HOST:PORT/NAME:TAG or HOST:PORT/NAME@sha256:DIGEST, with NAME in lower case", 500)
]
_words = "letters and digits, with - _ . between them"
LabelKey = Annotated[str, _like(_KEY, "a key of Kubernetes", f"at most 63 {_words}, after PREFIX/ if it has one", 317)]
LabelValue = Annotated[str, _like(f"({_WORD})?", "a value of Kubernetes", _words, 63)]
SecretKey = Annotated[str, _like("[A-Za-z0-9_.-]+", "a key of a secret", "letters, digits, - _ .")]
Folder = Annotated[
    str,
    pydantic.Field(pattern=r"^/.*[^/]$"),
    _like(r"(?!.*(/\.\.?(/|$)|//|:)).*", "a folder to mount", "its path without : // and ..", 1000),
]
FolderOrUrl = Annotated[str, pydantic.Field(pattern=r"^(/|s3://|gs://|abfss?://|hdfs://).*[^/]$")]
Variable = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]  # name of an environment variable


class Toleration(Section):
    """A node taint that a pipeline step tolerates.

    Example:
        kubeflow: {resources: {Trainer: {tolerations: [{key: nvidia.com/gpu, effect: NoSchedule}]}}}
    """

    key: LabelKey | None = pydantic.Field(None, examples=["nvidia.com/gpu"])
    """The taint's key; null: every taint."""
    value: LabelValue | None = pydantic.Field(None, examples=["present"])
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
    key: SecretKey = pydantic.Field(examples=["secret"])
    """Key of the entry."""


class Resources(Section):
    """Resources of the container of one pipeline step.

    Example:
        kubeflow: {resources: {Trainer: {cpu: 4, memory: 16Gi, accelerator: nvidia.com/gpu}}}
    """

    model_config = pydantic.ConfigDict(coerce_numbers_to_str=True)

    cpu: str | None = pydantic.Field(None, pattern=r"^([0-9]*[.])?[0-9]+m?$", examples=["4", "500m"])
    """CPU request and limit, in cores or thousandths of a core (`m`); null: the cluster's default."""
    memory: str | None = pydantic.Field(None, pattern=r"^[0-9]+(E|Ei|P|Pi|T|Ti|G|Gi|M|Mi|Ki)?$", examples=["16Gi"])
    """Memory request and limit, in bytes or with a unit such as Gi; null: the cluster's default."""
    accelerator: str | None = pydantic.Field(None, min_length=1, examples=["nvidia.com/gpu", "google.com/tpu"])
    """Resource name of the accelerator; null: no accelerator."""
    accelerators: int = pydantic.Field(1, ge=1)
    """Number of accelerators of that kind."""
    node_selector: dict[LabelKey, LabelValue] = pydantic.Field({}, examples=[{"pool": "large"}])
    """Labels that a node must have to run the step."""
    tolerations: list[Toleration] = pydantic.Field([], examples=[[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]])
    """Taints that the step tolerates: it may run on nodes that have them."""
    retries: int = pydantic.Field(0, ge=0, le=1000, examples=[2])
    """Maximum number of retries of the step. By default, Kubeflow Pipelines 2.17 retries a step only if its pod was
    lost, not after an error, an out-of-memory kill or an eviction. The step Verdict is never retried.
    """
    timeout: int | None = pydantic.Field(None, ge=1, le=2**31 - 1, examples=[86400])
    """Seconds after which the step's container is stopped; null: no limit. Vertex AI ignores it."""

    @pydantic.field_validator("cpu", "memory")
    @classmethod
    def _is_more_than_nothing(cls, text: str | None) -> str | None:
        if text is not None and not text.strip("0.mkKMGTPEi"):
            raise ValueError(f"{text} gives the step nothing; give more, or leave it out")
        return text


class Kubeflow(Section):
    """Settings for Kubeflow Pipelines; they do not change what the pipeline computes.

    Example:
        kubeflow:
          image: registry.example.com/ctrpipe:1
          volumes: {ctr-data: /data}
          resources: {default: {memory: 8Gi}}
    """

    image: Image | None = pydantic.Field(None, examples=["registry.example.com/ctrpipe:1"])
    """Registry name of the container image that kubeflow/Dockerfile builds; required by `ctrpipe compile`."""
    volumes: dict[Claim, Folder] = pydantic.Field({}, examples=[{"ctr-data": "/data"}])
    """Maps each PersistentVolumeClaim to the path where every step mounts it. The log and `output` must be on one of
    these volumes, or be URLs of a store.
    """
    output: FolderOrUrl | None = pydantic.Field(None, examples=["/data/runs/mine", "s3://bucket/runs/mine"])
    """Absolute path or URL of the run's folder; null: `runs/<name>` on the first volume."""
    cache: bool = True
    """Whether a step takes its outputs from an earlier run with the same arguments, inputs and code."""
    groups: bool = False
    """Whether Kubeflow's graph of a run shows its steps in four groups: Data, Models, Gates, and Push and report. Each
    group starts one more pod, and waits for all steps of the groups before it. A sweep or a study has no such groups.
    """
    environment: dict[Variable, str] = pydantic.Field({}, examples=[{"TF_CPP_MIN_LOG_LEVEL": "1"}])
    """Environment variables of every step."""
    secrets: dict[Variable, Secret] = pydantic.Field({}, examples=[{"HF_TOKEN": {"name": "hub", "key": "token"}}])
    """Environment variables of every step, taken from Kubernetes secrets; the pipeline contains only their names."""
    image_pull_secrets: list[Name] = pydantic.Field([], examples=[["registry"]])
    """Names of the secrets that the cluster needs to pull `image`."""
    service_account: Account | None = pydantic.Field(None, examples=["ctrpipe"])
    """Service account of every step, such as one with the cloud's workload identity; null: the cluster's default.
    `ctrpipe submit --service-account` takes precedence.
    """
    resources: dict[str, Resources] = pydantic.Field({}, examples=[{"default": {"memory": "8Gi"}}])
    """Resources by step name; `default` applies to every step that is not listed. In a sweep or a study, a training run
    has the resources of `Trainer`, and the first step the resources of `LogTransform`, unless they have their own.
    """

    @pydantic.model_validator(mode="after")
    def _nothing_is_given_twice(self) -> "Kubeflow":
        if both := sorted(set(self.environment) & set(self.secrets)):
            raise ValueError(f"secrets: {both[0]} is in environment too; leave it out of one of them")
        for name, values in (("image_pull_secrets", self.image_pull_secrets), ("volumes", [*self.volumes.values()])):
            if twice := [value for value in values if values.count(value) > 1]:
                raise ValueError(f"{name}: {twice[0]} appears twice; remove one")
        return self
