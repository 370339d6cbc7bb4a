"""What is not needed looks absent while libraries load, and only then."""

import gc
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

import pytest

from common.libraries import importing, installed_version, tfx_does_without

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import importlib, json, sys
from common.libraries import import_tensorflow
import_tensorflow()
names = ["jax", "sklearn", "matplotlib"]
before = [name for name in names if name in sys.modules]
print(json.dumps([before, [importlib.import_module(name).__name__ for name in names]]))
"""


def test_tensorflows_version_is_found_where_it_is_the_package_without_code_for_gpus(monkeypatch):
    installed = {"tensorflow-cpu": "2.99.0", "numpy": "1.0"}

    def version(package):
        if package not in installed:
            raise importlib.metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert installed_version("tensorflow") == "2.99.0" and installed_version("numpy") == "1.0"
    installed["tensorflow"] = "2.98.0"
    assert installed_version("tensorflow") == "2.98.0"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        installed_version("pandas")


def test_a_module_is_absent_inside_and_there_again_afterwards():
    sys.modules.pop("colorsys", None)
    with importing("colorsys", "json"):
        assert not gc.isenabled()
        with pytest.raises(ModuleNotFoundError):
            import colorsys
        import json as loaded_before

        assert loaded_before is json
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0) and gc.isenabled()


def test_a_module_is_there_again_after_an_error():
    sys.modules.pop("colorsys", None)
    with pytest.raises(ZeroDivisionError), importing("colorsys"):
        raise ZeroDivisionError
    assert __import__("colorsys").__name__ == "colorsys"


def test_beam_finds_the_cloud_where_it_is_given_arguments():
    assert "google.cloud.dataflow" in tfx_does_without(())
    assert not any(name.startswith("google") for name in tfx_does_without(["--runner=DataflowRunner"]))


@pytest.mark.slow
@pytest.mark.parametrize("backend, loaded", [("tensorflow", []), ("jax", ["jax"])])
def test_tensorflow_loads_without_what_is_not_needed_which_can_be_loaded_later(backend, loaded):
    environment = {**os.environ, "KERAS_BACKEND": backend}
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == [loaded, ["jax", "sklearn", "matplotlib"]]
