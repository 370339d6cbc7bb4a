"""The server's flags. Names and defaults are TF Serving's unless the help says otherwise."""

import argparse
import dataclasses
import logging
import os
import pathlib
import typing
from collections.abc import Sequence
from importlib import metadata
from typing import Any, NoReturn

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import installed_version
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.processes import cores, on_intel
from ctrpipe.common.stores import is_url, local_path
from ctrpipe.serving.layout import base_path_of, is_unfinished
from ctrpipe.serving.stored import base_url_of

log = logging.getLogger(__name__)
Path = pathlib.Path

_VERSION = "version"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_AS_TENSORFLOW_SERVING = "an internal of TF Serving, which a Python server does not have"


def _flag(default: object, help: str, refused: str = "", ignored: str = "") -> Any:
    """Returns the field of a flag.

    `refused` and `ignored` are the reasons why a value other than the default is an error, or is only logged.
    """
    return dataclasses.field(default=default, metadata={"help": help, "refused": refused, "ignored": ignored})


def _threads() -> int:
    return 4 * (os.cpu_count() or 1)


def _busy_poll_micros() -> int:
    return 200 if cores() > 1 else 0  # on a single core, polling would starve the client


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """The flags of `ctrpipe serve`. Names and defaults follow tensorflow_model_server.

    TF Serving lacks these flags: `host` (TF Serving listens on every address); `wait` (TF Serving waits for a folder
    that is not there); `rows_as_logged` (TF Serving refuses such rows); `max_request_bytes`, `max_json_memory_bytes`,
    `max_json_depth` and `max_memory` (TF Serving has no limits); `rest_api_busy_poll_micros`; `grpc_max_queued_calls`;
    `request_log` and `sampling_rate` (TF Serving is built without its request log); `shadow` and `shadow_log`;
    `allow_reload_from_network`, `allow_profiler_from_network` and `allowed_model_roots` (TF Serving lets any client
    load any folder, and have a trace written to any folder).
    """

    model_base_path: Path | str | None = _flag(
        None,
        "A run, the folder of a model's versions, or a single version, or their URL in a store. Ignored with "
        "--model_config_file.",
    )
    model_name: str = _flag("default", "The model's name. Ignored with --model_config_file.")
    rest_api_port: int = _flag(0, "Port of the REST API; 0 = none. Must differ from --port.")
    port: int = _flag(8500, "Port of the gRPC API; 0 = none.")
    host: str = _flag("127.0.0.1", "Address to listen on. Not a flag of TF Serving, which listens on all.")
    wait: bool = _flag(
        False, "Wait for a --model_base_path that does not exist yet, as TF Serving does. Not a flag of TF Serving."
    )
    rows_as_logged: bool = _flag(
        False,
        "Over REST, accept rows as in a log: numbers in text columns, null or no key for missing values, "
        "lists, and extra keys. "
        "Not a flag of TF Serving.",
    )
    max_request_bytes: int = _flag(64 << 20, "Limit of a REST request's body. Not a flag of TF Serving.")
    max_json_memory_bytes: int = _flag(
        64 << 20,
        "Estimated bytes that the values of a REST body may take in addition to 4 times its size. "
        "Not a flag of TF Serving.",
    )
    max_memory: int = _flag(
        0,
        "Maximum bytes of the process, including its models. Requests that do not fit are refused; 0 = half of the "
        "memory of the machine or the container. Not a flag of TF Serving.",
    )
    max_json_depth: int = _flag(
        150_000, "Maximum nesting of lists and objects in a REST body. Not a flag of TF Serving."
    )
    file_system_poll_wait_seconds: float = _flag(
        1.0, "Seconds between checks for new versions; 0 = check once, negative = never."
    )
    rest_api_timeout_in_ms: int = _flag(30_000, "Timeout of a REST request in milliseconds.")
    rest_api_num_threads: int = _flag(_threads(), "Maximum number of concurrent REST requests.")
    rest_api_busy_poll_micros: int = _flag(
        _busy_poll_micros(),
        "Microseconds of polling for the next request before sleeping; 0 = never. Not a flag of TF Serving.",
    )
    rest_api_enable_cors_support: bool = _flag(False, "Send CORS headers in REST responses.")
    grpc_socket_path: str = _flag("", "Also answer gRPC on this UNIX socket.")
    grpc_max_threads: int = _flag(
        _threads(), "Threads of the gRPC server. One waits for calls; each of the others runs one call at a time."
    )
    grpc_max_queued_calls: int = _flag(
        0,
        "Maximum number of calls that wait for a gRPC thread; others fail with RESOURCE_EXHAUSTED. Not a flag of TF "
        "Serving, where no call waits.",
    )
    grpc_channel_arguments: str = _flag("", "Arguments of the gRPC server: KEY=VALUE,...")
    request_log: Path | None = _flag(
        None, "Folder for a sample of the answered requests, as TFRecords of PredictionLog. Not a flag of TF Serving."
    )
    shadow: str = _flag(
        "",
        "Label of a version that also gets a sample of the requests; clients do not see its answers. "
        "Not a flag of TF Serving.",
    )
    shadow_log: Path | None = _flag(
        None,
        "Folder for the answers of --shadow and the answers sent to clients, as Parquet. Not a flag of TF Serving.",
    )
    sampling_rate: float = _flag(
        0.01, "Share of the requests for --request_log and for --shadow. Not a flag of TF Serving."
    )
    ssl_config_file: Path | None = _flag(None, "Text proto SSLConfig: keys and certificates of the gRPC server.")
    enable_grpc_healthcheck_service: bool = _flag(False, "Answer grpc.health.v1.Health.")
    enable_serialization_as_tensor_content: bool = _flag(False, "gRPC responses in tensor_content, not in *_val.")
    model_config_file: Path | str | None = _flag(
        None, "Text proto ModelServerConfig, or its URL in a store: models, policies, labels."
    )
    model_config_file_poll_wait_seconds: float = _flag(
        0.0, "Seconds between reads of --model_config_file; 0 = read once."
    )
    allow_version_labels_for_unavailable_models: bool = _flag(
        False, "Allow new labels for versions that are not loaded yet."
    )
    allow_reload_from_network: bool = _flag(
        False, "Accept HandleReloadConfigRequest even if --host is not loopback. Not a flag of TF Serving."
    )
    allow_profiler_from_network: bool = _flag(
        False,
        "Run the profiler, which writes to any folder that a client names, even if --host is not loopback. "
        "Not a flag of TF Serving.",
    )
    allowed_model_roots: str = _flag(
        "",
        "FOLDER,...: HandleReloadConfigRequest may add models only below these; empty = anywhere if --host is "
        "loopback, otherwise nowhere. Not a flag of TF Serving.",
    )
    num_load_threads: int = _flag(0, "Maximum number of versions that load at the same time; 0 = one.")
    num_unload_threads: int = _flag(0, "Maximum number of versions that unload at the same time; 0 = one.")
    max_num_load_retries: int = _flag(5, "Number of retries to load a version.")
    load_retry_interval_micros: int = _flag(60_000_000, "Microseconds between retries; negative = no wait.")
    enable_model_warmup: bool = _flag(True, "Replay assets.extra/tf_serving_warmup_requests before a version is used.")
    num_request_iterations_for_warmup: int = _flag(
        1, "Number of replays of each warm-up request; ignored unless above 0."
    )
    saved_model_tags: str = _flag("serve", "Tags of the graph to load, separated by commas.")
    enable_signature_method_name_check: bool = _flag(
        False, "Require a signature with the method name classify or regress for these calls."
    )
    enable_batching: bool = _flag(False, "Combine requests into batches.")
    batching_parameters_file: Path | None = _flag(None, "Text proto BatchingParameters; needs --enable_batching.")
    enable_per_model_batching_parameters: bool = _flag(
        False, "Read batching_params.pbtxt in the folder of each version."
    )
    monitoring_config_file: Path | None = _flag(
        None, "Text proto MonitoringConfig, which configures the Prometheus page."
    )
    tensorflow_session_parallelism: int = _flag(0, "Threads within and between operations; 0 = automatic.")
    tensorflow_intra_op_parallelism: int = _flag(
        0, "Threads within an operation; 0 = automatic: one for click models, whose rows idle processors share."
    )
    tensorflow_inter_op_parallelism: int = _flag(0, "Maximum number of concurrent operations; 0 = automatic.")
    tensorflow_session_config_file: Path | None = _flag(None, "Text proto tensorflow.ConfigProto.")
    per_process_gpu_memory_fraction: float = _flag(0.0, "Share of a GPU's memory; 0 = automatic.")
    mixed_precision: str = _flag("", 'Empty, or "bfloat16".')
    xla_cpu_compilation_enabled: bool = _flag(
        False, "Allow XLA to compile graphs. Without this flag, a graph that requires XLA fails with INTERNAL."
    )
    xla_gpu_compilation_enabled: bool = _flag(False, "The same, for the GPU and the CPU.")
    flush_filesystem_caches: bool = _flag(
        True, "Drop the file system's caches after a load.", ignored="a local file system has none to drop"
    )
    remove_unused_fields_from_bundle_metagraph: bool = _flag(
        True, "Drop unused parts of the graph's description.", ignored=_AS_TENSORFLOW_SERVING
    )
    enable_profiler: bool = _flag(True, "Run TensorFlow's profiler service on the gRPC port.")
    skip_initialize_tpu: bool = _flag(False, "Do not initialize TPUs.", ignored="this server has no TPUs")
    num_tflite_pools: int = _flag(0, "TensorFlow Lite.", ignored="this server runs no TensorFlow Lite models")
    num_tflite_interpreters_per_pool: int = _flag(
        0, "TensorFlow Lite.", ignored="this server runs no TensorFlow Lite models"
    )
    prefer_tflite_model: bool = _flag(
        False, "TensorFlow Lite.", refused="this server runs no TensorFlow Lite models; remove the flag"
    )
    use_alts_credentials: bool = _flag(
        False, "Google's ALTS.", refused="Google's ALTS is not available here; use --ssl_config_file"
    )
    platform_config_file: str = _flag(
        "", "Text proto PlatformConfigMap.", refused="the only platform is tensorflow; remove the flag"
    )
    thread_pool_factory_config_file: str = _flag(
        "", "Text proto ThreadPoolConfig.", refused="thread pools are set by --tensorflow_*_parallelism"
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) == field.default:
                continue
            if field.metadata["refused"]:
                raise InputError(f"--{field.name}: {field.metadata['refused']}")
            if field.metadata["ignored"]:
                log.warning("--%s has no effect: %s", field.name, field.metadata["ignored"])
        for name in ("rest_api_port", "port"):
            if not 0 <= getattr(self, name) < 65536:
                raise InputError(f"--{name}={getattr(self, name)}: a port is a number from 0 to 65535")
        for name in (
            "rest_api_num_threads",
            "grpc_max_threads",
            "max_request_bytes",
            "max_json_memory_bytes",
            "max_json_depth",
            "rest_api_timeout_in_ms",
        ):
            if getattr(self, name) < 1:
                raise InputError(f"--{name}={getattr(self, name)}: it must be above 0")
        for name in ("max_memory", "rest_api_busy_poll_micros", "grpc_max_queued_calls"):
            if getattr(self, name) < 0:
                raise InputError(f"--{name}={getattr(self, name)}: it must be 0 or more")
        if self.shadow_log and not self.shadow:
            raise InputError("--shadow_log needs --shadow; name the label of a version there")
        if not 0 < self.sampling_rate <= 1:
            raise InputError(f"--sampling_rate={self.sampling_rate}: it must be above 0 and at most 1")
        if self.batching_parameters_file and not self.enable_batching:
            raise InputError("--batching_parameters_file is set without --enable_batching; add that flag")
        if self.tensorflow_session_parallelism and (
            self.tensorflow_intra_op_parallelism or self.tensorflow_inter_op_parallelism
        ):
            raise InputError(
                "--tensorflow_session_parallelism is set, and so is --tensorflow_intra_op_parallelism or "
                "--tensorflow_inter_op_parallelism; give the first or the others"
            )
        if self.mixed_precision not in ("", "bfloat16"):
            raise InputError(f'--mixed_precision={self.mixed_precision}: empty or "bfloat16"')


