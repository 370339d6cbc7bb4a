"""`ctrpipe submit`, against a stand-in for the API that keeps what it was sent."""

import os
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.kubeflow import submit
from ctrpipe.pipeline.kubeflow.cron import read_cron
from ctrpipe.pipeline.kubeflow.run_steps import node_id
from tests.e2e.small_run import call, one_line
from tests.kubeflow.api import running_api
from tests.kubeflow.argo import WORKFLOW, Ran, argo_id, clock, compressed, manifest, tasks

STEPS = {"prepare": "Prepare", "logexamplegen": "LogExampleGen", "trainer": "Trainer"}
STEPS |= {"trainer-baseline": "Trainer.baseline", "report": "Report", "verdict": "Verdict"}
PREPARED = {"prepare": Ran(start=10, seconds=60), "logexamplegen": Ran(start=80, seconds=0, attempts=())}
TRAINED = PREPARED | {"trainer": Ran(start=90, seconds=200), "trainer-baseline": Ran(start=90, seconds=100)}
JUDGED = TRAINED | {"report": Ran(start=300, seconds=90), "verdict": Ran("FAILED", 400, 49, ("FAILED",))}
DONE = tasks(JUDGED | {"verdict": Ran(start=400, seconds=49)})
BROKEN = PREPARED | {
    "trainer": Ran("FAILED", 90, 30, ("FAILED",)),
    "trainer-baseline": Ran("RUNNING", 90, 0, ("RUNNING",)),
    "report": None,
    "verdict": None,
}
STOPPED = tasks(BROKEN | {"trainer-baseline": Ran(start=90, seconds=100)})
GROUPS = {
    "data": ("Data", ["logexamplegen"]),
    "models": ("Models", ["trainer", "trainer-baseline"]),
    "push-and-report": ("Push and report", ["report", "verdict"]),
}


def grouped(steps):
    """The steps of a run in groups. Argo leaves a group out if none of its steps has run."""
    found = {"prepare": steps["prepare"]}
    for key, (_, members) in GROUPS.items():
        inside = {member: steps[member] for member in members}
        found[key] = inside if any(inside.values()) else None
    return found


def executor(step, attempt=0):
    """The id of the node of a step's container."""
    return argo_id(f"(0).root(0).{step}(0).executor({attempt})")


def pod(node):
    """The name of a node's pod, which has the template's name in it."""
    return node.replace(f"{WORKFLOW}-", f"{WORKFLOW}-system-container-impl-")


PARAMETERS = {
    "data": {"parameterType": "LIST"},
    "output": {"parameterType": "STRING", "defaultValue": "/data/runs/demo"},
    "seed": {"parameterType": "NUMBER_INTEGER", "defaultValue": 1.0},
}


def loop(states, state="RUNNING"):
    """The tasks of a sweep whose trainings have these states; a failed one has the node `executor(0)` of its own."""
    steps = {"plansweep": Ran(start=10, seconds=60), "for-loop-1": Ran(state, 80, 200), "summarisesweep": None}
    found = tasks(steps)
    for number, of_training in enumerate(states):
        item = f"(0).root(0).for-loop-1(0).iteration-iterations({number}:{number})(0).iteration-item(0).trainpoint(0)"
        shared = {"start_time": clock(90 + number), "end_time": clock(200), "state": of_training}
        node = argo_id(f"{item}.executor(0)")
        for name, children in (("iteration-item", []), ("trainpoint", []), ("trainpoint(0)", []), ("executor", [node])):
            identity = f"{number}-{name}"
            children = [{"pod_name": child} for child in children]
            found.append({"task_id": identity, "display_name": name, **shared, "child_tasks": children})
    own = {f"{number}-executor" for number in range(len(states))}
    return [task for task in found if task.get("display_name") != "executor" or task["task_id"] in own]


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "sweep.yaml"
    names = {"plansweep": "PlanSweep", "for-loop-1": "Trainings", "summarisesweep": "SummariseSweep"}
    steps = {key: {"taskInfo": {"name": name}} for key, name in names.items()}
    steps["for-loop-1"] |= {
        "componentRef": {"name": "comp-for-loop-1"},
        "parameterIterator": {},
        "dependentTasks": ["plansweep"],
    }
    steps["summarisesweep"]["dependentTasks"] = ["for-loop-1"]
    inner = {"trainpoint": {"taskInfo": {"name": "TrainPoint"}}}
    spec = {
        "pipelineInfo": {"name": "demo"},
        "root": {"inputDefinitions": {"parameters": PARAMETERS}, "dag": {"tasks": steps}},
        "components": {"comp-for-loop-1": {"dag": {"tasks": inner}}},
    }
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "pipeline.yaml"
    # The file has the tasks in alphabetical order.
    before = {"logexamplegen": ["prepare"], "trainer": ["logexamplegen"], "trainer-baseline": ["logexamplegen"]}
    before |= {"report": ["trainer", "trainer-baseline"], "verdict": ["report"]}
    steps = {key: {"taskInfo": {"name": STEPS[key]}, "dependentTasks": before.get(key, [])} for key in sorted(STEPS)}
    root = {"inputDefinitions": {"parameters": PARAMETERS}, "dag": {"tasks": steps}}
    spec = {"pipelineInfo": {"name": "demo", "description": "fm on the log demo"}, "root": root}
    path.write_text(yaml.safe_dump(spec))
    return path


