"""What ESMM learns of conversions from all impressions, where the truth is known, and the labels that it refuses."""

import dataclasses
import pathlib

import numpy as np
import pytest
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.models import FeatureMap, available
from ctrpipe.models.base.feature_map import NumberTask
from ctrpipe.models.base.registry import derives_from
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import Model, RunConfig, Training, load_config
from ctrpipe.pipeline.config.packaged_configs import configs_folder
from ctrpipe.pipeline.draft.check_log import IN_ORDER, check_log
from ctrpipe.pipeline.run.run import check_options
from ctrpipe.pipeline.training.data import packed_batches
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.network import build_network
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.packed_files import PackedWriter
from ctrpipe.transforms.generate import FunnelModel
from ctrpipe.transforms.generate.click_model import sigmoid
from ctrpipe.transforms.generate.funnel import SIZES, draw_funnel, funnel_biases
from tests.pipeline.test_training import MAP, SETTINGS, write_packed

TASKS = ("click", "conversion")
TRUTH = FunnelModel(click_rate=0.05, conversion_rate=0.1)
FIELDS = FeatureMap.from_sizes([(name, "categorical", size) for name, size in SIZES.items()], tasks=TASKS)
DEEPFM = {"name": "deepfm", "hidden_units": [32]}
SHARED = {"embedding_dim": 8, "embedding_stddev": 0.01, "embedding_l2": 1e-4, "use_linear": True}
TRAINING = {"batch_size": 1024, "epochs": 12, "learning_rate": 0.002, "monitor": "log_loss", "patience": 4}


