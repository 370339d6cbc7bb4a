"""The training loop on small transformed files."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator

from ctrpipe.common.arrays import read_arrays
from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import MISTAKE
from ctrpipe.common.processes import start_command
from ctrpipe.models import FeatureMap
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training import handover, process
from ctrpipe.pipeline.training import worker as training_worker
from ctrpipe.pipeline.training.checkpoint import saved_seconds
from ctrpipe.pipeline.training.convergence import has_converged
from ctrpipe.pipeline.training.data import packed_reader
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.network import warmup_factor
from ctrpipe.pipeline.training.process import TrainingProcess
from ctrpipe.pipeline.training.tensorflow_learner import make_strategy
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.packed_files import PackedWriter

MAP = FeatureMap.from_sizes([("a", "categorical", 8, 1, "feature"), ("b", "categorical", 8, 1, "feature")])
MODEL = Model(name="mlp", embedding_dim=4, hidden_units=[8], dropout=0.2, embedding_stddev=0.1)
SETTINGS = {"batch_size": 64, "epochs": 4, "learning_rate": 0.01, "evaluations_per_epoch": 2, "patience": 8}


def write(folder: pathlib.Path, rows: int, seed: int, weighted: bool = False) -> str:
    """Clicks where the two fields agree in parity: nothing for a linear model, all for an MLP."""
    random = np.random.default_rng(seed)
    a, b, noise = random.integers(0, 8, rows), random.integers(0, 8, rows), random.random(rows)
    label = np.where(noise > 0.1, (a + b) % 2 == 0, noise > 0.05)[:, None]
    return write_packed(folder, a, b, label, random.random((rows, 1)) if weighted else None)


def write_packed(
    folder: pathlib.Path, a: np.ndarray, b: np.ndarray, label: np.ndarray, weight: np.ndarray | None = None
) -> str:
    """Two files; the pattern for them."""
    folder.mkdir()
    ids = np.stack([3 + a, 13 + b], axis=1).astype(np.int32)
    targets = {"label": label, **({} if weight is None else {"weight": weight})}
    for index, part in enumerate(np.array_split(np.arange(len(ids)), 2)):
        with PackedWriter(folder / f"part-{index}.parquet") as writer:
            writer.write(
                {"ids": ids[part], **{name: values[part].astype(np.float32) for name, values in targets.items()}}
            )
    return f"{folder}/*"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return [write(folder / "train", 1500, 1)], [write(folder / "validation", 600, 2)]


def run(files, work, seed=1, **changes):
    result = train(TrainingJob(MODEL, Training(**{**SETTINGS, **changes}), MAP, *files, seed), work)
    return result, result.learner.predict(packed_reader(files[1], MAP, 256))[1]


@pytest.mark.slow
def test_the_number_of_training_rows_scales_the_regularisation(files, tmp_path):
    result, _ = run(files, tmp_path, epochs=1, regularisation_rows=500)
    odds = 0.2 / 0.8 * 500 / 1500
    assert result.model.get_config()["dropout"] == pytest.approx(odds / (1 + odds))


def test_no_step_of_an_epoch_has_a_few_rows_only(tmp_path):
    """Each of them would move the weights as far as many of a full step."""
    files = [write(tmp_path / "train", 257, 1)]
    job = TrainingJob(MODEL, Training(batch_size=64), MAP, files, files, seed=1)
    assert [len(labels) for _, labels in job.data(files, 0, 0, 9)] == [52, 52, 52, 52, 49]
    assert [len(labels) for _, labels in job.data(files, 0, 3, 2)] == [52, 49]


@pytest.mark.slow
def test_it_learns_an_interaction_and_keeps_the_best_weights(files, tmp_path):
    result, probabilities = run(files, tmp_path, epochs=15)
    best = result.progress.evaluations[result.progress.best]
    assert best["validation_auc"] > 0.9
    labels = result.learner.predict(packed_reader(files[1], MAP, 256))[0]
    found = -np.mean(np.log(np.where(labels > 0.5, probabilities, 1 - probabilities)))
    assert found == pytest.approx(best["validation_log_loss"], abs=1e-5)
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    logged = [(event.step, event.value) for event in events.Scalars("validation_auc")]
    assert logged == [(row["step"], pytest.approx(row["validation_auc"])) for row in result.progress.evaluations]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model(files, tmp_path):
    first, second = (run(files, tmp_path / name)[1] for name in "ab")
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - run(files, tmp_path / "c", seed=2)[1]).max() > 1e-4


class Killed(Exception):
    pass


@pytest.mark.slow
def test_a_killed_training_goes_on_where_it_was(files, tmp_path):
    whole, expected = run(files, tmp_path / "whole")

    def kill(numbers):
        if numbers["step"] > 60:
            raise Killed

    with pytest.raises(Killed):
        train(TrainingJob(MODEL, Training(**SETTINGS), MAP, *files, 1), tmp_path / "killed", kill)
    # Of an hour that a former process needed, the checkpoint tells; what came after it is lost.
    saved = tmp_path / "killed" / "checkpoint" / "progress.json"
    assert 0 < saved_seconds(tmp_path / "killed") < 600
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "seconds": 3600.0}))
    resumed, probabilities = run(files, tmp_path / "killed")
    assert 3600 < resumed.progress.seconds < 4200 and saved_seconds(tmp_path / "killed") == resumed.progress.seconds
    assert saved_seconds(tmp_path / "absent") == 0
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert len(resumed.progress.evaluations) == len(whole.progress.evaluations)


@pytest.mark.slow
def test_plateau_cuts_the_rate_and_patience_stops(files, tmp_path):
    result, _ = run(files, tmp_path, epochs=40, patience=4, plateau={"factor": 0.1, "patience": 2})
    rates = [row["learning_rate"] for row in result.progress.evaluations]
    assert rates[0] == 0.01 and rates[-1] == pytest.approx(0.001)
    assert "did not improve for 4" in result.progress.stopped
    assert len(rates) == result.progress.best + 5


def test_the_rate_falls_along_a_cosine_over_all_epochs(files, tmp_path):
    """Its reference is Keras' schedule in the middle of each part; an interrupted training resumes its rates."""
    stopped = []

    def stop(numbers):
        stopped.append(numbers["learning_rate"])
        if len(stopped) == 2:
            raise Killed

    changes = {"epochs": 3, "decay": "cosine", "plateau": {"factor": 0.1, "patience": 1}}
    job = TrainingJob(MODEL, Training(**SETTINGS | changes), MAP, *files, 1)
    with pytest.raises(Killed):
        train(job, tmp_path, stop)
    resumed = train(job, tmp_path).progress
    schedule = keras.optimizers.schedules.CosineDecay(0.01, 6)
    expected = [float(schedule(part + 0.5)) for part in range(6)]
    assert [row["learning_rate"] for row in resumed.evaluations] == pytest.approx(expected, rel=1e-5)
    assert stopped == [row["learning_rate"] for row in resumed.evaluations][:2]
    # The loss falls until the rate is 0, which is no reason for more epochs.
    assert resumed.stopped == "the learning rate fell to 0"
    assert has_converged({"stopped": resumed.stopped, "evaluations": resumed.evaluations})


