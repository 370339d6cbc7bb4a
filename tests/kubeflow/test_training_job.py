"""`ctrpipe compile --hosts`: a TrainJob in Kubeflow Trainer's schema, and what its shell lines start."""

import copy
import json
import os
import pathlib
import subprocess

import click
import pytest
import tensorflow as tf
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.commands.run import run
from ctrpipe.pipeline.config import check_config, load_config
from ctrpipe.pipeline.kubeflow.train_job import compile_train_job
from ctrpipe.pipeline.training import follow
from tests.e2e.small_run import CONFIG, call, one_line
from tests.kubeflow.manifests import broken_rules, by_kind, invalid

KINDS = ["ConfigMap", "TrainingRuntime", "TrainJob"]
PLACES = {"image": "registry.example:5000/ctrpipe:1", "volumes": {"ctr-data": "/data"}}
FULL = {
    **PLACES,
    "volumes": {"ctr-data": "/data", "logs": "/logs"},
    "resources": {
        "default": {"cpu": 1},
        "Trainer": {
            "cpu": 8,
            "memory": "32Gi",
            "accelerator": "nvidia.com/gpu",
            "accelerators": 2,
            "node_selector": {"cloud.google.com/gke-nodepool": "GPU_Pool"},
            "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "a", "value": "b"}],
            "retries": 3,
            "timeout": 7200,
        },
    },
    "environment": {"TF_CPP_MIN_LOG_LEVEL": "1", "GREETING": "$(JOB) $HOME ü"},
    "secrets": {"STORE_SECRET": {"name": "store", "key": "tls.key"}},
    "image_pull_secrets": ["registry"],
    "service_account": "steps",
}


def config(name="E2E_Demo.v2", **changes):
    values = {**CONFIG, "name": name, "kubeflow": FULL, "data": {**CONFIG["data"], "paths": ["/logs/day=*/*.tsv"]}}
    return check_config(copy.deepcopy({**values, **changes}), (), "config")


def compiled(file, hosts=4, **changes):
    assert compile_train_job(config(**changes), hosts, file) == KINDS
    return {document["kind"]: document for document in yaml.safe_load_all(file.read_text())}


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("job") / "job.yaml")


def replicas(manifests):
    [found] = manifests["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"]
    return found


def pod(manifests):
    return replicas(manifests)["template"]["spec"]["template"]["spec"]


def container(manifests):
    [found] = pod(manifests)["containers"]
    return found


def known(document):
    """Whether the schema, which ignores keys that it does not have, has all of a document's."""
    from kubeflow_trainer_api import models  # not while tests are collected: it takes 0.7 s

    return getattr(models, f"TrainerV1alpha1{document['kind']}").from_dict(document).to_dict() == document


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_manifests_are_valid_in_kubeflow_trainer(kind, manifests):
    assert known(manifests[kind])
    wrong = copy.deepcopy(manifests[kind])
    wrong["spec"]["trainr"] = {}
    assert not known(wrong)


def test_the_pods_are_those_of_a_job_that_kubernetes_takes(manifests):
    template = replicas(manifests)["template"]
    pods = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "node"}, "spec": template["spec"]}
    assert not invalid(pods, versions=("1.31", "1.37")) and not invalid(manifests["ConfigMap"])
    wrong = {**pods, "spec": {**pods["spec"], "succesPolicy": {}}}
    assert invalid(wrong, versions=("1.31", "1.37"))
    assert broken_rules(pod(manifests)) == set()
    # What Trainer looks for: the step, the names of job and container.
    assert template["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert replicas(manifests)["name"] == container(manifests)["name"] == "node"


def test_the_job_names_its_runtime_and_as_many_hosts_as_there_are(manifests):
    runtime, trainer = manifests["TrainingRuntime"], manifests["TrainJob"]["spec"]["trainer"]
    assert manifests["TrainJob"]["spec"]["runtimeRef"] == {
        "apiGroup": runtime["apiVersion"].partition("/")[0],
        "kind": runtime["kind"],
        "name": runtime["metadata"]["name"],
    }
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 4} and trainer["numNodes"] == 4
    assert trainer["env"] == [{"name": "NODES", "value": "4"}]
    assert {document["metadata"]["name"] for document in manifests.values()} == {"e2e-demo-v2"}