@pytest.fixture
def groups(package):
    """The same steps in groups."""
    spec = yaml.safe_load(package.read_text())
    steps = spec["root"]["dag"]["tasks"]
    made, spec["components"], before = {"prepare": steps["prepare"]}, {}, ["prepare"]
    for key, (name, members) in GROUPS.items():
        inside = {member: steps[member] for member in sorted(members)}
        for task in inside.values():
            task["dependentTasks"] = [other for other in task["dependentTasks"] if other in members]
        spec["components"][f"comp-{key}"] = {"dag": {"tasks": inside}}
        made[key] = {
            "taskInfo": {"name": name},
            "componentRef": {"name": f"comp-{key}"},
            "dependentTasks": list(before),
        }
        before.append(key)
    spec["root"]["dag"]["tasks"] = dict(sorted(made.items()))
    package.write_text(yaml.safe_dump(spec))
    return package


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)


def run(package, api, *more):
    return call("submit", package, "--host", api.url, "--param", "data=[/data/log.tsv]", *more)


def lines(output):
    """The printed lines about steps, without the seconds before them."""
    return [line.partition("] ")[2] for line in output.splitlines() if re.match(r"\[ *[0-9.]+s\] ", line)]


def test_a_run_is_uploaded_started_and_followed(package):
    under_way = tasks(PREPARED | {"trainer": Ran("RUNNING", 90, 0, ("RUNNING",))})
    states = [("PENDING", []), ("RUNNING", under_way), ("RUNNING", under_way), ("SUCCEEDED", DONE)]
    with running_api(states=states, token="secret") as api:
        code, output = run(package, api, "--token", "secret", "--param", "seed=7", "--service-account", "ctrpipe")
        assert code == 0 and "Run r1: succeeded" in output, output
        assert [yaml.safe_load(upload) for upload in api.uploads] == [yaml.safe_load(package.read_text())]
        [sent] = api.runs
        assert api.experiments["demo"]["experiment_id"] == sent["experiment_id"]
    assert lines(output) == [
        "Prepare: succeeded in 60 s",
        "LogExampleGen: succeeded, from cache",
        "Trainer: succeeded in 200 s",
        "Trainer.baseline: succeeded in 100 s",
        "Report: succeeded in 90 s",
        "Verdict: succeeded in 49 s",
    ]
    assert sent["pipeline_version_reference"] == {"pipeline_id": "p1", "pipeline_version_id": "v1"}
    assert sent["runtime_config"]["parameters"] == {"data": ["/data/log.tsv"], "seed": 7}
    assert sent["service_account"] == "ctrpipe"
    assert re.fullmatch(r"demo \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", sent["display_name"])


def test_steps_run_as_the_service_account_of_the_option_or_of_the_file(package):
    package.write_text(f"# Service account: of-the-file\n{package.read_text()}")
    with running_api(states=[("SUCCEEDED", [])]) as api:
        assert run(package, api)[0] == run(package, api, "--service-account", "given")[0] == 0
        assert run(package, api, "--recurring", "0 4 * * *")[0] == 0
        assert [sent["service_account"] for sent in [*api.runs, *api.schedules]] == [
            "of-the-file",
            "given",
            "of-the-file",
        ]


def test_nodes_have_the_ids_that_argo_gave_them_in_a_cluster():
    name = "demo-pf2lt(0).root(0).verdict(0).executor(0)"
    assert node_id("demo-pf2lt", name) == "demo-pf2lt-1913632429"
    assert node_id("demo-nzptw", "demo-nzptw(0).root-driver(0)") == "demo-nzptw-3481795093"


def test_the_same_file_is_uploaded_once_and_a_changed_one_is_another_version(package):
    with running_api(states=[("SUCCEEDED", [])]) as api:
        for _ in range(3):
            assert run(package, api)[0] == 0
        assert len(api.uploads) == 1
        package.write_text(package.read_text() + "# changed\n")
        for _ in range(2):
            assert run(package, api)[0] == 0
        assert len(api.uploads) == len(api.versions) == 2
        assert run(package, api)[0] == 0 and len(api.uploads) == 2
        sent = [one["pipeline_version_reference"]["pipeline_version_id"] for one in api.runs]
    assert sent == ["v1", "v1", "v1", "v2", "v2", "v2"]
    assert api.descriptions["v1"].startswith("fm on the log demo; file ") and len(set(api.descriptions.values())) == 2


