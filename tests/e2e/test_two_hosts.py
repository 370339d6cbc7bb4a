"""A training on two hosts with addresses of their own, whose link is cut: two network namespaces of this machine."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest
import yaml

from tests.e2e.small_run import ROOT, SHORT_CONFIG, call

NAMES = ("ctrpipe-host-0", "ctrpipe-host-1")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
WORKERS = [f"{address}:2222" for address in ADDRESSES]
EVALUATION = " examples, loss "
NOTICED_SECONDS = 60  # the heartbeat takes 10 s
HOSTS = pathlib.Path("/etc/netns")  # `ip netns exec` puts what is in a namespace's folder here in place of /etc's


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def cannot() -> str | None:
    """Why no network namespace can be made here, or None."""
    if not shutil.which("ip"):
        return "no ip on the PATH (Debian: iproute2)"
    probe = subprocess.run(["ip", "netns", "add", "ctrpipe-probe"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "ctrpipe-probe"], capture_output=True)
    return f"network namespaces need rights: {probe.stderr.strip()}" if probe.returncode else None


WHY_NOT = cannot()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.large,
    pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT)),
    pytest.mark.timeout(600),
]


@pytest.fixture
def hosts():
    """Two namespaces with a link between them."""
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            stack.callback(shutil.rmtree, HOSTS / name, ignore_errors=True)
        ip("link", "add", "link0", "netns", NAMES[0], "type", "veth", "peer", "name", "link1", "netns", NAMES[1])
        for index, (name, address) in enumerate(zip(NAMES, ADDRESSES, strict=True)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"link{index}")
            (HOSTS / name).mkdir(parents=True)
            (HOSTS / name / "hosts").write_text(f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n")
            for device in ("lo", f"link{index}"):
                ip("-n", name, "link", "set", device, "up")
        yield


@contextlib.contextmanager
def on_host(index: int, log: pathlib.Path, *command: str):
    """Runs a command of this environment on a host, with TF_CONFIG; it does not outlive the block."""
    config = {"cluster": {"worker": WORKERS}, "task": {"type": "worker", "index": index}}
    environment = {**os.environ, "TF_CONFIG": json.dumps(config), "PYTHONPATH": str(ROOT)}
    binary = str(pathlib.Path(sys.executable).with_name(command[0]))
    words = ["ip", "netns", "exec", NAMES[index], binary, *command[1:]]
    with log.open("w") as file, subprocess.Popen(words, env=environment, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def training(folder: pathlib.Path, backend: str, attempt: int):
    """The chief's run and the other host that follows it, with the files of what they say."""
    logs = [folder / f"{attempt}-{index}.txt" for index in (0, 1)]
    run = ("ctrpipe", "run", folder / "config.yaml", "--data", folder / "log.tsv", "--output", folder / "run")
    follow = (
        "python",
        "-m",
        "ctrpipe.pipeline.training.follow",
        "--trainings",
        "1",
        "--wait",
        "120",
        "--backend",
        backend,
    )
    with on_host(0, logs[0], *map(str, run)) as chief, on_host(1, logs[1], *follow) as other:
        yield (chief, other), logs


def examples(log: pathlib.Path) -> list[int]:
    """How many examples each evaluation that a run has told was made after."""
    told = [line for line in log.read_text().splitlines() if EVALUATION in line]
    return [int(line.split(EVALUATION)[0].rsplit(" ", 1)[1].replace(",", "")) for line in told]


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_link_that_is_cut_is_one_line_on_both_and_the_training_goes_on_from_its_checkpoint(backend, hosts, tmp_path):
    assert call("generate", "--rows", 8000, "--seed", 5, "--output", tmp_path / "log.tsv")[0] == 0
    changed = {
        "model": {**SHORT_CONFIG["model"], "dropout": 0.0},
        "training": {**SHORT_CONFIG["training"], "epochs": 16, "patience": 1000, "backend": backend},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**SHORT_CONFIG, **changed}))
    with training(tmp_path, backend, 1) as (processes, logs):
        while len(examples(logs[0])) < 4:
            assert [process.poll() for process in processes] == [None, None], logs[0].read_text()
            time.sleep(0.1)
        ip("-n", NAMES[0], "link", "set", "link0", "down")
        assert [process.wait(NOTICED_SECONDS) for process in processes] == [2, 1]
    for log in logs:
        [said] = [line for line in log.read_text().splitlines() if line.startswith("ctrpipe: ")]
        assert "2 workers: a worker was lost; start all of them again" in said
        assert "Traceback" not in log.read_text()
    trained = examples(logs[0])
    ip("-n", NAMES[0], "link", "set", "link0", "up")
    with training(tmp_path, backend, 2) as (processes, logs):
        assert [process.wait(300) for process in processes] == [0, 0], logs[0].read_text()
    again = examples(logs[0])
    assert again[0] in (trained[-1], trained[-1] + trained[0])  # cut before or after the last one's checkpoint
    alone = ("run", tmp_path / "config.yaml", "--data", tmp_path / "log.tsv", "--output", tmp_path / "alone")
    assert call(*alone, "--set", "training.distribution=one_device")[0] == 0
    together, single = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "alone"))
    assert together["log_loss"] == pytest.approx(single["log_loss"], abs=1e-4)