_FLAGS = [f"--{field.name}" for field in dataclasses.fields(ServerOptions)]


class _FlagParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; ctrpipe serve --help lists the flags")


def _boolean(text: str) -> bool:
    """Parses a boolean as TensorFlow's flag parser does (xla/tsl/util/command_line_flags.cc, ParseBoolFlag)."""
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise argparse.ArgumentTypeError(f"{text}: true or false")
    return value


_BOOLEAN_ARGUMENT: dict[str, Any] = {"type": _boolean, "metavar": "BOOL"}


def _path(text: str) -> Path | None:
    if is_url(text):
        raise argparse.ArgumentTypeError(f"{text}: the flag takes a path of this machine; copy it here")
    return local_path(text) if text else None


def _path_or_url(text: str) -> Path | str | None:
    return text if is_url(text) else _path(text)


def _parser() -> argparse.ArgumentParser:
    parser = _FlagParser(
        prog="ctrpipe serve",
        usage="ctrpipe serve [--FLAG=VALUE ...]",
        description="Serve models as tensorflow_model_server does, over REST and gRPC, with its flags.",
        allow_abbrev=False,
    )
    kinds = typing.get_type_hints(ServerOptions)
    for field in dataclasses.fields(ServerOptions):
        kind = next(part for part in (typing.get_args(kinds[field.name]) or (kinds[field.name],)) if part)
        shown = "" if field.default in (None, "") else f" [default: {str(field.default).lower()}]"
        text = (field.metadata["help"] + shown).replace("%", "%%")
        path = _path_or_url if str in typing.get_args(kinds[field.name]) else _path
        convert = path if kind is Path else kind
        extra: dict[str, Any] = {"type": convert, "metavar": kind.__name__.upper()}
        if kind is bool:
            extra = _BOOLEAN_ARGUMENT
        parser.add_argument(f"--{field.name}", default=field.default, help=text, **extra)
    parser.add_argument(f"--{_VERSION}", default=False, help="Print versions and exit.", **_BOOLEAN_ARGUMENT)
    return parser


