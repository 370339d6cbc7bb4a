"""Runs that are killed or interrupted, each in the folder that the one before it left."""

import contextlib
import json
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from ctrpipe.serving.server.check import check_servable
from tests.e2e.small_run import SHORT_CONFIG, call
from tests.warm_processes import WarmCommand, start_warm

pytestmark = pytest.mark.slow

ROWS = 1000
STAGE = re.compile(r"^\[ *[\d.]+s\] (?P<name>[A-Za-z.]+)(?P<state> \.\.\.|: from cache)$", re.MULTILINE)
EVALUATION = re.compile(r"mlp: ([\d,]+) examples")
# The line to wait for, how many seconds to let the stage work then, and the signal.
STOPS = [
    ("LogExampleGen ...", 0.0, signal.SIGKILL),
    ("Transform ...", 0.5, signal.SIGINT),
    ("mlp: 700 examples", 0.0, signal.SIGKILL),  # the first of four evaluations
    ("GatedEvaluator ...", 1.0, signal.SIGINT),
    ("AtomicPusher ...", 0.0, signal.SIGKILL),
]
FEW = [("mlp: 700 examples", 0.0, signal.SIGINT)]  # in the training; test_kill.py has what stops a push


@contextlib.contextmanager
def running(folder: pathlib.Path, output: pathlib.Path):
    """`ctrpipe run` in a process that does not outlive the block."""
    arguments = ("run", folder / "config.yaml", "--data", folder / "log.tsv", "--output", output)
    process = start_warm(*arguments, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def stop(process: WarmCommand, line: str, seconds: float, number: int, output: pathlib.Path) -> tuple[str, str]:
    """What a run writes to standard error before the signal and after it."""
    before = ""
    while line not in before:
        text = process.stderr.readline()
        assert text, f"'{line}' never came:\n{before}"
        before += text
    time.sleep(seconds)
    if line.startswith("AtomicPusher"):  # the signal is to come while it copies or just after
        while not (output / ".push-staging").exists() and not list(output.glob("models/ctr/*")):
            assert process.poll() is None
    process.send_signal(number)
    after = process.stderr.read()
    process.wait()
    return before, after


def stages(text: str) -> dict[str, bool]:
    """The stages that a run announced, in order, and whether they came from the cache."""
    return {found["name"]: "cache" in found["state"] for found in STAGE.finditer(text)}


def check_versions(output: pathlib.Path) -> int:
    """Returns the number of versions; asserts that each is complete and that the folder holds nothing else."""
    names = list((output / "models").glob("*"))
    assert [path.name for path in names] in ([], ["ctr"])
    versions = [version for name in names for version in name.iterdir()]
    for version in versions:
        assert re.fullmatch(r"\d+", version.name) and (version / "saved_model.pb").exists()
        assert check_servable(version) <= 1e-6  # loads it, and replays its warm-up requests
    return len(versions)


def read_metrics(output: pathlib.Path, number: Callable[[str], Any] = float) -> tuple[dict, str]:
    """metrics.json without the version, and the version, which is the time of the push."""
    metrics = json.loads((output / "metrics.json").read_text(), parse_float=number)
    return metrics, metrics.pop("model_version")


def about(digits: str) -> Any:
    """A number of metrics.json, but for what the order of sums in two threads changes."""
    return pytest.approx(float(digits), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("stops", [pytest.param(FEW, id="few"), pytest.param(STOPS, id="all", marks=pytest.mark.large)])
def test_a_run_stopped_at_any_stage_goes_on_and_ends_like_one_that_was_not(stops, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SHORT_CONFIG))
    assert call("generate", "--rows", ROWS, "--output", tmp_path / "log.tsv")[0] == 0
    output, finished, evaluated = tmp_path / "stopped", set(), []

    def check_goes_on(text: str) -> list[str]:
        announced = stages(text)
        assert not [name for name in finished if announced.get(name) is False], text
        evaluated.extend(int(count.replace(",", "")) for count in EVALUATION.findall(text))
        return list(announced)

    for line, seconds, number in stops:
        with running(tmp_path, output) as process:
            before, after = stop(process, line, seconds, number, output)
        finished |= set(check_goes_on(before)[:-1])
        if number == signal.SIGINT:
            said = [row for row in after.splitlines() if not row.startswith("[")]
            assert process.returncode == 130 and len(said) == 1, after
            assert said[0].startswith("ctrpipe: interrupted"), after
        assert not (output / "metrics.json").exists()
        check_versions(output)
    trained = {"Trainer", "GatedEvaluator", "ServingCheck"} if stops == STOPS else set()
    assert {"LogExampleGen", "LogTransform", *trained} <= finished
    with running(tmp_path, output) as process:
        _, rest = process.communicate()
    assert process.returncode == 0, rest
    assert finished <= set(check_goes_on(rest))
    whole = ("run", tmp_path / "config.yaml", "--data", tmp_path / "log.tsv", "--output", tmp_path / "whole")
    code, said = call(*whole)
    assert code == 0, said
    # Training went on from its checkpoint: no evaluation came twice.
    assert evaluated == sorted(set(evaluated)) and evaluated[0] == 700 and evaluated[-1] == 4 * 700
    assert check_versions(output) >= 1 and check_versions(tmp_path / "whole") == 1
    (metrics, version), (expected, _) = read_metrics(output), read_metrics(tmp_path / "whole", about)
    assert (output / "models" / "ctr" / version).is_dir()
    assert metrics["auc"] == pytest.approx(expected["auc"], abs=1e-6)
    assert metrics == expected  # the same seed, the same numbers
    assert not (output / ".push-staging").exists() and not list(output.glob(".*.unfinished"))
