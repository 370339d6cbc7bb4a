"""The sides of `benchmarks.quality`: libraries that train models on the same rows, and their search spaces."""

import dataclasses
import functools
import pathlib
import random
import shutil
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from benchmarks.peers.client import Peer
from ctrpipe.common import metrics
from ctrpipe.models.base.feature_map import FeatureMap

if TYPE_CHECKING:
    from ctrpipe.pipeline.config import Model, RunConfig, Training

MODELS = ("lr", "fm", "deepfm", "dcn_v2", "xdeepfm", "autoint")
SPLITS = ("train", "validation", "test")
# Learning-rate schedule and early stopping of configs/criteo, in evaluations. All sides share them.
STOP = {"epochs": 30, "patience": 6, "plateau": {"factor": 0.3, "patience": 2, "minimum": 1e-6}}
# The search space, the same for all: every library has an L2 penalty on whole tables and on the network's weights, and
# dropout after hidden layers.
HIDDEN: tuple[tuple[int, ...], ...] = ((32,), (64, 32), (200, 100))
DIMS, DROPOUTS, RATES = (4, 8, 16), (0.0, 0.2, 0.5), (3e-4, 3e-2)
# Range of λ in λ/2·Σw², which is added to the mean log loss. For N rows and a prior of weights with standard deviation
# σ, λ = 1 / (N σ²): σ from 0.1 to 1 gives .0024 to .000024 for 42,000 rows, seven times as much for 6,300.
L2 = (1e-6, 1e-2)
CROSS, CIN, ATTENTION, HEADS = 2, (32, 32), 2, 2
# The papers of these models and all libraries add a linear part; DCN-v2's and AutoInt's papers and FuxiCTR add none.
WITH_LINEAR = ("deepfm", "xdeepfm")
LINEAR_OF_PEERS = {
    "deepctr_torch": (*WITH_LINEAR, "dcn_v2", "autoint"),
    "recbole": (*WITH_LINEAR, "autoint"),
    "fuxictr": WITH_LINEAR,
}

