"""Runs whose folder is in a store: step by step on disks of their own, and as the commands of a user."""

import json
import shutil
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from benchmarks.harness.store_servers import Rule, faulty, free_port
from ctrpipe.common import stores
from ctrpipe.common.store_folders import work_folder
from ctrpipe.common.store_names import CACHE
from ctrpipe.pipeline.run.stored_run import fetch_handed_on, hand_on, write_dead_letters
from tests.e2e.small_run import ROWS, SHORT_CONFIG, call, one_line, start
from tests.small_config import joined
from tests.stores import lead_to

FILES = 40


def test_what_the_first_step_writes_is_on_the_disk_of_one_that_names_it(s3, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    url = f"{s3.url}/runs/mine"
    folder = work_folder(url)
    for name in ("tfx/states.json", "tfx/schema/1/schema.pbtxt", "joined/log.tsv", "models/ctr/1/saved_model.pb"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    hand_on(url)
    shutil.rmtree(tmp_path)
    fetch_handed_on(url, f'{{"source": "{folder}/tfx/schema/1/schema.pbtxt", "files": ["{folder}/joined/log.tsv"]}}')
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {"tfx/schema/1/schema.pbtxt", "joined/log.tsv"}
    assert (folder / "joined/log.tsv").read_text() == "joined/log.tsv"


def test_malformed_rows_are_in_the_store(s3, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    url = f"{s3.url}/runs/mine"
    letters = work_folder(url) / "dead_letter"
    letters.mkdir(parents=True)
    (letters / "rejects.jsonl").write_text("{}")
    write_dead_letters(url)
    assert stores.read_bytes(f"{url}/dead_letter/rejects.jsonl") == b"{}"


def test_a_configuration_may_be_in_a_store_and_is_fetched_anew(s3, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    url = f"{s3.url}/tuned/proposed.yaml"
    one_line(*call("check", url), f"{url}: no such file; check the path")
    for key in ("nam", "modl"):
        stores.write_bytes(url, yaml.safe_dump({**SHORT_CONFIG, key: "x"}).encode())
        one_line(*call("check", url), f"{url}: ")
        one_line(*call("check", url), f"{key}")


def test_a_check_names_the_configuration_of_a_store_in_what_comes_next(s3, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    rows = "".join(f"{number % 2},v{number % 7}\n" for number in range(200))
    stores.write_bytes(f"{s3.url}/log.csv", f"y,c\n{rows}".encode())
    data = {"paths": [f"{s3.url}/log.csv"], "format": "csv", "header": True, "labels": {"ctr": "y"}}
    features = [{"kind": "categorical", "columns": ["c"]}]
    url = f"{s3.url}/run.yaml"
    stores.write_bytes(url, yaml.safe_dump({**SHORT_CONFIG, "data": data, "features": features}).encode())
    code, said = call("check", url)
    assert code == 0 and url in said and str(tmp_path) not in said, said


OTHERS = [
    ["models"],
    ["prepare", "history", "log.csv", "out"],
    ["predict", "--input", "log.csv"],
    ["sweep", "sweep.yaml"],
]


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: command[0])
def test_an_option_for_a_configuration_takes_one_of_a_store(s3, tmp_path, monkeypatch, command):
    monkeypatch.setenv(CACHE, str(tmp_path))
    url = f"{s3.url}/none.yaml"
    one_line(*call(*command, "--config", url), f"{url}: no such file; check the path")


def test_scorings_are_compared_by_a_configuration_of_a_store(s3, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    (tmp_path / "log.csv").write_text("y,c\n" + "".join(f"{row % 2},v{row % 7}\n" for row in range(200)))
    for name, better in (("first", 0.0), ("second", 0.3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_summary.json").write_text("{}")
        scores = np.linspace(0.3, 0.5, 200) + better * (np.arange(200) % 2)
        rows = {"file": [str(tmp_path / "log.csv")] * 200, "line": np.arange(200) + 2, "ctr": scores.astype(np.float32)}
        pa.parquet.write_table(pa.table(rows), tmp_path / name / "part-00000.parquet")
    config, url = tmp_path / "log.yaml", f"{s3.url}/log.yaml"
    data = {"format": "csv", "header": True, "labels": {"ctr": "y"}}
    features = [{"kind": "categorical", "columns": ["c"]}]
    config.write_text(yaml.safe_dump({"name": "log", "data": data, "features": features, "model": {"name": "lr"}}))
    stores.write_file(url, config)
    sides = ("compare", tmp_path / "first", tmp_path / "second", "--config")
    by_url = call(*sides, url)
    assert by_url[0] == 0 and by_url == call(*sides, config)


def test_a_report_of_what_is_no_run_is_one_line(s3, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    one_line(*call("report", f"{s3.url}/none"), f"{s3.url}/none: no finished run here; name the --output")


@pytest.mark.slow
@pytest.mark.large(like="tests/transforms/test_held_objects.py::test_each_file_of_a_log_takes_three_requests")
def test_log_run_scores_and_server_are_in_a_store(store, tmp_path, monkeypatch):
    """Each command of its own process, as a user has them; and each small file of the log takes three requests."""
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    assert call("generate", "--rows", ROWS, "--seed", 5, "--output", tmp_path / "log.tsv")[0] == 0
    lines = (tmp_path / "log.tsv").read_bytes().splitlines(keepends=True)
    for number in range(FILES):
        part = lines[number * ROWS // FILES : (number + 1) * ROWS // FILES]
        stores.write_bytes(f"{store.url}/logs/part-{number:02}.tsv", b"".join(part))
    config, log, run = tmp_path / "run.yaml", f"{store.url}/logs/*.tsv", f"{store.url}/runs/mine"
    config.write_text(yaml.safe_dump(joined(SHORT_CONFIG, {"data": {"paths": [log]}})))
    with faulty(store.port, Rule()) as proxy:
        lead_to(proxy, monkeypatch)
        for arguments in (["run", config, "--output", run], ["score", "--model", run, "--input", log]):
            proxy.follow(Rule())
            output = [] if "--output" in arguments else ["--output", f"{store.url}/scores"]
            with start(*arguments, *output, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                told = process.communicate(timeout=300)[0]
            assert process.returncode == 0, told
            asked = [request for request in proxy.requests() if "/logs" in request or "logs%2F" in request]
            assert len(asked) <= 3 * FILES + 20, told
            assert str(tmp_path / "cache") not in told
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    summary = json.loads(stores.read_bytes(f"{store.url}/scores/_summary.json"))
    assert summary["rows"] == summary["scored"] == ROWS
    assert call("report", run) == (0, f"Written: {run}/report.html\n")
    assert b"<html" in stores.read_bytes(f"{run}/report.html")
    port = free_port()
    with start(
        "serve", f"--model_base_path={run}", "--model_name=ctr", f"--rest_api_port={port}", "--port=0"
    ) as server:
        try:
            asks = ("predict", "--url", f"http://127.0.0.1:{port}/v1/models/ctr", "--rows", 3)
            end = time.monotonic() + 120
            while (found := call(*asks, "--input", f"{store.url}/logs/part-00.tsv"))[0] and time.monotonic() < end:
                time.sleep(0.5)
            assert found[0] == 0, found[1]
        finally:
            server.terminate()
