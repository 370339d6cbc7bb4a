"""A process that answers each line of JSON with a line of JSON. Uses the standard library only."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any


class ProcessError(RuntimeError):
    """Raised when a process has exited or rejects a request."""


class LineProcess:
    """A process started on entry and ended on exit; error messages quote the end of its stderr.

    Args:
        name: Its name in errors.
        command: The program and its arguments.
        environment: Its environment variables.
    """

    error: type[ProcessError] = ProcessError

    def __init__(self, name: str, command: list[str | pathlib.Path], environment: dict[str, str]):
        self.name, self.command, self.environment = name, command, environment

    def __enter__(self):
        self._temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._temporary.name)
        self._log = open(self.folder / "stderr", "w+b")  # noqa: SIM115
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        if kind is not None:
            self._process.kill()  # it may be busy with a long request
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._temporary.cleanup()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the reply to a request.

        Raises:
            ProcessError: The process has exited, or its reply is an error.
        """
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            while line and not line.startswith("{"):  # a library may print on import
                line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise self.error(f"{self.name} ended. Its last words:\n{self._last_words()}")
        reply = json.loads(line)
        if "error" in reply:
            raise self.error(f"{self.name}: {reply['error']}")
        return reply

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]


def clean_environment(**more: str) -> dict[str, str]:
    """Returns this process's environment without variables that would mix two Python environments, plus `more`."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return environment | more