@pytest.mark.parametrize("retried", [True, False])
def test_a_step_that_fails_is_exit_code_3_and_its_log_is_shown_once(package, retried):
    failed = BROKEN | {"trainer-baseline": Ran(start=90, seconds=100)}
    log = "\n".join([*(f"line {number}" for number in range(60)), "ctrpipe: the disk is full; make room"])
    node = executor("trainer") if retried else argo_id(".root.trainer.executor")
    with running_api(states=[("FAILED", tasks(failed, retried))], logs={pod(node): log}) as api:
        code, output = run(package, api)
    assert code == 3 and "Run r1: failed" in output, output
    assert [line for line in lines(output) if "log" not in line] == [
        "Prepare: succeeded in 60 s",
        "LogExampleGen: succeeded, from cache",
        "Trainer: failed after 30 s",
        "Trainer.baseline: succeeded in 100 s",
        "not run: Report, Verdict",
    ]
    assert output.count("Trainer, the end of its log:") == 1 == output.count("the disk is full")
    assert re.findall(r"^line (\d+)$", output, re.M) == [str(number) for number in range(21, 60)]
    assert f"all of its log: curl -s {api.url}/apis/v1alpha1/runs/r1/nodes/{pod(node)}/log" in output
    assert len(output.splitlines()) < 60 and "kubeflow.resources" not in output


@pytest.mark.parametrize("name", ["pod", "node"])
def test_a_log_is_found_by_the_pods_name_or_in_the_archive_by_the_nodes(package, name):
    node = executor("trainer")
    with running_api(states=[("FAILED", STOPPED)], logs={pod(node) if name == "pod" else node: "the last line"}) as api:
        output = run(package, api)[1]
    assert output.count("the last line") == 1


def test_the_command_for_a_log_gives_it_and_has_no_token(package, tmp_path):
    (tmp_path / "token").write_text("se cret")
    logs = {pod(executor("trainer")): "first\nlast"}
    for options, environment in ((["--token", "se cret"], {"KFP_TOKEN": "se cret"}), (["--token-file", "token"], {})):
        with running_api(states=[("FAILED", STOPPED)], logs=logs, token="se cret") as api:
            output = run(package, api, *[str(tmp_path / word) if word == "token" else word for word in options])[1]
            command = re.search(r"all of its log: (.*)", output)[1]
            assert "se cret" not in command and "curl" in shlex.split(command)
            if shutil.which("curl"):
                ran = subprocess.run(command, shell=True, text=True, capture_output=True, env=os.environ | environment)
                assert ran.stdout == "first\nlast", ran


def test_of_a_log_that_cannot_be_read_is_said_where_it_may_be(package):
    """Where logs are not archived, Kubeflow has one as long as there is the pod. Its errors have the status 200."""
    with running_api(states=[("FAILED", STOPPED)]) as api:
        code, output = run(package, api)
    assert code == 3 and "memory" not in output and "error_message" not in output
    assert (
        "Trainer: Kubeflow gives no log of it, neither its pod's nor an archived one; kubectl -n kubeflow logs "
        in output
    )
    assert f" logs {pod(executor('trainer'))} -c main" in output
    noted = manifest({"(0).root(0).trainer(0).executor(0)": "kfp-launcher: Error (exit code 127)"})
    with running_api(states=[("FAILED", STOPPED)], manifest=noted) as api:
        output = run(package, api)[1]
    assert f" logs {pod(executor('trainer'))} -c kfp-launcher\n" in output and "(exit code 127)" in output, output
    noted = manifest({"(0).root(0).trainer(0).executor(0)": 'pods "demo" is forbidden: exceeded quota: small'})
    with running_api(states=[("FAILED", STOPPED)], manifest=noted) as api:
        output = run(package, api)[1]
    assert "Trainer: pods" in output and "gives no log" not in output, output


