"""Packaging: which files are installed. What they need is in pyproject.toml, exact versions in requirements.lock."""

from setuptools import find_packages, setup

setup(
    packages=find_packages(include=["ctrpipe", "ctrpipe.*"]),  # through the links in ctrpipe/ to the other folders
    package_data={
        "": ["*.jinja", "*.js"],
        "ctrpipe": ["py.typed", "configs/**/*.yaml"],
        "ctrpipe.pipeline": ["*.json"],
    },
)
