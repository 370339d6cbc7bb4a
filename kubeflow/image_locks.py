"""Prints an image's lock: the packages of locks/3.11.lock that the image needs, with the same versions and hashes.

`python kubeflow/image_locks.py pipeline` covers the base dependencies and the extras in PIPELINE, `serving` the base
and the extras in SERVING. Dependencies are read from the comments that uv writes below each package. `make lock`
writes both files and appends tensorflow-cpu to the second one: the same release as tensorflow, which is left out there,
without the code for GPUs.
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent

PIPELINE = ("kubeflow", "jax", "text", "tune")  # extras, and the extras of ctrpipe that they name
SERVING = ("text",)  # the base, and the extra for serving models with a text
# Packages required by the named package but never imported.
LEFT_OUT = ("libclang",)  # TensorFlow
# Required by both images to build ctrpipe.
BUILD = ("setuptools", "setuptools-scm", "wheel")


def blocks(lock: str) -> dict[str, str]:
    """Returns the lines of each package of a lock, keyed by its name without extras."""
    parts = re.split(r"^(?=[a-z0-9])", lock, flags=re.M)[1:]
    return {re.split(r"[=\[]", part, maxsplit=1)[0]: part for part in parts}


def needed_by(block: str) -> set[str]:
    """Returns the packages or files that require a package."""
    lines = re.findall(r"^ +# +(?:via +)?(\S.*)$", block, re.M)
    return {line.partition("[")[0] for line in lines if line != "via"}


def closure(lock: dict[str, str], roots: tuple[str, ...], left_out: tuple[str, ...] = ()) -> list[str]:
    """Returns the roots and their direct and indirect dependencies, without those in `left_out`."""
    parents = {name: needed_by(block) for name, block in lock.items()}
    reached: set[str] = set()
    waiting = set(roots)
    while waiting:
        reached |= waiting
        waiting = {
            name
            for name, above in parents.items()
            if name not in reached and above & waiting and not any(re.fullmatch(out, name) for out in left_out)
        }
    return sorted(reached)


def asked_for(*extras: str) -> tuple[str, ...]:
    """Returns the packages that ctrpipe's base and the given extras require, by their names in a lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked: list[str] = []
    waiting = list(project["dependencies"])
    for extra in extras:
        waiting += project["optional-dependencies"][extra]
    while waiting:
        name, own = re.match(r"([a-z0-9-]+)(?:\[(.*?)\])?", waiting.pop(0)).groups()
        if name == project["name"]:
            waiting += [each for extra in own.split(",") for each in project["optional-dependencies"][extra]]
        elif name not in asked:
            asked.append(name)
    return tuple(asked)


def image_lock(image: str, lock: str) -> str:
    """Returns the lock of an image, `pipeline` or `serving`. The lock of `serving` leaves out tensorflow-cpu."""
    known = blocks(lock)
    if image == "pipeline":
        names = closure(known, (*asked_for(*PIPELINE), *BUILD))
    else:
        names = closure(known, (*asked_for(*SERVING), *BUILD), LEFT_OUT)
        names.remove("tensorflow")
    return "".join(known[name] for name in names)


if __name__ == "__main__":
    print(image_lock(sys.argv[1], (ROOT / "locks" / "3.11.lock").read_text()), end="")