@pytest.mark.parametrize(
    ("log", "message", "advice"),
    [
        ("Trainer: epoch 1", "OOMKilled (exit code 137)", "raise kubeflow.resources.Trainer.memory, and compile again"),
        (
            "epoch 1\nfailed to execute component: signal: killed",
            "Error (exit code 1)",
            "raise kubeflow.resources.Trainer",
        ),
        (
            "epoch 1",
            "The node was low on resource: memory. Threshold quantity: 100Mi",
            "submit again: what has succeeded",
        ),
        ("epoch 1", "ImagePullBackOff: Back-off pulling image", "check kubeflow.image"),
        ("epoch 1", "PodInitializing", "kubectl describe pod says which volume"),
        (
            "epoch 1",
            "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No "
            "preemption victims found for incoming pod",
            "lower kubeflow.resources.Trainer, correct its node_selector or tolerations, or",
        ),
        (
            "epoch 1",
            'Unschedulable: 0/3 nodes are available: persistentvolumeclaim "ctr-data" not found. preemption: 0/3 nodes '
            "are available: 3 Preemption is not helpful for scheduling",
            "the claims of kubeflow.volumes must be in the run's namespace",
        ),
        (
            "epoch 1",
            "Pod was active on the node longer than the specified deadline",
            "raise kubeflow.resources.Trainer.timeout",
        ),
        (
            "epoch 1",
            'CreateContainerConfigError: secret "store" not found',
            "the secrets of kubeflow.secrets must be in the run's namespace",
        ),
        (
            "epoch 1",
            'pods "demo-x7k2p-1" is forbidden: error looking up service account kubeflow/absent: serviceaccount '
            '"absent" not found',
            "create it in the run's namespace, as kubectl apply -k kubeflow/base does",
        ),
        ("", "Error (exit code 137)", None),
        ("Trainer: epoch 1\nTrainer: epoch 2", "", None),
        (
            "Traceback (most recent call last):\n  somewhere\nValueError: no\nexit status 1",
            "main: Error (exit code 1)",
            None,
        ),
    ],
)
def test_advice_is_given_where_the_reason_was_read(package, log, message, advice):
    logs = {pod(executor("trainer")): log}
    noted = manifest({"(0).root(0).trainer(0).executor(0)": message})
    with running_api(states=[("FAILED", STOPPED)], logs=logs, manifest=noted) as api:
        code, output = run(package, api)
    assert code == 3 and (message in output or message.startswith(("Error", "main:"))), output
    words = ("kubeflow.", "submit again", "describe pod", "--service-account")
    said = [line for line in lines(output) if any(word in line for word in words)]
    assert len(said) == (advice is not None) and (not advice or advice in said[0]), output


def in_group(group, step, attempt=0):
    """The id of the node of the container of a group's step."""
    return argo_id(f"(0).root(0).{group}(0).{step}(0).executor({attempt})")


def test_steps_in_groups_are_told_as_without_groups(groups, monkeypatch):
    monkeypatch.setattr(submit, "SILENCE_SECONDS", 0.0)
    retried = TRAINED | {"trainer": Ran("RUNNING", 90, 0, ("ERROR", "RUNNING")), "report": None, "verdict": None}
    done = JUDGED | {"trainer": Ran("SUCCEEDED", 90, 200, ("ERROR", "SUCCEEDED"))}
    done["verdict"] = Ran(start=400, seconds=49)
    states = [("RUNNING", tasks(grouped(retried))), ("SUCCEEDED", tasks(grouped(done)))]
    with running_api(states=states) as api:
        code, output = run(groups, api)
    assert code == 0, output
    assert lines(output) == [
        "Prepare: succeeded in 60 s",
        "LogExampleGen: succeeded, from cache",
        "Trainer.baseline: succeeded in 100 s",
        "under way: Trainer",
        "Trainer: succeeded in 200 s, attempt 2",
        "Report: succeeded in 90 s",
        "Verdict: succeeded in 49 s",
    ]


@pytest.mark.parametrize("retried", [True, False])
def test_of_a_step_in_a_group_that_fails_the_log_and_the_reason_are_told_once(groups, retried):
    failed = tasks(grouped(BROKEN | {"trainer-baseline": Ran(start=90, seconds=100)}), retried)
    name = "(0).root(0).models(0).trainer(0).executor(0)" if retried else ".root.models.trainer.executor"
    logs = {pod(argo_id(name)): "epoch 1"}
    with running_api(states=[("FAILED", failed)], logs=logs, manifest=manifest({name: "OOMKilled"})) as api:
        code, output = run(groups, api)
    assert code == 3, output
    assert lines(output) == [
        "Prepare: succeeded in 60 s",
        "LogExampleGen: succeeded, from cache",
        "Trainer: failed after 30 s",
        "Trainer.baseline: succeeded in 100 s",
        "not run: Report, Verdict",
        "Trainer, the end of its log:",
        f"Trainer, all of its log: curl -s {api.url}/apis/v1alpha1/runs/r1/nodes/{pod(argo_id(name))}/log",
        "Trainer: OOMKilled; raise kubeflow.resources.Trainer.memory, and compile again",
    ]
    assert output.count("epoch 1") == 1


def test_a_verdict_in_a_group_blocks_as_without_groups(groups):
    logs = {pod(in_group("push-and-report", "verdict")): "ctrpipe: blocked by a gate, not pushed: auc 0.5"}
    with running_api(states=[("FAILED", tasks(grouped(JUDGED)))], logs=logs) as api:
        code, output = run(groups, api)
    assert code == 1 and "Run r1: blocked" in output and output.count("auc 0.5") == 1, output
    noted = manifest({}, {"verdict": "blocked by a gate"})
    with running_api(states=[("FAILED", tasks(grouped(JUDGED)))], manifest=noted) as api:
        assert run(groups, api)[0] == 1