@pytest.mark.slow
def test_refit_learns_from_the_validation_rows(tmp_path):
    """Every other one has a value that no training row has, always with a click; the rest keep the training going."""
    known, new = np.arange(600) % 4, np.arange(300) % 2 == 0
    train = write_packed(tmp_path / "train", known, known, (known < 1)[:, None])
    rows = np.where(new, 7, np.arange(300) % 4)
    files = [train], [write_packed(tmp_path / "validation", rows, rows, (new | (rows < 1))[:, None])]
    (_, plain), (_, refitted) = (
        run(files, tmp_path / str(refit), monitor="log_loss", learning_rate=0.03, refit=refit)
        for refit in (False, True)
    )
    assert plain[new].max() < 0.7 and refitted[new].min() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "asked", "possible"), [(1, 4, 1), (5, 4, 3)])
def test_a_refit_has_as_many_epochs_as_the_training_where_evaluations_outnumber_steps(tmp_path, steps, asked, possible):
    ids = np.arange(96 * steps) % 4
    train, rest = (write_packed(tmp_path / name, ids, ids, (ids < 1)[:, None]) for name in ("train", "rest"))
    changes = {"monitor": "log_loss", "learning_rate": 0.01, "batch_size": 96, "epochs": 4, "refit": True}
    (many, expected), (_, found) = (
        run(([train], [rest]), tmp_path / str(count), **changes, evaluations_per_epoch=count)
        for count in (possible, asked)
    )
    assert many.progress.best >= possible  # in a later epoch than the first
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_a_training_can_start_at_the_training_rows_base_rate(tmp_path, backend):
    ids, clicks = np.zeros(400, int), np.arange(400)[:, None] < 20
    files = [write_packed(tmp_path / "train", ids, ids, clicks)], [write_packed(tmp_path / "rest", ids, ids, ~clicks)]
    still = {"learning_rate": 1e-12, "epochs": 1, "backend": backend, "start_at_base_rate": True}
    for changes in ({}, {"refit": True}) if backend == "tensorflow" else ({},):
        _, probabilities = run(files, tmp_path / f"work-{len(changes)}", **still, **changes)
        np.testing.assert_allclose(probabilities, 0.05, rtol=0.02)


