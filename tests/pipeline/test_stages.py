"""Trainings in several stages, on small packed texts."""

import dataclasses

import keras
import numpy as np
import pytest

from ctrpipe.common.arrays import read_arrays, write_arrays
from ctrpipe.common.errors import InputError
from ctrpipe.common.metrics import auc
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.text.bert4ctr import BERT4CTR
from ctrpipe.models.text.cascading import text_model_of
from ctrpipe.models.text.masked_language_model import mask_tokens
from ctrpipe.pipeline.config import FirstStage, Model, Training
from ctrpipe.pipeline.training import data, masked_language_model
from ctrpipe.pipeline.training.data import packed_batches
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.tensorflow_learner import TensorFlowLearner
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.packed_files import PackedWriter
from tests.models.small_models import ENCODER, text_map

pytestmark = pytest.mark.slow

MAP = dataclasses.replace(text_map(), numbers=())  # none of these models reads them
TEXT = MAP.text
WORDS = 12  # of the log, behind the special tokens
OPTIONS = {**ENCODER, "encoder_layers": 1, "encoder_width": 12, "encoder_ffn": 24, "embedding_stddev": 0.1}
TRAINING = Training(
    batch_size=64, epochs=3, learning_rate=0.005, patience=5, plateau=None, distribution="one_device", refit=False
)


def write(folder, rows: int, seed: int, words: int = 6) -> str:
    """Clicks depend on whether word 5 is in the text, and on the feature `b`; words 6 and 7 always stand together.

    A text has `words` words, 6 at most.
    """
    random = np.random.default_rng(seed)
    tokens = np.zeros((rows, 8), np.int32)
    tokens[:, 0], tokens[:, 7] = TEXT.classify_id, TEXT.separator_id
    tokens[:, 1:7] = random.integers(8, 5 + WORDS, (rows, 6))
    tokens[random.random(rows) < 0.5, 3] = 5
    tokens[:, 5:7] = np.where(random.random((rows, 1)) < 0.5, [[6, 7]], [[7, 6]])
    tokens[:, words + 1], tokens[:, words + 2 :] = TEXT.separator_id, TEXT.padding_id
    ids = np.stack([random.integers(f.offset, f.offset + min(f.size, 10), rows) for f in MAP.fields], axis=1)
    signal = 2.5 * ((tokens == 5).any(axis=1) * 2 - 1) + 2.5 * ((ids[:, 2] % 2) * 2 - 1)
    label = random.random(rows) < 1 / (1 + np.exp(-signal))
    folder.mkdir()
    with PackedWriter(folder / "part-0.parquet") as writer:
        numbers = np.zeros((rows, 2 * len(MAP.numbers)), np.int32)
        values = {"ids": ids.astype(np.int32), "numbers": numbers, "tokens": tokens, "segments": np.zeros_like(tokens)}
        writer.write({**values, "label": label[:, None].astype(np.float32)})
    return f"{folder}/*"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    return [write(folder / "train", 1500, 1)], [write(folder / "validation", 600, 2)]


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Just enough rows to show which stages ran. All batches have one size: each step is compiled once."""
    folder = tmp_path_factory.mktemp("few")
    return [write(folder / "train", 256, 1)], [write(folder / "validation", 128, 2)]


def run(files, work, name, stages=None, seen=None, shared="", **options):
    training = TRAINING.model_copy(update={"stages": stages or {}})
    report = None if seen is None else lambda row: seen.append(row["model"])
    job = TrainingJob(Model(name=name, **OPTIONS, **options), training, MAP, *files, 1, shared)
    return train(job, work, report)


class Wider(BERT4CTR):
    """A model whose token of features is wider than its stages' token."""

    def __init__(self, feature_map, *, token_dim: int = 8, **options):
        super().__init__(feature_map, token_dim=token_dim, **options)
        self.token_dim += 1
        self.reduce = keras.layers.Dense(self.token_dim, name="reduce")