def test_the_settings_of_the_cluster_are_those_of_the_step_trainer(manifests):
    amounts = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2"}
    assert manifests["TrainJob"]["spec"]["trainer"]["resourcesPerNode"] == {"requests": amounts, "limits": amounts}
    found = pod(manifests)
    assert found["nodeSelector"] == {"cloud.google.com/gke-nodepool": "GPU_Pool"}
    assert found["tolerations"] == [
        {"operator": "Exists", "key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"operator": "Equal", "key": "a", "value": "b"},
    ]
    assert found["imagePullSecrets"] == [{"name": "registry"}] and found["serviceAccountName"] == "steps"
    environment = {entry["name"]: entry for entry in container(manifests)["env"]}
    assert environment["GREETING"]["value"] == "$$(JOB) $HOME ü"  # Kubernetes makes $( of it again
    assert environment["STORE_SECRET"]["valueFrom"] == {"secretKeyRef": {"name": "store", "key": "tls.key"}}
    volumes = [volume for volume in found["volumes"] if "persistentVolumeClaim" in volume]
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in volumes}
    mounts = {m["mountPath"]: claims.get(m["name"]) for m in container(manifests)["volumeMounts"]}
    assert mounts == {"/data": "ctr-data", "/logs": "logs", "/etc/ctrpipe": None, "/tmp": None}
    template = manifests["TrainingRuntime"]["spec"]["template"]["spec"]
    assert template["failurePolicy"]["maxRestarts"] == 3
    assert replicas(manifests)["template"]["spec"]["activeDeadlineSeconds"] == 7200


