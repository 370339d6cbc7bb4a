"""Determines whether this Python can run the whole pipeline. TFX has wheels for some systems only.

Imports only the standard library, because tools/install.py uses this module before anything is installed.
"""

import os
import pathlib
import platform
import shutil
import sys
import sysconfig

PYTHONS = ((3, 11), (3, 12), (3, 13))
# The oldest glibc that the wheels of TFDV and ml-metadata support. Python 3.11 has older releases for older glibc.
NEW_GLIBC = (2, 39)


def unfit() -> str:
    """Returns why this Python cannot run the whole pipeline, and which Python can; "" if it can."""
    python = ".".join(map(str, sys.version_info[:2]))
    libc = _libc()
    if sys.version_info[:2] not in PYTHONS:
        return f"the pipeline needs Python 3.11, 3.12 or 3.13, and this is {python}"
    if platform.machine() != "x86_64" or not libc.startswith("glibc "):
        return f"TFX has wheels for Linux on x86-64 with glibc alone, and this is {platform.machine()} with {libc}"
    if sys.version_info[:2] > PYTHONS[0] and not _is_new(libc):
        return f"with Python {python} TFX needs glibc 2.39, and this system has {libc}; use Python 3.11"
    return ""


def needs_overrides() -> bool:
    """Returns whether pip must install other releases than TFX's packages require.

    An old glibc has no wheels for the required releases. Without a C++ compiler, the source distribution of pyfarmhash
    that TFDV requires cannot be built; newer releases have wheels.
    """
    headers = pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h"
    compiles = shutil.which("g++") is not None and headers.exists()
    return not unfit() and not (_is_new(_libc()) and compiles)


def installer() -> str:
    """Returns the tool that created this environment, whose own pip must not change it: "uvx", "uv tool" or "pipx";
    else "pip".
    """
    place = pathlib.Path(sys.prefix).resolve()
    if (place / "pipx_metadata.json").exists():
        return "pipx"
    if (place / "uv-receipt.toml").exists():
        return "uv tool"
    if any(part.startswith("archive-v") for part in place.parts):  # uv's cache, in which a `uvx` without a tool runs
        return "uvx"
    return "pip"


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "another libc"
    except (ValueError, OSError):
        return "another libc"


def _is_new(libc: str) -> bool:
    return tuple(map(int, libc.partition(" ")[2].split(".")[:2])) >= NEW_GLIBC
