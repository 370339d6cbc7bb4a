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


product, test = requirements()
setup(
    name="ctrpipe",
    version="0.2.0",
    description="From a raw impression log to a served click-through-rate model",
    license="Apache-2.0",
    python_requires=">=3.11,<3.12",
    packages=find_packages(include=["common*", "models*", "transforms*", "serving*", "pipeline*"]),
    package_data={"": ["*.jinja"], "pipeline": ["*.json"]},
    install_requires=product,
    extras_require={
        "test": [name for name in test if "recommenders" not in name],
        "tfrs": ["tensorflow-recommenders"],
        "hub": ["huggingface_hub"],  # encoder: hf://owner/name
    },
    entry_points={"console_scripts": ["ctrpipe=pipeline.cli:main"]},
)
