"""Serve a model over REST and gRPC from this process."""

import atexit
import contextlib
import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.near import nearest_name
from ctrpipe.common.store_folders import local_copy
from ctrpipe.common.stores import is_url
from ctrpipe.data import place_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.runs import ModelLike, versions_of
from ctrpipe.serving.layout import find_version
from ctrpipe.serving.server.options import ServerOptions, parse_flags, set_environment
from ctrpipe.serving.stored import base_url_of, is_awaited
from ctrpipe.table import Table

if TYPE_CHECKING:
    from ctrpipe.model import Predictions

NAME = "ctr"
OWN = ("model_base_path", "model_name", "rest_api_port", "port")  # flags that `serve` takes under other names


class Server:
    """A running server.

    Created by `serve`. Stop it with `close` or a `with` block; it also stops when the process ends.

    Attributes:
        url: The URL of the model, for `ctrpipe.load` and `ctrpipe predict --url`.
        rest: The REST address, `http://HOST:PORT`.
        grpc: The gRPC address, `HOST:PORT`.
    """

    def __init__(self, url: str, rest: str, grpc: str, running: contextlib.ExitStack, folder: pathlib.Path):
        self.url = url
        self.rest = rest
        self.grpc = grpc
        self._running = running
        self._folder = folder
        atexit.register(self._end)  # before Python unloads the modules that closing needs

    def predict(self, rows: object) -> "Predictions":
        """Predicts the probabilities of raw rows over REST.

        Args:
            rows: See `ctrpipe.load(...).predict`.

        Raises:
            InputError: a column is missing or has the wrong type, or the server does not respond.
        """
        from ctrpipe.model import Model  # lazy: numpy and pyarrow take 0.3 s

        with Model(self.url, version=find_version(self._folder)) as model:
            return model.predict(rows)

    def close(self) -> None:
        """Stops the server after the requests in progress. A second call does nothing."""
        atexit.unregister(self._end)
        self._running.close()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # thread pools reject work at interpreter shutdown
            self._running.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _table(self) -> Table:
        return Table(["served at", ""], [["url", self.url], ["REST", self.rest], ["gRPC", self.grpc]])

    def __repr__(self) -> str:
        return self._table().text

    def _repr_html_(self) -> str:
        return self._table().html


@in_one_line
def serve(model: ModelLike, *, name: str = NAME, rest_port: int = 0, grpc_port: int = 0, **flags: Any) -> Server:
    """Serves a model over REST and gRPC from threads of this process.

    The server loads new versions that appear in the folder, or at its URL. It ignores the XLA flags, which affect the
    whole process. On CPUs not made by Intel, `ctrpipe serve` disables oneDNN, which makes requests of one row faster.
    TensorFlow reads this setting at import: if this process has already imported TensorFlow, such requests may take
    longer here.

    Args:
        model: A run whose model was pushed, its folder, the folder of a model's versions, or a version to serve alone;
            or its URL in a store.
        name: Name of the model in URLs.
        rest_port: REST port. 0 picks a free port.
        grpc_port: gRPC port. 0 picks a free port.
        flags: Further flags of `ctrpipe serve`, such as `enable_batching=True`.

    Returns:
        A `Server` that is ready for requests.

    Raises:
        InputError: the folder has no model, a port is in use, or a flag does not exist.

    Example:
        >>> with ctrpipe.serve("runs/mine") as server:
        ...     server.predict({"I1": [3.0], "C1": ["68fd1e64"]})["ctr"]
        array([0.21], dtype=float32)
    """

    known = [field.name for field in dataclasses.fields(ServerOptions) if field.name not in OWN]
    if unknown := [flag for flag in flags if flag not in known]:
        near = nearest_name(unknown[0], known)
        hint = f"did you mean {near}?" if near else "`ctrpipe serve --help` lists the flags"
        raise InputError(f"{unknown[0]}: no such flag of the server; {hint}")
    base, folder = _base_of(model)
    own = {"model_base_path": base, "model_name": name}
    options = parse_flags([f"--{flag}={_text(value)}" for flag, value in {**own, **flags}.items()])
    set_environment(options)
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s to import, and reads the environment at import, after set_environment.
    from ctrpipe.serving.server import running_server

    with contextlib.ExitStack() as starting:
        addresses = starting.enter_context(running_server(options, rest_port, grpc_port))
        rest, grpc = str(addresses.rest), str(addresses.grpc)
        return Server(f"{rest}/v1/models/{name}", rest, grpc, starting.pop_all(), folder)


def _base_of(model: ModelLike) -> tuple[str, pathlib.Path]:
    """Returns the folder of a model's versions, or a version, as the server's flag takes it; and as a local folder.

    Raises:
        InputError: there is no such folder of versions, or the store refuses a request or does not answer.
    """
    if isinstance(model, str) and is_url(model):
        base = base_url_of(place_of(model), wait=False)
        if is_awaited(base):
            raise InputError(f"{model}: no complete run or model version here; name what `ctrpipe run` pushed")
        return base, local_copy(base)
    folder = versions_of(model)
    find_version(folder)
    return os.path.abspath(folder), folder  # a link keeps its name, which is a version's number


def _text(value: object) -> str:
    """Returns the value of a flag as on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
