"""The served models with their versions and labels. REST and gRPC answer from them."""

import concurrent.futures
import contextlib
import logging
import math
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tensorflow_serving.config import model_server_config_pb2

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.memory import map_large_pieces_alone, return_unused_pages
from ctrpipe.common.stores import UnreachableError, is_url, read_bytes
from ctrpipe.serving.layout import Asset, asset_path, graph_file
from ctrpipe.serving.loader import LoadedServable, Servable
from ctrpipe.serving.server import model_config
from ctrpipe.serving.server.admission import Admission, stepping_aside
from ctrpipe.serving.server.batching import Batching
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.server.request_log import RequestLog
from ctrpipe.serving.server.served import ServedVersion
from ctrpipe.serving.server.session_options import for_first_versions, session_config
from ctrpipe.serving.server.shadow import Shadow
from ctrpipe.serving.server.versions import LoadExecutors, Policy, Version, VersionManager
from ctrpipe.serving.server.warmup import replay_warmup
from ctrpipe.serving.stored import Mirror

log = logging.getLogger(__name__)

__all__ = ["ServedVersion", "ServerCore"]

# The interpreter's thread switch interval. At Python's default of 5 ms, a request that returns from TensorFlow waits
# that long for the interpreter lock while another thread builds a graph.
SWITCH_SECONDS = 0.0005
_TIDY_SECONDS, _TIGHT_SECONDS = 10.0, 1.0  # between two times that unused memory goes back; the second above the limit
_MOST_RELOADS = 4  # one runs, the others wait for it
_PATIENCE_SECONDS = 1.0  # of one above them: another may be about to end
_EMPTY_SECONDS = 30.0
_LOOK_SECONDS = 0.01  # between checks of models that are loading
_SESSION_BUNDLE = "export.meta"  # the format before SavedModel
_NO_GRAPH = (
    "Specified file path does not appear to contain a SavedModel bundle (should have a file called `saved_model.pb`)"
)
_TRANSITION = (
    "Cannot transition to requested config. It is only legal to transition from one ModelConfigList to another."
)