@pytest.mark.parametrize(
    ("name", "options", "stage"),
    [
        pytest.param("bert4ctr", {}, "features_only", marks=pytest.mark.large),
        ("bert4ctr", {"feature_tokens": 2}, "features_only"),
        pytest.param("bert4ctr", {}, "text_only", marks=pytest.mark.large),
        pytest.param("shallow_interaction_1", {}, "features_only", marks=pytest.mark.large),
        ("cascading_deepfm", {}, "text_only"),
    ],
)
def test_with_the_defaults_a_model_starts_from_what_its_stage_learned(few, tmp_path, name, options, stage):
    encoder = {key: value for key, value in OPTIONS.items() if key.startswith("encoder_")}
    own = encoder if stage == "text_only" else {**options, "embedding_stddev": OPTIONS["embedding_stddev"]}
    alone = train(TrainingJob(Model(name=stage, **own), TRAINING, MAP, *few, 1), tmp_path / "alone").model
    stages = {each: FirstStage(skip=True) for each in ("features_only", "text_only")}
    stages[stage] = FirstStage(learning_rate=TRAINING.learning_rate, epochs=TRAINING.epochs)
    still = TRAINING.model_copy(update={"stages": stages, "learning_rate": 1e-12, "epochs": 1})
    seen: list[dict] = []
    job = TrainingJob(Model(name=name, **OPTIONS, **options), still, MAP, *few, 1)
    model = train(job, tmp_path / "joint", seen.append).model
    assert {row["model"] for row in seen} == {stage, name}  # the other stage is left out
    layers = ("table", "reduce") if stage == "features_only" else ("encoder", "pooler")
    for layer in layers:
        for a, b in zip(getattr(alone, layer).weights, getattr(text_model_of(model), layer).weights, strict=True):
            np.testing.assert_allclose(b, a, atol=1e-8)


HISTORIES = FeatureMap.from_sizes(
    [("user", "categorical", 20), ("item", "categorical", 30), ("items", "sequence", 30, 4, "feature", "mean", "item")]
)


def write_histories(folder, seed: int) -> list[str]:
    """Clicks depend on whether the item and the first one of the history are both even, or both odd."""
    random, rows = np.random.default_rng(seed), 256
    user, item, _ = HISTORIES.fields
    ids = np.zeros((rows, 6), np.int32)
    ids[:, 0] = user.offset + random.integers(2, user.size, rows)
    ids[:, 1:] = item.offset + random.integers(2, item.size, (rows, 5))
    alike = ids[:, 1] % 2 == ids[:, 2] % 2
    folder.mkdir()
    with PackedWriter(folder / "part-0.parquet") as writer:
        writer.write({"ids": ids, "label": alike[:, None].astype(np.float32)})
    return [f"{folder}/*"]


@pytest.mark.large(like="tests/pipeline/test_stages.py::test_a_stage_that_two_models_share_is_trained_once")
def test_a_nais_begins_with_a_fism_only_where_the_stage_is_named(tmp_path):
    files = write_histories(tmp_path / "train", 1), write_histories(tmp_path / "validation", 2)
    options = {"embedding_dim": 4, "embedding_stddev": 0.1}
    seen: list[str] = []

    def trained(name, work, **settings):
        training = TRAINING.model_copy(update={"start_at_base_rate": True, **settings})
        report = lambda row: seen.append(row["model"])  # noqa: E731
        job = TrainingJob(Model(name=name, **options), training, HISTORIES, *files, 1)
        return train(job, tmp_path / work, report).model

    still = {"learning_rate": 1e-12, "epochs": 1}
    alone = trained("fism", "fism")
    seen.clear()
    trained("nais", "alone", **still)
    trained("nais", "skipped", **still, stages={"fism": FirstStage(skip=True)})
    assert set(seen) == {"nais"}
    stage = FirstStage(learning_rate=TRAINING.learning_rate, epochs=TRAINING.epochs)
    model = trained("nais", "after", **still, stages={"fism": stage})
    assert "fism" in seen
    for layer in ("table", "history_table", "linear", "linear_dense"):
        for a, b in zip(getattr(alone, layer).weights, getattr(model, layer).weights, strict=True):
            np.testing.assert_allclose(b, a, atol=1e-8)


