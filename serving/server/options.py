"""The server's flags: TF Serving's names and defaults, except for the two differences on purpose."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """What `ctrpipe serve` was told; a flag has the name and the default that it has at tensorflow_model_server.

    `host` (not TF Serving's: it listens on every address) and `max_request_bytes` (it has no limit) are ours.
    """

    model_base_path: pathlib.Path | None = None
    model_name: str = "default"
    rest_api_port: int = 0
    port: int = 8500
    host: str = "127.0.0.1"
    max_request_bytes: int = 64 << 20
    file_system_poll_wait_seconds: float = 1.0
    rest_api_timeout_in_ms: int = 30_000
