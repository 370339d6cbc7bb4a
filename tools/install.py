"""Creates .venv from the lock of this Python and reports the progress.

    python tools/install.py .venv

In a terminal, one line is redrawn with a bar and the seconds left; elsewhere, a line is printed every few seconds. pip
installs uv, and uv installs the rest in a third of pip's time or less, from pip's index if pip has one configured. Both
check every hash. If uv fails, pip installs everything. Bytecode is compiled here, not at the first import.
"""

from __future__ import annotations

import os
import pathlib
import re
import runpy
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Wheels of 15 MB and more; the others average 1 MB. Used only to estimate the time left.
LARGE_MB = {
    "tensorflow": 573,
    "jaxlib": 87,
    "tensorflow-text": 60,
    "pyarrow": 50,
    "scipy": 35,
    "libclang": 25,
    "kubernetes-validate": 23,
    "apache-beam": 19,
    "google-api-python-client": 17,
    "numpy": 17,
    "mypy": 15,
}
OTHERS_MB = 1.0
# Estimates until something is measured: download MB/s, kB of source to compile, and kB compiled per core and second.
USUAL_MB_PER_S = 25.0
USUAL_SOURCE_KB = 300_000
USUAL_KB_PER_S = 3_000.0
SMALL_STEPS_S = {"environment": 4.0, "uv": 4.0, "ctrpipe": 4.0}
LINE_EVERY_S = 10.0


class Packages:
    """The download and install progress that uv prints.

    Args:
        count: Number of packages in the lock.
    """

    _FETCHED = re.compile(r"Preparing packages\.\.\.\s*\((\d+)/(\d+)\)")
    _BYTES = re.compile(r"([A-Za-z0-9._-]+)\s+-+\s+([\d.]+) ?(B|[KMG]iB)/([\d.]+) ?([KMG]iB)")
    _PLACED = re.compile(r"\[(\d+)/(\d+)\]")
    _UNITS = {"B": 1e-6, "KiB": 1e-3, "MiB": 1.05, "GiB": 1074.0}

    def __init__(self, count: int) -> None:
        self.count = count
        self.fetched = self.to_fetch = self.placed = 0
        self._placing = 0.0  # start time
        self._mb: dict[str, tuple[float, float]] = {}

    def read(self, text: str) -> None:
        """Updates the progress from uv's output without escape sequences."""
        for done, of in self._FETCHED.findall(text):
            self.fetched, self.to_fetch = int(done), int(of)
        for name, done, unit, of, of_unit in self._BYTES.findall(text):
            self._mb[name] = (float(done) * self._UNITS[unit], float(of) * self._UNITS[of_unit])
        for done, of in self._PLACED.findall(text):
            self._placing = self._placing or time.monotonic()
            self.placed, self.count = int(done), int(of)

    @property
    def megabytes(self) -> tuple[float, float]:
        """The MB downloaded and the MB in total; (0, 0) if uv's cache has everything or nothing is known yet."""
        if not self.to_fetch:
            return 0.0, 0.0
        done = sum(done for done, _ in self._mb.values())
        of = sum(of for _, of in self._mb.values())
        whole = sum(1 for done, of in self._mb.values() if done >= 0.99 * of)
        done += max(0, self.fetched - whole) * OTHERS_MB
        others = max(0, self.to_fetch - len(self._mb))
        # If most packages are to be downloaded, the cache is empty and the large ones are missing too.
        large = [mb for name, mb in LARGE_MB.items() if name not in self._mb] if self.to_fetch > self.count / 2 else []
        return done, max(done, of + sum(large) + max(0, others - len(large)) * OTHERS_MB)

    def seconds_left(self, since: float) -> float:
        """Estimates the seconds until all packages are installed, `since` seconds after uv started to download."""
        if self.placed:
            of_one = (time.monotonic() - self._placing) / self.placed
            return max(0.01, of_one) * (self.count - self.placed)
        done, of = self.megabytes
        rate = done / since if done > 20 and since > 2 else USUAL_MB_PER_S
        return (of - done) / rate + 0.01 * self.count

    def __str__(self) -> str:
        if self.placed or not self.to_fetch:
            return f"puts packages in place, {self.placed} of {self.count}"
        done, of = self.megabytes
        return f"fetches packages, {self.fetched} of {self.to_fetch}, {done:,.0f} of about {of:,.0f} MB"


