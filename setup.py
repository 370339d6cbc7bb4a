"""Packaging: what a Beam worker or an image installs. Exact versions are in requirements.lock."""

import pathlib

from setuptools import find_packages, setup


def requirements() -> tuple[list[str], list[str]]:
    """The product's and the tests' part of requirements.in."""
    parts: list[list[str]] = [[], []]
    part = 0
    for line in pathlib.Path(__file__).with_name("requirements.in").read_text().splitlines():
        if line.startswith("# the tests"):
            part = 1
        name = line.split("#")[0].strip()
        if name:
            parts[part].append(name)
    return parts[0], parts[1]


PACKAGES = ("common", "models", "transforms", "serving", "pipeline", "ctrpipe")
CONFIGS = ["ctrpipe.configs", "ctrpipe.configs.sweeps"]  # the folder configs/, as package data
product, test = requirements()
setup(
    packages=[*find_packages(include=[f"{name}*" for name in PACKAGES]), *CONFIGS],
    package_dir={"ctrpipe.configs": "configs"},
    package_data={
        "": ["*.jinja"],
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