def drawn(blocks: range) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, labels, and the true probabilities of a click and of a conversion after it."""
    parts = [draw_funnel(1, block, TRUTH.likeness) for block in blocks]
    ids = [np.stack([part.codes[field.name] + field.offset + 2 for field in FIELDS.fields], axis=1) for part in parts]
    truth = sigmoid(np.concatenate([part.logits for part in parts]) + funnel_biases(TRUTH))
    labels = np.cumprod(np.concatenate([part.uniform for part in parts]) < truth, axis=1)
    return np.concatenate(ids).astype(np.int32), labels.astype(np.float32), truth


def write(path: pathlib.Path, ids: np.ndarray, labels: np.ndarray) -> list[str]:
    with PackedWriter(path) as writer:
        writer.write({"ids": ids, "label": labels})
    return [str(path)]


def trained(model: Model, tasks: tuple[str, ...], folder: pathlib.Path, test_ids: np.ndarray) -> np.ndarray:
    """Trains on all impressions, with the labels of some tasks; returns the probabilities of test rows."""
    folder.mkdir()
    columns = [TASKS.index(task) for task in tasks]
    parts = {name: drawn(blocks) for name, blocks in (("train", range(3)), ("validation", range(3, 4)))}
    files = [write(folder / f"{name}.parquet", ids, labels[:, columns]) for name, (ids, labels, _) in parts.items()]
    training = Training(start_at_base_rate=True, evaluations_per_epoch=2, **TRAINING)
    job = TrainingJob(model, training, dataclasses.replace(FIELDS, tasks=tasks), *files, 1)
    network = train(job, folder / "work").model
    return sigmoid(np.asarray(network({"ids": test_ids}), np.float64))


def divergence(answers: np.ndarray, truth: np.ndarray) -> float:
    """The mean of the Kullback-Leibler divergence from the true probabilities, in nats."""
    ones, zeros = truth * np.log(truth / answers), (1 - truth) * np.log((1 - truth) / (1 - answers))
    return float(np.mean(ones + zeros))


@pytest.mark.slow
def test_esmm_knows_conversions_among_impressions_and_after_clicks(tmp_path):
    ids, _, truth = drawn(range(4, 6))
    esmm = trained(Model(name="esmm", interaction=DEEPFM, **SHARED), TASKS, tmp_path / "esmm", ids)
    alone = trained(Model(**DEEPFM, **SHARED), ("conversion",), tmp_path / "alone", ids)[:, 0]
    conversion = truth.prod(axis=1)
    assert (esmm[:, 1] < esmm[:, 0]).all()
    np.testing.assert_allclose(esmm.sum(axis=0) / [truth[:, 0].sum(), conversion.sum()], 1, atol=0.2)
    # Few impressions convert; with what clicks say of them, ESMM is nearer to the truth than a model of conversions.
    assert divergence(esmm[:, 1], conversion) < 0.9 * divergence(alone, conversion)
    # After a click, of all impressions: nearer than the rate of those that were clicked, and than that model.
    after = esmm[:, 1] / esmm[:, 0]
    assert divergence(after, truth[:, 1]) < 0.7 * divergence(np.full(len(after), 0.1), truth[:, 1])
    assert divergence(after, truth[:, 1]) < 0.5 * divergence(alone, truth[:, 1])


def test_a_conversion_without_a_click_is_refused(tmp_path):
    random = np.random.default_rng(1)
    a, b = random.integers(0, 8, (2, 300))
    click = random.integers(0, 2, 300)
    conversion = click * random.integers(0, 2, 300)
    good = [write_packed(tmp_path / "good", a, b, np.stack([click, conversion], axis=1))]
    conversion[np.flatnonzero(click == 0)[:3]] = 1
    bad = [write_packed(tmp_path / "bad", a, b, np.stack([click, conversion], axis=1))]
    settings = Training(**{**SETTINGS, "epochs": 1, "patience": 1})
    fields = dataclasses.replace(MAP, tasks=TASKS)
    esmm = Model(name="esmm", use_linear=True, interaction={"name": "fm"}, embedding_dim=4)
    for files in ((good, bad), (bad, good)):
        with pytest.raises(InputError, match="esmm: 3 training and validation rows have conversion without click"):
            train(TrainingJob(esmm, settings, fields, *files, 1), tmp_path / "work")
    swapped = dataclasses.replace(MAP, tasks=TASKS[::-1])
    with pytest.raises(InputError, match="have click without conversion; name the labels in the order"):
        turned = [write_packed(tmp_path / "turned", a, b, np.stack([conversion * click, click], axis=1))]
        train(TrainingJob(esmm, settings, swapped, turned, turned, 1), tmp_path / "work")


@pytest.mark.parametrize(
    ("model", "tasks", "message"),
    [
        ({"name": "esmm"}, ("click",), "esmm needs several labels; .* Received: click"),
        ({"name": "mmoe", "interaction": {"name": "lr"}}, TASKS, "interaction: lr does not combine given embeddings"),
        ({"name": "fm"}, TASKS, "fm predicts one task"),
    ],
)
def test_a_model_that_cannot_be_one_of_the_data_is_the_users_mistake(model, tasks, message):
    with pytest.raises(InputError, match=message):
        build_network(Model(**model), dataclasses.replace(MAP, tasks=tasks), seed=1)


def test_one_label_is_refused_before_anything_is_read():
    labels = {"data": {"columns": ["label", "c"], "labels": {"click": "label"}}}
    features = {"features": [{"kind": "categorical", "columns": ["c"]}]}
    for models in ({"model": {"name": "ple"}}, {"model": {"name": "lr"}, "evaluation": {"baseline": {"name": "ple"}}}):
        config = RunConfig.model_validate({"name": "one", **labels, **features, **models})
        with pytest.raises(InputError, match="ple needs several labels; .* Received: click"):
            check_options(config)


def test_the_check_of_a_log_counts_conversions_without_a_click(tmp_path):
    assert {info.name for info in available() if derives_from(info.name, "esmm")} == set(IN_ORDER)
    log = tmp_path / "log.csv"
    assert (
        CliRunner().invoke(main, ["generate", "--format", "funnel", "--rows", "300", "--output", str(log)]).exit_code
        == 0
    )
    config = load_config(configs_folder() / "funnel" / "esmm.yaml")
    assert check_log(config, [str(log)]).errors == []
    header, *lines = log.read_text().splitlines()
    turned = [line.replace("0,0,", "0,1,", 1) if n in (7, 8, 9) else line for n, line in enumerate(lines)]
    wrong = sum(line.startswith("0,1,") for line in turned)
    log.write_text("\n".join([header, *turned]) + "\n")
    [error] = check_log(config, [str(log)]).errors
    assert error == f"data.labels: {wrong} of the first 300 rows have conversion without click" and wrong > 0


@pytest.mark.slow
def test_a_number_is_learned_in_its_own_unit_beside_clicks(tmp_path):
    random = np.random.default_rng(5)
    a, b = random.integers(0, 8, (2, 4000))
    seconds = random.poisson(40.0 + 20.0 * a).astype(np.float32)
    labels = np.stack([random.random(4000) < 0.3, np.where(b < 2, np.nan, seconds), 500.0 - 10.0 * b], axis=1)
    files = [write_packed(tmp_path / "rows", a, b, labels.astype(np.float32))]
    numbers = (NumberTask("seconds", "count", 0.0, 110.0), NumberTask("value", "mean", 465.0, 23.0))
    fields = dataclasses.replace(MAP, tasks=("click", "seconds", "value"), number_tasks=numbers)
    settings = Training(**{**SETTINGS, "optimizer": "adam", "epochs": 1, "batch_size": 20, "learning_rate": 0.05})
    result = train(TrainingJob(Model(name="lr"), settings, fields, files, files, 1), tmp_path / "work")
    _, found = result.learner.predict(packed_batches(files, fields, 1000))
    known = b >= 2
    rates = [found[known & (a == value), 1].mean() for value in range(8)]
    np.testing.assert_allclose(rates, 40 + 20 * np.arange(8), rtol=0.15)
    np.testing.assert_allclose(found[:, 2], labels[:, 2], atol=8)
    last = result.progress.evaluations[result.progress.best or 0]
    error = np.sqrt(np.mean((found[known, 1] - seconds[known]) ** 2))
    assert last["validation_seconds_rmse"] == pytest.approx(error, rel=1e-4) and "validation_value_mae" in last
