"""Changes a model's labels in TF Serving's config file, in steps that a running server accepts.

A label may only point at an available version (contract V7), and a version is available only if the model's version
policy selects it. A change therefore first makes the server load the target versions, then moves the labels.
"""

import contextlib
import pathlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig, ModelServerConfig

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.stores import is_url, local_path
from ctrpipe.serving.client import ModelClient, VersionStatus
from ctrpipe.serving.client.config_files import ConfigFile, config_file
from ctrpipe.serving.layout import versions
from ctrpipe.serving.stored import numbers_below, whole_of
from ctrpipe.serving.text_proto import read_text_proto

PREVIOUS = ".previous"
JOURNAL = ".begun"
_POLL_SECONDS = 0.2
_FORM = 'model_config_list { config { name: "ctr" base_path: "/models/ctr" model_platform: "tensorflow" } }'


class ServedLabels:
    """The labels of one model in a model config file. A change removes the comments from the file.

    Args:
        file: The model config file, or its URL in a store. FILE.previous, in the same folder, keeps the state of a
            model before its last change. During a change, FILE.begun contains the state before it.
        model: The model's name.
        client: A client of the model, to check which versions are available. None: changes are written unchecked.
        reload: Sends a changed configuration to the server. None: the server must poll the file
            (--model_config_file_poll_wait_seconds).
        wait_seconds: Seconds to wait for the server to load versions, and again for it to move the labels.

    Raises:
        InputError: the file cannot be read, or does not contain the model.
    """

    def __init__(
        self,
        file: pathlib.Path | str,
        model: str,
        client: ModelClient | None = None,
        reload: Callable[[ModelServerConfig], None] | None = None,
        wait_seconds: float = 60.0,
    ):
        self._file = config_file(file)
        self._previous = self._file.beside(PREVIOUS)
        self._journal = self._file.beside(JOURNAL)
        self._model = model
        self._client = client
        self._reload = reload
        self._wait_seconds = wait_seconds
        self.current()

    def current(self) -> ModelConfig:
        """Returns the model's entry in the file."""
        return _find(read_config(self._file.place), self._model, self._file)

    def previous(self) -> ModelConfig | None:
        """Returns the model's entry before the last change, or None if none is kept."""
        journal = self._read_journal()
        if journal and journal[0].name == self._model and _has_moved(journal[0], self.current()):
            return journal[0]
        if not self._previous.exists():
            return None
        return next((one for one in _models(read_config(self._previous.place)) if one.name == self._model), None)

    def move(self, labels: Mapping[str, int], remove: Collection[str] = ()) -> ModelConfig:
        """Points labels at versions and removes other labels in one change; returns the model's new entry.

        Args:
            labels: The version of each label to set.
            remove: The labels to remove.

        Raises:
            InputError: a label is malformed, a version does not exist or does not become available in time, a label to
                remove does not exist, or the server refuses the change; nothing has changed in these cases. Also if
                the file is changed but the server does not move the labels in time.
        """
        for label in labels:
            if not label or set(label) & set("/: ") or label in remove:
                raise InputError(f"label '{label}': give it a name without '/', ':' and spaces, and one version")
        with self._file.locked():
            self._settle_journal()
            current = self.current()
            unknown = sorted(set(remove) - set(current.version_labels))
            if unknown:
                has = ", ".join(sorted(current.version_labels)) or "none"
                raise InputError(f"{self._file}: model {self._model} has no label '{unknown[0]}'; it has {has}")
            wanted = {label: version for label, version in current.version_labels.items() if label not in remove}
            return self._change(current, _with_labels(current, {**wanted, **labels}))

    def roll_back(self) -> ModelConfig:
        """Undoes the last change of this model and returns its new entry. A second call redoes the change.

        Raises:
            InputError: no previous state is kept, or for the reasons of `move`.
        """
        with self._file.locked():
            self._settle_journal()
            previous = self.previous()
            if previous is None:
                raise InputError(f"{self._previous}: no change of model {self._model} is kept here to roll back")
            return self._change(self.current(), previous)

    def _change(self, current: ModelConfig, target: ModelConfig) -> ModelConfig:
        needed = set(target.version_labels.values())
        self._check_folders(current, needed)
        if needed:
            # Versions that had a label stay loaded: a roll-back need not wait for them. A change that is repeated, as
            # after a process was killed, has them in no label any more.
            stays = self._in_use(current) if _has_moved(current, target) else self._loaded(current)
            target = _with_loaded(target, needed | stays)
        with self._undone_on_failure():
            if needed and self._client and not needed <= self._available():
                before = self._client.status()
                loading = _with_loaded(current, needed | self._loaded(current))
                self._write_journal(current, loading)
                self._publish(loading)
                self._await_versions(needed, before)
            else:
                self._write_journal(current)
            self._publish(target)
        self._settle_journal()
        self._await_labels(target)
        return target

    # The versions ----------------------------------------------------------------------------------------------------

    def _check_folders(self, current: ModelConfig, needed: Collection[int]) -> None:
        there = _numbers(current.base_path)
        if there is None:  # a missing folder may be on the server's machine
            return
        if missing := sorted(set(needed) - set(there)):
            has = ", ".join(map(str, there)) or "none"
            raise InputError(
                f"{current.base_path}: version {missing[0]} of model {self._model} is not here; it has {has}"
            )

    def _available(self) -> set[int]:
        assert self._client
        return {one.version for one in self._client.status() if one.state == "AVAILABLE"}

    def _in_use(self, current: ModelConfig) -> set[int]:
        """Returns the versions that serve requests: the labelled ones, or all loaded ones without labels."""
        return set(current.version_labels.values()) or self._loaded(current)

    def _loaded(self, current: ModelConfig) -> set[int]:
        """Returns the versions that the version policy loads.

        Asks the server, or reads the folders without a client.
        """
        policy = current.model_version_policy
        if policy.HasField("specific"):
            return set(policy.specific.versions)
        if self._client:
            return self._available()
        numbers = _numbers(current.base_path) or []
        return set(numbers if policy.HasField("all") else numbers[-max(policy.latest.num_versions, 1) :])

    # The steps of a change -------------------------------------------------------------------------------------------

    def _write_journal(self, current: ModelConfig, *between: ModelConfig) -> None:
        """Writes the journal: the entry before a change, and the entry that first loads versions.

        The config file and FILE.previous cannot be written atomically together. If a process is killed in between, the
        next process completes or undoes the change from the journal.
        """
        self._journal.write(_as_text([current, *between]), like=self._file)

    def _read_journal(self) -> list[ModelConfig]:
        return _models(read_config(self._journal.place)) if self._journal.exists() else []

    def _settle_journal(self) -> None:
        """Completes the change in the journal, if any, if its labels have moved; otherwise undoes it."""
        journal = self._read_journal()
        names = [one.name for one in _models(read_config(self._file.place))]
        if journal and journal[0].name in names:
            current = _find(read_config(self._file.place), journal[0].name, self._file)
            if _has_moved(journal[0], current):  # unchanged labels must not overwrite the previous state
                self._keep(journal[0])
            elif current in journal[1:]:
                self._publish(journal[0])
        self._journal.remove()

    def _publish(self, entry: ModelConfig) -> None:
        """Writes a model's entry to the file and sends the configuration to the server."""
        config = read_config(self._file.place)
        _find(config, entry.name, self._file).CopyFrom(entry)
        self._file.write(text_format.MessageToString(config))
        if self._reload:
            self._reload(config)

    @contextlib.contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        """Restores the file if the block fails, and sends it to the server, in case of a partial change."""
        before = self._file.read()
        try:
            yield
        except BaseException:
            if self._file.read() != before:
                self._file.write(before)
                if self._reload:
                    with contextlib.suppress(InputError):
                        self._reload(read_config(self._file.place))
            self._journal.remove()
            raise

    def _keep(self, entry: ModelConfig) -> None:
        kept = read_config(self._previous.place) if self._previous.exists() else ModelServerConfig()
        others = [one for one in _models(kept) if one.name != entry.name]
        self._previous.write(_as_text([*others, entry]), like=self._file)

    def _await_versions(self, needed: set[int], before: list[VersionStatus]) -> None:
        assert self._client
        deadline = time.monotonic() + self._wait_seconds
        while True:
            statuses = self._client.status()
            left = needed - {one.version for one in statuses if one.state == "AVAILABLE"}
            if not left:
                return
            failed = [one for one in statuses if one.version in left and one.error_code != "OK"]
            if any(one not in before for one in failed):  # a version that failed earlier may still load
                raise InputError(
                    f"{self._client.address}: version {failed[0].version} of model {self._model} did not load "
                    f"({one_line(failed[0].error_message, 300)}); no label has moved"
                )
            if time.monotonic() > deadline:
                states = {one.version: f"{one.state} {one_line(one.error_message, 300)}".strip() for one in statuses}
                raise InputError(
                    f"{self._client.address}: version {min(left)} of model {self._model} is "
                    f"{states.get(min(left), 'not known')} after {self._wait_seconds:g} s, and a label can point "
                    f"only to an AVAILABLE version; {self._advice()}"
                )
            time.sleep(_POLL_SECONDS)

    def _await_labels(self, target: ModelConfig) -> None:
        if self._client is None:
            return
        deadline = time.monotonic() + self._wait_seconds
        for label, version in target.version_labels.items():
            while (pointed_at := self._asked(label)) != version:
                if time.monotonic() > deadline:
                    shown = "unknown" if pointed_at is None else f"at version {pointed_at}"
                    raise InputError(
                        f"{self._client.address}: {self._file} is written, but label '{label}' is still {shown} after "
                        f"{self._wait_seconds:g} s; {self._advice()}"
                    )
                time.sleep(_POLL_SECONDS)

    def _asked(self, label: str) -> int | None:
        assert self._client
        try:
            return self._client.version_of(label)
        except InputError:  # the server does not know the label yet
            return None

    def _advice(self) -> str:
        if self._reload:
            return "see the server's log"
        return "does it run with --model_config_file_poll_wait_seconds? Otherwise give --grpc"


