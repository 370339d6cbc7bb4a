"""Packaging: what a Beam worker or an image installs. Exact versions are in requirements.lock."""

import pathlib
import sys

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
sys.path.insert(0, str(ROOT))  # a build does not have the project's folder on its path

from common.packages import PACKAGES  # noqa: E402


def requirements() -> tuple[list[str], list[str]]:
    """Returns the product's and the tests' part of requirements.in."""
    parts: list[list[str]] = [[], []]
    part = 0
    for line in (ROOT / "requirements.in").read_text().splitlines():
        if line.startswith("# the tests"):
            part = 1
        name = line.split("#")[0].strip()
        if name:
            parts[part].append(name)
    return parts[0], parts[1]


# The folder configs/ and those in it, as package data.
CONFIGS = [
    ".".join(["ctrpipe.configs", *folder.relative_to(ROOT / "configs").parts])
    for folder in sorted({path.parent for path in (ROOT / "configs").rglob("*.yaml")})
]
product, test = requirements()
setup(
    packages=[*find_packages(include=[f"{name}*" for name in PACKAGES]), *CONFIGS],
    package_dir={"ctrpipe.configs": "configs"},
    package_data={
        "": ["*.jinja", "*.js"],
        "ctrpipe": ["py.typed"],
        "pipeline": ["*.json"],
        **dict.fromkeys(CONFIGS, ["*.yaml"]),
    },
    install_requires=product,
    extras_require={
        "test": [name for name in test if "recommenders" not in name],
        "tfrs": ["tensorflow-recommenders"],
        "hub": ["huggingface_hub"],  # encoder: hf://owner/name
    },
)
