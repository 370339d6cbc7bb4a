"""`ctrpipe submit`, against a stand-in for the API that keeps what it was sent."""

import re
import shutil
import subprocess

import pytest
import yaml

from ctrpipe.pipeline.kubeflow import submit
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
        assert api.experiments["demo"]["experiment_id"] == sent["experiment_id"]
    assert sent["pipeline_version_reference"] == {"pipeline_id": "p1", "pipeline_version_id": "v1"}
    assert sent["runtime_config"]["parameters"] == {"data": ["/data/log.tsv"], "seed": 7}
    assert sent["service_account"] == "ctrpipe"


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


def test_a_step_that_fails_is_exit_code_3(package):
    failed = {**FAILED, "display_name": "Trainer"}
    with running_api(states=[("FAILED", [TRAINED, failed])], logs={"pod-2": "the last line"}) as api:
        code, output = run(package, api)
    assert code == 3 and "Run r1: failed" in output and "the last line" in output


@pytest.mark.parametrize(
    "log, killed",
    [
        ("", True),
        ("Trainer: epoch 1\nTrainer: epoch 2", True),
        ("Trainer: epoch 1\nfailed to execute component: signal: killed", True),
        ("Trainer: epoch 1\nctrpipe: the disk is full; make room", False),
        ("Traceback (most recent call last):\n  somewhere\nValueError: no\nexit status 1", False),
    ],
)
def test_a_step_that_was_killed_is_told_from_one_that_failed(package, log, killed):
    failed = {**FAILED, "display_name": "Trainer"}
    with running_api(states=[("FAILED", [TRAINED, failed])], logs={"pod-2": log}) as api:
        code, output = run(package, api)
    assert code == 3 and log[log.rfind("\n") + 1 :] in output
    assert ("raise kubeflow.resources.Trainer.memory" in output) == killed


def test_of_a_step_whose_pod_is_gone_nothing_is_guessed(package):
    with running_api(states=[("FAILED", [TRAINED, {**FAILED, "display_name": "Trainer"}])]) as api:
        code, output = run(package, api)
    assert code == 3 and "memory" not in output


def test_a_gates_verdict_is_exit_code_1_and_shows_the_end_of_its_log(package):
    log = "\n".join([*(f"line {number}" for number in range(40)), "ctrpipe: blocked by a gate"])
    with running_api(states=[("FAILED", [TRAINED, FAILED])], logs={"pod-2": log}) as api:
        code, output = run(package, api)
    assert code == 1 and "Run r1: blocked" in output
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
            api.experiments["demo"] = {"experiment_id": "e7", "display_name": "demo"}
        before = dict(api.pipelines), dict(api.versions), dict(api.experiments)
        one_line(*run(package, api), "HTTP 400: /apis/v2beta1/runs is refused")
        assert api.uploads and (api.pipelines, api.versions, api.experiments) == before


def test_what_cannot_be_taken_back_does_not_hide_why_it_was_to_be(package):
    with running_api(refuse={"POST .*/runs": 400, "DELETE .*": 500}) as api:
        one_line(*run(package, api), "HTTP 400: /apis/v2beta1/runs is refused")


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
        one_line(*run(package, api, "--token", "short"), "or as --token-file if it is renewed; run r1 goes on")
        assert len(api.runs) == 1


