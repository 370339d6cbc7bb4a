"""A number that is not finite, between the loss and the push, ends the run with a line that says which."""

import dataclasses
import json
import math
import pathlib
import pickle
import types

import numpy as np
import pytest

from ctrpipe.common.arrays import read_arrays
from ctrpipe.common.errors import InputError, NotFiniteError
from ctrpipe.common.processes import Workers
from ctrpipe.models import FeatureMap
from ctrpipe.models.base.saved import save_model
from ctrpipe.pipeline.config import Model, RunConfig, Training
from ctrpipe.pipeline.evaluation.evaluate import evaluate
from ctrpipe.pipeline.evaluation.gates import gate_row
from ctrpipe.pipeline.evaluation.judge import judge
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored, write_scored
from ctrpipe.pipeline.run.run import placing_the_number
from ctrpipe.pipeline.training.averaging import WeightAverage
from ctrpipe.pipeline.training.boosting import learn_trees
from ctrpipe.pipeline.training.finite_learner import check_weights
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.linear_fit import LinearRows
from ctrpipe.pipeline.training.loop import train_and_evaluate
from ctrpipe.pipeline.training.process import TrainingProcess, mistake_message
from ctrpipe.pipeline.training.progress import Progress
from ctrpipe.pipeline.training.tensorflow_learner import TensorFlowLearner
from ctrpipe.pipeline.training.train import train
from ctrpipe.pipeline.training.warm_start import Start
from ctrpipe.transforms.features.packed_files import PackedWriter
from ctrpipe.transforms.features.table_rows import SourceRows
from ctrpipe.transforms.log.outliers import find_outlier, naming_the_number, place_of_number
from tests.pipeline import scored_log

MAP = FeatureMap.from_sizes([("a", "categorical", 8, 1, "feature")], dense=("price",))
ROWS = 96
NAN, INFINITE = math.nan, math.inf
LOSS = "dcn_v2: the training loss is not a finite number in epoch 2 (step 6)"
PREDICTIONS = "of 96 predictions came out NaN or infinite in epoch 2 (step 6), first in row"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    """Packed rows that serve for training and validation."""
    folder = tmp_path_factory.mktemp("packed")
    random = np.random.default_rng(1)
    rows = {
        "ids": 3 + random.integers(0, 8, (ROWS, 1)).astype(np.int32),
        "dense": random.normal(size=(ROWS, 1)).astype(np.float32),
        "label": (random.random((ROWS, 1)) < 0.4).astype(np.float32),
    }
    with PackedWriter(folder / "part.parquet") as writer:
        writer.write(rows)
    return [f"{folder}/*"]


def job(files: list[str], **training) -> TrainingJob:
    settings = {"batch_size": 32, "epochs": 3, **training}
    return TrainingJob(
        Model(name="dcn_v2", embedding_dim=4, hidden_units=[4]), Training(**settings), MAP, files, files, 1
    )


class Scripted:
    """A learner whose losses and predictions are given, one of each for an evaluation."""

    is_chief, learning_rate = True, 0.1

    def __init__(self, losses, predictions, weight=0.0):
        self.losses, self.predictions = iter(losses), iter(predictions)
        self.kernel = np.array([0.0, weight], np.float32)

    def fit(self, batches):
        return next(self.losses)

    def predict(self, batches):
        labels = np.concatenate([label for _, label in batches])
        changed = next(self.predictions)
        found = np.full(labels.shape, 0.4, np.float32)
        for row in changed if isinstance(changed, dict) else ():
            found[row] = changed[row]
        return labels, np.full(labels.shape, np.float32(changed)) if isinstance(changed, float) else found

    def weights(self):
        return [self.kernel]

    def state_names(self):
        return ["net.kernel", "net.kernel:m"]


def evaluations(learner: Scripted, files: list[str], **training) -> Progress:
    progress = Progress(learning_rate=0.1)
    list(train_and_evaluate(job(files, **training), learner, WeightAverage(1), progress))
    return progress


@pytest.mark.parametrize("monitor", ["log_loss", "auc"])
@pytest.mark.parametrize(
    ("losses", "predictions", "weight", "said"),
    [
        ([0.7, NAN], [0.4, 0.4], 0.0, LOSS),
        ([0.7, -INFINITE], [0.4, 0.4], 0.0, LOSS),
        ([0.7, 0.7], [0.4, {17: NAN}], 0.0, f"1 {PREDICTIONS} 18 of"),
        ([0.7, 0.7], [0.4, {5: INFINITE, 60: NAN}], 0.0, f"2 {PREDICTIONS} 6 of"),
        ([0.7, 0.7], [0.4, NAN], 0.0, "dcn_v2: all 96 predictions came out NaN or infinite in epoch 2 (step 6); lower"),
        ([0.7, 0.7], [0.4, NAN], NAN, "dcn_v2: the weight net.kernel is not finite everywhere in epoch 2 (step 6)"),
    ],
)
def test_the_training_ends_at_the_evaluation_where_the_number_appears(
    files, monitor, losses, predictions, weight, said
):
    with pytest.raises(NotFiniteError) as raised:
        evaluations(Scripted([*losses, 0.7], [*predictions, 0.4], weight), files, monitor=monitor)
    assert said in str(raised.value)
    assert str(raised.value).endswith("; lower training.learning_rate, or set training.gradient_clip_norm")
    # Kept, the first evaluation is the best; later ones are not waited for.
    progress = evaluations(Scripted(losses, predictions, weight), files, monitor=monitor, not_finite="keep_best")
    assert progress.best == 0 and len(progress.evaluations) == 1
    assert progress.stopped and "in epoch 2 (step 6)" in progress.not_finite
    assert "NaN" not in json.dumps(progress.evaluations)


