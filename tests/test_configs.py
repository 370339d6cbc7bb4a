"""Every shipped configuration: it loads, its model can be built, and it is consistent with the others."""

import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from ctrpipe.models import FeatureMap
from ctrpipe.models.base.registry import available, model_class
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.config.packaged_configs import config_names
from ctrpipe.pipeline.sweep.check import check_models
from ctrpipe.pipeline.sweep.plan import make_plan
from ctrpipe.pipeline.training.network import build_network, count_parameters
from ctrpipe.transforms.features.preprocessing import layout
from tests.models.small_models import KINDS, SMALL

FOLDER = pathlib.Path(__file__).parents[1] / "configs"
CONFIGS = [FOLDER / name for name in config_names() if not name.startswith("sweeps/")]
SWEEPS = sorted((FOLDER / "sweeps").glob("*.yaml"))
BUILT = {"xdeepfm_table3", "bert4ctr_table1"}  # without a text and with one


def name_of(path: pathlib.Path) -> str:
    return "_".join(path.relative_to(FOLDER).with_suffix("").parts).removeprefix("papers_")


def few_ids(config: RunConfig) -> FeatureMap:
    return layout(config.log_spec, lambda column, feature: 3)


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_a_configuration_loads_and_names_its_models_and_their_options(path):
    config = load_config(path)
    assert config.name == name_of(path)
    for model in [config.model, config.evaluation.baseline]:
        assert not model or set(model.hyperparameters) <= set(model_class(model.name).options())


def is_large(path: pathlib.Path) -> bool:
    return path.parent.name == "bert4ctr" or path.parent.parent.name == "bars"


def models_to_build() -> Iterator[ParameterSet]:
    """In `make test` the first one of each kind of model; of 12 layers of 768 and of BARS, which take seconds, few."""
    seen: set[str] = set()
    for path in sorted(CONFIGS, key=is_large):
        again = path.stem in seen or (path.parent.name == "bert4ctr" and path.stem != "bert4ctr")
        again |= path.stem in SMALL and path.stem not in KINDS
        seen.add(path.stem)
        yield pytest.param(path, marks=[pytest.mark.large] if again else [pytest.mark.slow] * (path.stem not in KINDS))


@pytest.mark.parametrize("path", models_to_build(), ids=name_of)
def test_the_models_of_a_configuration_can_be_built(path):
    config = load_config(path)
    for model in [config.model, config.evaluation.baseline]:
        if model:
            network = build_network(model, few_ids(config), seed=0)
            parameters, tables = count_parameters(network)
            assert parameters >= tables > 0


def test_there_is_one_for_every_model():
    alone = {path.stem for path in CONFIGS if path.parent.name != "kddcup2012"}
    assert {info.name for info in available() if not info.needs_text} <= alone


def test_a_file_is_named_for_its_model():
    for path in CONFIGS:
        # Those of StarSpace's tasks are named for them, and ETA and TWIN are settings of SIM.
        if path.parent not in (FOLDER, FOLDER / "starspace") and path.stem not in ("avazu", "eta", "twin"):
            assert load_config(path).model.name == path.stem


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem in BUILT else [pytest.mark.large]) for path in SWEEPS],
    ids=lambda path: path.stem,
)
def test_a_sweep_file_is_valid_down_to_its_models(path):
    """Those with a text are built as small ones, on another configuration: the test above builds the papers' own."""
    small = FOLDER / "kddcup2012" / "bert4ctr.yaml" if path.stem.startswith("bert4ctr") else None
    plan = make_plan(path, config=small)
    assert plan.name == path.stem and len(plan.points) > 1
    trainings = {
        (point.config.model.model_dump_json(), point.config.training.model_dump_json()) for point in plan.points
    }
    assert len(trainings) >= len(plan.points) - 2  # the base model may stand in more than one group
    check_models(plan)


