"""What a study searches and when it ends, as configuration and options say."""

import math

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import available
from ctrpipe.pipeline.config import SearchRange
from ctrpipe.pipeline.training.buildable import why_impossible
from ctrpipe.pipeline.tune.default_space import default_space
from ctrpipe.pipeline.tune.plan import make_plan, read_budget
from tests.models.small_models import FAMILIES, KINDS, cases_of
from tests.pipeline.tune.small_study import CONFIG, small_plan, write_config

TEXT = {"kind": "text", "columns": ["C1"], "length": 8, "tokens": "vocabulary", "separator": " ", "top_k": 50}


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400), (" 2m ", 120)]
)
def test_a_budget_of_time(text, seconds):
    assert read_budget(text, None).seconds == seconds


@pytest.mark.parametrize(
    ("budget", "trials", "message"),
    [
        ("soon", None, "--budget soon: expected a time"),
        ("2", None, "--budget 2: expected a time"),
        ("0h", None, "above 0"),
        ("-1h", None, "expected a time"),
        ("", None, "expected a time"),
        ("nan", None, "expected a time"),
        ("9" * 400 + "h", None, "expected a time"),
        (None, "many", "--trials many: expected a whole number"),
        (None, "0", "--trials 0"),
        (None, "2.5", "--trials 2.5"),
        (None, "٣", "expected a whole number"),
        (None, None, "give a budget: --trials 50, or --budget 2h"),
    ],
)
def test_a_mistake_in_a_budget_is_one_line(budget, trials, message):
    with pytest.raises(InputError, match=message) as error:
        read_budget(budget, trials)
    assert "\n" not in str(error.value)


def test_a_space_has_lists_and_ranges_of_the_keys_types(tmp_path):
    space = small_plan(
        tmp_path,
        search={
            "model.embedding_dim": {"linear": [2, 6]},
            "model.hidden_units": [[8], [16, 8]],
            "model.dropout": {"linear": [0, 1]},
            "training.learning_rate": {"log": [1e-4, 1e-2]},
            "training.gradient_clip_norm": [None, 5.0],
        },
    ).space
    assert space.distributions == {
        "model.embedding_dim": IntDistribution(2, 6),
        "model.hidden_units": CategoricalDistribution(["8", "16-8"]),
        "model.dropout": FloatDistribution(0, 1),
        "training.learning_rate": FloatDistribution(1e-4, 1e-2, log=True),
        "training.gradient_clip_norm": CategoricalDistribution(["none", 5.0]),
    }
    assert space.points == math.inf
    # The configuration's own: embedding_dim 4, hidden_units [8], dropout 0 by default, gradient_clip_norm 5 by default.
    assert space.own_parameters() == {
        "model.embedding_dim": 4,
        "model.hidden_units": "8",
        "model.dropout": 0.0,
        "training.learning_rate": 0.01,
        "training.gradient_clip_norm": 5.0,
    }
    config = space.config(
        {"model.embedding_dim": 3, "model.hidden_units": "16-8", "training.gradient_clip_norm": "none"}
    )
    assert (
        config.model.hyperparameters["hidden_units"] == [16, 8] and config.model.hyperparameters["embedding_dim"] == 3
    )
    assert config.training.gradient_clip_norm is None and config.training.batch_size == 128


def test_a_space_of_lists_and_whole_numbers_has_so_many_points(tmp_path):
    search = {"model.embedding_dim": {"linear": [2, 6]}, "model.hidden_units": [[8], [16, 8]]}
    assert small_plan(tmp_path, search=search).space.points == 10


def test_own_values_outside_of_the_space_are_left_to_the_sampler(tmp_path):
    search = {"model.embedding_dim": [8, 16], "training.learning_rate": {"log": [1e-5, 1e-4]}, "model.dropout": [0.0]}
    assert small_plan(tmp_path, search=search).space.own_parameters() == {"model.dropout": 0.0}


