"""Packaging: which files are installed, as which version. pyproject.toml has what they need, locks/ exact versions.

The version is the newest tag of git (`v0.3.0`), or, after it, the next one's `.devN`. A source distribution has it in
PKG-INFO. Where neither is, the changelog's newest stands for it; an image is told it, by the variable
SETUPTOOLS_SCM_PRETEND_VERSION_FOR_CTRPIPE.
"""

import pathlib
import re

from setuptools import find_packages, setup

CHANGELOG = pathlib.Path(__file__).with_name("CHANGELOG.md")


def newest() -> str:
    """Returns the newest version of the changelog, as `.dev0` before its release; without one, what says so."""
    versions = re.findall(r"^## \[(\d[^]]*)\] - (.*)$", CHANGELOG.read_text(), re.M) if CHANGELOG.exists() else []
    return "0+unknown" if not versions else versions[0][0] + (".dev0" if "unreleased" in versions[0][1] else "")


setup(
    use_scm_version={"fallback_version": newest()},
    packages=find_packages(include=["ctrpipe", "ctrpipe.*"]),  # through the links in ctrpipe/ to the other folders
    package_data={
        "": ["*.jinja", "*.js"],
        "ctrpipe": ["py.typed", "overrides.txt", "configs/**/*.yaml"],
        "ctrpipe.pipeline.config": ["*.json"],
    },
)