def read_config(file: pathlib.Path | str) -> ModelServerConfig:
    """Reads a model config file, or one in a store by its URL.

    Raises:
        InputError: the file cannot be read, or is not a ModelServerConfig.
    """
    config: ModelServerConfig = read_text_proto(file, ModelServerConfig(), _FORM)
    return config


def _models(config: ModelServerConfig) -> list[ModelConfig]:
    return list(config.model_config_list.config)


def _numbers(base_path: str) -> list[int] | None:
    """Returns the numbers of a model's versions, lowest first; None if its folder is missing on this machine."""
    if is_url(base_path):
        return sorted(whole_of(base_path, numbers_below(base_path)))
    folder = local_path(base_path)
    return [int(path.name) for path in versions(folder)] if folder.is_dir() else None


def _find(config: ModelServerConfig, model: str, file: ConfigFile) -> ModelConfig:
    entries = [one for one in _models(config) if one.name == model]
    if len(entries) != 1:
        names = ", ".join(one.name for one in _models(config)) or "none"
        raise InputError(f"{file}: model '{model}' is {'listed twice' if entries else 'not in it'}; it has {names}")
    return entries[0]


def _as_text(models: list[ModelConfig]) -> str:
    config = ModelServerConfig()
    config.model_config_list.config.extend(models)
    return str(text_format.MessageToString(config))


def _has_moved(before: ModelConfig, after: ModelConfig) -> bool:
    return bool(before.version_labels != after.version_labels)


def _with_labels(entry: ModelConfig, labels: Mapping[str, int]) -> ModelConfig:
    changed = ModelConfig()
    changed.CopyFrom(entry)
    changed.version_labels.clear()
    changed.version_labels.update(labels)
    return changed


def _with_loaded(entry: ModelConfig, loaded: Collection[int]) -> ModelConfig:
    """Returns the entry with the version policy `specific`, unless it has `all`.

    The policy `latest` would unload a labelled version for a newer one.
    """
    changed = ModelConfig()
    changed.CopyFrom(entry)
    if not entry.model_version_policy.HasField("all"):
        changed.model_version_policy.specific.versions[:] = sorted(loaded)
    return changed
