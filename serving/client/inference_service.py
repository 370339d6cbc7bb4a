"""Changes the served versions in the manifest of a KServe InferenceService, for `kubectl apply`.

KServe knows two revisions of a service: the last one that got all requests, and the newest one, which gets the share
`canaryTrafficPercent`. They are the labels `stable` and `canary` here. A manifest names only the newest revision, so
the labels are in its first line. This line is a comment, because KServe would start new pods for a changed annotation.
"""

import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping
from typing import Any

import yaml

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import write_text

STABLE, CANARY = "stable", "canary"
FOLDER = "/mnt/models"  # where KServe's runtime for TensorFlow looks for numbered versions
PREVIOUS = ".previous"
_HEAD = "# ctrpipe canary: "
_VOLUME = "ctrpipe-version"
_MODE = "serving.kserve.io/deploymentMode"
_UNDIVIDED = ("RawDeployment", "Standard")  # modes of KServe in which all pods are of one revision
_DIVIDED = ("Knative", "Serverless")  # those with Knative; each mode's second name is older than KServe 0.16
_SCALED_BY_KNATIVE = ("concurrency", "rps")  # the metrics that KServe's webhook accepts for Knative's autoscaler
_AUTOSCALER, _KUBERNETES_AUTOSCALER = "autoscaling.knative.dev/class", "hpa.autoscaling.knative.dev"
_AZURE = ("abfs", "abfss")  # how a run names Azure's stores; KServe names them by their web address
_PVC = re.compile(r"pvc://(?P<claim>[^/]+)/(?P<path>.+)")


@dataclasses.dataclass(frozen=True)
class Rollout:
    """The versions of a service.

    Attributes:
        models: Where the versions are: `pvc://claim/folder`, or a store's URL.
        stable: The version that got all requests last.
        newest: The version of the manifest: the canary, or the stable one.
        share: The percentage of requests for the newest version; None for all.
    """

    models: str
    stable: int
    newest: int
    share: int | None

    @property
    def labels(self) -> dict[str, int]:
        """The versions by label. A version without requests has none."""
        return {STABLE: self.stable, **({CANARY: self.newest} if self.share else {})}

    def share_of(self, label: str) -> int:
        """Returns the percentage of requests that a label's version gets."""
        canary = self.share or 0
        return canary if label == CANARY else 100 - canary

    def moved(self, stable: int, canary: int | None, share: int | None) -> "Rollout":
        """Returns the rollout with other labels. While there is a canary, `stable` must be the current stable
        version.
        """
        if canary is not None:
            return dataclasses.replace(self, newest=canary, share=share)
        if stable == self.stable != self.newest:  # KServe has its pods still
            return dataclasses.replace(self, share=0)
        return dataclasses.replace(self, stable=stable, newest=stable, share=None)


class InferenceService:
    """The labels of an InferenceService, in its manifest. A change removes the comments from the file.

    Args:
        file: The manifest. FILE.previous, in the same folder, is its state before the last change.
        model: The name of the service and of the model.

    Raises:
        InputError: the file cannot be read, or is not a TensorFlow InferenceService with this name.
    """

    def __init__(self, file: pathlib.Path, model: str):
        self._file = file
        self._previous = file.with_name(file.name + PREVIOUS)
        self._model = model
        self._read(file)

    def current(self) -> Rollout | None:
        """Returns the versions; None for a manifest without labels, which serves the newest version."""
        return self._read(self._file)[1]

    def previous(self) -> Rollout | None:
        """Returns the versions before the last change; None if none are kept."""
        return self._read(self._previous)[1] if self._previous.exists() else None

    def move(self, labels: Mapping[str, int], remove: Collection[str] = (), share: int | None = None) -> Rollout:
        """Points labels at versions, removes others, and returns the new versions.

        Args:
            labels: The version of `stable`, of `canary`, or of both.
            remove: `canary`, or nothing.
            share: The percentage of requests for the canary.

        Raises:
            InputError: KServe does not support this state; nothing has changed.
        """
        document, current = self._read(self._file)
        self._check(labels, remove, share)
        _check_scaling(document, self._file)
        canary = labels.get(CANARY)
        if current is None:
            if canary is not None or STABLE not in labels:
                raise InputError(f"{self._file}: no version is stable yet; give {STABLE}=VERSION first, and apply it")
            rollout = Rollout(_models(document, self._file), labels[STABLE], labels[STABLE], None)
        else:
            stable = labels.get(STABLE, current.stable)
            if canary is not None and stable != current.stable:
                raise InputError(
                    f"{self._file}: the requests without the canary go to version {current.stable}; give "
                    f"{STABLE}={stable} by itself first, and apply it"
                )
            mode = _annotations(document).get(_MODE)
            if canary is not None and mode in _UNDIVIDED:
                raise InputError(
                    f"{self._file}: KServe divides requests only with Knative; set {_MODE}: Knative in place of "
                    f"{mode}, in a new service"
                )
            if canary == stable:
                raise InputError(f"{CANARY}={canary}: this version is stable already; name another one")
            rollout = current.moved(stable, canary, share)
        self._write(self._previous, document, current)
        self._write(self._file, document, rollout)
        return rollout

    def roll_back(self) -> Rollout | None:
        """Undoes the last change, and returns the versions. A second call redoes it.

        Raises:
            InputError: no previous state is kept.
        """
        if not self._previous.exists():
            raise InputError(f"{self._previous}: no change of {self._model} is kept here to roll back")
        document, current = self._read(self._file)
        before, previous = self._read(self._previous)
        self._write(self._previous, document, current)
        self._write(self._file, document if previous else before, previous)
        return previous

    def _check(self, labels: Mapping[str, int], remove: Collection[str], share: int | None) -> None:
        if other := sorted({*labels, *remove} - {STABLE, CANARY}):
            raise InputError(f"label '{other[0]}': KServe has two, {STABLE} and {CANARY}; name one of them")
        if STABLE in remove or CANARY in remove and CANARY in labels:
            raise InputError(f"--remove: there is always a {STABLE} version, and no label twice; remove {CANARY} alone")
        if (CANARY in labels) != (share is not None):
            raise InputError(f"--share: the percentage of requests for the {CANARY}; give both or neither")

    def _read(self, file: pathlib.Path) -> tuple[dict[str, Any], Rollout | None]:
        """Returns the manifest, and its versions if a change has set them."""
        try:
            text = file.read_text()
            document = yaml.safe_load(text)
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: not valid YAML ({one_line(error, 200)}); give one InferenceService") from error
        try:
            name, predictor = document["metadata"]["name"], document["spec"]["predictor"]
            is_tensorflow = document["kind"] == "InferenceService" and (
                predictor["model"]["modelFormat"]["name"] == "tensorflow"
            )
        except (TypeError, KeyError) as error:
            raise InputError(
                f"{file}: no InferenceService with a predictor and a model; give one as in serving/deploy/kserve"
            ) from error
        if not is_tensorflow or name != self._model:
            raise InputError(f"{file}: the InferenceService {name}, not {self._model} for tensorflow; name it as MODEL")
        head = re.match(rf"{re.escape(_HEAD)}(\S+) stable=(\d+) newest=(\d+)$", text.partition("\n")[0])
        if not head:
            return document, None
        return document, Rollout(head[1], int(head[2]), int(head[3]), predictor.get("canaryTrafficPercent"))

    def _write(self, file: pathlib.Path, document: dict[str, Any], rollout: Rollout | None) -> None:
        head = f"{_HEAD}{rollout.models} stable={rollout.stable} newest={rollout.newest}\n" if rollout else ""
        write_text(file, head + yaml.safe_dump(_with_versions(document, rollout), sort_keys=False))