def test_without_resources_the_cluster_decides(tmp_path):
    found = compiled(tmp_path / "job.yaml", 2, kubeflow=PLACES, data={**CONFIG["data"], "paths": ["/data/log.tsv"]})
    assert "resourcesPerNode" not in found["TrainJob"]["spec"]["trainer"]
    assert not {"nodeSelector", "tolerations", "serviceAccountName", "imagePullSecrets"} & set(pod(found))
    assert found["TrainingRuntime"]["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 0
    assert broken_rules(pod(found)) == set()
    claim = by_kind("base", "PersistentVolumeClaim")["metadata"]["name"]
    assert pod(found)["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim


def test_a_blocked_model_is_not_trained_again(manifests):
    """What Job and JobSet do: https://kubernetes.io/docs/tasks/job/pod-failure-policy/."""
    [rule] = replicas(manifests)["template"]["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and rule["onExitCodes"]["values"] == [1]
    assert rule["onExitCodes"]["containerName"] == container(manifests)["name"]
    [final] = manifests["TrainingRuntime"]["spec"]["template"]["spec"]["failurePolicy"]["rules"]
    assert (final["action"], final["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])


def test_the_hosts_read_the_configuration_that_was_compiled(manifests, tmp_path):
    [(name, text)] = manifests["ConfigMap"]["data"].items()
    [config_file, output] = manifests["TrainJob"]["spec"]["trainer"]["args"]
    assert config_file == f"/etc/ctrpipe/{name}" and output == "--output=/data/runs/E2E_Demo.v2"
    (tmp_path / name).write_text(text)
    read, given = load_config(tmp_path / name, ()), config()
    assert read == given.model_copy(update={"kubeflow": read.kubeflow})
    [volume] = [volume for volume in pod(manifests)["volumes"] if "configMap" in volume]
    assert volume["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]


@pytest.fixture
def started(manifests, tmp_path):
    """What the pod with an index starts, the cluster that TensorFlow sees there, and the pod's exit code."""

    def start(index, nodes, code=0):
        say = f'#!/bin/sh\necho "$TF_CONFIG" > {tmp_path}/tf_config\necho "${{0##*/}} $@" > {tmp_path}/command\n'
        say += f"exit {code}\n"
        for name in ("ctrpipe", "python"):
            (tmp_path / name).write_text(say)
            (tmp_path / name).chmod(0o755)
        environment = {"JOB": manifests["TrainJob"]["metadata"]["name"], "NODES": str(nodes), "BACKEND": "tensorflow"}
        environment |= {"JOB_COMPLETION_INDEX": str(index), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = [*container(manifests)["command"], *manifests["TrainJob"]["spec"]["trainer"]["args"]]
        ended = subprocess.run(command, env=environment, timeout=60)
        told = (tmp_path / "command").read_text().split()
        return told, json.loads((tmp_path / "tf_config").read_text()), ended.returncode

    return start


def test_every_pod_sees_the_same_cluster_and_itself_in_it(started, manifests, monkeypatch):
    name, [port] = manifests["TrainJob"]["metadata"]["name"], container(manifests)["ports"]
    hosts = [f"{name}-node-0-{index}.{name}:{port['containerPort']}" for index in range(12)]
    for nodes in (2, 12):
        for index in (0, nodes - 1):
            monkeypatch.setenv("TF_CONFIG", json.dumps(started(index, nodes)[1]))
            cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            assert cluster.cluster_spec().as_dict() == {"worker": hosts[:nodes]}
            assert (cluster.task_type, cluster.task_id) == ("worker", index)


def test_the_first_pod_is_the_run_and_the_others_follow_it(started, manifests):
    args = manifests["TrainJob"]["spec"]["trainer"]["args"]
    first, _, code = started(0, 2, code=1)
    assert first == ["ctrpipe", "run", *args] and code == 1
    # A command keeps the names of its help option from its first context, so `run` gets them from `ctrpipe` here too.
    group = click.Context(main, **main.context_settings)
    given = run.make_context("run", list(args), group).params  # raises where the command has no such option
    assert pathlib.Path(given["output"]) == pathlib.Path("/data/runs/E2E_Demo.v2")
    other, _, code = started(1, 2)
    assert other[:3] == ["python", "-m", follow.__name__] and code == 0
    assert follow.main.make_context("follow", other[3:]).params["backend"] == "tensorflow"
    # A host that is lost is no blocked model, whatever its exit code says.
    assert started(1, 2, code=1)[2] == 3


def test_the_others_are_told_the_backend_of_the_run(tmp_path):
    for backend, told in (("jax", "jax"), ("auto", "tensorflow"), ("tensorflow", "tensorflow")):
        found = compiled(tmp_path / "job.yaml", training={"backend": backend})
        assert {"name": "BACKEND", "value": told} in container(found)["env"]


def test_names_that_are_none_of_kubernetes_become_some(tmp_path):
    def name(given):
        return compiled(tmp_path / "job.yaml", name=given)["TrainJob"]["metadata"]["name"]

    assert [name(given) for given in ("Ctr_Demo", "a..b", "2026", "x-")] == ["ctr-demo", "a-b", "ctr-2026", "x"]
    longest = name("n" * 40)
    assert len(f"{longest}-node-0-1000-abcde") <= 63  # of a pod, and of the label that names it
    with pytest.raises(InputError, match="name: .* has 60 characters, and pods are called after it; give at most 4"):
        name("n" * 60)


@pytest.mark.slow
def test_the_command_writes_the_manifests_or_one_line(tmp_path):
    file, output = tmp_path / "config.yaml", tmp_path / "job.yaml"

    def compile_with(*options, hosts=2, **changes):
        values = {**CONFIG, "kubeflow": PLACES, "data": {**CONFIG["data"], "paths": ["/data/log.tsv"]}, **changes}
        file.write_text(yaml.safe_dump(values))
        return call("compile", file, "--output", output, "--hosts", hosts, *options)

    one_line(*compile_with(data=CONFIG["data"]), "data.paths: a TrainJob has no parameters; name the log")
    one_line(*compile_with("--set", "data.paths=[log.tsv]"), "data.paths: log.tsv is not visible to the steps")
    one_line(*compile_with("--set", "training.distribution=one_device"), "training.distribution: one_device takes one")
    stored = {"kubeflow": {"image": "i", "output": "s3://b/a"}, "data": {**CONFIG["data"], "paths": ["s3://b/log.tsv"]}}
    one_line(*compile_with(**stored), "kubeflow.output: s3://b/a: the hosts share the run's folder")
    one_line(*compile_with(hosts=5000), "--hosts 5000: more than 1000")
    one_line(*compile_with("--format", "json"), "--format json: a TrainJob is for a cluster of your own")
    one_line(*compile_with("--tune", 3), "give only one of --sweep, --tune and --hosts")
    one_line(*compile_with("--parallel", 3), "--parallel: only with --sweep or --tune")
    assert compile_with(hosts=1)[0] == 2 and not output.exists()
    code, said = compile_with("--set", "training.distribution=multi_worker")
    assert code == 0 and "Manifests: ConfigMap, TrainingRuntime, TrainJob" in said, said
    assert [one["kind"] for one in yaml.safe_load_all(output.read_text())] == KINDS
