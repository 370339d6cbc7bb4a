"""Several worker processes train one model, as on several hosts: a chief and its followers, described by TF_CONFIG."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.saved import save_model
from ctrpipe.pipeline.config import Model, Training, WarmStart
from ctrpipe.pipeline.training import follow, member
from ctrpipe.pipeline.training.checkpoint import REFIT, STATE
from ctrpipe.pipeline.training.cluster import Cluster, read_cluster
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.process import ENDED, JOINED, LOST, TrainingProcess
from ctrpipe.pipeline.training.stages import train_here
from ctrpipe.pipeline.training.tensorflow_learner import TensorFlowLearner
from ctrpipe.pipeline.training.train import train
from ctrpipe.pipeline.training.warm_start import Start
from ctrpipe.transforms.features.table_rows import NONE, SourceRows
from tests.pipeline.test_training import MAP, MODEL, SETTINGS, write
from tests.warm_python import python

# 1,500 rows: the last batch has 28. Penalties are means over rows too.
SMALL = MODEL.model_copy(update={"dropout": 0.0, "embedding_l2": 0.01})
CLIPPED = {**SETTINGS, "epochs": 2, "gradient_clip_norm": 0.1}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return [write(folder / "train", 1500, 1)], [write(folder / "validation", 600, 2)]


def free_addresses(count: int) -> list[str]:
    """Returns addresses with free ports. The system assigns none of them to another test's connection meanwhile."""
    found: list[str] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with contextlib.suppress(OSError), socket.socket() as each:
            each.bind(("127.0.0.1", port))
            found.append(f"127.0.0.1:{port}")
    return found


def config_of(addresses: list[str], index: int) -> str:
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


