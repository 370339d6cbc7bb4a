"""A model behind REST and gRPC, in this process."""

import atexit
import contextlib
import dataclasses
import difflib
from typing import TYPE_CHECKING, Any

from ctrpipe.common.errors import InputError
from ctrpipe.data import PathLike
from ctrpipe.mistakes import in_one_line
from ctrpipe.runs import Run, versions_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    from ctrpipe.model import Predictions

NAME = "ctr"
OWN = ("model_base_path", "model_name", "rest_api_port", "port")  # flags that are parameters of `serve` by another name


class Server:
    """A running server, as `serve` returns it. Close it with `close` or a `with` block; else it ends with the process.

    Attributes:
        url: The model's URL, for `ctrpipe.load` and `ctrpipe predict --url`.
        rest: The address of REST, `http://HOST:PORT`.
        grpc: The address of gRPC, `HOST:PORT`.
    """

    def __init__(self, url: str, rest: str, grpc: str, running: contextlib.ExitStack):
        self.url = url
        self.rest = rest
        self.grpc = grpc
        self._running = running
        atexit.register(self._end)  # while the modules that it needs are there

    def predict(self, rows: Any) -> "Predictions":
        """Returns what the server answers over REST to rows, as `ctrpipe.load(...).predict` takes them.

        Raises:
            InputError: a column is absent or of the wrong type, or the server gives no answer.
        """
        from ctrpipe.model import Model  # numpy and pyarrow: 0.3 s

        with Model(self.url) as model:
            return model.predict(rows)

    def close(self) -> None:
        """Ends the server after the requests that it has; the second call does nothing."""
        atexit.unregister(self._end)
        self._running.close()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # thread pools take no more work at the end of a process
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
def serve(model: PathLike | Run, *, name: str = NAME, rest_port: int = 0, grpc_port: int = 0, **flags: Any) -> Server:
    """Serves a model over REST and gRPC in threads of this process, as `ctrpipe serve` does in one of its own.

    New versions in the folder are loaded as they come. The flags of XLA are not read, for they hold for a whole
    process. TensorFlow reads how it is to compute when it is loaded: where this process has loaded it before, it serves
    as it is, and answers of one row may take longer than those of the command on processors that are not Intel's.

    Args:
        model: A run that was pushed, or the folder of a model's versions.
        name: The model's name in URLs.
        rest_port: The port of REST; 0 for a free one.
        grpc_port: The port of gRPC; 0 for a free one.
        flags: Further flags of `ctrpipe serve`, such as `enable_batching=True`.

    Raises:
        InputError: the folder has no model, a port is in use, or there is no such flag.

    Example:
        >>> with ctrpipe.serve("runs/mine/models/ctr") as server:
        ...     server.predict({"I1": [3.0], "C1": ["68fd1e64"]})["ctr"]
        array([0.21], dtype=float32)
    """
    from ctrpipe.common.libraries import load_tensorflow
    from ctrpipe.serving.layout import find_version
    from ctrpipe.serving.server.options import ServerOptions, parse_flags, set_environment

    known = [field.name for field in dataclasses.fields(ServerOptions) if field.name not in OWN]
    if unknown := [flag for flag in flags if flag not in known]:
        like = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"did you mean {like[0]}?" if like else "`ctrpipe serve --help` lists the flags"
        raise InputError(f"{unknown[0]}: no such flag of the server; {hint}")
    folder = versions_of(model)
    if find_version(folder) == folder:  # which a server would not find
        raise InputError(f"{folder}: a version; give the folder of versions that it is in")
    own = {"model_base_path": folder.resolve(), "model_name": name}
    options = parse_flags([f"--{flag}={_text(value)}" for flag, value in {**own, **flags}.items()])
    set_environment(options)
    load_tensorflow()
    # TensorFlow: 3 s that a wrong flag does without; it reads the environment as it is loaded.
    from ctrpipe.serving.server import running_server

    with contextlib.ExitStack() as starting:
        addresses = starting.enter_context(running_server(options, rest_port, grpc_port))
        rest, grpc = str(addresses.rest), str(addresses.grpc)
        return Server(f"{rest}/v1/models/{name}", rest, grpc, starting.pop_all())


def _text(value: Any) -> str:
    """Returns a flag's value as the command line has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
