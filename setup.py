"""Packaging: what a Beam worker or an image installs. Exact versions are in requirements.lock."""

import pathlib

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent


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


product, test = requirements()
setup(
    packages=find_packages(include=["ctrpipe", "ctrpipe.*"]),  # through the links in ctrpipe/ to the other folders
    package_data={
        "": ["*.jinja", "*.js"],
        "ctrpipe": ["py.typed", "configs/**/*.yaml"],
        "ctrpipe.pipeline": ["*.json"],
    },
    install_requires=product,
    extras_require={
        "test": [name for name in test if "recommenders" not in name],
        "tfrs": ["tensorflow-recommenders"],
        "hub": ["huggingface_hub"],  # encoder: hf://owner/name
    },
)
