"""Builds the source distribution and the wheel of the last commit, byte for byte reproducible.

    python tools/dist.py dist

The build uses the files of the commit, not the working tree, and the commit's time. The wheel is built from the source
distribution; the script fails if a wheel built from the checkout differs.
"""

import gzip
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def git(*arguments: str) -> bytes:
    """Returns the output of a git command.

    Raises:
        CalledProcessError: The command failed.
    """
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def version() -> str:
    """Returns the version of the last commit."""
    with tempfile.TemporaryDirectory() as folder:  # a clone has no uncommitted changes
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, folder], check=True)
        command = [sys.executable, "setup.py", "--version"]
        said = subprocess.run(
            command, cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    return said.stdout.split()[-1]


def build(kind: str, source: pathlib.Path, output: pathlib.Path, **variables: str) -> pathlib.Path:
    """Builds a distribution with the installed setuptools, without downloading anything.

    Args:
        kind: "sdist" or "wheel".
    """
    program = f"import setuptools.build_meta as b, sys; print(b.build_{kind}(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(output.resolve())]
    output.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **variables}
    built = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if built.returncode:
        sys.exit(built.stdout + built.stderr)
    return output / built.stdout.split()[-1]


def normalise(archive: pathlib.Path, seconds: int) -> None:
    """Rewrites a .tar.gz with sorted files, one timestamp, no owners, and mode 755 (executables) or 644."""
    with tarfile.open(archive) as old:
        members = sorted((member for member in old if member.isfile()), key=lambda member: member.name)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as new:
            for member in members:
                plain = tarfile.TarInfo(member.name)
                plain.size, plain.mtime = member.size, seconds
                plain.mode = 0o755 if member.mode & 0o100 else 0o644
                new.addfile(plain, old.extractfile(member))
    with open(archive, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(buffer.getvalue())


def main() -> None:
    """Builds both distributions into the given folder and removes older ones from it."""
    output = pathlib.Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    for old in (*output.glob("ctrpipe-*.tar.gz"), *output.glob("ctrpipe-*.whl")):
        old.unlink()
    os.umask(0o022)
    seconds = int(git("log", "-1", "--format=%ct"))
    variables = {"SOURCE_DATE_EPOCH": str(seconds), "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_CTRPIPE": version()}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as tree:
            tree.extractall(folder / "tree", filter="tar")
        with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as tree:
            tree.extractall(folder / "second", filter="tar")
        source = build("sdist", folder / "tree", output, **variables)
        normalise(source, seconds)
        with tarfile.open(source) as archive:
            archive.extractall(folder / "source", filter="data")
        [unpacked] = (folder / "source").iterdir()
        # No version variable: the source distribution must contain the version.
        wheel = build("wheel", unpacked, output, SOURCE_DATE_EPOCH=str(seconds))
        direct = build("wheel", folder / "second", folder, **variables)
        if direct.name != wheel.name or direct.read_bytes() != wheel.read_bytes():
            sys.exit(f"{wheel}: the checkout gives another wheel than the source distribution, {direct.name}")
    print(f"{source}\n{wheel}")


if __name__ == "__main__":
    main()