def test_without_an_evaluation_before_there_is_nothing_to_keep(files):
    with pytest.raises(NotFiniteError, match=r"in epoch 1 \(step 3\)"):
        evaluations(Scripted([NAN], [0.4]), files, not_finite="keep_best")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_steps_that_are_too_large_end_a_training_of_each_backend(files, tmp_path, backend):
    settings = {"learning_rate": 1e30, "gradient_clip_norm": None, "monitor": "auc", "backend": backend}
    with pytest.raises(NotFiniteError, match=r"^dcn_v2: the (training loss|weight) .* in epoch \d") as raised:
        train(job(files, **settings), tmp_path)
    assert raised.value.split == "train"
    assert not list(tmp_path.rglob("best.npz"))


@pytest.mark.slow
def test_the_best_weights_before_are_what_is_kept(files, tmp_path, monkeypatch):
    fit, calls = TensorFlowLearner.fit, []

    def fit_until_the_third(learner, batches):
        calls.append(fit(learner, batches))
        if len(calls) == 3:
            learner.load_weights(
                [np.full_like(each, NAN) if each.dtype == np.float32 else each for each in learner.weights()]
            )
        return calls[-1]

    monkeypatch.setattr(TensorFlowLearner, "fit", fit_until_the_third)
    result = train(job(files, epochs=9, learning_rate=0.01, not_finite="keep_best"), tmp_path)
    assert len(calls) == 3 and len(result.progress.evaluations) == 2
    kept = read_arrays(tmp_path / "checkpoint" / "best.npz")
    for weights, best in zip(result.learner.weights(), kept, strict=True):
        np.testing.assert_array_equal(weights, best)
        assert np.isfinite(weights).all()


def test_a_weight_is_named_wherever_in_a_large_table_it_is():
    table = np.zeros((3000, 1000), np.float32)
    table[2999, 999] = INFINITE
    names = ["", "table", "table:m"]  # of a seed, of a table, and of its moments
    learner = types.SimpleNamespace(state_names=lambda: names, weights=lambda: [np.array([1, 2], np.uint32), table])
    with pytest.raises(NotFiniteError, match="^lr: the weight table is not finite everywhere in the parent; another"):
        check_weights("lr", learner, "in the parent", "another")
    table[2999, 999] = 0
    check_weights("lr", learner, "in the parent")


@pytest.mark.slow
def test_a_parent_whose_weights_are_not_finite_is_refused(files, tmp_path):
    first = train(job(files, epochs=1), tmp_path / "first")
    bias = next(weight for weight in first.model.trainable_variables if weight.path.endswith("bias"))
    bias.assign(np.full(bias.shape, NAN, np.float32))
    save_model(tmp_path / "kept", "dcn_v2", first.model)
    same = np.arange(MAP.total_ids)
    start = Start("yesterday", tmp_path / "kept", {"ids": SourceRows(same, same)}, same_columns=True)
    with pytest.raises(
        NotFiniteError, match=r"weight crosses.0.dense.bias is not finite everywhere in the parent; name another"
    ):
        train(job(files, warm_start={"parent": "runs/yesterday"}), tmp_path / "second", start=start)


def test_a_linear_fit_that_is_not_finite_is_no_model(files, tmp_path, monkeypatch):
    load = LinearRows.load

    def broken(rows, network, weights):
        load(rows, network, [dataclasses.replace(each, bias=NAN) for each in weights])

    monkeypatch.setattr(LinearRows, "load", broken)
    linear = dataclasses.replace(job(files, optimizer="lbfgs"), model=Model(name="lr"))
    with pytest.raises(NotFiniteError, match="^lr: all 96 predictions .*; set training.optimizer: adam$"):
        train(linear, tmp_path)


def test_lightgbm_gets_no_nan_that_it_would_take_for_missing():
    pytest.importorskip("lightgbm", exc_type=OSError)  # where there is no libgomp.so.1
    broken = np.full((4, 1), NAN, np.float32)
    network = types.SimpleNamespace(
        boost=lambda inputs: (broken, broken), trees=types.SimpleNamespace(leaves=2, depth=1)
    )
    with pytest.raises(NotFiniteError, match="an output of the network for the trees"):
        learn_trees(network, [({}, np.ones((4, 1)))], None, 1, 0)


