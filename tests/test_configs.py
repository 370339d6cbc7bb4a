"""Every shipped configuration: it loads, its model can be built, and it is consistent with the others."""

import pathlib
import re

import pytest

from models import FeatureMap
from models.registry import available
from pipeline.config import RunConfig, load_config
from pipeline.packaged_configs import config_names
from pipeline.sweep.check import check_models
from pipeline.sweep.plan import make_plan
from pipeline.training.network import build_network, count_parameters
from transforms.features.preprocessing import layout

FOLDER = pathlib.Path(__file__).parents[1] / "configs"
CONFIGS = [FOLDER / name for name in config_names() if not name.startswith("sweeps/")]
SWEEPS = sorted((FOLDER / "sweeps").glob("*.yaml"))


def name_of(path: pathlib.Path) -> str:
    return "_".join(path.relative_to(FOLDER).with_suffix("").parts).removeprefix("papers_")


def few_ids(config: RunConfig) -> FeatureMap:
    return layout(config.log_spec, lambda column, feature: 3)


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_a_configuration_loads_and_its_models_can_be_built(path):
    config = load_config(path)
    assert config.name == name_of(path)
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
        if path.parent != FOLDER and path.stem != "avazu":
            assert load_config(path).model.name == path.stem


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_file_is_valid_down_to_its_models(path):
    plan = make_plan(path)
    assert plan.name == path.stem and len(plan.points) > 1
    trainings = {
        (point.config.model.model_dump_json(), point.config.training.model_dump_json()) for point in plan.points
    }
    assert len(trainings) >= len(plan.points) - 2  # the base model may stand in more than one group
    check_models(plan)


def test_the_paper_tables_have_the_papers_rows():
    names = {path.stem: [point.name for point in make_plan(path).points] for path in SWEEPS}
    assert len(names["attention_net_table1"]) == len(names["attention_net_table2"]) == 10
    assert len(names["attention_net_table3"]) == 1 + 3 + 4 + 3 + 3 + 3 + 3
    assert (
        "(D) top_k=22" in names["attention_net_table3"] and "(F) hidden_units=600-400" in names["attention_net_table3"]
    )
    assert names["xdeepfm_table3"] == ["LR", "FM", "DNN", "DCN", "Wide&Deep", "PNN", "DeepFM", "xDeepFM"]
    assert len(names["hiformer_table1"]) == 10 and len(names["hiformer_figure5"]) == 16
    table2 = make_plan(FOLDER / "sweeps" / "hiformer_table2.yaml")
    assert [point.config.model.hyperparameters["v_rank"] for point in table2.points] == [None, 1024]


def test_a_row_of_berts_tables_learns_as_the_model_alone_does():
    for path in FOLDER.glob("sweeps/bert4ctr_*.yaml"):
        for point in make_plan(path).points:
            own = load_config(FOLDER / "kddcup2012" / f"{point.config.model.name}.yaml").training
            training = point.config.training
            assert training.learning_rate == own.learning_rate, (path.stem, point.name)
            text, alone = training.stages["text_only"], load_config(FOLDER / "kddcup2012" / "text_only.yaml").training
            if not text.skip:
                assert text.applied_to(training).learning_rate == alone.learning_rate, (path.stem, point.name)


def test_the_equation_map_names_every_model_and_files_and_classes_that_exist():
    text = (FOLDER.parent / "docs" / "models.md").read_text()
    assert [info.name for info in available() if f"`{info.name}`" not in text] == []
    linked = set(re.findall(r"\]\(\.\./([\w/]+\.py)\)", text))
    sources = {path: (FOLDER.parent / path).read_text() for path in linked}  # raises where one is missing
    for path, name in re.findall(r"\]\(\.\./([\w/]+\.py)\) `(\w+)[.`]", text):
        assert re.search(rf"^(class|def) {name}\b", sources[path], re.M), (path, name)
    assert all(f"`{path.stem}`" in text for path in SWEEPS)