class Display:
    """The progress line: the current step, the share done, and the seconds left."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.compiled, self.source = 0, USUAL_SOURCE_KB
        self._began = time.monotonic()
        self._drawn = self._began - LINE_EVERY_S
        self._terminal = sys.stderr.isatty()
        self._waiting = dict(SMALL_STEPS_S)
        self._step, self._step_began, self._since_fetch = "", self._began, 0.0

    def begin(self, step: str) -> None:
        """Starts a step."""
        self._waiting.pop(step, None)
        self._step, self._step_began = step, time.monotonic()
        self.tick()

    def tick(self) -> None:
        """Redraws the line if it is due."""
        now = time.monotonic()
        if now - self._drawn < (0.2 if self._terminal else LINE_EVERY_S):
            return
        self._drawn = now
        left = self.seconds_left()
        part = (now - self._began) / (now - self._began + left) if left else 1.0
        text = f"{part:4.0%}  {self._says()}, {left:,.0f} s left"
        if self._terminal:
            bar = "#" * round(20 * part)
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K{f'[{bar:-<20}] {text}'[:width]}", end="", file=sys.stderr, flush=True)
        else:
            print(text.strip(), file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Clears the line before other output."""
        if self._terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)

    def seconds_left(self) -> float:
        """Estimates the seconds until the installation is complete."""
        now = time.monotonic()
        left = sum(self._waiting.values())
        left += max(0.0, SMALL_STEPS_S.get(self._step, 0.0) - (now - self._step_began))
        if self._step == "packages" and (self.packages.to_fetch or self.packages.placed):
            left += self.packages.seconds_left(now - self._step_began)
        elif self._step in ("environment", "uv"):
            left += (sum(LARGE_MB.values()) + OTHERS_MB * self.packages.count) / USUAL_MB_PER_S
        if self._step in ("environment", "uv", "packages", "bytecode"):
            rate = USUAL_KB_PER_S * len(os.sched_getaffinity(0))
            if self._step == "bytecode" and now - self._step_began > 3 and self.compiled:
                rate = self.compiled / (now - self._step_began)
            left += (self.source - self.compiled) / rate
        return left

    def _says(self) -> str:
        return {
            "environment": "makes .venv",
            "uv": "fetches uv, which fetches the rest",
            "packages": str(self.packages),
            "pip": "installs the packages with pip, which takes a few minutes",
            "bytecode": f"compiles bytecode, {self.compiled / 1000:,.0f} of {self.source / 1000:,.0f} MB",
            "ctrpipe": "installs ctrpipe",
        }[self._step]


def run(command: list[str], display: Display, read: Callable[[str], None] | None = None, **variables: str) -> str:
    """Runs a command, keeps the display updated, and returns the command's output without escape sequences.

    Args:
        read: Receives the output as it arrives. The command then runs in a pseudo-terminal, to draw its progress.

    Raises:
        CalledProcessError: The command failed; its output is in `output`.
    """
    reader, writer = _terminal() if read else os.pipe()
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, env=environment) as process:
        os.close(writer)
        printed = ""
        while True:
            display.tick()
            if not select.select([reader], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(reader, 1 << 16)
            except OSError:  # end of a terminal
                break
            if not data:
                break
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
            printed += text
            if read:
                read(text)
        os.close(reader)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command[0], printed)
    return printed


def _terminal() -> tuple[int, int]:
    """Returns both ends of a 160-column pseudo-terminal for uv's progress, or of a pipe if none is available."""
    import fcntl
    import struct
    import termios

    try:
        reader, writer = os.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 160, 0, 0))
    except OSError:
        return os.pipe()
    return reader, writer


