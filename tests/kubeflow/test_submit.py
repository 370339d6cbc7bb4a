"""`ctrpipe submit`, against a stand-in for the API that keeps what it was sent."""

import pytest
import yaml

from pipeline.kubeflow import submit
from tests.e2e.small_run import call, one_line
from tests.kubeflow.api import running_api

TRAINED = {"task_id": "t1", "display_name": "Trainer", "state": "SUCCEEDED"}
FAILED = {
    "task_id": "t2",
    "display_name": "Verdict",
    "state": "FAILED",
    "pod_name": "driver",
    "child_tasks": [{"pod_name": "pod-2"}],
}
PARAMETERS = {
    "data": {"parameterType": "LIST"},
    "output": {"parameterType": "STRING", "defaultValue": "/data/runs/demo"},
    "seed": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1.0},
}


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "pipeline.yaml"
    spec = {"pipelineInfo": {"name": "demo"}, "root": {"inputDefinitions": {"parameters": PARAMETERS}}}
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)


def run(package, api, *more):
    return call("submit", package, "--host", api.url, "--param", "data=[/data/log.tsv]", *more)


def test_a_run_is_uploaded_started_and_followed(package):
    states = [("PENDING", []), ("RUNNING", [{**TRAINED, "state": "RUNNING"}]), ("SUCCEEDED", [TRAINED])]
    with running_api(states=states, token="secret") as api:
        code, output = run(package, api, "--token", "secret", "--param", "seed=7", "--service-account", "ctrpipe")
        assert code == 0 and "Run r1: succeeded" in output, output
        assert output.index("Trainer: running") < output.index("Trainer: succeeded")
        assert [yaml.safe_load(upload) for upload in api.uploads] == [yaml.safe_load(package.read_text())]
        [sent] = api.runs
    assert sent["pipeline_version_reference"] == {"pipeline_id": "p1", "pipeline_version_id": "v1"}
    assert sent["runtime_config"]["parameters"] == {"data": ["/data/log.tsv"], "seed": 7}
    assert sent["experiment_id"] == "e1" and sent["service_account"] == "ctrpipe"


def test_a_changed_file_is_another_version_and_the_same_one_is_not(package):
    with running_api(states=[("SUCCEEDED", [])]) as api:
        api.pipelines["demo"] = "p1"
        for _ in range(2):
            assert run(package, api)[0] == 0
        assert len(api.uploads) == 1
        package.write_text(package.read_text() + "# changed\n")
        assert run(package, api)[0] == 0
        assert len(api.uploads) == len(api.versions) == 2
        sent = [one["pipeline_version_reference"]["pipeline_version_id"] for one in api.runs]
    assert sent == ["v1", "v1", "v2"]


def test_a_failed_step_is_exit_code_1_and_shows_the_end_of_its_log(package):
    log = "\n".join([*(f"line {number}" for number in range(40)), "ctrpipe: blocked by a gate"])
    with running_api(states=[("FAILED", [TRAINED, FAILED])], logs={"pod-2": log}) as api:
        code, output = run(package, api)
    assert code == 1 and "Run r1: failed" in output
    assert "ctrpipe: blocked by a gate" in output and "line 39" in output and "line 5\n" not in output


def test_a_schedule_keeps_its_parameters_and_runs_one_at_a_time(package):
    with running_api() as api:
        code, output = run(package, api, "--recurring", "0 0 4 * * *")
        assert code == 0 and "Schedule: s1" in output and not api.runs
        [sent] = api.schedules
    assert sent["trigger"]["cron_schedule"]["cron"] == "0 0 4 * * *" and sent["mode"] == "ENABLE"
    assert sent["max_concurrency"] == "1" or sent["max_concurrency"] == 1
    assert sent["no_catchup"] is True and sent["runtime_config"]["parameters"]["data"] == ["/data/log.tsv"]


@pytest.mark.parametrize("known", [False, True])
def test_a_refused_run_leaves_nothing_behind(package, known):
    with running_api(refuse={"POST .*/runs": 400}) as api:
        if known:
            api.pipelines["demo"] = "p1"
            api.versions["v0"] = "an older one"
        before = dict(api.pipelines), dict(api.versions)
        one_line(*run(package, api), "HTTP 400: /apis/v2beta1/runs is refused")
        assert api.uploads and (api.pipelines, api.versions) == before


def test_mistakes_are_one_line_and_nothing_is_uploaded(package, tmp_path):
    with running_api(states=[("SUCCEEDED", [])]) as api:
        one_line(*call("submit", package, "--host", api.url), "give --param data=VALUE")
        one_line(*run(package, api, "--param", "epochs=2"), "NAME one of data, output, seed")
        one_line(*run(package, api, "--param", "seed=two"), "expected a value of type number_integer")
        one_line(*run(package, api, "--param", "seed=true"), "expected a value of type number_integer")
        one_line(*call("submit", tmp_path / "absent", "--host", api.url), "cannot be read")
        (tmp_path / "other.yaml").write_text("name: demo")
        one_line(*call("submit", tmp_path / "other.yaml", "--host", api.url), "no compiled pipeline")
        assert not api.uploads and not api.runs
        one_line(*call("submit", package, "--host", "localhost:1", "--param", "data=[a]"), "begins with http://")
    one_line(*run(package, api), "no answer; is this the address")


def test_a_token_that_has_expired_is_one_line(package):
    with running_api(token="fresh") as api:
        one_line(*run(package, api, "--token", "stale"), "refuses the token (HTTP 401)")
        one_line(*run(package, api), "wants a token (HTTP 401)")
        assert not api.uploads
    with running_api(refuse={"GET .*/runs/r1": 401}) as api:
        one_line(*run(package, api, "--token", "short"), "give a valid one in KFP_TOKEN; run r1 goes on")
        assert len(api.runs) == 1
