"""Runs Debian's Prometheus for the tests of the monitoring files."""

import contextlib
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import yaml

from ctrpipe.common.processes import start_command, stop_command
from tests.contract.servers import free_port
from tests.serving.deploy_files import FOLDER

PROMETHEUS = shutil.which("prometheus")
MONITORING = FOLDER / "monitoring"


def write_config(folder: pathlib.Path, target: str, rules: pathlib.Path) -> pathlib.Path:
    """Writes monitoring/prometheus.yaml for one server and these rules, with an interval of one second."""
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    config["global"]["scrape_interval"] = config["global"]["evaluation_interval"] = "1s"
    config["rule_files"] = [str(rules)]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def quick_rules(folder: pathlib.Path, seconds: int) -> pathlib.Path:
    """Writes monitoring/rules.yaml with windows of a few seconds, pauses three times as long, and no delay."""
    text = (MONITORING / "rules.yaml").read_text()
    text = re.sub(r"\[\d+m\]", f"[{seconds}s]", text)
    text = re.sub(r"offset \d+m", f"offset {3 * seconds}s", text)
    text = re.sub(r"for: \d+m", "for: 1s", text)
    path = folder / "rules.yaml"
    path.write_text(text)
    return path


@contextlib.contextmanager
def prometheus(config: pathlib.Path) -> Iterator[Callable[..., Any]]:
    """Runs Prometheus; yields a function from a path of its API and parameters to the answer's data."""
    port = free_port()
    flags = [f"--config.file={config}", f"--storage.tsdb.path={config.parent / 'data'}"]
    with (config.parent / "prometheus.log").open("w") as log:
        command = [PROMETHEUS, *flags, f"--web.listen-address=127.0.0.1:{port}"]
        process = start_command(command, stdout=log, stderr=subprocess.STDOUT)

    def ask(path: str, **parameters: str) -> Any:
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/{path}", params=parameters, trust_env=False)
        except httpx.TransportError:
            answer = None
        if answer is None or answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:  # it starts
            assert process.poll() is None, (config.parent / "prometheus.log").read_text()
            return {}
        assert answer.json()["status"] == "success", answer.text
        return answer.json()["data"]

    try:
        yield ask
    finally:
        stop_command(process, 30)