def test_a_stage_that_does_not_fit_is_refused_before_any_stage_has_trained(few, tmp_path, monkeypatch):
    trained: list[str] = []
    monkeypatch.setattr(TensorFlowLearner, "fit", lambda learner, batches: trained.append(learner.network.name))
    monkeypatch.setattr(masked_language_model, "pretrain_encoder", lambda *_: trained.append("language"))
    message = (
        r"^training.stages.features_only: .*:Wider would .* 'reduce', whose weight is \(64, 8\) and not \(64, 9\); "
    )
    with pytest.raises(InputError, match=message):
        run(few, tmp_path, f"{__name__}:Wider", {"masked_language_model": FirstStage(epochs=1)})
    assert trained == []


def area(files, result) -> float:
    labels, probabilities = result.learner.predict(packed_batches(files[1], MAP, 512))
    return auc(labels[:, 0], probabilities[:, 0])


@pytest.mark.large(like="tests/pipeline/test_stages.py::test_a_stage_that_two_models_share_is_trained_once")
def test_joint_training_comes_after_language_text_and_features(files, tmp_path):
    seen: list[str] = []
    stages = {"masked_language_model": FirstStage(epochs=2), "features_only": FirstStage(epochs=1)}
    options = {"token_dim": 8, "token_ffn": 8, "embedding_dim": 4, "hidden_units": [8]}
    result = run(files, tmp_path, "bert4ctr", stages, seen, **options)
    assert seen == ["masked_language_model"] * 2 + ["text_only"] * 3 + ["features_only"] + ["bert4ctr"] * 3
    text = run(files, tmp_path / "text", "text_only")
    assert area(files, result) > area(files, text) + 0.05 > 0.7


