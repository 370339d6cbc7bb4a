"""Runs modules as `python -m` does, each in a separate process that finds TensorFlow and TFX imported.

The processes are forks of one that has imported them: importing them again would take 3 s of a core for each. It is
for modules whose own imports are tested elsewhere.
"""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib
import runpy
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence

from ctrpipe.common.libraries import import_tensorflow, importing_tfx
from tests.warm_processes import Stream


@dataclasses.dataclass(frozen=True)
class WarmPython:
    """The address of the process that is forked."""

    address: str

    def run(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: pathlib.Path, umask: int
    ) -> tuple[int, str]:
        """Runs a module in the folder; returns the exit code, below 0 for a signal's, and what it said."""
        asked = {"module": module, "arguments": list(arguments), "folder": str(folder), "umask": umask}
        with tempfile.TemporaryFile("w+") as said, socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.address)
            message = json.dumps({**asked, "environment": dict(environment)}).encode()
            socket.send_fds(connection, [len(message).to_bytes(8, "big")], [said.fileno()])
            connection.sendall(message)
            code = int(connection.makefile().read())
            said.seek(0)
            return code, said.read()


@contextlib.contextmanager
def warm_python() -> Iterator[WarmPython]:
    """Starts the process that is forked; it ends with the block."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        address = f"{folder}/socket"
        listener.bind(address)
        listener.listen()
        # Under pytest-xdist it is a fork itself, see warm_processes.
        process = multiprocessing.get_context("spawn").Process(target=_serve_at, args=[Stream(listener.fileno())])
        process.start()
        listener.close()  # where that process ends, a connection is refused
        try:
            yield WarmPython(address)
        finally:
            process.kill()
            process.join()


def _serve_at(number: int) -> None:
    for name in [name for name in os.environ if name.startswith("TF_")]:
        del os.environ[name]
    _serve(socket.socket(fileno=number))


def _serve(listener: socket.socket) -> None:
    import_tensorflow()
    with importing_tfx():
        import ctrpipe.pipeline.kubeflow.work
        import ctrpipe.pipeline.monitoring.statistics  # noqa: F401
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(connection)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _answer(connection: socket.socket) -> None:
    """Runs what is asked in one more fork, whose end it waits for, and tells its exit code."""
    header, [output], _, _ = socket.recv_fds(connection, 8, 1)
    message = connection.makefile("rb").read(int.from_bytes(header, "big"))
    process = os.fork()
    if process == 0:
        connection.close()
        _run(json.loads(message), output)
    _, status = os.waitpid(process, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(asked: dict, output: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    os.umask(asked["umask"])
    sys.argv = [asked["module"], *asked["arguments"]]
    sys.path.insert(0, asked["folder"])
    code = 0
    try:
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else bool(ended.code)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # a fork has no threads to end, and nothing of its parent's to close
