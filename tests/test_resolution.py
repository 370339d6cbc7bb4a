"""What pip would install of the metadata on each platform that it is meant for: uv resolves it and installs nothing."""

import itertools
import pathlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet
from packaging.requirements import Requirement

from tests.e2e.small_run import ROOT

UV = pathlib.Path(sys.executable).with_name("uv")
PYTHONS = ("3.11", "3.12", "3.13")
NO_INDEX = re.compile(r"Failed to fetch|error sending request|Could not connect|dns error", re.I)
HEAVY = {
    *("tfx", "tensorflow-transform", "tensorflow-data-validation", "tensorflow-model-analysis", "apache-beam", "kfp"),
    *("jax", "lightgbm", "optuna", "pandas", "scikit-learn"),
}


def resolve(python: str, platform: str, *extras: str) -> set[str]:
    """The names of the packages that are installed, exactly as the metadata asks, without overrides."""
    asked = [f"--extra={extra}" for extra in extras]
    options = ["--python-version", python, "--python-platform", platform, "--no-header", "--no-annotate", "--quiet"]
    command = [UV, "pip", "compile", "pyproject.toml", *asked, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    if done.returncode and NO_INDEX.search(done.stderr):
        pytest.skip(f"no index of packages is reached: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    return {line.partition("==")[0] for line in done.stdout.split("\n") if line}


def requirements(extra: str) -> set[str]:
    """The packages that an extra asks for itself. What they ask for in turn depends on the releases that fit."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {Requirement(line).name for line in project["optional-dependencies"][extra]}


def bases() -> Iterator[ParameterSet]:
    """The last Python on each platform, and the first on x86-64; `make test-all` has the others."""
    platforms = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin")
    for platform, python in itertools.product(platforms, PYTHONS):
        is_kept = python == PYTHONS[-1] or (platform, python) == (platforms[0], PYTHONS[0])
        yield pytest.param(platform, python, marks=[] if is_kept else [pytest.mark.large])


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "python"), bases())
def test_the_base_resolves(platform, python):
    found = resolve(python, platform)
    assert {"tensorflow", "pyarrow", "uvicorn"} <= found and not HEAVY & found and len(found) < 65


@pytest.mark.slow
@pytest.mark.parametrize(
    "python", [*(pytest.param(each, marks=pytest.mark.large) for each in PYTHONS[:-1]), PYTHONS[-1]]
)
def test_the_pipeline_and_all_resolve_on_linux_of_glibc_2_39(python):
    pipeline = resolve(python, "x86_64-manylinux_2_39", "pipeline")
    everything = resolve(python, "x86_64-manylinux_2_39", "all")
    assert {"tfx", "tensorflow-data-validation"} <= pipeline and not {"kfp", "optuna", "jax"} & pipeline
    assert HEAVY | {"tensorflow-text", "huggingface-hub"} | requirements("pipeline") <= everything
    assert not any(name.startswith("nvidia-") for name in everything)


@pytest.mark.large(like="tests/test_resolution.py::test_the_base_resolves")
@pytest.mark.slow
def test_the_small_extras_resolve_where_the_base_does_and_a_gpus_libraries_on_linux():
    for platform in ("aarch64-manylinux_2_28", "aarch64-apple-darwin"):
        assert {"tensorflow-text", "jax", "huggingface-hub"} <= resolve("3.13", platform, "text", "jax", "hub")
    assert "nvidia-cudnn-cu12" in resolve("3.12", "x86_64-manylinux_2_28", "gpu")