class ServerCore:
    """The served models, as in TF Serving's ServerCore (model_servers/server_core.h).

    Attributes:
        metrics: The server's metrics.
        budget: The memory and time budget of all requests.
        admission: Admits large requests a few at a time.
        request_log: Writes a sample of the answered requests to files; None without --request_log.
        shadow: Replays a sample of the requests on a second version (shadow traffic); None without --shadow.

    Raises:
        InputError: a folder does not exist, or the config file has a mistake.
    """

    def __init__(self, options: ServerOptions):
        self.metrics = Metrics()
        self.budget = Budget(options.max_memory)
        self.admission = Admission(self.budget)
        self._options = options
        self._session_config = session_config(options)
        self._has_threads = False
        self._batching = Batching(options, self.metrics)
        self._models: dict[str, VersionManager] = {}
        self._retired: dict[str, VersionManager] = {}  # removed from the config; they keep their status
        self._config = self._read_config()
        self._mirrors: dict[str, Mirror] = {}  # by model, of those whose versions are in a store
        self._requested = self._config  # the latest config that was stored, be it refused afterwards (V6)
        try:
            model_config.check_list(self._config)
            self._labels = self._new_labels(self._config, {})
            model_config.check_platforms(self._config)
            model_config.check_logging(self._config)
        except ServingError as error:
            raise InputError(f"{options.model_config_file or options.model_base_path}: {error.message}") from error
        self._reloading = threading.Lock()
        self._following = threading.Lock()  # held while models, or the versions wanted of them, are replaced
        self._reloads = threading.BoundedSemaphore(_MOST_RELOADS)
        self._executors = LoadExecutors(
            concurrent.futures.ThreadPoolExecutor(max(options.num_load_threads, 1), "load"),
            concurrent.futures.ThreadPoolExecutor(max(options.num_unload_threads, 1), "unload"),
            options.max_num_load_retries,
            options.load_retry_interval_micros / 1e6,
        )
        self._out_of_reach = ""  # the reason of the latest failed poll; logged once
        self._refusal = ""  # the same of the config file
        self._contents: bytes | None = None  # of the config file as it was polled last
        self._polled = self._config
        self.request_log: RequestLog | None = None
        if options.request_log:
            tags = options.saved_model_tags.split(",")
            self.request_log = RequestLog(options.request_log, options.sampling_rate, tags, self.metrics)
        self.shadow: Shadow | None = None
        if options.shadow:
            self.shadow = Shadow(options.shadow, options.sampling_rate, self.use, self.metrics, options.shadow_log)
        self._tidied = time.monotonic()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._switch_seconds = sys.getswitchinterval()

    def _read_config(self) -> model_server_config_pb2.ModelServerConfig:
        if self._options.model_config_file is not None:
            return model_config.read_model_config(self._options.model_config_file)
        base = self._options.model_base_path
        if base is None:
            raise InputError("nothing to serve; give --model_base_path=DIR/models/<name>, or --model_config_file")
        return model_config.single_model(self._options.model_name, base)

    def start(self) -> None:
        """Loads the models, waits until each has a version, then polls the file system and the config file.

        Waits without a time limit for a model whose folder has no version yet.

        Raises:
            InputError: a model's version did not load after all retries.
        """
        self._switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        map_large_pieces_alone()
        with self._reloading:
            self._apply(self._config, look=False)
            for name, mirror in self._mirrors.items():
                wanted = self._models[name].policy.wanted
                if mirror.is_empty():
                    mirror.follow(wanted)
                elif self._options.file_system_poll_wait_seconds <= 0:  # otherwise the copies are served at once
                    mirror.try_to_follow(wanted)
            if self._options.file_system_poll_wait_seconds >= 0:
                self._poll()
        if self._options.file_system_poll_wait_seconds > 0:
            self._repeat("versions", self._options.file_system_poll_wait_seconds, self._poll)
            # Not waited for at the end: a store that is away is asked for a while.
            self._repeat("stores", self._options.file_system_poll_wait_seconds, self._follow_stores, awaited=False)
        self._repeat("memory", _TIGHT_SECONDS, self._tidy)
        if failed := self._await_models(self._models):
            reason = one_line(_unavailable("servable", failed), 1000)
            raise InputError(f"{reason}; repair the version, or remove it")
        if self._options.model_config_file is not None and self._options.model_config_file_poll_wait_seconds > 0:
            awaited = not is_url(self._options.model_config_file)
            self._repeat("config", self._options.model_config_file_poll_wait_seconds, self._poll_config, awaited)

    def stop(self) -> None:
        """Unloads every version. A version in use is unloaded after its last request."""
        if self.shadow:
            self.shadow.close()  # before its version is unloaded
        self._stopping.set()
        sys.setswitchinterval(self._switch_seconds)
        for thread in self._threads:
            thread.join()
        for manager in (*self._models.values(), *self._retired.values()):
            manager.stop()
        self._executors.load.shutdown(cancel_futures=True)
        self._executors.unload.shutdown()
        self._batching.close()
        if self.request_log:
            self.request_log.close()

    # Requests ---------------------------------------------------------------------------------------------------------

    def use(self, name: str, number: int | None = None, label: str | None = None) -> "Use":
        """Returns a context manager that keeps a version loaded.

        The version is given by its number or label; without either, it is the highest available one.

        Raises:
            ServingError: there is no such version (P3, P4).
        """
        if label is not None:
            number = self._labels.get(name, {}).get(label)
            if number is None:
                raise bad_request(f"Unrecognized servable version label: {label}")
        manager = self._models.get(name)
        if manager is None:
            raise _not_found(name, number)
        return Use(manager, name, number, self.admission)

    def status(self, name: str, number: int | None = None) -> list[Version]:
        """Returns all known versions of a model, highest first, or only version `number`.

        A model that was removed from the config keeps its status.

        Raises:
            ServingError: there is no such version (S3).
        """
        manager = self._models.get(name) or self._retired.get(name)
        versions = manager.status() if manager else []
        if number is not None:
            versions = [version for version in versions if version.number == number]
            if not versions:
                raise ServingError("NOT_FOUND", f"Could not find version {number} of model {name}")
        if not versions:
            raise ServingError("NOT_FOUND", f"Could not find any versions of model {name}")
        return versions

    def base_paths(self) -> list[pathlib.Path]:
        """Returns the folders of the served models."""
        return [model_config.base_path(model) for model in self._config.model_config_list.config]

    # Configuration ----------------------------------------------------------------------------------------------------

    def reload(
        self,
        config: model_server_config_pb2.ModelServerConfig,
        timeout_seconds: float | None = None,
        folders_exist: bool = False,
    ) -> None:
        """Replaces the served models by the models of a new config, and waits until the new ones are loaded.

        Args:
            config: The new config.
            timeout_seconds: Seconds until the caller gives up. An accepted config remains. None: waits _EMPTY_SECONDS
                for a model without a version to load, and until the load ends for any other model.
            folders_exist: Whether a missing model folder is an error; otherwise it is polled.

        Raises:
            ServingError: the config is refused (V6), a label points at a version that is not available (V7), a new
                model's version did not load after all retries or in time, a model has a logging_config (V14), or too
                many other reloads are under way.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._reload_turn(deadline):
            self._check_transition(config)
            if config.WhichOneof("config") is None:
                log.info("Taking no action for empty config.")
                return
            model_config.check_list(config)
            model_config.check_changes(self._requested, config)
            if folders_exist:
                model_config.check_folders(config, self.base_paths())
            self._requested = config
            self._labels = self._new_labels(config, self._labels)
            model_config.check_platforms(config)
            new = {model.name for model in config.model_config_list.config} - set(self._models)
            self._apply(config, look=self._options.file_system_poll_wait_seconds > 0)
            self._config = config
            if failed := self._await_models(new, deadline, _EMPTY_SECONDS):
                raise ServingError("UNKNOWN", _unavailable("model", failed))
            model_config.check_logging(config)

    def _check_transition(self, config: model_server_config_pb2.ModelServerConfig) -> None:
        """Raises ServingError unless both configs are lists, or the old config is empty."""
        kinds = {self._requested.WhichOneof("config"), config.WhichOneof("config")}
        if self._requested.WhichOneof("config") is not None and kinds != {"model_config_list"}:
            raise ServingError("FAILED_PRECONDITION", _TRANSITION)

    @contextlib.contextmanager
    def _reload_turn(self, deadline: float | None) -> Iterator[None]:
        """Waits for earlier reloads, at most _MOST_RELOADS. A waiting thread does not count as busy."""

        def left(most: float) -> float:
            return most if deadline is None else min(max(deadline - time.monotonic(), 0), most)

        with stepping_aside():
            if not self._reloads.acquire(timeout=left(_PATIENCE_SECONDS)):
                raise ServingError("UNAVAILABLE", f"{_MOST_RELOADS} reloads are under way; try again later")
            try:
                if not self._reloading.acquire(timeout=left(threading.TIMEOUT_MAX)):
                    raise ServingError("DEADLINE_EXCEEDED", "Another reload has not ended in time")
                try:
                    yield
                finally:
                    self._reloading.release()
            finally:
                self._reloads.release()

    def _apply(self, config: model_server_config_pb2.ModelServerConfig, look: bool) -> None:
        policies = {model.name: model_config.policy(model) for model in config.model_config_list.config}
        with self._following:
            self._replace_models(config, policies)
        if look:
            self._poll()

    def _replace_models(
        self, config: model_server_config_pb2.ModelServerConfig, policies: Mapping[str, Policy]
    ) -> None:
        models: dict[str, VersionManager] = {}
        for model in config.model_config_list.config:
            base, policy = model_config.base_path(model), policies[model.name]
            manager = self._models.get(model.name) or self._retired.pop(model.name, None) or self._manager(model.name)
            manager.base_path, manager.source, manager.policy = base, model.base_path, policy
            models[model.name] = manager
        urls = {model.name: model.base_path for model in config.model_config_list.config if is_url(model.base_path)}
        former = {mirror.url: mirror for mirror in self._mirrors.values()}
        self._mirrors = {name: former.get(url) or Mirror(url) for name, url in urls.items()}
        removed = {name: manager for name, manager in self._models.items() if name not in models}
        for manager in removed.values():
            manager.retire()
        self._retired |= removed
        self._models = models

    def _manager(self, name: str) -> VersionManager:
        def load(number: int, path: pathlib.Path) -> LoadedServable:
            return self._load(name, number, path)

        self.metrics.add_model(name)
        return VersionManager(name, load, self._executors)

    def _new_labels(
        self, config: model_server_config_pb2.ModelServerConfig, old: dict[str, dict[str, int]]
    ) -> dict[str, dict[str, int]]:
        labels: dict[str, dict[str, int]] = {}
        for model in config.model_config_list.config:
            for label, number in model.version_labels.items():
                moved = old.get(model.name, {}).get(label, number) != number
                allowed = self._options.allow_version_labels_for_unavailable_models and not moved
                if not allowed and not self._is_available(model.name, number):
                    raise ServingError(
                        "FAILED_PRECONDITION",
                        f"Request to assign label to version {number} of model {model.name}, which is not currently "
                        "available for inference",
                    )
                labels.setdefault(model.name, {})[label] = number
        return labels

    def _is_available(self, name: str, number: int) -> bool:
        manager = self._models.get(name)
        return manager is not None and any(v.number == number and v.state == "AVAILABLE" for v in manager.status())

    def _await_models(
        self, names: Iterable[str], deadline: float | None = None, empty_seconds: float = math.inf
    ) -> dict[str, Version]:
        """Waits until each model has an available or ended version. Returns the ended ones by model.

        Args:
            names: The models.
            deadline: When to give up, on the monotonic clock.
            empty_seconds: When to give up on a model without a loading version.

        Raises:
            ServingError: the deadline has passed. The models remain, and their versions keep loading.
        """
        reached: dict[str, Version] = {}
        began = time.monotonic()
        while waiting := [name for name in names if name not in reached]:
            for name in waiting:
                if version := self._models[name].reached():
                    reached[name] = version
            now = time.monotonic()
            empty = [name for name in waiting if name not in reached and not self._models[name].is_loading()]
            if empty and now - began > empty_seconds:
                raise ServingError("DEADLINE_EXCEEDED", f"No version of {', '.join(empty)} was found to load")
            if deadline is not None and now > deadline:
                raise ServingError("DEADLINE_EXCEEDED", f"Not yet available: {', '.join(waiting)}")
            if self._stopping.wait(_LOOK_SECONDS):
                break
        return {name: version for name, version in reached.items() if version.state == "END"}

    # Background threads -----------------------------------------------------------------------------------------------

    def _repeat(self, name: str, seconds: float, work: Callable[[], None], awaited: bool = True) -> None:
        def follow() -> None:
            while not self._stopping.wait(seconds):
                try:
                    work()
                except Exception:
                    log.exception("Following the %s failed", name)

        thread = threading.Thread(target=follow, name=name, daemon=True)
        thread.start()
        if awaited:
            self._threads.append(thread)

    def _tidy(self) -> None:
        """Frees unused memory. Does so immediately if the process exceeds its limit, for example through gRPC
        buffers.
        """
        if self.budget.excess() > 0 or time.monotonic() - self._tidied >= _TIDY_SECONDS:
            return_unused_pages()
            self._tidied = time.monotonic()

    def _follow_stores(self) -> None:
        """Copies the wanted versions from stores. The next poll finds the copies."""
        for name, mirror in list(self._mirrors.items()):
            manager = self._models.get(name)
            if manager is not None:
                mirror.try_to_follow(manager.policy.wanted)

    def _poll(self) -> None:
        models = dict(self._models)
        try:
            present = [(name, manager, manager.base_path, manager.scan()) for name, manager in models.items()]
        except OSError as error:  # an unreadable folder unloads nothing; as in TF Serving, no model is polled
            reason = f"Could not find base path {error.filename} ({error.strerror})"
            if reason != self._out_of_reach:
                log.error("%s: no versions are looked for before it is there", reason)
            self._out_of_reach = reason
            return
        self._out_of_reach = ""
        with self._following:
            # A reload that came while the folders were read may have removed a model, or given it another folder.
            current = [
                (manager, versions)
                for name, manager, base_path, versions in present
                if self._models.get(name) is manager and manager.base_path == base_path
            ]
            self._set_threads(
                [path for manager, versions in current for path in manager.policy.wanted(versions).values()]
            )
            for manager, versions in current:
                manager.follow(versions)

    def _set_threads(self, versions: Sequence[pathlib.Path]) -> None:
        """Sets the threads within an operation, once: the first versions that are found decide for all sessions."""
        if versions and not self._has_threads:
            config = for_first_versions(self._session_config, versions)
            self.admission.shares_rows = config != self._session_config  # nobody has set the threads
            self._session_config, self._has_threads = config, True

    def _poll_config(self) -> None:
        refusal = ""
        try:
            config = self._polled_config()
            if config != self._config:
                self.reload(config)
        except UnreachableError:
            refusal = f"{self._options.model_config_file}: the store is away, and the config in use stays"
        except (InputError, ServingError) as error:  # the old config stays in use (V9)
            refusal = str(error)
        if refusal and refusal != self._refusal:
            log.error("The model config file was not taken over: %s", refusal)
        self._refusal = refusal

    def _polled_config(self) -> model_server_config_pb2.ModelServerConfig:
        """Returns the config of the file, which is parsed only when it has changed: 3,000 models take 0.2 s."""
        contents, file = None, self._options.model_config_file
        with contextlib.suppress(OSError):  # which is said below
            if file is not None:
                contents = read_bytes(file) if isinstance(file, str) else file.read_bytes()
        if contents is None or contents != self._contents:
            self._polled = self._read_config()
            self._contents = contents
        return self._polled

    def _load(self, name: str, number: int, path: pathlib.Path) -> LoadedServable:
        servable = self._batching.wrap(self._load_saved_model(path))
        try:
            if self._options.enable_model_warmup:
                self._warm_up(ServedVersion(name, number, servable, self.admission), path)
        except Exception:
            servable.close()
            raise
        self.budget.measure_base()
        return servable

    def _load_saved_model(self, path: pathlib.Path) -> Servable:
        if (path / _SESSION_BUNDLE).exists():
            raise ServingError("UNIMPLEMENTED", "Session Bundle is deprecated and removed.")
        if not graph_file(path).exists():
            raise ServingError("NOT_FOUND", f"{_NO_GRAPH}\nSpecified file path: {path}")
        is_loaded = False
        try:
            servable = Servable(path, config=self._session_config, tags=self._options.saved_model_tags.split(","))
            is_loaded = True
            return servable
        finally:
            self.metrics.record_load(str(path), is_loaded)

    def _warm_up(self, version: ServedVersion, path: pathlib.Path) -> None:
        if not asset_path(path, Asset.WARMUP).exists():
            return
        began = time.perf_counter()
        try:
            records = replay_warmup(version, path, self._options.num_request_iterations_for_warmup)
        except ServingError as error:
            if error.code == "DATA_LOSS":  # a failed request is not counted (X5)
                self.metrics.record_warmup(str(path), f"DATA_LOSS: {error.message}", time.perf_counter() - began, 0)
            raise
        self.metrics.record_warmup(str(path), "OK", time.perf_counter() - began, records)


class Use(contextlib.AbstractContextManager[ServedVersion]):
    """Keeps a model's version loaded inside a `with` block. A class, because it costs a request less than a generator.

    Raises:
        ServingError: there is no such version; raised when the block is entered.
    """

    def __init__(self, manager: VersionManager, name: str, number: int | None, admission: Admission):
        self._manager, self._name, self._number, self._admission = manager, name, number, admission

    def __enter__(self) -> ServedVersion:
        version = self._manager.take(self._number)
        if version is None:
            raise _not_found(self._name, self._number)
        assert version.servable is not None  # an available version has one
        self._version = version
        return ServedVersion(self._name, version.number, version.servable, self._admission)

    def __exit__(self, *error: object) -> None:
        self._manager.give_back(self._version)


def _not_found(name: str, number: int | None) -> ServingError:
    wanted = f"Latest({name})" if number is None else f"Specific({name}, {number})"
    return ServingError("NOT_FOUND", f"Servable not found for request: {wanted}")


def _unavailable(what: str, failed: Mapping[str, Version]) -> str:
    texts = "".join(
        f"{{{{name: {name} version: {version.number}}} due to error: {version.error_code}: {version.error_message}}}, "
        for name, version in sorted(failed.items())
    )
    return f"{len(failed)} {what}(s) did not become available: {{{texts}}}"