def test_a_group_has_a_line_where_its_driver_has_failed_or_waits(groups, monkeypatch):
    steps = grouped(JUDGED) | {"models": Ran("FAILED", 90, 20, (), driver="FAILED"), "push-and-report": None}
    node = argo_id("(0).root(0).models-driver(0)")
    with running_api(states=[("FAILED", tasks(steps))], logs={node: "KFP driver: cannot connect"}) as api:
        code, output = run(groups, api)
    assert code == 3 and "Models: failed after 0 s, in its driver" in lines(output), output
    assert "not run: Trainer, Trainer.baseline, Report, Verdict" in lines(output)
    assert "Models, the end of its log:" in output and output.count("cannot connect") == 1
    monkeypatch.setattr(submit, "WAIT_SECONDS", 0.0)
    waits = grouped(PREPARED | dict.fromkeys(("trainer", "trainer-baseline", "report", "verdict")))
    waits["models"] = Ran("RUNNING", 90, 20, (), driver="PENDING")
    noted = manifest({"(0).root(0).models-driver(0)": "Unschedulable: 0/3 nodes are available"})
    with running_api(states=[("RUNNING", tasks(waits)), ("SUCCEEDED", DONE)], manifest=noted) as api:
        output = run(groups, api)[1]
    assert "Models: waits; Unschedulable: 0/3 nodes are available" in lines(output), output


def test_a_loop_is_one_step_with_the_number_of_its_trainings_that_are_done(sweep, monkeypatch):
    monkeypatch.setattr(submit, "SILENCE_SECONDS", 0.0)
    done = loop(["SUCCEEDED"] * 3, "SUCCEEDED") + tasks({"summarisesweep": Ran(start=300, seconds=20)})
    states = [("RUNNING", loop(["SUCCEEDED", "RUNNING"])), ("SUCCEEDED", done)]
    with running_api(states=states) as api:
        code, output = run(sweep, api)
    assert code == 0, output
    assert lines(output) == [
        "PlanSweep: succeeded in 60 s",
        "under way: Trainings, 1 done",
        "Trainings: succeeded in 200 s",
        "SummariseSweep: succeeded in 20 s",
    ]


def test_of_a_loop_whose_training_fails_that_trainings_log_is_shown_with_its_steps_name_as_advice(sweep):
    node = "(0).root(0).for-loop-1(0).iteration-iterations(1:1)(0).iteration-item(0).trainpoint(0).executor(0)"
    noted = manifest({node: "OOMKilled (exit code 137)"})
    logs = {pod(argo_id(node)): "epoch 3 of the second point"}
    failed = loop(["SUCCEEDED", "FAILED"], "FAILED")
    with running_api(states=[("FAILED", failed)], logs=logs, manifest=noted) as api:
        code, output = run(sweep, api)
    assert code == 3 and output.count("epoch 3 of the second point") == 1, output
    assert "Trainings, the end of its log:" in output and "not run: SummariseSweep" in output
    assert "OOMKilled (exit code 137); raise kubeflow.resources.TrainPoint.memory" in output


def test_a_step_that_was_retried_says_so_and_shows_its_last_attempts_log(package):
    steps = TRAINED | {"trainer": Ran("FAILED", 90, 70, ("ERROR", "FAILED"))}
    logs = {pod(executor("trainer", attempt)): f"attempt number {attempt}" for attempt in range(2)}
    with running_api(states=[("FAILED", tasks(steps))], logs=logs) as api:
        output = run(package, api)[1]
    assert "Trainer: failed after 70 s, attempt 2" in lines(output)
    assert "attempt number 1" in output and "attempt number 0" not in output


def test_a_run_that_is_terminated_has_no_failed_steps(package):
    under_way = tasks(PREPARED | {"trainer": Ran("RUNNING", 90, 0, ("RUNNING",))})
    # Argo fails what it stops, drivers too, and Kubeflow the run.
    stopped = tasks(PREPARED | {"trainer": Ran("FAILED", 90, 48, driver="FAILED"), "report": None, "verdict": None})
    with running_api(states=[("RUNNING", under_way), ("CANCELING", stopped), ("FAILED", stopped)]) as api:
        code, output = run(package, api)
    assert code == 3 and "Run r1: canceled" in output, output
    assert lines(output) == [
        "Prepare: succeeded in 60 s",
        "LogExampleGen: succeeded, from cache",
        "terminated in Kubeflow, before the end of Trainer, Trainer.baseline, Report, Verdict",
    ]


def test_a_driver_that_fails_is_no_advice_about_the_steps_memory(package):
    steps = TRAINED | {"trainer": Ran("FAILED", 90, 20, (), driver="FAILED")}
    node = argo_id("(0).root(0).trainer-driver(0)")
    noted = manifest({"(0).root(0).trainer-driver(0)": "OOMKilled (exit code 137)"})
    with running_api(
        states=[("FAILED", tasks(steps))], logs={node: "KFP driver: cannot connect"}, manifest=noted
    ) as api:
        code, output = run(package, api)
    assert code == 3 and "Trainer: failed after 0 s, in its driver" in lines(output)
    assert "KFP driver: cannot connect" in output and "OOMKilled" in output and "kubeflow.resources" not in output