def test_the_lowest_number_of_a_logarithmic_range_stands_for_0(tmp_path):
    search = {"training.network_l2": {"log": [1e-7, 1e-2]}, "model.dropout": {"linear": [0.1, 0.5]}}
    plan = small_plan(tmp_path, search=search)
    own = plan.space.own_parameters()
    assert own == {"training.network_l2": 1e-7}
    assert plan.best_config(own).training == plan.default_config().training
    assert plan.space.settings({"training.network_l2": 2e-7}) == {"training.network_l2": 2e-7}
    penalised = small_plan(tmp_path, search=search, training={**CONFIG["training"], "network_l2": 1e-5}).space
    assert penalised.settings({"training.network_l2": 1e-7}) == {"training.network_l2": 1e-7}


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({}, "config.yaml: search: the search space is empty"),
        ({"model.embeding_dim": [2]}, "search: model.embeding_dim: model: mlp has no hyperparameter 'embeding_dim'"),
        ({"training.learning_rat": [0.1]}, "search: training.learning_rat: .*unknown key"),
        ({"features": [1]}, "search: features: unknown key; only model.<key> and training.<key>"),
        ({"data.seed": [1]}, "search: data.seed: unknown key"),
        ({"model": [1]}, "search: model: unknown key"),
        ({"model.name": ["lr", "fm"]}, "model.name cannot be searched: tune one model at a time"),
        ({"training.monitor": ["auc"]}, "--objective says"),
        ({"model.dropout": []}, "search: model.dropout: the list of values is empty"),
        ({"model.embedding_dim": [2, "two"]}, "search: model.embedding_dim: .*Received: 'two'"),
        ({"training.learning_rate": [0.1, -1]}, "search: training.learning_rate: .*greater than 0"),
        ({"model.embedding_dim": {"linear": [1.5, 8]}}, "takes whole numbers"),
        ({"model.hidden_units": {"linear": [1, 8]}}, "takes no numbers of a range"),
        ({"model.dropout": [0.1, 0.1]}, "a value appears twice"),
        ({"model.dropout": {"log": [0, 1]}}, "begins above 0"),
        ({"model.dropout": {"linear": [1, 0]}}, "should be below the second"),
        ({"model.dropout": {"uniform": [0, 1]}}, "search.model.dropout"),
        ({"model.dropout": {}}, "expected {log"),
        ({"model.dropout": 0.5}, "search.model.dropout"),
        ({"training.learning_rate": {"log": [1e-4, 1e-3, 1e-2]}}, "search.training.learning_rate"),
    ],
)
def test_a_mistake_in_a_space_is_one_line(tmp_path, search, message):
    with pytest.raises(InputError, match=message) as error:
        small_plan(tmp_path, search=search)
    assert "\n" not in str(error.value)


def test_a_searched_key_cannot_be_set_too(tmp_path):
    with pytest.raises(InputError, match="the study searches it"):
        make_plan(write_config(tmp_path), ("training.learning_rate=0.1",))


def test_latency_is_not_measured_beside_other_trials(tmp_path):
    with pytest.raises(InputError, match="give --workers 1"):
        make_plan(write_config(tmp_path), workers=2, p99_ms=5.0)


def test_trials_monitor_the_objective_do_not_refit_and_are_evaluated_often(tmp_path):
    training = {"epochs": 3, "evaluations_per_epoch": 1, "patience": 2, "plateau": {"patience": 3}, "refit": True}
    training |= {"averaged_evaluations": 4}
    plan = make_plan(write_config(tmp_path, training=training), objective="auc")
    base = plan.space.base.training
    # 8 evaluations or more in 3 epochs: 3 an epoch. What counts evaluations counts three times as many.
    assert (base.evaluations_per_epoch, base.patience, base.plateau.patience) == (3, 6, 9)
    assert base.averaged_evaluations == 12
    assert (base.monitor, base.refit) == ("auc", False)
    best = plan.best_config({"training.learning_rate": 0.02}).training
    assert (best.learning_rate, best.refit, best.monitor) == (0.02, True, "auc")


def test_a_training_that_is_evaluated_often_enough_stays_as_it_is(tmp_path):
    plan = small_plan(tmp_path, training={"epochs": 4, "evaluations_per_epoch": 2, "patience": 3})
    assert (plan.space.base.training.evaluations_per_epoch, plan.space.base.training.patience) == (2, 3)


