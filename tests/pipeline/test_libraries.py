"""What is not needed looks absent while libraries load, and only then."""

import gc
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

import pytest

from ctrpipe.common.libraries import importing, importing_tfx, installed_version

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import importlib, json, sys
from ctrpipe.common.libraries import import_tensorflow
import_tensorflow()
names = ["jax", "sklearn", "matplotlib", "IPython", "scipy.ndimage"]
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


def test_a_module_that_no_step_uses_is_left_out_inside_and_there_afterwards(monkeypatch):
    monkeypatch.setattr("ctrpipe.common.libraries._UNUSED", ("wave", "email.mime.audio"))
    for name in ("wave", "email.mime.audio"):
        sys.modules.pop(name, None)
    import email.mime

    vars(email.mime).pop("audio", None)
    with importing_tfx():
        import email.mime.audio as audio
        from wave import Wave_read

        with pytest.raises(RuntimeError, match=r"wave\.Wave_read: left out of the imports of a run"):
            Wave_read("a.wav")
        with pytest.raises(RuntimeError, match=r"email\.mime\.audio\.MIMEAudio"):

            class Mine(audio.MIMEAudio):
                pass

    import email.mime.audio
    import wave

    assert wave.Wave_read is not Wave_read and issubclass(email.mime.audio.MIMEAudio, object)
    assert email.mime.audio is not audio


@pytest.mark.slow
def test_a_run_loads_tfx_without_what_no_step_uses_which_can_be_loaded_later():
    script = """
import json, sys
from ctrpipe.common.libraries import _UNUSED, importing_tfx, load_tensorflow, load_text_operations
SPARED = ["IPython", "kubernetes", "keras_tuner", "nltk", "sacrebleu"]
SPARED += ["scipy.ndimage", "scipy.optimize", "tensorflow_text"]
load_tensorflow()
import ctrpipe.pipeline.run.run
with importing_tfx():
    import ctrpipe.pipeline.run.local_runner
spared = [name for name in (*_UNUSED, *SPARED) if name in sys.modules]
load_text_operations()
import scipy.stats
print(json.dumps([spared, scipy.stats.t.ppf(0.975, 1), "tensorflow_text" in sys.modules]))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    spared, quantile, has_text = json.loads(done.stdout)
    assert spared == [] and has_text and quantile == pytest.approx(12.7062, abs=1e-4)  # of Cauchy's distribution


@pytest.mark.slow
@pytest.mark.parametrize("backend, loaded", [("tensorflow", []), pytest.param("jax", ["jax"], marks=pytest.mark.large)])
def test_tensorflow_loads_without_what_is_not_needed_which_can_be_loaded_later(backend, loaded):
    environment = {**os.environ, "KERAS_BACKEND": backend}
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == [loaded, ["jax", "sklearn", "matplotlib", "IPython", "scipy.ndimage"]]