def _annotations(document: dict[str, Any]) -> dict[str, Any]:
    return document["metadata"].get("annotations") or {}


def _check_scaling(document: dict[str, Any], file: pathlib.Path) -> None:
    """Raises InputError if KServe's webhook would refuse the metric by which Knative is to add pods."""
    annotations, predictor = _annotations(document), document["spec"]["predictor"]
    metric = predictor.get("scaleMetric") or _SCALED_BY_KNATIVE[0]  # null is KServe's default too
    if annotations.get(_MODE) not in _DIVIDED or annotations.get(_AUTOSCALER) == _KUBERNETES_AUTOSCALER:
        return
    if metric not in _SCALED_BY_KNATIVE:
        raise InputError(
            f"{file}: with Knative, KServe refuses scaleMetric: {metric}; set {' or '.join(_SCALED_BY_KNATIVE)} with "
            f"its scaleTarget, or the annotation {_AUTOSCALER}: {_KUBERNETES_AUTOSCALER}"
        )


def _models(document: dict[str, Any], file: pathlib.Path) -> str:
    """Returns the location of the versions from a manifest whose versions have not been set yet."""
    uri = str(document["spec"]["predictor"]["model"].get("storageUri", ""))
    if not _PVC.fullmatch(uri) and "://" not in uri:
        raise InputError(
            f"{file}: spec.predictor.model.storageUri names no folder of versions; give pvc://CLAIM/FOLDER or a URL"
        )
    if uri.partition(":")[0] in _AZURE:
        raise InputError(
            f"{file}: KServe does not read {uri}; write https://ACCOUNT.blob.core.windows.net/CONTAINER/FOLDER"
        )
    return uri.rstrip("/")


def _with_versions(document: dict[str, Any], rollout: Rollout | None) -> dict[str, Any]:
    """Returns the manifest with the newest version of a rollout, in a folder with its number, and its share.

    A version of a claim is mounted in this folder, and a version of a store is fetched into it. `storageUri` would put
    the files into the model's folder itself, where TensorFlow Serving expects numbered versions. Without a rollout, the
    manifest is unchanged.
    """
    if rollout is None:
        return document
    predictor = {**document["spec"]["predictor"]}
    model = {key: value for key, value in predictor["model"].items() if key != "storageUri"}
    mounts = [mount for mount in model.pop("volumeMounts", []) if mount["name"] != _VOLUME]
    volumes = [volume for volume in predictor.pop("volumes", []) if volume["name"] != _VOLUME]
    for key in ("storageUris", "canaryTrafficPercent"):
        predictor.pop(key, None)
    place = f"{FOLDER}/{rollout.newest}"
    if claim := _PVC.fullmatch(rollout.models):
        path = f"{claim['path']}/{rollout.newest}"
        mounts.append({"name": _VOLUME, "mountPath": place, "subPath": path, "readOnly": True})
        volumes.append({"name": _VOLUME, "persistentVolumeClaim": {"claimName": claim["claim"], "readOnly": True}})
    else:
        predictor["storageUris"] = [{"uri": f"{rollout.models}/{rollout.newest}", "mountPath": place}]
    predictor["model"] = {**model, **({"volumeMounts": mounts} if mounts else {})}
    predictor |= {"volumes": volumes} if volumes else {}
    predictor |= {} if rollout.share is None else {"canaryTrafficPercent": rollout.share}
    return {**document, "spec": {**document["spec"], "predictor": predictor}}