# Options that are the model's own in a table, beside those that no other model of the table has. All else is equal.
USE_LINEAR = {"use_linear"}  # the first-order term is a part of a factorisation machine
UNREGULARISED = {"l2", "embedding_l2", "linear_l2"}  # xDeepFM, section 4.1.4: none for LR, FM and PNN
XDEEPFM = {"LR": {"l2"}, "FM": USE_LINEAR | UNREGULARISED, "PNN": UNREGULARISED | {"dropout"}}
COMPONENTS = {"FM": USE_LINEAR | UNREGULARISED, "CrossNet": UNREGULARISED, "CIN": UNREGULARISED}
ATTENTION_NET = {
    "FM": USE_LINEAR,
    "FFM": USE_LINEAR | {"embedding_dim"},  # one vector for each other field
    "AFM": USE_LINEAR,
    "DeepFM": USE_LINEAR,
    "xDeepFM": USE_LINEAR,
    "Attention-Net (without top-k)": {"top_k"},
}
WITHOUT_TEXT = {"LR (features only)": {"linear_rate"}}
CASCADES = {"Wide & Deep": USE_LINEAR, "DeepFM": USE_LINEAR, "NN + GBDT": set[str]()}
TABLES: dict[str, dict[str, set[str]]] = {
    "attention_net_table1": ATTENTION_NET,
    "attention_net_table2": ATTENTION_NET,
    "attention_net_table3": {
        "(A)": {"layers"},
        "(B)": {"embedding_dim"},
        "(C)": {"heads"},
        "(D)": {"top_k"},
        "(E) λ=1e-6": {"l2", "embedding_l2"},
        "(E) λ=1e-5": {"l2", "embedding_l2"},
        "(E) λ=1e-4": {"l2", "embedding_l2"},
        "(F)": {"hidden_units"},
    },
    "xdeepfm_table2": {
        **COMPONENTS,
        "DNN": {"hidden_units"},
        "CrossNet": UNREGULARISED | {"layers"},
        "CIN": UNREGULARISED | {"maps"},
    },
    "xdeepfm_table3": {**XDEEPFM, **dict.fromkeys(["Wide&Deep", "DeepFM", "xDeepFM"], USE_LINEAR)},
    "xdeepfm_depth_width_activation": {"depth": {"maps"}, "width": {"maps"}, "activation": {"cin_activation"}},
    "hiformer_table1": {
        **dict.fromkeys(["Transformer", "Transformer+PE", "HeteroAtt"], {"layers"}),
    },
    "hiformer_table2": {"without low rank": {"qk_rank", "v_rank"}},
    "hiformer_figure5": {
        **dict.fromkeys(["HeteroAtt H·d_k", "Hiformer H·d_k"], {"key_dim"}),
        **dict.fromkeys(["HeteroAtt H·d_v", "Hiformer H·d_v"], {"value_dim"}),
    },
    "bert4ctr_table1": WITHOUT_TEXT,
    "bert4ctr_table2": WITHOUT_TEXT,
    "bert4ctr_table3": WITHOUT_TEXT,
    "bert4ctr_table4": WITHOUT_TEXT,
    "bert4ctr_table5": WITHOUT_TEXT,
    "bert4ctr_table6": WITHOUT_TEXT | CASCADES,
    "bert4ctr_table7": WITHOUT_TEXT | CASCADES,
    "bert4ctr_figure5": {},
}
# Settings of the training in which points of a table differ: what is compared there.
TRAINING = {"transformer_warmup": {"warmup_steps", "learning_rate"}, "bert4ctr_table5": {"stages"}}


