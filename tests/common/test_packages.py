"""The list of the project's packages, and the files that cannot import it."""

import pathlib
import re
import tomllib

from common.packages import PACKAGES

ROOT = pathlib.Path(__file__).parents[2]


def test_every_package_of_the_checkout_is_in_the_list():
    packages = {file.parent.name for file in ROOT.glob("*/__init__.py")}
    assert packages - {"tests", "benchmarks"} == set(PACKAGES)


def test_the_type_checker_checks_every_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert sorted(settings["files"]) == sorted(PACKAGES)
    strict = (override["module"] for override in settings["overrides"] if override.get("strict_equality"))
    assert {module for modules in strict for module in modules} == {f"{package}.*" for package in PACKAGES}


def test_the_image_is_given_every_package():
    copied = re.findall(r"^COPY (\w+) \1$", (ROOT / "kubeflow" / "Dockerfile").read_text(), re.M)
    assert sorted(set(copied) - {"configs"}) == sorted(PACKAGES)
    sent = re.findall(r"^!(\w+)$", (ROOT / "kubeflow" / "Dockerfile.dockerignore").read_text(), re.M)
    assert sorted(set(sent) - {"configs"}) == sorted(PACKAGES)
