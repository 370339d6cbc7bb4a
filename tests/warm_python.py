"""Interpreters with a backend already imported, which takes 3 to 6 s of a core each time.

`python("jax")` and `python("tensorflow")` stand for `sys.executable` in a command: a process that has imported Keras on
this backend is forked for each. It is for code whose own imports are tested elsewhere. Outside pytest-xdist both are
`sys.executable`.
"""

import contextlib
import functools
import json
import multiprocessing
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ctrpipe.common.libraries import import_keras, import_tensorflow, importing_tfx
from tests import warm_processes

ROOT = pathlib.Path(__file__).parents[1]
INTERPRETER = sys.executable  # tests may change that one
VARIABLE = "CTRPIPE_TESTS_WARM_"  # holds the address of a process that is forked
OURS = ("'ctrpipe.pipeline.training.", "from ctrpipe.pipeline.cli import main")  # in the code of `python -c`
CLIENT = pathlib.Path(__file__).with_name("warm_client.py")
_SERVER = "import sys; from tests.warm_python import serve_jax; serve_jax(int(sys.argv[1]))"


def python(backend: str) -> list[str]:
    """The first words of a command, in place of `sys.executable`; `-c CODE` or `-m MODULE` with arguments follow."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return [INTERPRETER]
    if (variable := f"{VARIABLE}{backend}") not in os.environ:
        os.environ[variable] = _start(backend)  # for the processes too that are started so
    return [INTERPRETER, "-IS", str(CLIENT), os.environ[variable]]


def use_in_commands() -> None:
    """Uses them from now on for trainings on another backend or with other workers, and for measured servers."""
    from ctrpipe.pipeline.training import process  # Lazy: 1 s; processes of one file do without it.
    from ctrpipe.serving.latency import target  # Lazy: as well

    for module in (process, target):
        module.start_command = functools.partial(_start_command, module.start_command)


def _start_command(start: Callable[..., Any], command: Sequence[str], **options: Any) -> Any:
    if command[0] == INTERPRETER and any(code in word for code in OURS for word in command):
        backend = options.get("env", os.environ).get("KERAS_BACKEND", "tensorflow")
        command = [*python(backend), *command[1:]]
    return start(command, **options)


def _start(backend: str) -> str:
    """Starts the process to fork, which ends with this one; returns its address."""
    address = os.path.join(tempfile.mkdtemp(prefix="warm-"), "socket")  # the first process removes it, with all others
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        if backend == "jax":
            environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)}
            number = listener.fileno()
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "pass_fds": [number], "env": environment, "cwd": ROOT}
            server = subprocess.Popen([INTERPRETER, "-c", _SERVER, str(number)], **pipes)
            _kept.append(server)
            process: int | None = server.pid
        else:
            read_end, write_end = os.pipe()
            given = warm_processes.Stream(listener.fileno()), warm_processes.Stream(read_end)
            fork = multiprocessing.get_context("spawn").Process(target=_serve_tensorflow, args=given, daemon=True)
            fork.start()
            os.close(read_end)
            _kept.extend((fork, write_end))
            process = fork.pid
    assert process
    warm_processes.counted.append(process)
    return address


_kept: list[Any] = []  # what ends a process that is forked, when this one ends


def serve_jax(listener: int) -> None:
    import_keras()
    import ctrpipe.pipeline.training.handover
    import ctrpipe.pipeline.training.jax_learner
    import ctrpipe.pipeline.training.worker  # noqa: F401

    os.set_inheritable(listener, False)
    _serve(socket.socket(fileno=listener), 0)


def _serve_tensorflow(listener: int, alive: int) -> None:
    """Serves forks with TensorFlow; under pytest-xdist it is a fork itself, see warm_processes."""
    import_tensorflow()
    with importing_tfx():
        import ctrpipe.pipeline.kubeflow.work
        import ctrpipe.pipeline.monitoring.statistics
        import ctrpipe.pipeline.training.handover  # noqa: F401
    use_in_commands()
    _serve(socket.socket(fileno=listener), alive)


def _serve(listener: socket.socket, alive: int) -> NoReturn:
    while alive not in select.select([listener, alive], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(connection)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    os._exit(0)


def _answer(connection: socket.socket) -> NoReturn:
    """Runs the request in one more fork and reports its exit code, or kills the fork if the client has ended."""
    header, streams, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as file:
        asked = json.loads(file.read(int.from_bytes(header, "big")))
    process = os.fork()
    if process == 0:
        connection.close()
        _run(asked, streams)
    for number in streams:  # others wait for their end
        os.close(number)
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    ended = os.pidfd_open(process)
    while ended not in select.select([ended, connection], [], [])[0]:
        passed_on = connection.recv(1)
        os.kill(process, passed_on[0] if passed_on else signal.SIGKILL)
        if not passed_on:
            break
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(OSError):
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    """Runs the requested command as its interpreter."""
    code = 1
    try:
        _surround(asked, streams)
        is_safe = asked["words"][0] == "-P"
        option, what, *arguments = asked["words"][is_safe:]
        folder = [] if is_safe else [asked["folder"]]
        sys.path[:0] = [*folder, *filter(None, asked["environment"].get("PYTHONPATH", "").split(os.pathsep))]
        sys.argv = [what if option == "-m" else option, *arguments]
        if option == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            main = type(sys)("__main__")
            sys.modules["__main__"] = main
            exec(compile(what, "<string>", "exec"), vars(main))
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)  # a fork has no threads to end, and nothing of its parent's to close


def _surround(asked: dict[str, Any], streams: list[int]) -> None:
    """Takes over the streams, the environment, the folder and the umask of the caller."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    _set_jax(asked["environment"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    os.umask(asked["umask"])


def _set_jax(environment: Mapping[str, str]) -> None:
    """Sets JAX's variables, which JAX has read during its import."""
    if jax := sys.modules.get("jax"):
        for name, value in environment.items():
            if name.startswith("JAX_") and value != os.environ.get(name):
                known = jax.config.values[name.lower()]
                if isinstance(known, bool):
                    jax.config.update(name.lower(), value.lower() in ("1", "true"))
                else:
                    jax.config.update(name.lower(), type(known)(value) if isinstance(known, int | float) else value)