def effective(config: RunConfig) -> dict[str, Any]:
    """Everything that a run does, a model's defaults included, with keys as `model.layers` and `training.epochs`."""
    values = config.model_dump(exclude={"name", "model", "training"})
    model = {**model_class(config.model.name).options(), **config.model.hyperparameters}
    model = {key: list(value) if isinstance(value, tuple) else value for key, value in model.items()}
    parts = {"model": model, "training": config.training.model_dump()}
    return values | {f"{part}.{key}": value for part, section in parts.items() for key, value in section.items()}


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_points_of_a_table_differ_in_what_the_table_compares_and_in_nothing_else(path):
    """All points that have a key have the same value, except for the keys of the table above."""
    plan = make_plan(path)
    own = {
        point.name: {f"model.{key}" for key in TABLES.get(path.stem, {}).get(point.group, ())}
        | {f"training.{key}" for key in TRAINING.get(path.stem, ())}
        for point in plan.points
    }
    assert set(TABLES.get(path.stem, {})) <= {point.group for point in plan.points}
    settings = {point.name: effective(point.config) for point in plan.points}
    for key in sorted({key for values in settings.values() for key in values}):
        values = {name: given[key] for name, given in settings.items() if key in given and key not in own[name]}
        common = next(iter(values.values()), None)
        assert values == dict.fromkeys(values, common), key
        for group in {point.group for point in plan.points if key in own[point.name]}:
            varied = [settings[point.name].get(key) for point in plan.points if point.group == group]
            assert len(varied) > 1 or varied != [common], f"{group} is excepted for nothing: {key}"


# The points that are a paper's model with another value of what is varied.
PAPERS = {
    "attention_net_table1": "attention_net",
    "xdeepfm_table3": "xdeepfm",
    "hiformer_table1": "hiformer",
    "bert4ctr_table1": "bert4ctr",
    "bert4ctr_table3": "bert4ctr",
    "bert4ctr_table6": "bert4ctr",
}


@pytest.mark.parametrize(("table", "paper"), PAPERS.items())
def test_a_row_of_a_table_is_the_papers_configuration(table, paper):
    points = make_plan(FOLDER / "sweeps" / f"{table}.yaml").points
    others = {"Attention-Net (without top-k)"} | {each.name for each in points if each.grid.get("model.layers") == 2}
    rows = [point for point in points if point.name not in others]
    assert len(rows) > 2
    for point in rows:
        alone = load_config(FOLDER / "papers" / paper / f"{point.config.model.name}.yaml")
        assert effective(point.config) == effective(alone), point.name


def test_every_table_with_a_text_has_the_rows_without_it():
    tables = list(FOLDER.glob("sweeps/bert4ctr_table*.yaml"))
    assert len(tables) == 7
    for path in tables:
        plan = make_plan(path)
        assert [point.config.model.name for point in plan.points][:2] == ["lr", "features_only"], path.stem
        assert len({point.config.seed for point in plan.points}) == 1


@pytest.mark.slow
def test_the_papers_tables_vary_the_papers_values():
    def varied(table: str, group: str) -> list[Any]:
        plan = make_plan(FOLDER / "sweeps" / f"{table}.yaml")
        return [next(iter(point.grid.values())) for point in plan.points if point.group == group]

    assert varied("attention_net_table3", "(A)") == [1, 2, 4]
    assert varied("attention_net_table3", "(B)") == [8, 16, 48, 64]
    assert varied("attention_net_table3", "(C)") == [1, 2, 8]
    assert varied("attention_net_table3", "(D)") == [2, 10, 22]
    assert varied("attention_net_table3", "(F)") == [[200, 200], [400, 400], [600, 400]]
    assert varied("xdeepfm_table2", "CrossNet") == [1, 2, 3, 4, 5]
    assert varied("hiformer_figure5", "Hiformer H·d_v") == [16, 32, 64, 128]


def test_the_equation_map_names_every_model_and_files_and_classes_that_exist():
    text = (FOLDER.parent / "docs" / "models.md").read_text()
    assert [info.name for info in available() if f"`{info.name}`" not in text] == []
    linked = set(re.findall(r"\]\(\.\./([\w/]+\.py)\)", text))
    sources = {path: (FOLDER.parent / path).read_text() for path in linked}  # raises where one is missing
    for path, name in re.findall(r"\]\(\.\./([\w/]+\.py)\) `(\w+)[.`]", text):
        assert re.search(rf"^(class|def) {name}\b", sources[path], re.M), (path, name)
    assert all(f"`{path.stem}`" in text for path in SWEEPS)