def test_a_token_that_is_renewed_while_a_run_is_followed_is_read_again(package, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("first\n")
    states = [("RUNNING", []), ("RUNNING", []), ("FAILED", [FAILED])]
    with running_api(states=states, token="first", logs={"pod-2": "the last line"}) as api:

        def renew(seconds):
            api.token = "second"
            file.write_text("second\n")

        monkeypatch.setattr(submit.time, "sleep", renew)
        code, output = run(package, api, "--token-file", file, "--token", "neither")
        assert code == 1 and "Run r1: blocked" in output and "the last line" in output, output
        api.token = "third"
        one_line(*run(package, api, "--token-file", file), f"refuses the token (HTTP 401); give a valid one in {file}")
    one_line(*run(package, api, "--token-file", tmp_path / "absent"), "absent: no such file")


@pytest.mark.parametrize("option", ["--token", "--token-file"])
def test_a_token_goes_over_plain_http_to_this_machine_only(package, tmp_path, option):
    (tmp_path / "token").write_text("first\n")
    value = tmp_path / "token" if option == "--token-file" else "first"
    for host in (
        "http://192.0.2.1:8888",
        "http://kubeflow.example",
        "http://127.0.0.1.example",
        "HTTP://[2001:db8::1]",
    ):
        found = call("submit", package, "--host", host, "--param", "data=[a]", option, value)
        one_line(*found, "a token would go over plain http; give an https address")
    for host in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://192.0.2.1.invalid"):
        found = call("submit", package, "--host", host, "--param", "data=[a]", option, value)
        one_line(*found, "no answer; is this the address")


def test_several_users_have_pipelines_and_experiments_of_their_own(package):
    with running_api(states=[("SUCCEEDED", [])], multi_user=True) as api:
        one_line(*run(package, api), "several users; give your profile's namespace as --namespace")
        assert not api.uploads
        for namespace in ("ann", "ann", "bob"):
            code, output = run(package, api, "--namespace", namespace, "--experiment", "nightly")
            assert code == 0, output
        assert set(api.pipelines) == {"ann/demo", "bob/demo"}
        assert set(api.experiments) == {"ann/nightly", "bob/nightly"}
        assert [sent["experiment_id"] for sent in api.runs] == ["e1", "e1", "e2"]


def test_a_host_that_restarts_is_asked_again(package, monkeypatch):
    states = [("RUNNING", []), ("SUCCEEDED", [])]
    with running_api(states=states, outages={"GET .*/healthz": 2, "GET .*/runs/r1": 3}) as api:
        code, output = run(package, api)
        assert code == 0 and "Run r1: succeeded" in output, output
        assert set(api.outages.values()) == {0} and len(api.runs) == 1
    monkeypatch.setattr(submit, "OUTAGE_SECONDS", 0.0)
    with running_api(refuse={"GET .*/runs/r1": 503}) as api:
        one_line(*run(package, api), "HTTP 503: /apis/v2beta1/runs/r1 is refused; run r1 goes on")


@pytest.mark.parametrize("name", ["the run", "Trainer"])
def test_a_step_that_never_starts_is_one_line(package, name):
    pending = ("PENDING", []) if name == "the run" else ("RUNNING", [{**TRAINED, "state": "PENDING"}])
    with running_api(states=[pending]) as api:
        ended = run(package, api, "--start-timeout", 0)
        one_line(*ended, f"{name} has not started within 0 s; has the cluster a node with what kubeflow.resources asks")
        assert "run r1 goes on" in ended[1]
    with running_api(states=[pending, pending, ("SUCCEEDED", [])]) as api:
        assert run(package, api, "--start-timeout", 60)[0] == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_host_with_a_certificate_of_its_own_authority_is_trusted_where_that_is_given(package, tmp_path):
    file = tmp_path / "both.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    subprocess.run([*command, "-keyout", file, "-out", tmp_path / "ca.pem"], check=True, capture_output=True)
    file.write_text(file.read_text() + (tmp_path / "ca.pem").read_text())
    with running_api(states=[("FAILED", [FAILED])], logs={"pod-2": "the last line"}, certificate=file) as api:
        ended = run(package, api)
        one_line(*ended, "CERTIFICATE_VERIFY_FAILED")
        assert re.search(r"its authority's certificate goes to --ca-cert$", ended[1], re.M) and not api.uploads
        one_line(*run(package, api, "--ca-cert", tmp_path / "absent"), "absent: no such file")
        code, output = run(package, api, "--ca-cert", tmp_path / "ca.pem")
        assert code == 1 and "the last line" in output, output