def block(lock: str, package: str) -> str:
    """Returns the lines of a package in a lock."""
    match = re.search(rf"^{re.escape(package)}==.*\n(?: .*\n)*", lock, re.M)
    if not match:
        raise ValueError(f"{package} is not in the lock")
    return match[0]


def index(pip: list[str]) -> dict[str, str]:
    """Returns the variable that passes pip's configured index to uv; {} if pip has none."""
    settings = subprocess.run([*pip, "config", "list"], capture_output=True, text=True).stdout
    urls = re.findall(r"^[^=]*[.]index.url='(.*)'$", settings, re.M)
    return {"UV_DEFAULT_INDEX": urls[-1]} if urls else {}


def install(folder: pathlib.Path, lock: pathlib.Path, display: Display) -> None:
    """Creates the environment.

    Raises:
        CalledProcessError: A step failed.
    """
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "-qq", "--disable-pip-version-check"]
    display.begin("environment")
    run([sys.executable, "-m", "venv", *_clear(folder), str(folder)], display)
    display.begin("uv")
    own = folder / "uv.lock"
    own.write_text(block(lock.read_text(), "uv"))
    run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(own)], display)
    uv = [str(folder / "bin" / "uv"), "pip", "install", "--python", python, "--no-deps"]
    variables = index(pip)
    display.begin("packages")
    try:
        locked = ["--require-hashes", "-r", str(lock)]
        run([*uv, *locked], display, display.packages.read, TERM="xterm", **variables)
    except subprocess.CalledProcessError as error:
        display.clear()
        print(f"{_end(error.output)}\nuv failed; pip installs them, which takes a few minutes ...", file=sys.stderr)
        display.begin("pip")
        run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(lock)], display)
    display.begin("bytecode")

    def read(text: str) -> None:
        for compiled, source in re.findall(r"^(\d+) (\d+)\r?$", text, re.M):
            display.compiled, display.source = int(compiled), int(source)

    run([python, str(ROOT / "tools" / "compile_bytecode.py")], display, read)
    display.begin("ctrpipe")
    run([*uv, "--quiet", "--no-build-isolation", "-e", str(ROOT)], display, **variables)


def _clear(folder: pathlib.Path) -> list[str]:
    """Returns the option that clears an environment of another Python version, or []."""
    kept = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return ["--clear"] if (folder / "lib").exists() and not kept.exists() else []


def _end(printed: str) -> str:
    """Returns the end of a command's output, from its error on."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", printed) if line.strip()]
    first = next((n for n, line in enumerate(lines) if re.match(r"error|ERROR|×", line)), max(0, len(lines) - 12))
    return "\n".join(lines[first:][-12:])


def main() -> None:
    """Installs; exits with 2 if this Python does not fit and with 1 if a step failed."""
    folder = pathlib.Path(sys.argv[1])
    reason = runpy.run_path(str(ROOT / "common" / "wheels.py"))["unfit"]()
    if reason:
        print(f"{reason}, by PYTHON=/path/to/python", file=sys.stderr)
        sys.exit(2)
    name = f"{sys.version_info[0]}.{sys.version_info[1]}"
    lock = ROOT / "locks" / f"{name}.lock"
    count = len(re.findall(r"^[a-z0-9].*==", lock.read_text(), re.M))
    print(f"Installing {count} locked packages for Python {name} into {folder} (about 4 GB on disk) ...", flush=True)
    display = Display(Packages(count))
    began = time.monotonic()
    try:
        install(folder, lock, display)
    except subprocess.CalledProcessError as error:
        display.clear()
        sys.exit(f"{_end(error.output)}\nThe installation has failed; run it again.")
    except KeyboardInterrupt:
        display.clear()
        sys.exit(130)
    display.clear()
    print(f"Installed in {time.monotonic() - began:.0f} s: {folder}/bin/ctrpipe")


if __name__ == "__main__":
    main()