def _boolean_flags() -> set[str]:
    """Returns the boolean flags. Without `=`, a boolean flag is true; it does not consume the next word."""
    kinds = typing.get_type_hints(ServerOptions)
    return {f"--{name}" for name in (*kinds, _VERSION) if kinds.get(name, bool) is bool}


def parse_flags(flags: Sequence[str]) -> ServerOptions:
    """Parses `--flag=value` and `--flag value`; booleans as `--flag=value` or `--flag`.

    An empty path means no path. Unknown arguments are logged and ignored, as in TF Serving (main.cc).

    Raises:
        InputError: a value has the wrong type, or is not possible here.
        SystemExit: --version or --help was given; the text has been printed.
    """
    known, unknown = _parser().parse_known_args(
        [f"{flag}=true" if flag in _boolean_flags() else flag for flag in flags]
    )
    values = vars(known)
    if values.pop(_VERSION):
        print(f"TensorFlow ModelServer: ctrpipe {metadata.version('ctrpipe')}, a local stand-in")
        print(f"TensorFlow Library: {installed_version('tensorflow')}")
        raise SystemExit(0)
    for argument in unknown:
        name = argument.partition("=")[0]
        meant = did_you_mean(name, _FLAGS) if name.startswith("--") else ""
        log.warning("unknown argument: %s is ignored%s", argument, meant or "; ctrpipe serve --help lists the flags")
    return ServerOptions(**values)


