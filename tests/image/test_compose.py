"""serving/deploy/compose, started, with the serving image in the place of TensorFlow Serving's."""

import json
import shutil
import subprocess
import threading
import time
import uuid

import httpx
import pytest
import yaml

from tests.image.containers import SERVING, engine, needs, wait_until, writable
from tests.serving.deploy_files import CONFIG, FOLDER
from tests.serving.prometheus_server import MONITORING, PROMETHEUS, prometheus, write_config
from tests.serving.test_canary import push

COMPOSE = shutil.which("podman-compose") or shutil.which("docker-compose")
pytestmark = [*needs(SERVING), pytest.mark.skipif(not COMPOSE, reason="neither podman-compose nor docker-compose")]

MODEL_SERVER = '#!/bin/sh\nexec ctrpipe serve --host=0.0.0.0 "$@"\n'  # TensorFlow Serving listens on every address
CLIENTS = 4
ASKED = {"signature_name": "serving_raw", "instances": [{"n": 1.0}, {"n": 2.0}]}
QUERIES_WITHOUT_DATA = ("model_warmup_latency",)  # the models of this test have no warm-up requests


class Load:
    """Asks without a pause from entering to leaving; `answers` has each status and the version that answered."""

    def __init__(self, url):
        self.answers: list[tuple[int, int]] = []
        self._url, self._stop = url, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def _ask(self):
        with httpx.Client(trust_env=False, timeout=30) as client:
            while not self._stop.is_set():
                try:
                    answer = client.post(f"{self._url}/v1/models/ctr:predict", json=ASKED)
                    found = answer.json().get("predictions", [0])[0]
                    self.answers.append((answer.status_code, round(100 * found)))
                except httpx.TransportError:
                    self.answers.append((0, 0))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The serving image with a program named tensorflow_model_server."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "tensorflow_model_server").write_text(MODEL_SERVER)
    (folder / "tensorflow_model_server").chmod(0o755)
    (folder / "Dockerfile").write_text(f"FROM {SERVING}\nCOPY tensorflow_model_server /usr/local/bin/\n")
    name = f"localhost/ctrpipe-model-server:{uuid.uuid4().hex[:8]}"
    built = engine("build", "-t", name, folder)
    assert built.code == 0, built.text
    yield name
    engine("rmi", "--force", name)


@pytest.fixture
def service(image, tmp_path):
    """The compose file's server with version 1; its URL, folder and container."""
    writable(tmp_path)
    (tmp_path / "models" / "ctr").mkdir(parents=True)
    push(tmp_path / "models" / "ctr", 1)
    shutil.copytree(CONFIG, tmp_path / "config")
    found = yaml.safe_load((FOLDER / "compose" / "compose.yaml").read_text())
    server = found["services"]["serving"]
    server["image"] = image
    server["ports"] = ["127.0.0.1:18501:8501"]
    for volume in server["volumes"]:
        volume["source"] = str(tmp_path / volume["target"].strip("/"))
    name = f"ctrpipe-{uuid.uuid4().hex[:8]}"
    written = tmp_path / "compose.yaml"
    written.write_text(yaml.safe_dump({"name": name, "services": {"serving": server}}))
    writable(tmp_path)
    command = [COMPOSE, "-p", name, "-f", str(written)]
    started = subprocess.run([*command, "up", "--detach"], capture_output=True, text=True, timeout=120)
    try:
        assert started.returncode == 0, started.stderr
        listed = engine("ps", "--format={{.Names}}", f"--filter=name={name}").output.split()
        yield "http://127.0.0.1:18501", tmp_path, listed[0]
    finally:
        subprocess.run([*command, "down"], capture_output=True, timeout=120)


def served(url, version, label=None):
    """Whether a label's, or the newest, answers are those of a version, each 0.01 times its number."""
    path = f"labels/{label}:predict" if label else "predict"
    answer = httpx.post(f"{url}/v1/models/ctr{'/' if label else ':'}{path}", json=ASKED, trust_env=False)
    return answer.status_code == 200 and round(100 * answer.json()["predictions"][0]) == version


def test_a_new_version_and_a_canary_take_over_under_load_and_no_request_fails(service):
    url, folder, container = service
    wait_until(lambda: served(url, 1), container, 120)
    assert served(url, 1, "stable") and engine("healthcheck", "run", container).code == 0
    with Load(url) as load:
        time.sleep(2)
        push(folder / "models" / "ctr", 2)
        writable(folder / "models")
        wait_until(lambda: served(url, 2), container)
        config = folder / "config" / "models.config"
        config.write_text(config.read_text().replace('key: "canary" value: 1', 'key: "canary" value: 2'))
        wait_until(lambda: served(url, 2, "canary"), container)
        assert served(url, 1, "stable")
        time.sleep(1)
    assert {status for status, _ in load.answers} == {200} and len(load.answers) > 100
    assert {version for _, version in load.answers} == {1, 2}


@pytest.mark.skipif(not PROMETHEUS, reason="prometheus is not installed")
def test_prometheus_scrapes_it_and_the_dashboards_queries_have_data(service, tmp_path):
    url, _, container = service
    wait_until(lambda: served(url, 1), container, 120)
    config = write_config(tmp_path, url.removeprefix("http://"), MONITORING / "rules.yaml")
    with prometheus(config) as asked, Load(url):

        def ask(query):
            return asked("query", query=query).get("result")

        wait_until(lambda: bool(ask("up == 1")), container)
        for _ in range(10):
            httpx.get(f"{url}/v1/models/ctr/metadata", trust_env=False)
            httpx.post(f"{url}/v1/models/absent:predict", json=ASKED, trust_env=False)
            time.sleep(1)
        dashboard = json.loads((MONITORING / "dashboard.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        assert len(queries) > 15
        empty = [query for query in queries if not ask(query.replace("$model", ".*").replace("$__rate_interval", "8s"))]
    assert [query for query in empty if not any(name in query for name in QUERIES_WITHOUT_DATA)] == []
