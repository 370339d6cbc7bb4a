"""Prints the lock of an image: the part of requirements.lock that it needs, with the same versions and hashes.

`python kubeflow/image_locks.py pipeline` has what the base and the extras of PIPELINE ask for, `serving` what is
imported by `ctrpipe serve`, `score`, `bench latency`, `predict` and `label`. What needs what is read from the comments
that uv writes below each package. `make lock` writes both files, and ends the second one with tensorflow-cpu: the same
release as tensorflow, whose block is left out, without the code for GPUs.
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent

PIPELINE = ("kubeflow", "jax", "text", "tune")  # extras; what they name of ctrpipe's own extras is in them
# What the modules of the serving commands import, by the names of packages.
SERVING = (
    "absl-py",
    "apache-beam",
    "click",
    "grpcio",
    "grpcio-health-checking",
    "httptools",
    "jinja2",
    "keras",
    "keras-rs",
    "matplotlib",
    "ml-pipelines-sdk",  # the package tfx without its components
    "numpy",
    "orjson",
    "protobuf",
    "pyarrow",
    "pydantic",
    "pyyaml",
    "rich",
    "safetensors",
    "setuptools",  # builds ctrpipe in the image
    "tensorflow",
    "tensorflow-data-validation",
    "tensorflow-metadata",
    "tensorflow-serving-api",
    "tensorflow-text",
    "tensorflow-transform",
    "tfx-bsl",
    "urllib3",
    "uvicorn",
    "uvloop",
    "wheel",
)
# What these packages ask for, but only import for what the serving commands do not do.
LEFT_OUT = (
    "cloud-sql-python-connector",  # Beam: databases
    "docker",  # TFX: infrastructure validation
    "google-api-python-client",  # TFX, tfx-bsl: predictions of Google's cloud
    "google-apitools",
    "google-cloud-.*",
    "keyrings-google-artifactregistry-auth",
    "kubernetes",
    "libclang",  # TensorFlow: none of its Python imports it
    "lxml",
    "ml-metadata",  # TFX: lineage of a pipeline's run
    "pg8000",
    "portpicker",
    "pymongo",
    "pymysql",
    "python-tds",
    "scipy",
    "sqlalchemy.*",
    "tensorflow-hub",
)


def blocks(lock: str) -> dict[str, str]:
    """Returns the lines of each package of a lock, by its name without extras."""
    parts = re.split(r"^(?=[a-z0-9])", lock, flags=re.M)[1:]
    return {re.split(r"[=\[]", part, maxsplit=1)[0]: part for part in parts}


def needed_by(block: str) -> set[str]:
    """Returns what asks for a package: names of packages, or of files."""
    lines = re.findall(r"^ +# +(?:via +)?(\S.*)$", block, re.M)
    return {line.partition("[")[0] for line in lines if line != "via"}


def closure(lock: dict[str, str], roots: tuple[str, ...], left_out: tuple[str, ...] = ()) -> list[str]:
    """Returns the roots and all that they need, directly or not, but for what is left out."""
    parents = {name: needed_by(block) for name, block in lock.items()}
    found: set[str] = set()
    waiting = set(roots)
    while waiting:
        found |= waiting
        waiting = {
            name
            for name, above in parents.items()
            if name not in found and above & waiting and not any(re.fullmatch(out, name) for out in left_out)
        }
    return sorted(found)


def asked_for(*extras: str) -> tuple[str, ...]:
    """Returns the packages that ctrpipe's base and some of its extras ask for, by their names in a lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = []
    waiting = list(project["dependencies"])
    for extra in extras:
        waiting += project["optional-dependencies"][extra]
    while waiting:
        name, own = re.match(r"([a-z0-9-]+)(?:\[(.*?)\])?", waiting.pop(0)).groups()
        if name == project["name"]:
            waiting += [each for extra in own.split(",") for each in project["optional-dependencies"][extra]]
        elif name not in found:
            found.append(name)
    return tuple(found)


def image_lock(image: str, lock: str) -> str:
    """Returns the lock of the image `pipeline`, or that of `serving` without tensorflow-cpu."""
    known = blocks(lock)
    if image == "pipeline":
        names = closure(known, (*asked_for(*PIPELINE), "setuptools", "wheel"))
    else:
        names = [name for name in closure(known, SERVING, LEFT_OUT) if name != "tensorflow"]
    return "".join(known[name] for name in names)


if __name__ == "__main__":
    print(image_lock(sys.argv[1], (ROOT / "requirements.lock").read_text()), end="")