def test_where_argo_has_compressed_the_nodes_they_are_read_in_place_of_the_tasks(package, monkeypatch):
    """Kubeflow 2.17 sets the state of such a run alone, and its tasks stay what they were."""
    logs = {pod(executor("verdict")): "ctrpipe: blocked by a gate"}
    stale = tasks(JUDGED | {"report": Ran("RUNNING", 300, 0, ("PENDING",)), "verdict": None})
    with running_api(states=[("FAILED", stale)], logs=logs, manifest=compressed(tasks(JUDGED))) as api:
        code, output = run(package, api)
    assert code == 1 and "Verdict: failed after 49 s" in lines(output), output
    assert "Report: succeeded in 90 s" in lines(output) and "blocked by a gate" in output
    with running_api(states=[("SUCCEEDED", stale)], manifest=compressed(DONE)) as api:
        code, output = run(package, api)
    assert code == 0 and "Verdict: succeeded in 49 s" in lines(output), output
    # While the run is under way, a stale task is not one that never starts.
    monkeypatch.setattr(submit, "WAIT_SECONDS", 0.0)
    under_way = compressed(tasks(JUDGED | {"verdict": Ran("RUNNING", 400, 0, ("RUNNING",))}))
    states = [("RUNNING", stale), ("RUNNING", stale), ("SUCCEEDED", stale)]
    with running_api(states=states, manifest=[under_way, under_way, compressed(DONE)]) as api:
        code, output = run(package, api, "--start-timeout", 0)
    assert code == 0 and "Report: succeeded in 90 s" in lines(output) and "has not started" not in output, output


def test_the_runs_state_comes_before_that_of_its_tasks(package):
    blocked = {pod(executor("verdict")): "ctrpipe: blocked by a gate"}
    early = JUDGED | {"verdict": Ran("RUNNING", 400, 0, ("RUNNING",))}
    with running_api(states=[("FAILED", tasks(early))] * 3 + [("FAILED", tasks(JUDGED))], logs=blocked) as api:
        code, output = run(package, api)
    assert code == 1 and "Verdict: failed after 49 s" in lines(output), output
    with running_api(states=[("FAILED", tasks(BROKEN)), ("FAILED", STOPPED)]) as api:
        code, output = run(package, api)
    assert code == 3 and "Trainer.baseline: succeeded in 100 s" in lines(output)
    with running_api(states=[("SUCCEEDED", tasks(early)), ("SUCCEEDED", DONE)]) as api:
        code, output = run(package, api)
    assert code == 0 and "Verdict: succeeded in 49 s" in lines(output)


def test_tasks_that_never_end_are_not_waited_for_without_end(package):
    with running_api(states=[("FAILED", tasks(BROKEN | {"trainer": Ran("RUNNING", 90, 0, ("RUNNING",))}))]) as api:
        code, output = run(package, api)
    assert code == 3 and "Kubeflow reports no failed step" in output and "not run: Report, Verdict" in output


@pytest.mark.parametrize(
    ("log", "message", "code"),
    [
        ("ctrpipe: blocked by a gate, not pushed: auc 0.5\nfailed to execute component: exit status 1", "", 1),
        ("ctrpipe: this image has code 1, the pipeline 2\nfailed to execute component: exit status 2", "", 3),
        ("Traceback (most recent call last):\nKeyError: 'arguments'\nexit status 1", "", 3),
        ("", "OOMKilled (exit code 137)", 3),
        ("", "ErrImagePull: not found", 3),
        ("", "", 3),
    ],
)
def test_a_verdict_that_breaks_is_no_block(package, log, message, code):
    noted = manifest({"(0).root(0).verdict(0).executor(0)": message})
    logs = {pod(executor("verdict")): log}
    with running_api(states=[("FAILED", tasks(JUDGED))], logs=logs, manifest=noted) as api:
        ended, output = run(package, api)
    assert ended == code and f"Run r1: {'blocked' if code == 1 else 'failed'}" in output


@pytest.mark.parametrize(
    ("message", "arguments", "code", "said"),
    [
        ("Error (exit code 1)", {"verdict": "blocked by a gate, not pushed: auc 0.5"}, 1, ""),
        ("Error (exit code 1)", {"verdict": ""}, 3, ""),
        ("Error (exit code 1)", {"report": "{}"}, 3, "neither a log nor Argo says whether a gate blocked the model"),
        ("OOMKilled (exit code 137)", {}, 3, "raise kubeflow.resources.Verdict.memory"),
        ("ErrImagePull: not found", {"verdict": ""}, 3, "check kubeflow.image"),
    ],
)
def test_without_a_log_a_verdict_is_a_block_if_it_was_told_to_block(package, message, arguments, code, said):
    """A launcher ends with exit code 1 whatever has failed in it."""
    noted = manifest({"(0).root(0).verdict(0).executor(0)": message}, arguments)
    with running_api(states=[("FAILED", tasks(JUDGED))], manifest=noted) as api:
        ended, output = run(package, api)
    assert ended == code and f"Run r1: {'blocked' if code == 1 else 'failed'}" in output
    assert said in output and (said.startswith("neither") or "neither a log" not in output)
    with running_api(states=[("FAILED", tasks(JUDGED))]) as api:  # no older API, and so no word of Argo's
        ended, output = run(package, api)
    assert ended == 3 and "report.html of the run does" in output