Settings = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows that every side uses for training and testing.

    Attributes:
        path: The .npz file of `Peer.fit`: ids counted from 0 within a field, labels, and the fields' sizes.
        feature_map: The description of the packed files.
        files: By split, the patterns of the packed files.
    """

    path: pathlib.Path
    feature_map: FeatureMap
    files: dict[str, list[str]]

    @functools.cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The file's arrays."""
        with np.load(self.path) as file:
            return dict(file)

    def split(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns a split's ids, int32 `[N, fields]`, and its labels, float32 `[N]`."""
        return self.arrays[f"{name}_ids"], self.arrays[f"{name}_labels"]


@dataclasses.dataclass(frozen=True)
class Trained:
    """The result of one training run.

    Attributes:
        log_loss: The best validation log loss, the criterion for choosing settings.
        seconds: Training time.
        probabilities: Predictions for the test rows, `[N]`.
    """

    log_loss: float
    seconds: float
    probabilities: np.ndarray


class Side(Protocol):
    """A library that trains models."""

    name: str
    models: tuple[str, ...]
    with_linear: tuple[str, ...]
    """The networks that have a linear part on this side."""
    is_random: bool
    """Whether the model depends on the seed."""
    schedule: Settings
    """Settings shared by all sides' networks: batch_size, evaluations_per_epoch and STOP; empty for a side without
    networks. A side of ours may also average its weights.
    """

    def draw(self, model: str, draw: random.Random) -> Settings:
        """Returns settings drawn from the side's space."""

    def first(self, model: str) -> Settings:
        """Returns the settings of the first trial: the library's defaults."""

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        """Trains a model to its best validation result."""


def trials(side: Side, model: str, count: int) -> Iterator[Settings]:
    """Yields the settings of a search: the side's first, then random ones, the same in every run and for all sides.

    With few trials and different draws, a side could win by luckier settings, which no confidence interval covers.
    """
    yield side.first(model)
    for index in range(1, count):
        yield side.draw(model, random.Random(f"{model}/{index}"))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Settings drawn from the search space.

    Attributes:
        rate: The learning rate.
        l2: Strength of the L2 penalty on the tables.
        network_l2: Strength of the L2 penalty on the network's weights.
        dim: The width of an embedding.
        hidden: Units of the hidden layers.
        dropout: Dropout rate after each hidden layer.
    """

    rate: float
    l2: float
    network_l2: float
    dim: int
    hidden: tuple[int, ...]
    dropout: float

    @classmethod
    def of(cls, draw: random.Random) -> "Drawn":
        """Returns settings drawn at random."""
        rate, l2, network_l2 = (_log_uniform(draw, ends) for ends in (RATES, L2, L2))
        return cls(rate, l2, network_l2, draw.choice(DIMS), draw.choice(HIDDEN), draw.choice(DROPOUTS))


def _log_uniform(draw: random.Random, ends: tuple[float, float]) -> float:
    low, high = ends
    return float(f"{low * (high / low) ** draw.random():.3g}")


class Ours:
    """This project's models and trainer. The first trial uses the defaults of both.

    Args:
        schedule: Settings shared by all sides' networks.
        averaged: Approximate number of evaluations over which the weights are averaged; 1: no averaging. No other side
            averages.
    """

    models, with_linear, is_random = MODELS, WITH_LINEAR, True

    def __init__(self, schedule: Settings, averaged: int = 1) -> None:
        self.name = "ours" if averaged == 1 else "ours_averaged"
        self.schedule = schedule if averaged == 1 else {**schedule, "averaged_evaluations": averaged}

    def first(self, model: str) -> Settings:
        return {"model": {}, "training": {}}

    def draw(self, model: str, draw: random.Random) -> Settings:
        drawn = Drawn.of(draw)
        chosen: Settings = {} if model == "lr" else {"embedding_dim": drawn.dim}
        if model not in ("lr", "fm"):
            units = "deep_units" if model == "autoint" else "hidden_units"
            chosen |= {units: drawn.hidden, "dropout": drawn.dropout, "use_linear": model in WITH_LINEAR}
        sizes = {"dcn_v2": {"layers": CROSS}, "xdeepfm": {"maps": CIN}}
        sizes["autoint"] = {"layers": ATTENTION, "heads": HEADS, "attention_dim": drawn.dim}
        training = {"learning_rate": drawn.rate, "table_l2": drawn.l2, "network_l2": drawn.network_l2}
        return {"model": chosen | sizes.get(model, {}), "training": training}

    def alike(self, settings: Settings, model: str, other: Side) -> Settings:
        """Returns the settings with a linear part if the other side's model has one, and without it otherwise."""
        if "use_linear" not in settings["model"]:
            return settings
        return {**settings, "model": {**settings["model"], "use_linear": model in other.with_linear}}

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        from ctrpipe.pipeline.config import Model, Training  # imports pydantic, which --help should not pay for

        training = Training(
            monitor="log_loss",
            distribution="one_device",
            **self.schedule,
            **settings["training"],
        )
        return _trained(Model(name=model, **settings["model"]), training, seed, rows, work)


class Baseline:
    """The logistic regression that a run trains as its baseline."""

    name, models, is_random = "baseline", ("lr",), False
    with_linear: tuple[str, ...] = ()
    schedule: Settings = {}

    def first(self, model: str) -> Settings:
        return {}

    def draw(self, model: str, draw: random.Random) -> Settings:
        return {"table_l2": Drawn.of(draw).l2}

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        from ctrpipe.pipeline.config import Model, Training

        training = Training().of_baseline(model).model_copy(update=settings)
        return _trained(Model(name=model), training, seed, rows, work)


class Drafted:
    """The model of a configuration, with the configuration's settings."""

    name, is_random = "drafted", True
    with_linear: tuple[str, ...] = ()
    schedule: Settings = {}

    def __init__(self, config: "RunConfig") -> None:
        self._config = config
        self.models = (config.model.name,)

    def first(self, model: str) -> Settings:
        return {}

    def draw(self, model: str, draw: random.Random) -> Settings:
        return {"learning_rate": Drawn.of(draw).rate}

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        training = self._config.training.model_copy(update=settings)
        return _trained(self._config.model, training, seed, rows, work)


def _trained(model: "Model", training: "Training", seed: int, rows: Rows, work: pathlib.Path) -> Trained:
    """Trains a model of ours to its best validation result."""
    # These import TensorFlow: 4 s that --help and option errors should not pay.
    import keras

    from ctrpipe.pipeline.training.data import packed_batches
    from ctrpipe.pipeline.training.job import TrainingJob
    from ctrpipe.pipeline.training.train import train

    shutil.rmtree(work, ignore_errors=True)
    start = time.perf_counter()
    job = TrainingJob(model, training, rows.feature_map, rows.files["train"], rows.files["validation"], seed)
    result = train(job, work)
    seconds = time.perf_counter() - start
    test = packed_batches(rows.files["test"], rows.feature_map, 8192)
    _, probabilities = result.learner.predict(test)
    shutil.rmtree(work, ignore_errors=True)
    keras.backend.clear_session()
    assert result.progress.best is not None
    best = result.progress.evaluations[result.progress.best]["validation_log_loss"]
    return Trained(best, seconds, probabilities[:, 0])


class PeerSide:
    """A library of `benchmarks.peers`. The first trial uses the library's default sizes and regularisation."""

    is_random = True
    FIRST: dict[str, Settings] = {
        "deepctr_torch": {"dim": 4, "hidden": (256, 128), "dropout": 0.0, "l2": 1e-5},
        "recbole": {"dim": 10, "hidden": (128, 128, 128), "dropout": 0.2, "l2": 0.0},
        "fuxictr": {"dim": 10, "hidden": (64, 64, 64), "dropout": 0.0, "l2": 0.0},
    }

    def __init__(self, peer: Peer, threads: int, schedule: Settings, zoo: pathlib.Path | None = None) -> None:
        self.name, self.peer, self.threads, self.zoo = peer.name, peer, threads, zoo
        self.schedule = schedule
        self.with_linear = LINEAR_OF_PEERS[peer.name]
        offered = MODELS if zoo else peer.models()
        self.models = tuple(model for model in MODELS if model in offered)

    def first(self, model: str) -> Settings:
        return {**self.FIRST[self.name], "learning_rate": 1e-3}

    def draw(self, model: str, draw: random.Random) -> Settings:
        drawn = Drawn.of(draw)
        # DeepCTR-Torch adds l2·Σw² to the sum over a batch, the others add λ/2·Σw² to the mean.
        unit = self.schedule["batch_size"] / 2 if self.name == "deepctr_torch" else 1.0
        penalties = {"l2": drawn.l2 * unit}
        if self.name != "recbole":  # its optimizer decays all weights with one rate
            penalties["network_l2"] = drawn.network_l2 * unit
        sizes = {"dim": drawn.dim, "hidden": drawn.hidden, "dropout": drawn.dropout}
        return {**sizes, **penalties, "learning_rate": drawn.rate}

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        sizes = {"cross": CROSS, "cin": CIN, "layers": ATTENTION, "heads": HEADS, **self.schedule}
        sizes |= {"zoo": str(self.zoo.resolve())} if self.zoo else {}
        out = work.with_suffix(".npz")
        reply = self.peer.fit(model, rows.path, out, self.threads, seed=seed, **sizes, **settings)
        with np.load(out) as file:
            probabilities = file["probabilities"]
        out.unlink()
        return Trained(reply["log_loss"], reply["seconds"], probabilities)


class OneHot:
    """scikit-learn's logistic regression on one-hot ids."""

    name, models, is_random = "scikit-learn", ("lr",), False
    with_linear: tuple[str, ...] = ()
    schedule: Settings = {}

    def first(self, model: str) -> Settings:
        return {"C": 1.0}

    def draw(self, model: str, draw: random.Random) -> Settings:
        return {"l2": Drawn.of(draw).l2}

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import OneHotEncoder

        start = time.perf_counter()
        ids, labels = rows.split("train")
        # scikit-learn adds 1/2·Σw², without the bias, to C times the sum over all rows.
        strength = settings["C"] if "C" in settings else 1 / (settings["l2"] * len(labels))
        encoder = OneHotEncoder(handle_unknown="ignore").fit(ids)
        linear = LogisticRegression(C=strength, max_iter=300).fit(encoder.transform(ids), labels)
        seconds = time.perf_counter() - start
        valid, test = (linear.predict_proba(encoder.transform(rows.split(name)[0]))[:, 1] for name in SPLITS[1:])
        return Trained(_log_loss(rows, valid), seconds, test)


class Trees:
    """LightGBM with the ids as categorical features."""

    name, models, is_random = "lightgbm", ("trees",), True
    with_linear: tuple[str, ...] = ()
    schedule: Settings = {}

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def first(self, model: str) -> Settings:
        return {}

    def draw(self, model: str, draw: random.Random) -> Settings:
        return {
            "learning_rate": _log_uniform(draw, (0.02, 0.2)),
            "num_leaves": draw.choice((7, 15, 31)),
            "min_data_in_leaf": draw.choice((20, 100, 300)),
            "cat_smooth": draw.choice((10, 50, 200)),
            "feature_fraction": draw.choice((0.3, 0.6, 1.0)),
            "lambda_l2": _log_uniform(draw, (1e-2, 100.0)),
        }

    def train(self, model: str, settings: Settings, seed: int, rows: Rows, work: pathlib.Path) -> Trained:
        import lightgbm

        start = time.perf_counter()
        parts = {name: rows.split(name) for name in SPLITS}
        same = {
            "objective": "binary",
            "verbose": -1,
            "seed": seed,
            "num_threads": self.threads,
            "bagging_fraction": 0.8,
        }
        same |= {"bagging_freq": 1, "deterministic": True}
        categories = list(range(parts["train"][0].shape[1]))
        train = lightgbm.Dataset(*parts["train"], categorical_feature=categories)
        valid = lightgbm.Dataset(*parts["validation"], reference=train, categorical_feature=categories)
        stop = lightgbm.early_stopping(30, verbose=False)
        trees = lightgbm.train({**same, **settings}, train, 1000, [valid], callbacks=[stop])
        seconds = time.perf_counter() - start
        predicted = [np.asarray(trees.predict(parts[name][0])) for name in SPLITS[1:]]
        return Trained(_log_loss(rows, predicted[0]), seconds, predicted[1])


def _log_loss(rows: Rows, probabilities: np.ndarray) -> float:
    loss = metrics.log_loss(rows.split("validation")[1], probabilities)
    assert loss is not None
    return loss