def test_a_model_that_cannot_start_at_the_base_rate_is_told_in_one_line(files, tmp_path):
    model = Model(name="afm", embedding_dim=4, use_linear=False)
    with pytest.raises(InputError, match="^training.start_at_base_rate: AFM has no bias"):
        train(TrainingJob(model, Training(start_at_base_rate=True), MAP, *files, 1), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_a_share_of_the_negatives_lowers_the_odds_by_as_much_in_the_trained_model_alone(files, tmp_path, backend):
    def trained(share: float, work: str) -> tuple[dict, np.ndarray]:
        settings = Training(**{**SETTINGS, "backend": backend, "epochs": 1})
        sampled = dataclasses.replace(MAP, negative_sampling=share)
        result = train(TrainingJob(MODEL, settings, sampled, *files, 1), tmp_path / work)
        # The file of the best weights, which a kept model links, is of those before the correction.
        assert (result.weights_file is None) == (share < 1)
        return result.history, result.learner.predict(packed_reader(files[1], MAP, 256))[1]

    (plain_history, plain), (history, first) = trained(1.0, "all"), trained(0.2, "share")
    _, again = trained(0.2, "share")  # from the checkpoint, in which the logits are not corrected
    np.testing.assert_allclose(first / (1 - first), 0.2 * plain / (1 - plain), rtol=1e-5)
    np.testing.assert_array_equal(again, first)
    assert history == plain_history


def test_a_model_whose_logits_cannot_be_corrected_is_told_in_one_line(files, tmp_path):
    model = Model(name="afm", embedding_dim=4, use_linear=False)
    sampled = dataclasses.replace(MAP, negative_sampling=0.5)
    with pytest.raises(InputError, match="^data.negative_sampling: AFM has no bias"):
        train(TrainingJob(model, Training(), sampled, *files, 1), tmp_path)


TWO_DEVICES = """
import json, sys, pathlib
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tests.pipeline.test_training import MAP, MODEL, SETTINGS
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.tensorflow_learner import make_learner, make_strategy
from ctrpipe.pipeline.training.train import train
model = Model(**{**MODEL.model_dump(), "dropout": 0.0, "embedding_l2": 0.01})
files, work = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
apart = []
for optimizer, steps in (("adam", 1), ("lazy_adam", 1), ("rowwise_adagrad", 4)):
    weights = []
    for distribution in ("mirrored", "one_device"):
        assert make_strategy(distribution).num_replicas_in_sync == (2 if distribution == "mirrored" else 1)
        # 1,501 rows: of the last batch, one row, the first device has none
        changes = {"batch_size": 60, "evaluations_per_epoch": 1, "gradient_clip_norm": 0.1, "epochs": 2}
        changes |= {"start_at_base_rate": True}
        changes |= {"optimizer": optimizer, "distribution": distribution, "steps_per_execution": steps}
        own = files[optimizer == "lazy_adam"]
        job = TrainingJob(model, Training(**{**SETTINGS, **changes}), MAP, *own, 1)
        result = train(job, work / optimizer / distribution)
        weights.append(result.learner.weights())
    apart += [float(np.abs(two - one).max()) for two, one in zip(*weights, strict=True)]
normalised = Model(**{**model.model_dump(), "normalization": "batch"})
steps = list(TrainingJob(normalised, Training(batch_size=61), MAP, *files[0], 1).data(files[0][0], 0, 0, 4))
two, one = (make_learner(normalised, Training(distribution=each), MAP, 1) for each in ("mirrored", "one_device"))
assert two.fit(steps) - one.fit(steps) < 1e-5 and len(steps[0][1]) == 61
of_batches = max(float(np.abs(a - b).max()) for a, b in zip(two.weights(), one.weights(), strict=True))
learner = make_learner(MODEL, Training(distribution="mirrored"), MAP, 1)
learner.load_state(learner.state())
seeds = [
    [copy.numpy().tolist() for copy in learner.strategy.experimental_local_results(variable.value)]
    for variable in learner.network.non_trainable_variables
    if variable.name == "seed_generator_state"
]
print(json.dumps({"apart": apart, "seeds": seeds, "of_batches": of_batches}))
"""


@pytest.mark.large(like="tests/pipeline/test_jax_devices.py::test_several_devices_learn_the_model_of_one")
@pytest.mark.slow
def test_two_devices_train_the_same_model_as_one_and_drop_out_apart(tmp_path):
    files = [
        (
            [write(tmp_path / f"train-{weighted}", 1501, 1, weighted)],
            [write(tmp_path / f"rest-{weighted}", 600, 2, weighted)],
        )
        for weighted in (False, True)
    ]
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-c", TWO_DEVICES, json.dumps(files), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert max(found["apart"]) < 1e-5 and found["of_batches"] < 1e-4
    assert found["seeds"] and all(first[0] + 1 == second[0] for first, second in found["seeds"])


def test_auto_is_one_device_where_there_is_one():
    assert make_strategy("auto").num_replicas_in_sync == 1


@pytest.mark.slow
def test_jax_trains_in_a_process_of_its_own_without_tensorflow_and_the_model_comes_back(files, tmp_path, monkeypatch):
    said = []
    (tmp_path / "first").mkdir()
    for name in ("tensorflow", "sklearn", "matplotlib"):  # Keras imports each of them that it finds
        (tmp_path / "first" / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path / "first"))  # the process imports from where this one does
    monkeypatch.setattr(process, "start_command", start_command)  # no fork of one that has imported what it needs
    settings = {**SETTINGS, "epochs": 15, "backend": "jax", "optimizer": "lazy_adam"}
    result = train(TrainingJob(MODEL, Training(**settings), MAP, *files, 1), tmp_path / "work", said.append)
    best = result.progress.evaluations[result.progress.best]
    assert best["validation_auc"] > 0.9 and [row["step"] for row in said][-1] == said[-1]["step"]
    assert [{**row, "model": "mlp"} for row in result.progress.evaluations] == said
    labels, probabilities = result.learner.predict(packed_reader(files[1], MAP, 256))
    found = -np.mean(np.log(np.where(labels > 0.5, probabilities, 1 - probabilities)))
    assert found == pytest.approx(best["validation_log_loss"], abs=1e-5)  # TensorFlow with the weights of JAX