def test_the_line_comes_from_another_process_with_its_parts():
    error = NotFiniteError("m: a figure", "do this", "validation", 3)
    assert pickle.loads(pickle.dumps(error)).row == 3
    process = types.SimpleNamespace(
        stdout=[json.dumps(mistake_message(error)) + "\n"],
        stdin=types.SimpleNamespace(close=lambda: None),
        wait=lambda: 2,
    )
    follower = TrainingProcess.__new__(TrainingProcess)
    follower._process, follower.joined, follower.timed_out = process, "", False
    with pytest.raises(NotFiniteError) as raised:
        follower.follow(None)
    assert (raised.value.split, raised.value.row) == ("validation", 3) and str(raised.value) == str(error)


# The number of the log ------------------------------------------------------------------------------------------------

SPEC_COLUMNS = ["click", "price", "age"]


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> tuple[RunConfig, pathlib.Path, str]:
    """A log with an absurd price in one validation row, its configuration and its payload."""
    folder = tmp_path_factory.mktemp("log")
    random = np.random.default_rng(2)
    price, age = random.normal(10, 2, 60).round(3), random.normal(40, 9, 60).round(3)
    price[45], age[50] = -3e30, 2000.0
    columns = {"click": (random.random(60) < 0.5).astype(float).tolist(), "price": price.tolist(), "age": age.tolist()}
    config = scored_log.config(columns, {"ctr": "click"})
    for split, part in (("train", slice(0, 40)), ("validation", slice(40, 60))):
        scored_log.write(folder / "payload" / f"Split-{split}", config, {name: v[part] for name, v in columns.items()})
    file = folder / "log.tsv"
    rows = zip(*[columns[name] for name in SPEC_COLUMNS], strict=True)
    file.write_text("".join(f"{click:g}\t{price:g}\t{age:g}\n" for click, price, age in rows))
    return config, folder / "payload", str(file)


@pytest.mark.parametrize(
    ("split", "row", "column"),
    [
        ("validation", None, "price"),
        ("validation", 5, "price"),
        ("validation", 4, ""),
        ("validation", 10, ""),
        ("train", None, ""),
    ],
)
def test_the_number_that_is_far_from_the_others_is_found(log, split, row, column):
    """An age of 2000 is odd, and no model overflows on it."""
    config, payload, _ = log
    found = find_outlier(config.log_spec, payload, split, row)
    assert (found.column if found else "") == column
    assert found is None or found.number == pytest.approx(-3e30, rel=1e-6)


def test_the_line_names_column_number_file_and_line(log):
    config, payload, file = log
    with (
        pytest.raises(InputError) as raised,
        placing_the_number(config, [file]),
        naming_the_number(config.log_spec, payload),
    ):
        raise NotFiniteError("dcn_v2: it is NaN", "lower the rate", "validation", 5)
    number = f"price is -3e+30 in {file}:46"
    assert str(raised.value) == f"dcn_v2: it is NaN: {number}; correct that number or leave its row out"
    assert place_of_number(config.log_spec, [file], "price", 77.5) == ""
    with pytest.raises(InputError, match="first in row 5 of the validation rows; lower the rate$"):
        with placing_the_number(config, [file]), naming_the_number(config.log_spec, payload):
            raise NotFiniteError("dcn_v2: it is NaN", "lower the rate", "validation", 4)


# The test rows --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("column", "name"), [("broken", "the model"), ("fine", "the baseline lr")])
def test_a_prediction_of_a_test_row_that_is_not_finite_ends_the_evaluation(tmp_path, column, name):
    columns = {"click": [0.0, 1, 0, 1], "fine": [0.1, 0.6, 0.2, 0.4], "broken": [0.2, 0.5, INFINITE, 0.3]}
    run = scored_log.config(columns, {"ctr": "click"})
    files = scored_log.write(tmp_path / "payload", run, columns)
    model = scored_log.save(tmp_path / "model", {"ctr": column})
    baseline = scored_log.save(tmp_path / "baseline", {"ctr": "broken"})
    judge(model, None, files, scored_log.gates_of(run), tmp_path / "judged", Workers(processes=1), baseline=baseline)
    with pytest.raises(NotFiniteError, match=rf"^{name}: 1 of 4 predictions .* first in row 3 of the test rows; "):
        evaluate(tmp_path / "judged", "lr", files, run.log_spec, run.evaluation, "rows")


@pytest.mark.parametrize(
    ("kind", "why"), [("absolute", "same label"), ("change", "the last blessed model's predictions")]
)
@pytest.mark.parametrize("value", [NAN, INFINITE, -INFINITE])
def test_a_gate_on_a_value_that_is_not_finite_blocks(kind, why, value):
    row = gate_row("auc", kind, "at least 0.5", value, True)
    assert not row["passed"] and row["value"] is None and why in row["reason"]


def test_predictions_of_a_former_run_that_are_not_finite_are_not_compared(tmp_path):
    labels = np.array([0.0, 1, 0])
    for value, fits in ((0.5, True), (NAN, False)):
        path = tmp_path / f"{fits}.parquet"
        write_scored(path, ScoredRows("rows", {"ctr": labels}, {"ctr": np.array([0.1, value, 0.2])}))
        if fits:
            assert len(read_scored(path)) == 3
        else:
            with pytest.raises(InputError, match="a prediction of ctr is not a finite number"):
                read_scored(path)
