"""The manifests of a training on several hosts: Kubeflow Trainer's schema, and what their shell line starts."""

import copy
import json
import os
import pathlib
import subprocess

import click
import pytest
import tensorflow as tf

from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.commands.run import run
from ctrpipe.pipeline.training import follow
from tests.kubeflow.manifests import by_kind, invalid

KINDS = ["TrainJob", "TrainingRuntime"]


@pytest.fixture
def job():
    return by_kind("training", "TrainJob")


@pytest.fixture
def runtime():
    return by_kind("training", "TrainingRuntime")


def replicas(runtime):
    [found] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return found


def container(runtime):
    [found] = replicas(runtime)["template"]["spec"]["template"]["spec"]["containers"]
    return found


def known(document):
    """Whether the schema, which ignores keys that it does not have, has all of a document's."""
    from kubeflow_trainer_api import models  # not while tests are collected: it takes 0.7 s

    return getattr(models, f"TrainerV1alpha1{document['kind']}").from_dict(document).to_dict() == document


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_manifests_are_valid_in_kubeflow_trainer(kind):
    document = by_kind("training", kind)
    assert known(document)
    wrong = copy.deepcopy(document)
    wrong["spec"]["trainr"] = {}
    assert not known(wrong)


def test_the_pods_are_those_of_a_job_that_kubernetes_takes(runtime):
    template = replicas(runtime)["template"]
    pods = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "node"}, "spec": template["spec"]}
    assert not invalid(pods, versions=("1.31", "1.37"))
    pods["spec"]["succesPolicy"] = {}
    assert invalid(pods, versions=("1.31", "1.37"))
    # What Trainer looks for: the step, the names of job and container.
    assert template["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert replicas(runtime)["name"] == container(runtime)["name"] == "node"
    claim = by_kind("base", "PersistentVolumeClaim")["metadata"]["name"]
    assert template["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim


def test_the_job_names_its_runtime_and_as_many_hosts_as_there_are(job, runtime):
    reference, trainer = job["spec"]["runtimeRef"], job["spec"]["trainer"]
    assert reference == {
        "apiGroup": runtime["apiVersion"].partition("/")[0],
        "kind": runtime["kind"],
        "name": runtime["metadata"]["name"],
    }
    assert trainer["env"] == [{"name": "NODES", "value": str(trainer["numNodes"])}]


@pytest.fixture
def started(job, runtime, tmp_path):
    """What the pod with an index starts, and the cluster that TensorFlow sees there."""
    say = f'#!/bin/sh\necho "$TF_CONFIG" > {tmp_path}/tf_config\necho "${{0##*/}} $@" > {tmp_path}/command\n'
    for name in ("ctrpipe", "python"):
        (tmp_path / name).write_text(say)
        (tmp_path / name).chmod(0o755)

    def start(index, nodes):
        environment = {"JOB": job["metadata"]["name"], "NODES": str(nodes), "JOB_COMPLETION_INDEX": str(index)}
        command = [*container(runtime)["command"], *job["spec"]["trainer"]["args"]]
        subprocess.run(command, env={**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True, timeout=60)
        return (tmp_path / "command").read_text().split(), json.loads((tmp_path / "tf_config").read_text())

    return start


def test_every_pod_sees_the_same_cluster_and_itself_in_it(started, job, runtime, monkeypatch):
    name, [port] = job["metadata"]["name"], container(runtime)["ports"]
    hosts = [f"{name}-node-0-{index}.{name}:{port['containerPort']}" for index in range(12)]
    for nodes in (2, 12):
        for index in (0, nodes - 1):
            monkeypatch.setenv("TF_CONFIG", json.dumps(started(index, nodes)[1]))
            cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
            assert cluster.cluster_spec().as_dict() == {"worker": hosts[:nodes]}
            assert (cluster.task_type, cluster.task_id) == ("worker", index)


def test_the_first_pod_is_the_run_and_the_others_follow_it(started, job):
    args = job["spec"]["trainer"]["args"]
    first, _ = started(0, 2)
    assert first == ["ctrpipe", "run", *args]
    # A command keeps the names of its help option from its first context, so `run` gets them from `ctrpipe` here too.
    group = click.Context(main, **main.context_settings)
    given = run.make_context("run", list(args), group).params  # raises where the command has no such option
    assert all(str(pathlib.Path(path)).startswith("/data/") for path in (given["config"], given["output"]))
    other, _ = started(1, 2)
    assert other[:3] == ["python", "-m", follow.__name__]
    follow.main.make_context("follow", other[3:])