@pytest.mark.slow
@pytest.mark.parametrize(
    "backends", [["tensorflow"], pytest.param(["tensorflow", "jax"], marks=pytest.mark.large)], ids=" and ".join
)
def test_a_task_is_learned_from_the_rows_that_have_its_label_alone(tmp_path, backends):
    """In `make test`, test_numbers_on_jax.py has steps of JAX on such rows."""
    random = np.random.default_rng(7)
    written = []
    for name, rows in (("train", 640), ("validation", 600)):
        a, b = random.integers(0, 8, rows), random.integers(0, 8, rows)
        click = random.random(rows) < 0.2 + 0.08 * a
        order = np.where(click, random.random(rows) < 0.2 + 0.08 * b, np.nan)
        order[:128] = np.nan  # the first batches have no label of the task
        written.append([write_packed(tmp_path / name, a, b, np.stack([click, order], axis=1))])
    fields = dataclasses.replace(MAP, tasks=("ctr", "order"))
    found = {}
    for backend in backends:
        settings = Training(**{**SETTINGS, "epochs": 6, "learning_rate": 0.05, "backend": backend})
        result = train(TrainingJob(Model(name="lr"), settings, fields, *written, 1), tmp_path / backend)
        labels, found[backend] = result.learner.predict(packed_reader(written[1], fields, 256))
        best = result.progress.evaluations[result.progress.best]
        known = np.isfinite(labels[:, 1])
        clicked, chance = labels[known, 1], found[backend][known, 1].astype(np.float64)
        loss = -np.mean(np.log(np.where(clicked == 1, chance, 1 - chance)))
        assert best["validation_order_log_loss"] == pytest.approx(loss, abs=1e-5) and 100 < known.sum() < 500
        assert best["validation_order_auc"] > 0.6 and all(
            np.isfinite(row["train_loss"]) for row in result.progress.evaluations
        )
    np.testing.assert_allclose(found[backends[-1]], found["tensorflow"], atol=1e-4)


