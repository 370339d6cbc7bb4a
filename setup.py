"""Packaging: lists the files to install and sets the version.

Dependencies are in pyproject.toml, exact versions in locks/. The version comes from the newest git tag (`v0.3.0`);
commits after the tag get the next version's `.devN`. A source distribution reads its version from PKG-INFO. Without git
and PKG-INFO, the newest version of the changelog is used. Image builds set the version with the variable
SETUPTOOLS_SCM_PRETEND_VERSION_FOR_CTRPIPE.
"""

import pathlib
import re

from setuptools import find_packages, setup

CHANGELOG = pathlib.Path(__file__).with_name("CHANGELOG.md")


def newest() -> str:
    """Returns the changelog's newest version, with `.dev0` if unreleased; `0+unknown` without a changelog."""
    versions = re.findall(r"^## \[(\d[^]]*)\] - (.*)$", CHANGELOG.read_text(), re.M) if CHANGELOG.exists() else []
    return "0+unknown" if not versions else versions[0][0] + (".dev0" if "unreleased" in versions[0][1] else "")


setup(
    use_scm_version={"fallback_version": newest()},
    packages=find_packages(include=["ctrpipe", "ctrpipe.*"]),  # follows the links in ctrpipe/ to the other folders
    package_data={
        "": ["*.jinja", "*.js"],
        "ctrpipe": ["py.typed", "overrides.txt", "configs/**/*.yaml"],
        "ctrpipe.pipeline.config": ["*.json"],
    },
)
