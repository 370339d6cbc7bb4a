"""The end of a study: which trainings are done, what is proposed, and what is left for a larger budget."""

import dataclasses
import types

import numpy as np
import pytest

from ctrpipe.common.errors import InputError, NotFiniteError
from ctrpipe.pipeline.compare.sides import UNDECIDED
from ctrpipe.pipeline.sweep import measure
from ctrpipe.pipeline.tune.confirm import confirm
from ctrpipe.pipeline.tune.plan import Budget, make_plan
from tests.pipeline.tune.small_study import CONFIG, small_plan, write_config

LOG = types.SimpleNamespace(
    inputs=types.SimpleNamespace(
        training_fingerprint=lambda config, model: f"{config.training.learning_rate}-{config.seed}",
        test_rows=lambda config: "these",
    )
)


class Searched:
    """A study whose best trial has other settings than the configuration, and a clock of trainings."""

    def __init__(self, plan, trainings: int, own: bool = False, refused: str | None = None):
        parameters = plan.space.own_parameters()
        attributes = {"refused": refused} if refused else {}
        first = types.SimpleNamespace(params=parameters, user_attrs=attributes)
        other = types.SimpleNamespace(params={**parameters, "training.learning_rate": 0.05}, user_attrs={})
        self.best, self.finished, self.left = first if own else other, [first, other], trainings

    @property
    def is_spent(self) -> bool:
        return self.left <= 0

    def note_seconds(self) -> None:
        self.left -= 1


@pytest.fixture
def trained(monkeypatch):
    """Trainings whose predictions are better at a rate of 0.05, by as much as `gain` says; those that were done."""
    done = types.SimpleNamespace(seeds=[], gain=1.0)
    random = np.random.default_rng(1)
    truth = random.normal(-1, 1.5, 4000)
    labels = (random.random(4000) < 1 / (1 + np.exp(-truth))).astype(np.float32)

    def train_and_measure(config, log, latency, test, work, key):
        rate = config.training.learning_rate
        done.seeds.append((rate, config.seed))
        noise = np.random.default_rng([config.seed, round(rate * 1000)]).normal(size=4000)
        logits = truth + (1.5 - done.gain * (rate == 0.05)) * noise
        probabilities = (1 / (1 + np.exp(-logits))).astype(np.float32)
        return {}, dataclasses.replace(test, labels={"ctr": labels}, probabilities={"ctr": probabilities})

    monkeypatch.setattr(measure, "train_and_measure", train_and_measure)
    return done


@pytest.mark.parametrize(("gain", "proposed"), [(1.0, "best"), (0.0, "default"), (-1.0, "default")])
def test_the_best_is_proposed_where_it_is_better(tmp_path, trained, gain, proposed):
    plan, trained.gain = small_plan(tmp_path), gain
    found = confirm(plan, Searched(plan, 99), LOG, tmp_path)
    assert found["proposed"] == proposed
    assert sorted(trained.seeds) == [(rate, plan.seed + seed) for rate in (0.01, 0.05) for seed in (1, 2, 3)]
    difference = found["comparison"]["slices"][0]["differences"]["best"]["rig"]
    assert difference["seeds"] == (3, 3) and found["text"].endswith("over rows and seeds (3 and 3)")
    assert (difference["verdict"] == UNDECIDED) == (gain == 0)


def test_trainings_end_with_the_time_and_go_on_with_more(tmp_path, trained):
    plan = small_plan(tmp_path)
    cut = confirm(plan, Searched(plan, 4), LOG, tmp_path)
    assert cut["proposed"] is None and cut["comparison"] is None and (cut["trained"], cut["wanted"]) == (4, 6)
    assert "4 of 6 training runs are done; a larger --budget continues" in cut["text"]
    again = confirm(plan, Searched(plan, 99), LOG, tmp_path)
    assert again["proposed"] == "best" and len(trained.seeds) == len(set(trained.seeds)) == 6
    assert confirm(plan, Searched(plan, 0), LOG, tmp_path) == again and len(trained.seeds) == 6


def test_nothing_is_trained_where_there_is_nothing_to_compare(tmp_path, trained):
    of_defaults = {"model.dropout": {"linear": [0, 0.5]}, "training.network_l2": {"log": [1e-7, 1e-2]}}
    for search in (CONFIG["search"], of_defaults):  # that the configuration writes, and that it does not
        plan = small_plan(tmp_path, search=search)
        own = confirm(plan, Searched(plan, 99, own=True), LOG, tmp_path)
        assert own["proposed"] == "default" and "is the best of 2 trials" in own["text"]
    plan = small_plan(tmp_path)
    slow = confirm(plan, Searched(plan, 99, refused="p99 of 9.00 ms is above 5 ms"), LOG, tmp_path)
    assert slow["proposed"] == "best" and "p99 of 9.00 ms" in slow["text"]
    assert confirm(dataclasses.replace(plan, seeds=0), Searched(plan, 99), LOG, tmp_path) is None
    assert not trained.seeds


@pytest.mark.parametrize(("rate", "proposed"), [(0.05, "default"), (0.01, "best")])
def test_a_configuration_that_fails_with_a_seed_is_not_proposed(tmp_path, trained, monkeypatch, rate, proposed):
    plan, trains = small_plan(tmp_path), measure.train_and_measure

    def failing(config, *arguments):
        if (config.training.learning_rate, config.seed) == (rate, plan.seed + 2):
            raise NotFiniteError("mlp: the training loss is not a finite number in epoch 1", "lower the rate", "train")
        return trains(config, *arguments)

    monkeypatch.setattr(measure, "train_and_measure", failing)
    found = confirm(plan, Searched(plan, 99), LOG, tmp_path)
    assert (found["proposed"], found["trained"], found["comparison"]) == (proposed, 6, None)
    assert f"failed with seed {plan.seed + 2}: mlp: the training loss is not a finite number" in found["text"]


def test_one_seed_is_refused(tmp_path):
    with pytest.raises(InputError, match="--seeds 1: one training run says nothing about other seeds"):
        make_plan(write_config(tmp_path), budget=Budget(2), seeds=1)