def with_found_folder(options: ServerOptions) -> ServerOptions:
    """Replaces a run's folder in the options by the folder of its versions.

    TF Serving waits forever for a missing folder. A mistyped name would then look like a slow start.

    Raises:
        InputError: the folder is missing or its run is not finished, and `wait` is not set; it is a run without a
            model; or its store refuses the request or does not answer.
    """
    base = options.model_base_path
    if options.model_config_file is not None or base is None:
        return options
    if isinstance(base, str):
        stored = base_url_of(base, options.wait)
        return options if stored == base else dataclasses.replace(options, model_base_path=stored)
    if not base.exists():
        if options.wait:
            return options
        raise InputError(
            f"{base}: there is no such folder; give a run, or RUN/models/<name>, or --wait for it to appear"
        )
    if is_unfinished(base) and not options.wait:
        raise InputError(f"{base}: its run has not finished; wait for it, or give --wait")
    folder = base_path_of(base)
    return options if folder == base else dataclasses.replace(options, model_base_path=folder)


def set_environment(options: ServerOptions) -> None:
    """Turns oneDNN off on processors other than Intel's. Must run before TensorFlow is imported.

    TensorFlow enables oneDNN by default. On an AMD EPYC, oneDNN spread the product of one row with a matrix over all
    processors: a request of one row took 5 to 10 times as long, a request of 100 rows as long as without. On an Intel
    Xeon, one row takes 10% longer; 10 to 100 rows, and many clients, take less (docs/measured.md).

    A value already set in the environment is kept. --mixed_precision=bfloat16 needs oneDNN and leaves it on.
    """
    if not options.mixed_precision and not on_intel():
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