def test_a_schedule_keeps_its_parameters_and_runs_one_at_a_time(package):
    with running_api() as api:
        code, output = run(package, api, "--recurring", "0 4 * * *")
        assert code == 0 and "Schedule: s1, 0 0 4 * * * (seconds first" in output and not api.runs
        [sent] = api.schedules
    assert sent["trigger"]["cron_schedule"]["cron"] == "0 0 4 * * *" and sent["mode"] == "ENABLE"
    assert sent["display_name"] == "demo-"  # Kubeflow adds letters and a number to name a run
    assert sent["max_concurrency"] == "1" or sent["max_concurrency"] == 1
    assert sent["no_catchup"] is True and sent["runtime_config"]["parameters"]["data"] == ["/data/log.tsv"]


def test_a_second_schedule_is_refused_or_replaces_the_first(package):
    with running_api() as api:
        assert run(package, api, "--recurring", "0 4 * * *")[0] == 0
        another = {"recurring_run_id": "s9", "pipeline_version_reference": {"pipeline_id": "p9"}}
        api.schedules.insert(0, another)
        refused = run(package, api, "--recurring", "0 5 * * *")
        one_line(*refused, "demo is scheduled already: s1 (0 0 4 * * *); two schedules would both run; give --replace")
        assert len(api.schedules) == 2 and len(api.uploads) == 1
        package.write_text(package.read_text() + "# changed\n")
        code, output = run(package, api, "--recurring", "0 5 * * *", "--replace")
        assert code == 0 and "Schedule: s2, 0 0 5 * * *" in output, output
        assert [schedule["recurring_run_id"] for schedule in api.schedules] == ["s9", "s2"]
        one_line(*run(package, api, "--replace"), "--replace: there is no schedule; give --recurring CRON with it")
    with running_api(refuse={"DELETE .*/recurringruns/s1": 403}) as api:
        assert run(package, api, "--recurring", "0 4 * * *")[0] == 0
        assert run(package, api, "--recurring", "0 5 * * *", "--replace")[0] == 2
        assert [schedule["recurring_run_id"] for schedule in api.schedules] == ["s1"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("0 4 * * *", "0 0 4 * * *"),
        (" */15  * * * 1-5 ", "0 */15 * * * 1-5"),
        ("30 2 1,15 * ?", "0 30 2 1,15 * ?"),
        ("0 4 * * 7", "0 0 4 * * 0"),
        ("0 4 * JAN-MAR 5-7", "0 0 4 * JAN-MAR 5-6,0"),
        ("0 4 * * 1,7", "0 0 4 * * 1,0"),
        ("0 0 4 * * *", "0 0 4 * * *"),
        ("@daily", "@daily"),
        ("@every 6h", "@every 6h"),
    ],
)
def test_five_fields_are_crons_and_six_are_kubeflows(given, meant):
    assert read_cron(given) == meant


@pytest.mark.parametrize("given", ["", "4", "0 4 * *", "0 0 4 * * * *", "0 4 * * $", "@dayly", "every day at four !!"])
def test_what_is_no_cron_expression_is_refused_before_anything_is_sent(package, given):
    with pytest.raises(InputError, match=r"give five fields, as in cron"):
        read_cron(given)
    if given:
        with running_api() as api:
            one_line(*run(package, api, "--recurring", given), f"--recurring {given}: ")
            assert not api.uploads


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
        one_line(
            *run(package, api, "--param", "output=/data/runs/{{workflow.name}}"), "Argo would replace what follows {{"
        )
        one_line(*run(package, api, "--param", 'data=["/data/{{day}}"]'), "Argo would replace what follows {{")
        one_line(*call("submit", tmp_path / "absent", "--host", api.url), "cannot be read")
        (tmp_path / "other.yaml").write_text("name: demo")
        one_line(*call("submit", tmp_path / "other.yaml", "--host", api.url), "not a compiled pipeline")
        assert not api.uploads and not api.runs
        one_line(*call("submit", package, "--host", "localhost:1", "--param", "data=[a]"), "begins with http://")
    one_line(*run(package, api), "no answer; is this the address")