@pytest.mark.parametrize("model", cases_of((*FAMILIES, "lr", "mlp")))
def test_every_model_has_a_space_of_its_own(tmp_path, model):
    features = [*CONFIG["features"], *([TEXT] if model_needs_text(model) else []), *history_of(model)]
    plan = small_plan(tmp_path, model=named(model), features=features, data=data_of(model), search=None)
    if model == "lightgbm":  # its training has no steps
        assert "training.learning_rate" not in plan.space.values and "model.rate" in plan.space.values
        return
    rates = plan.space.values["training.learning_rate"]
    # CONFIG's learning rate is .01: above the range of encoders, so it is widened.
    assert rates.log == ([1e-5, 1e-2] if model_needs_text(model) else [1e-4, 3e-2])
    assert ("training.table_l2" in plan.space.values) == (not model_needs_text(model))
    if model in ("lr", "fm", "ffm") or model_needs_text(model):  # no network, or a text's
        assert "training.network_l2" not in plan.space.values
    elif model in ("mlp", "deepfm", "dcn_v2", "cin", "xdeepfm", "autoint", "hiformer", "din"):
        assert plan.space.values["training.network_l2"].log == [1e-7, 1e-2]
    assert len(plan.space.values) >= 2 or model in ("numbert", "text_only")


@pytest.mark.parametrize(("model", "penalty"), [("lr", "model.l2"), ("deepfm", "model.embedding_l2")])
def test_an_optimizer_of_single_rows_is_searched_with_the_penalty_on_those(tmp_path, model, penalty):
    plan = small_plan(tmp_path, model={"name": model}, search=None, training={"optimizer": "lazy_adam"})
    assert penalty in plan.space.values and "training.table_l2" not in plan.space.values


SHARED = next(feature["columns"][0] for feature in CONFIG["features"] if feature["kind"] == "categorical")


def named(name: str) -> dict:
    """The model, with the fields that its gates read."""
    read = {"ppnet": {"priors": [SHARED]}, "pepnet": {"priors": [SHARED], "domains": [SHARED]}}
    return {"name": name, **read.get(name, {})}


def history_of(name: str) -> list[dict]:
    """A history, for a model that needs one or the candidate's columns."""
    feature = {"columns": ["C2"], "kind": "sequence", "shared_with": SHARED, "max_length": 3}
    model = next(info for info in available() if info.name == name)
    return [feature] if model.needs_history or model.needs_items else []


def data_of(name: str) -> dict:
    """With a second label, for a model that needs one."""
    labels = {"ctr": "label", "again": "label"}
    needs_tasks = next(info for info in available() if info.name == name).needs_tasks
    return {**CONFIG["data"], "labels": labels} if needs_tasks else CONFIG["data"]


def model_needs_text(name: str) -> bool:
    return next(info for info in available() if info.name == name).needs_text


@pytest.mark.slow
@pytest.mark.parametrize("model", cases_of(KINDS, [info.name for info in available() if not info.needs_text]))
def test_the_ends_of_a_model_s_space_can_be_built(tmp_path, model):
    features = [*CONFIG["features"], *history_of(model)]
    plan = small_plan(tmp_path, model=named(model), features=features, data=data_of(model), search=None)
    for end in (0, -1):
        settings = {
            key: values.ends[end] if isinstance(values, SearchRange) else values[end]
            for key, values in default_space(plan.space.base).items()
        }
        parameters = {
            key: value if isinstance(value, int | float) else label(plan, key, end) for key, value in settings.items()
        }
        assert why_impossible(plan.space.config(parameters).model, plan.space.base) == ""


@pytest.mark.parametrize(
    ("model", "training"),
    [
        (
            {"name": "mlp", "embedding_dim": 12, "hidden_units": [8], "dropout": 0.6},
            {"learning_rate": 0.1, "table_l2": 0.03},
        ),
        ({"name": "fcn", "embedding_dim": 4, "exponential_layers": 5, "linear_layers": 5, "linear_dropout": 0.7}, {}),
    ],
)
def test_a_default_space_holds_the_configuration_s_own_values(tmp_path, model, training):
    training = {**CONFIG["training"], "table_l2": 1e-5, **training}
    plan = small_plan(tmp_path, model=model, training=training, search=None)
    own = plan.space.own_parameters()
    assert set(own) == set(plan.space.distributions)
    stated = {f"model.{key}": value for key, value in model.items() if key != "name"}
    stated |= {f"training.{key}": training[key] for key in ("learning_rate", "table_l2")}
    assert plan.space.settings(own).items() >= stated.items()


def label(plan, key, end):
    return plan.space.distributions[key].choices[end]
