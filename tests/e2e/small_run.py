"""The run of the end-to-end tests: its configuration, the size of its log, and ways to call `ctrpipe`."""

import os
import pathlib
import subprocess
import sys

from click.testing import CliRunner

from ctrpipe.pipeline.cli import main

ROOT = pathlib.Path(__file__).parents[2]
ROWS = 4000
CONFIG = {
    "name": "e2e",
    "data": {
        "columns": ["label", "I1..I13", "C1..C26"],
        "labels": {"ctr": "label"},
        "split": {"validation": 0.1, "test": 0.2},
    },
    "features": [
        {"kind": "numeric", "columns": ["I2", "I4"]},
        {"kind": "numeric", "columns": ["I5"], "transform": "standardize"},
        {"kind": "categorical", "columns": ["C6", "C9", "C14"], "top_k": 50},
        {"kind": "categorical", "columns": ["C3"], "transform": "hash", "buckets": 100},
    ],
    "model": {"name": "attention_net", "embedding_dim": 8, "layers": 1, "heads": 2, "top_k": 3, "hidden_units": [16]},
    "training": {"batch_size": 128, "epochs": 4, "learning_rate": 0.01},
    "evaluation": {"slices": ["C9"], "baseline": {"name": "lr"}},
    "gates": {"auc": {"min": 0.5}, "rig": None},  # 2,800 training rows teach no more than the base rate, or a little
    "serving": {"explain": True},
}
# Every stage of CONFIG in half the time. The quality of a model of few rows does not matter: no gate blocks it.
SHORT_CONFIG = {
    **CONFIG,
    "features": [{"kind": "numeric", "columns": ["I2"]}, {"kind": "categorical", "columns": ["C9"], "top_k": 50}],
    "model": {"name": "mlp", "embedding_dim": 4, "hidden_units": [8], "dropout": 0.2},
    "evaluation": {},
    "gates": {"rig": None},
    "serving": {},
}


def start(*arguments, **options) -> subprocess.Popen:
    """The installed command in a separate process, on the code that is under test."""
    command = [str(pathlib.Path(sys.executable).with_name("ctrpipe")), *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, **options)


def call(*arguments) -> tuple[int, str]:
    """Exit code and output of a command that runs in this process."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def one_line(code: int, output: str, message: str) -> None:
    """Asserts that a command ended with one line and exit code 2, as for a user's mistake."""
    assert code == 2 and message in output, output
    last = [line for line in output.splitlines() if line.startswith("ctrpipe: ")]
    assert len(last) == 1 and "Traceback" not in output