@pytest.mark.large(like="tests/pipeline/test_training.py::test_a_mistake_that_a_process_finds_reaches_the_user")
@pytest.mark.slow
def test_a_mistake_that_jax_finds_reaches_the_user_as_one_line(files, tmp_path):
    one_class = [write_packed(tmp_path / "clicks", np.zeros(8, int), np.zeros(8, int), np.ones((8, 1)))]
    settings = Training(**{**SETTINGS, "backend": "jax", "monitor": "auc"})
    with pytest.raises(InputError, match="one class only, so no AUC"):
        train(TrainingJob(MODEL, settings, MAP, files[0], one_class, 1), tmp_path / "work")


def test_a_mistake_that_a_process_finds_reaches_the_user(tmp_path, monkeypatch, capsys):
    """What a worker says where it finds one, said again by a stand-in, which starts in a hundredth of the time."""

    def find(_folder, _report):
        raise InputError("column c: one class only, so no AUC")

    monkeypatch.setattr(training_worker, "exit_with_parent", lambda: None)
    monkeypatch.setattr(training_worker, "import_keras", lambda: None)
    monkeypatch.setattr(handover, "run_job", find)
    with pytest.raises(SystemExit) as ended:
        training_worker.main(str(tmp_path))
    said = capsys.readouterr().out
    assert ended.value.code == MISTAKE and said.count("\n") == 1
    (tmp_path / "mistaken.py").write_text(f"print({said!r})\nraise SystemExit({MISTAKE})\n")
    monkeypatch.syspath_prepend(str(tmp_path))  # the process imports from where this one does
    with pytest.raises(InputError, match="^column c: one class only, so no AUC$"):
        TrainingProcess(["mistaken"], "jax").follow(None)


def worker(folder: pathlib.Path, job: TrainingJob) -> subprocess.Popen:
    """The process that trains on another backend."""
    (folder / "task.json").write_text(job.to_json())
    command = [sys.executable, "-m", "ctrpipe.pipeline.training.worker", str(folder)]
    root = str(pathlib.Path(__file__).parents[2])
    environment = {**os.environ, "KERAS_BACKEND": job.training.backend, "PYTHONPATH": root}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


