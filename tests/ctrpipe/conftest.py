"""Two finished runs on one DataFrame, which differ by their seed: tests only read them."""

import json
import pathlib

import pytest

import ctrpipe
from tests.ctrpipe.small_log import CONFIG, frame


def _train(folder: pathlib.Path) -> None:
    ctrpipe.run(CONFIG, frame(), folder / "run", training__epochs=2, seed=1)
    ctrpipe.run(CONFIG, frame(), folder / "other", training__epochs=1, evaluation__baseline=None, seed=2)


@pytest.fixture(scope="session")
def runs(shared_folder) -> pathlib.Path:
    """A folder with `run` and `other`."""
    return shared_folder("face", _train)


@pytest.fixture(scope="session")
def run(runs) -> ctrpipe.Run:
    """What `ctrpipe.run` returned for the first of them."""
    folder = runs / "run"
    return ctrpipe.Run(folder, folder / "models" / "ctr", json.loads((folder / "metrics.json").read_text()))