def test_a_token_that_has_expired_is_one_line(package):
    with running_api(token="fresh") as api:
        one_line(*run(package, api, "--token", "stale"), "refuses the token (HTTP 401)")
        one_line(*run(package, api), "wants a token (HTTP 401)")
        assert not api.uploads
    with running_api(refuse={"GET .*/runs/r1": 401}) as api:
        one_line(*run(package, api, "--token", "short"), "or as --token-file if it is renewed; run r1 continues")
        assert len(api.runs) == 1


def test_a_token_that_is_renewed_while_a_run_is_followed_is_read_again(package, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("first\n")
    states = [("RUNNING", []), ("RUNNING", []), ("FAILED", STOPPED)]
    with running_api(states=states, token="first", logs={pod(executor("trainer")): "the last line"}) as api:

        def renew(seconds):
            api.token = "second"
            file.write_text("second\n")

        monkeypatch.setattr(submit.time, "sleep", renew)
        code, output = run(package, api, "--token-file", file, "--token", "neither")
        assert code == 3 and "Run r1: failed" in output and "the last line" in output, output
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
        one_line(*run(package, api), "HTTP 503: /apis/v2beta1/runs/r1 is refused; run r1 continues")


@pytest.mark.parametrize("name", ["the run", "Trainer"])
def test_a_step_that_never_starts_is_one_line(package, name):
    waits = Ran("RUNNING", 90, 0, ("PENDING",))
    pending = ("PENDING", []) if name == "the run" else ("RUNNING", tasks(PREPARED | {"trainer": waits}))
    with running_api(states=[pending]) as api:
        ended = run(package, api, "--start-timeout", 0)
        one_line(*ended, f"{name} has not started within 0 s; has the cluster a node with what kubeflow.resources asks")
        assert "run r1 continues" in ended[1]
    with running_api(states=[pending, pending, ("SUCCEEDED", [])]) as api:
        assert run(package, api, "--start-timeout", 60)[0] == 0


def test_of_a_step_that_waits_for_a_minute_the_reason_is_said_once(package, monkeypatch):
    monkeypatch.setattr(submit, "WAIT_SECONDS", 0.0)
    waits = PREPARED | {"trainer": Ran("RUNNING", 90, 0, ("PENDING",))}
    waiting = ("RUNNING", tasks(waits))
    noted = manifest({"(0).root(0).trainer(0).executor(0)": "Unschedulable: 0/3 nodes are available"})
    with running_api(states=[waiting, waiting, waiting, ("SUCCEEDED", DONE)], manifest=noted) as api:
        code, output = run(package, api)
    told = "Trainer: waits; Unschedulable: 0/3 nodes are available; lower kubeflow.resources.Trainer"
    assert code == 0 and output.count(told) == 1
    with running_api(states=[waiting], manifest=noted) as api:
        ended = run(package, api, "--start-timeout", 0)
    one_line(*ended, "Trainer has not started within 0 s: Unschedulable: 0/3 nodes are available; lower kubeflow")


def test_a_step_that_waits_for_another_reason_says_that_one_too(package, monkeypatch):
    """A pod whose image cannot be pulled waits first for its containers."""
    monkeypatch.setattr(submit, "WAIT_SECONDS", 0.0)
    waiting = ("RUNNING", tasks(PREPARED | {"trainer": Ran("RUNNING", 90, 0, ("PENDING",))}))
    node = "(0).root(0).trainer(0).executor(0)"
    noted = [manifest({node: "PodInitializing"}), manifest({node: "ImagePullBackOff: Back-off pulling image"})]
    with running_api(states=[waiting] * 4 + [("SUCCEEDED", DONE)], manifest=noted) as api:
        code, output = run(package, api)
    assert code == 0, output
    assert [line for line in lines(output) if "waits" in line] == [
        "Trainer: waits; PodInitializing; kubectl describe pod says which volume it waits for, or which image of "
        "Argo's or Kubeflow's",
        "Trainer: waits; ImagePullBackOff: Back-off pulling image; check kubeflow.image, and that the cluster may pull "
        "it",
    ]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_host_with_a_certificate_of_its_own_authority_is_trusted_where_that_is_given(package, tmp_path):
    file = tmp_path / "both.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    subprocess.run([*command, "-keyout", file, "-out", tmp_path / "ca.pem"], check=True, capture_output=True)
    file.write_text(file.read_text() + (tmp_path / "ca.pem").read_text())
    logs = {pod(executor("trainer")): "the last line"}
    with running_api(states=[("FAILED", STOPPED)], logs=logs, certificate=file) as api:
        ended = run(package, api)
        one_line(*ended, "CERTIFICATE_VERIFY_FAILED")
        assert re.search(r"give the certificate of its authority as --ca-cert$", ended[1], re.M) and not api.uploads
        one_line(*run(package, api, "--ca-cert", tmp_path / "absent"), "absent: no such file")
        code, output = run(package, api, "--ca-cert", tmp_path / "ca.pem")
        assert code == 3 and "the last line" in output, output