WAITS = """
import sys, time, types
from ctrpipe.pipeline.training import worker
def run_job(folder, report):
    report({"model": folder.name})
    time.sleep(60)
worker.import_keras = lambda: None
sys.modules["ctrpipe.pipeline.training.handover"] = types.SimpleNamespace(run_job=run_job)
worker.main("mlp")
"""


@pytest.mark.slow
def test_a_worker_whose_job_takes_long_ends_with_its_parent():
    command = [sys.executable, "-c", WAITS]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert json.loads(process.stdout.readline())["model"] == "mlp"
        process.stdin.close()
        assert process.wait(timeout=30) == 1


@pytest.mark.large(like="tests/pipeline/test_training.py::test_a_worker_whose_job_takes_long_ends_with_its_parent")
@pytest.mark.slow
def test_the_worker_ends_with_its_parent(files, tmp_path):
    settings = Training(**{**SETTINGS, "epochs": 1000, "patience": 1000, "backend": "jax"})
    job = TrainingJob(MODEL, settings, MAP, *files, 1)
    with worker(tmp_path, job) as process:
        assert json.loads(process.stdout.readline())["model"] == "mlp"
        process.stdin.close()
        assert process.wait(timeout=30) == 1


@pytest.mark.slow
def test_fnn_starts_from_a_trained_fm(files, tmp_path):
    said: list[dict] = []
    model = Model(name="fnn", embedding_dim=4, embedding_stddev=0.1, hidden_units=[8])
    training = Training(**{**SETTINGS, "epochs": 2})
    result = train(TrainingJob(model, training, MAP, *files, 1), tmp_path, said.append)
    assert [row["model"] for row in said] == ["fm"] * 4 + ["fnn"] * 4
    shape = (MAP.total_ids, 4)
    [start] = [value for value in read_arrays(tmp_path / "pretrained-fm/checkpoint/best.npz") if value.shape == shape]
    [trained] = [value for value in result.learner.weights() if value.shape == shape]
    assert 0 < np.abs(trained - start).mean() < 0.3 * np.abs(trained).mean()  # not from noise, where it would be 1.4
    train(TrainingJob(model, training, MAP, *files, 1), tmp_path, said.append)
    assert len(said) == 8  # both stages were done


def test_the_warm_up_schedule_rises_to_the_rate_and_falls_with_the_root():
    factors = [warmup_factor(step, 100) for step in (1, 50, 100, 400)]
    np.testing.assert_allclose(factors, [0.01, 0.5, 1.0, 0.5])
    assert warmup_factor(7, 0) == 1.0


@pytest.mark.slow
def test_a_warm_up_slows_the_first_steps(files, tmp_path):
    plain, _ = run(files, tmp_path / "plain", epochs=1)
    slow, _ = run(files, tmp_path / "slow", epochs=1, warmup_steps=100_000)
    assert slow.progress.evaluations[0]["train_loss"] > plain.progress.evaluations[0]["train_loss"]


def write_two_tasks(folder: pathlib.Path, rows: int, seed: int) -> str:
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 8, rows), random.integers(0, 8, rows)
    return write_packed(folder, a, b, np.stack([a < 4, b < 4], axis=1))


@pytest.mark.slow
def test_tasks_are_measured_each_and_weighed(tmp_path):
    two = FeatureMap.from_sizes([(f.name, f.kind, 8, 1, f.role) for f in MAP.fields], tasks=("ctr", "buy"))
    files = [write_two_tasks(tmp_path / "train", 1500, 1)], [write_two_tasks(tmp_path / "validation", 600, 2)]
    lr = Model(name="lr")
    for index, weights in enumerate([{"buy": 0.0}, {"ctr": 0.0}]):
        training = Training(**{**SETTINGS, "task_weights": weights})
        numbers = train(TrainingJob(lr, training, two, *files, 1), tmp_path / str(index)).progress.evaluations[-1]
        learned = numbers["validation_buy_auc" if index else "validation_auc"]
        left = numbers["validation_auc" if index else "validation_buy_auc"]
        assert learned > 0.99 and left == 0.5