@contextlib.contextmanager
def follower(addresses: list[str], backend: str = "tensorflow") -> Iterator[subprocess.Popen]:
    """Runs worker 1 until the block ends."""
    command = [*python("tensorflow"), "-m", "ctrpipe.pipeline.training.follow", "--trainings", "1", "--wait", "120"]
    command += ["--backend", backend]
    root = str(pathlib.Path(__file__).parents[2])
    environment = {**os.environ, "TF_CONFIG": config_of(addresses, 1), "PYTHONPATH": root}
    with subprocess.Popen(command, env=environment, cwd=root, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def one_process(files, work, model=SMALL, **changes):
    training = Training(**{**CLIPPED, **changes, "distribution": "one_device"})
    return train(TrainingJob(model, training, MAP, *files, 1), work)


KILLED_WORKER_TEST = (
    "tests/pipeline/test_workers.py::test_training_ends_when_a_worker_is_killed_and_resumes_with_a_new_one"
)


@pytest.mark.large(like=KILLED_WORKER_TEST)
@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"backend": "tensorflow"},
        {"backend": "jax", "optimizer": "lazy_adam", "distribution": "multi_worker", "refit": True},
    ],
    ids=["tensorflow", "jax, rows, refit"],
)
def test_two_workers_train_the_model_of_one_process(changes, files, tmp_path, monkeypatch):
    """Batch normalisation takes its statistics over the rows of both."""
    model = Model(**{**SMALL.model_dump(), "normalization": "batch"})
    addresses = free_addresses(2)
    monkeypatch.setenv("TF_CONFIG", config_of(addresses, 0))
    said: list[dict] = []
    with follower(addresses, changes["backend"]) as other:
        job = TrainingJob(model, Training(**{**CLIPPED, **changes}), MAP, *files, 1)
        together = train(job, tmp_path / "two", said.append)
        said_there = other.communicate(timeout=60)[1]
        assert other.returncode == 0, said_there
        assert "trained mlp with" in said_there
    alone = one_process(files, tmp_path / "one", model, **changes)
    assert len(said) == 4
    for key in ("train_loss", "validation_log_loss"):
        np.testing.assert_allclose(
            [row[key] for row in together.progress.evaluations],
            [row[key] for row in alone.progress.evaluations],
            atol=1e-5,
        )
    for found, expected in zip(together.learner.weights(), alone.learner.weights(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_a_follower_leaves_the_state_that_its_chief_still_writes_alone(files, tmp_path, monkeypatch):
    """On one machine, or on a shared file system, the follower sees the chief's folder."""
    monkeypatch.setattr(TensorFlowLearner, "is_chief", False)
    (tmp_path / REFIT).mkdir()
    (tmp_path / REFIT / STATE).touch()
    settings = {**CLIPPED, "epochs": 1, "refit": True, "distribution": "one_device", "backend": "tensorflow"}
    training = Training(**settings)
    assert train_here(TrainingJob(SMALL, training, MAP, *files, 1), tmp_path, None).state is None


@pytest.mark.large(like=KILLED_WORKER_TEST)
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_two_workers_warm_start_like_one_process(backend, files, tmp_path, monkeypatch):
    """Only the chief reads the parent. The other worker receives weights and moments from the chief.

    Half of the negatives are sampled, so both sides shift their logits.
    """
    half = dataclasses.replace(MAP, negative_sampling=0.5)
    changes = {"backend": backend, "optimizer": "lazy_adam", "epochs": 1, "warm_start": WarmStart()}
    before = one_process(files, tmp_path / "before", **{**changes, "epochs": 2, "warm_start": None})
    save_model(tmp_path / "kept", SMALL.name, before.model, state=before.state)
    rows = np.arange(MAP.total_ids)
    rows[5] = NONE  # a new value
    start = Start("before", tmp_path / "kept", {"ids": SourceRows(rows, np.where(rows > 9, 11, 1))}, same_columns=True)
    addresses = free_addresses(2)
    monkeypatch.setenv("TF_CONFIG", config_of(addresses, 0))
    with follower(addresses, backend):
        job = TrainingJob(SMALL, Training(**{**CLIPPED, **changes}), half, *files, 1)
        together = train(job, tmp_path / "two", start=start)
    alone = train(job.with_training(distribution="one_device"), tmp_path / "one", start=start)
    assert together.taken == alone.taken and together.taken["optimizer"] and not together.taken["left"]
    first = together.progress.evaluations[0]["train_loss"]
    assert first < 0.9 * before.progress.evaluations[0]["train_loss"]  # it did not begin with random weights
    for found, expected in zip(together.learner.weights(), alone.learner.weights(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_training_ends_when_a_worker_is_killed_and_resumes_with_a_new_one(backend, files, tmp_path, monkeypatch):
    """With averaged weights, every worker must load the average and continue from its own weights."""
    addresses = free_addresses(2)
    monkeypatch.setenv("TF_CONFIG", config_of(addresses, 0))
    changes = {"backend": backend, "optimizer": "lazy_adam", "averaged_evaluations": 3}
    training = Training(**CLIPPED, **changes)
    steps: list[int] = []

    def kill_after_the_second(numbers):
        steps.append(numbers["step"])
        if len(steps) == 2:
            other.send_signal(signal.SIGKILL)

    with follower(addresses, backend) as other:
        with pytest.raises(InputError, match="2 workers: a worker was lost; start all of them again") as lost:
            train(TrainingJob(SMALL, training, MAP, *files, 1), tmp_path / "two", kill_after_the_second)
    assert "\n" not in str(lost.value)
    again: list[int] = []
    addresses = free_addresses(2)  # the killed worker's connections may still hold the others
    monkeypatch.setenv("TF_CONFIG", config_of(addresses, 0))
    with follower(addresses, backend) as other:
        job = TrainingJob(SMALL, training, MAP, *files, 1)
        resumed = train(job, tmp_path / "two", lambda numbers: again.append(numbers["step"]))
        said_there = other.communicate(timeout=60)[1]
        assert other.returncode == 0 and "trained mlp with" in said_there, said_there
    assert again and again[0] > steps[1]  # nothing was trained twice
    alone = one_process(files, tmp_path / "one", **changes)
    assert len(resumed.progress.evaluations) == 4
    for key in ("train_loss", "validation_log_loss"):
        np.testing.assert_allclose(
            [row[key] for row in resumed.progress.evaluations],
            [row[key] for row in alone.progress.evaluations],
            atol=1e-5,
        )
    for found, expected in zip(resumed.learner.weights(), alone.learner.weights(), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("done", [True, False])
def test_a_process_that_aborts_has_succeeded_if_its_training_had_ended(done, tmp_path, monkeypatch):
    """A script replaces the training process, which the coordination service may abort before or after its end."""
    lines = [json.dumps({JOINED: "mlp"}), *([json.dumps({ENDED: True})] if done else [])]
    source = f"import os\nprint({chr(10).join(lines)!r}, flush=True)\nos.abort()\n"
    (tmp_path / "aborted.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))  # the process imports from where this one does
    process = TrainingProcess(["aborted"], "tensorflow")
    said: list[dict] = []
    process.follow(said.append)
    assert (process.joined, process.code, said) == ("mlp", 0 if done else -signal.SIGABRT, [])


def test_a_member_reports_the_end_of_training_before_it_leaves_the_cluster(monkeypatch, capsys):
    def part():
        said.extend(capsys.readouterr().out.splitlines())
        raise RuntimeError("the others are gone")

    def leave(code):
        raise SystemExit(code)

    said: list[str] = []
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(member, "_of_jax", lambda: (lambda: None, part, lambda error: True))
    monkeypatch.setattr(member, "exit_with_parent", lambda: None)
    monkeypatch.setattr(member.os, "_exit", leave)
    monkeypatch.setattr(
        "ctrpipe.pipeline.training.handover.run_shared_job", lambda folder, chief, joined, write: joined("mlp")
    )
    with pytest.raises(SystemExit) as left:
        member.main(None)
    assert left.value.code == LOST
    assert [json.loads(line) for line in said] == [{JOINED: "mlp"}, {ENDED: True}]


def test_a_worker_that_does_not_join_is_named_by_its_address(files, tmp_path, monkeypatch):
    addresses = free_addresses(2)
    monkeypatch.setenv("TF_CONFIG", config_of(addresses, 0))
    training = Training(**SETTINGS, worker_timeout_seconds=0.5)
    with pytest.raises(InputError, match=rf"TF_CONFIG: {addresses[1]} did not join the training within 0.5 seconds"):
        train(TrainingJob(MODEL, training, MAP, *files, 1), tmp_path)


def test_a_chief_that_begins_no_training_is_named_by_its_address(monkeypatch):
    addresses = free_addresses(2)
    monkeypatch.setenv("TF_CONFIG", config_of(addresses, 1))
    result = CliRunner().invoke(follow.main, ["--wait", "0.5"])
    assert result.exit_code == 2
    assert result.output == f"ctrpipe: TF_CONFIG: the chief, {addresses[0]}, began no training within 0.5 seconds\n"


def test_only_the_chief_runs_a_training_and_only_the_others_follow(files, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config_of(["a:1", "b:2"], 1))
    with pytest.raises(
        InputError,
        match="this is b:2, and a:1 is the chief.*python -m ctrpipe.pipeline.training.follow --backend tensorflow here",
    ):
        train(TrainingJob(MODEL, Training(**SETTINGS), MAP, *files, 1), tmp_path)
    assert not list(tmp_path.iterdir())  # the chief's files are untouched
    monkeypatch.setenv("TF_CONFIG", config_of(["a:1", "b:2"], 0))
    result = CliRunner().invoke(follow.main, [])
    assert result.exit_code == 2 and "a:1 is the chief" in result.output
    monkeypatch.delenv("TF_CONFIG")
    result = CliRunner().invoke(follow.main, [])
    assert result.exit_code == 2 and "names no other worker" in result.output
    with pytest.raises(InputError, match="multi_worker needs a TF_CONFIG"):
        train(TrainingJob(MODEL, Training(**SETTINGS, distribution="multi_worker"), MAP, *files, 1), tmp_path)


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("training.shard_tables", {"shard_tables": True}),
        ("training.stages.masked_language_model", {"stages": {"masked_language_model": {}}}),
        ("model.name cascading_nn_gbdt", {"model": Model(name="cascading_nn_gbdt")}),
    ],
)
def test_settings_that_jax_supports_on_one_host_only_are_refused(key, changes, files, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config_of(["a:1", "b:2"], 0))
    changes = dict(changes)
    model = changes.pop("model", MODEL)
    training = Training(**{**SETTINGS, "backend": "jax", **changes})
    with pytest.raises(
        InputError, match=f"^{re.escape(key)}: JAX supports it on one host only; set training.distribution"
    ):
        train(TrainingJob(model, training, MAP, *files, 1), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_chief_with_its_own_role_comes_before_the_workers(monkeypatch):
    cluster = {"worker": ["a:1", "b:2"], "chief": ["c:3"]}
    for role, index, place in (("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}))
        assert read_cluster() == Cluster(("c:3", "a:1", "b:2"), place)


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'])
def test_one_worker_is_no_cluster(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    assert read_cluster() is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cluster": ["a:1", "b:2"]}',
        '{"cluster": {"worker": ["a:1", "b:2"]}}',
        config_of(["a:1", "b:2"], 2),
        config_of(["a:1", "b:2"], -1),
        config_of(["a:1", "a:1"], 0),
        config_of(["a:1", "b"], 0),
        '{"cluster": {"worker": ["a:1"], "ps": ["b:2"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_a_wrong_tf_config_is_one_line(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InputError, match=f"TF_CONFIG: .*Received: {re.escape(text)}$"):
        read_cluster()