def test_a_stage_that_two_models_share_is_trained_once(few, tmp_path):
    options = {"token_dim": 8, "embedding_dim": 4, "hidden_units": [8]}
    stages = {"masked_language_model": FirstStage(epochs=1), "features_only": FirstStage(epochs=1)}
    alone = run(few, tmp_path / "alone", "shallow_interaction_1", stages, **options)
    seen: list[str] = []
    run(few, tmp_path / "a", "bert4ctr", stages, seen, tmp_path / "stages", token_ffn=8, **options)
    assert {"masked_language_model", "text_only", "features_only"} < set(seen)
    seen.clear()
    second = run(few, tmp_path / "b", "shallow_interaction_1", stages, seen, tmp_path / "stages", **options)
    assert set(seen) == {"shallow_interaction_1"}
    for one, other in zip(second.learner.weights(), alone.learner.weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.large(like="tests/pipeline/test_stages.py::test_a_stage_that_two_models_share_is_trained_once")
def test_a_stage_with_other_settings_is_another(few, tmp_path):
    options = {"token_dim": 8, "embedding_dim": 4, "hidden_units": [8]}
    for number, settings in enumerate([{}, {"epochs": 2}, {"learning_rate": 0.001}]):
        stages = {"text_only": FirstStage(**{"epochs": 1, **settings}), "features_only": FirstStage(epochs=1)}
        run(few, tmp_path / str(number), "shallow_interaction_1", stages, shared=str(tmp_path / "stages"), **options)
        kinds = sorted(folder.name.split("-")[0] for folder in (tmp_path / "stages").iterdir())
        assert kinds == ["features_only", *["text_only"] * (number + 1)]


@pytest.mark.large(
    like="tests/pipeline/test_stages.py::test_with_the_defaults_a_model_starts_from_what_its_stage_learned"
)
@pytest.mark.parametrize(
    ("skipped", "expected"),
    [
        (("features_only",), {"text_only", "bert4ctr"}),
        (("text_only", "features_only"), {"bert4ctr"}),
        (("text_only",), {"features_only", "bert4ctr"}),
    ],
)
def test_stages_can_be_left_out(few, tmp_path, skipped, expected):
    seen: list[str] = []
    stages = {name: FirstStage(skip=True) for name in skipped}
    run(few, tmp_path, "bert4ctr", stages, seen, token_dim=8, token_ffn=8, embedding_dim=4, hidden_units=[8])
    assert set(seen) == expected


@pytest.mark.large(
    like="tests/pipeline/test_stages.py::test_a_language_stage_that_was_stopped_goes_on_and_ends_the_same"
)
def test_a_language_is_learned_by_what_stands_beside(files, tmp_path):
    losses: list[float] = []
    training = TRAINING.model_copy(
        update={"stages": {"masked_language_model": FirstStage(epochs=6, learning_rate=0.01, mask_rate=0.2)}}
    )
    report = lambda row: losses.append(row["train_loss"]) if row["model"] == masked_language_model.NAME else None  # noqa: E731
    train(TrainingJob(Model(name="text_only", **OPTIONS), training, MAP, *files, 1), tmp_path, report)
    # Two of six words are certain but for what is hidden of them; the others are one of nine.
    assert len(losses) == 6 and losses[-1] < 0.85 * losses[0] and losses[-1] < np.log(WORDS)


@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_what_a_language_taught_the_encoder_is_what_the_next_stage_starts_from(few, tmp_path, monkeypatch, backend):
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")  # of JAX's process: compiling is most of it
    tables, model = [], Model(name="text_only", **OPTIONS)
    for rate in (1e-12, 0.05):
        stages = {"masked_language_model": FirstStage(epochs=1, learning_rate=rate)}
        still = {"stages": stages, "learning_rate": 1e-12, "epochs": 1, "backend": backend}
        training = TRAINING.model_copy(update=still)
        result = train(TrainingJob(model, training, MAP, *few, 1), tmp_path / str(rate))
        tables.append(np.asarray(result.model.encoder.token_table))
    assert np.abs(tables[1] - tables[0]).mean() > 0.01


@pytest.mark.parametrize(("by_length", "expected"), [pytest.param(False, {8}, marks=pytest.mark.large), (True, {4, 8})])
def test_a_language_is_learned_on_texts_without_the_padding_behind_them(tmp_path, monkeypatch, by_length, expected):
    monkeypatch.setattr(data, "TEXT_STEP", 4)
    short, long = [write(tmp_path / name, 256, seed, words) for name, seed, words in (("a", 1, 2), ("b", 2, 6))]
    lengths = set()
    hide = masked_language_model.mask_tokens

    def seen(tokens, *rest):
        lengths.add(tokens.shape[1])
        return hide(tokens, *rest)

    def stage_after(*_):
        raise InterruptedError

    monkeypatch.setattr(masked_language_model, "mask_tokens", seen)
    monkeypatch.setattr(TensorFlowLearner, "fit", stage_after)  # the language has been learned then
    stages = {"masked_language_model": FirstStage(epochs=1)}
    training = TRAINING.model_copy(update={"stages": stages, "bucket_by_length": by_length, "epochs": 1})
    job = TrainingJob(Model(name="text_only", **OPTIONS), training, MAP, [short, long], [long], 1)
    with pytest.raises(InterruptedError):
        train(job, tmp_path / "work")
    assert lengths == expected


def test_a_language_stage_that_was_stopped_goes_on_and_ends_the_same(few, tmp_path, monkeypatch):
    stages = {"masked_language_model": FirstStage(epochs=3)}

    def stage_after(*_):
        raise InterruptedError

    monkeypatch.setattr(TensorFlowLearner, "fit", stage_after)  # the language has been learned then

    def learned(name: str, seen: list[str] | None = None) -> list[np.ndarray]:
        with pytest.raises(InterruptedError):
            run(few, tmp_path / name, "text_only", stages, seen)
        [state] = (tmp_path / name).rglob("pretrained-masked_language_model/state.npz")
        return read_arrays(state)

    def stop(path, arrays):
        write_arrays(path, arrays)
        if int(arrays[-1]) == 2:
            raise KeyboardInterrupt

    whole = learned("whole")
    with monkeypatch.context() as patch:
        patch.setattr(masked_language_model, "write_arrays", stop)
        with pytest.raises(KeyboardInterrupt):
            run(few, tmp_path / "stopped", "text_only", stages)
    seen: list[str] = []
    again = learned("stopped", seen)
    assert seen.count("masked_language_model") == 1
    assert int(whole[-1]) == 3
    for a, b in zip(whole, again, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def boosted(files, tmp_path_factory):
    """A network with trees behind it, and the boosters that LightGBM gave them."""
    lightgbm = pytest.importorskip("lightgbm", exc_type=OSError)  # where there is no libgomp.so.1
    boosters = []
    learn = lightgbm.train
    options = {"hidden_units": [4], "embedding_dim": 4, "trees": 30, "leaves": 8, "depth": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lightgbm, "train", lambda *a, **k: boosters.append(learn(*a, **k)) or boosters[-1])
        stages = {"text_only": FirstStage(epochs=1)}
        result = run(files, tmp_path_factory.mktemp("boosted"), "cascading_nn_gbdt", stages, **options)
    return result, boosters


def test_trees_add_to_the_network_what_it_has_left(files, boosted):
    result, _ = boosted
    model = result.model
    inputs, labels = next(iter(packed_batches(files[1], MAP, 600)))
    values, logits = (np.asarray(part) for part in model.boost(inputs))
    trees = np.asarray(model.trees(values))
    assert 0 < np.abs(trees).max() < 10
    np.testing.assert_allclose(np.asarray(model(inputs)), logits + trees, rtol=1e-5, atol=1e-6)

    def loss(z):
        return np.mean(np.logaddexp(0, z) - z * np.asarray(labels))

    assert loss(logits + trees) <= loss(logits) + 0.01
    best = result.history["evaluations"][result.history["best"]]  # what a sweep chooses by
    assert best["validation_log_loss"] == pytest.approx(loss(logits + trees), rel=1e-4)


def test_the_trees_in_the_model_are_lightgbms(files, boosted):
    result, boosters = boosted
    inputs, _ = next(iter(packed_batches(files[1], MAP, 600)))
    values = np.asarray(result.model.boost(inputs)[0])
    expected = boosters[-1].predict(values, raw_score=True, num_iteration=boosters[-1].best_iteration)
    np.testing.assert_allclose(np.asarray(result.model.trees(values))[:, 0], expected, rtol=1e-5, atol=1e-6)


# What is hidden


def test_hidden_words_are_a_share_of_the_words_and_mostly_masks():
    random = np.random.default_rng(3)
    tokens = random.integers(5, TEXT.vocabulary_size, (2000, 8)).astype(np.int32)
    tokens[:, 0], tokens[:, 6], tokens[:, 7] = TEXT.classify_id, TEXT.separator_id, TEXT.padding_id
    hidden, positions, truth, weights = mask_tokens(tokens, TEXT, 0.4, random)
    assert positions.shape == truth.shape == weights.shape == (2000, 4)
    assert (weights.sum(axis=1) == 2).all()  # 40% of five words
    chosen = np.zeros(tokens.shape, bool)
    for row, place, weight in zip(range(2000), positions, weights, strict=True):
        chosen[row, place[weight > 0]] = True
    assert (chosen.sum(axis=1) == 2).all() and not chosen[:, [0, 6, 7]].any()
    np.testing.assert_array_equal(hidden[~chosen], tokens[~chosen])
    np.testing.assert_array_equal(np.take_along_axis(tokens, positions, 1)[weights > 0], truth[weights > 0])
    masked, same = (hidden[chosen] == TEXT.mask_id).mean(), (hidden[chosen] == tokens[chosen]).mean()
    assert abs(masked - 0.8) < 0.03 and abs(same - 0.1) < 0.02
    other = hidden[chosen & (hidden != TEXT.mask_id)]
    assert not np.isin(other, TEXT.special_ids).any()


def test_a_row_without_words_hides_nothing():
    tokens = np.array([[TEXT.classify_id, TEXT.separator_id, 0, 0, 0, 0, 0, 0]], np.int32)
    hidden, _, _, weights = mask_tokens(tokens, TEXT, 0.15, np.random.default_rng(0))
    np.testing.assert_array_equal(hidden, tokens)
    assert not weights.any()
