"""The examples run as they are written, and end with a prediction."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


# What they call has tests in tests/ctrpipe, tests/e2e/test_text.py and tests/models/test_own_model.py.
@pytest.mark.large(like="tests/models/test_own_model.py::test_an_own_model_is_trained_exported_and_served")
@pytest.mark.parametrize("script", [pytest.param(script, id=script.stem) for script in EXAMPLES])
def test_an_example_ends_with_a_prediction(script, tmp_path):
    command = [sys.executable, script, tmp_path / "example"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    row, probability = result.stdout.splitlines()[-1].split()
    assert row == "2" and 0 < float(probability) < 1
