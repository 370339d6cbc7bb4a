"""A run that names a class of another module: nothing is imported for it unless the user says so."""

import json
import shutil
import sys
import types

import pytest
import yaml

import ctrpipe
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.saved import DESCRIPTION, load_model, save_model, saved_class
from ctrpipe.pipeline.explain import explain, shares
from ctrpipe.pipeline.explain.prune import config_of_run
from ctrpipe.pipeline.run.trained_model import TrainedModel, find_model
from tests.e2e.small_run import call, one_line
from tests.models.small_models import randomised
from tests.pipeline.explain.test_prune import config
from tests.serving.small_servable import save, spec

MODULE = "a_stranger"
CODE = """
import pathlib
from ctrpipe.models.lr import LR

pathlib.Path(__file__).with_name("ran").touch()

class Model(LR):
    pass
"""
NESTED = {"name": "mmoe", "hyperparameters": {"interaction": {"name": f"{MODULE}:Model"}}}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory, with a module that says when it is imported."""
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield tmp_path
    sys.modules.pop(MODULE, None)


@pytest.fixture
def run(here):
    """A run's folder from elsewhere, with a version and the Keras model that it was exported from."""
    save(here / "run" / "models" / "ctr" / "7", spec())
    save_model(here / "run" / "keras" / "7", "lr", randomised("lr"))
    rename(here / "run" / "keras" / "7", name=f"{MODULE}:Model")
    return here / "run"


def rename(kept, **changes):
    described = json.loads((kept / DESCRIPTION).read_text()) | changes
    (kept / DESCRIPTION).write_text(json.dumps(described))


def refused(here, read, *arguments, **options):
    with pytest.raises(InputError, match="a_stranger:Model, a class that is not ctrpipe's.*give --trust") as error:
        read(*arguments, **options)
    assert "\n" not in str(error.value) and not (here / "ran").exists() and MODULE not in sys.modules


def test_a_kept_model_is_imported_only_with_trust(here, run):
    kept = run / "keras" / "7"
    refused(here, load_model, kept)
    refused(here, saved_class, kept)
    assert type(load_model(kept, trust=True)).__module__ == MODULE and (here / "ran").exists()


def test_what_the_program_has_imported_itself_needs_no_trust(here, run):
    import a_stranger

    assert type(load_model(run / "keras" / "7")) is a_stranger.Model


def test_a_class_inside_the_hyperparameters_is_one_too(here, run):
    rename(run / "keras" / "7", **NESTED)
    refused(here, load_model, run / "keras" / "7")


@pytest.mark.parametrize("name", ["deepfm", "ctrpipe.models.fm:FM"])
def test_a_class_of_ctrpipe_needs_no_trust(run, name):
    rename(run / "keras" / "7", name=name)
    assert saved_class(run / "keras" / "7").__module__.startswith("ctrpipe.models.")


def test_explain_drift_and_load_follow_one_rule(here, run):
    version = run / "models" / "ctr" / "7"
    log = here / "log.tsv"
    log.write_text("0\t1\tx\n1\t2\ty\n" * 20)
    one_line(*call("explain", version, "--data", log), "a_stranger:Model, a class that is not ctrpipe's")
    scorer = types.SimpleNamespace(explains=False, packs=True)
    refused(here, explain._no_gradients, find_model(version), scorer)  # of --row
    refused(here, shares._attribute, find_model(version), scorer)  # of drift --model
    with ctrpipe.load(version) as model:
        refused(here, getattr, model, "keras")
    with ctrpipe.load(version, trust=True) as model:
        assert type(model.keras).__module__ == MODULE
    assert explain._no_gradients(find_model(version, trust=True), scorer) is None


@pytest.mark.parametrize("command", ["explain", "drift"])
def test_the_commands_have_the_flag(command):
    assert "--trust" in call(command, "--help")[1]


def test_the_configuration_of_a_run_is_pruned_only_with_trust(here):
    (here / "report_data").mkdir()
    named = config().model_dump(mode="json")
    named["model"]["name"] = f"{MODULE}:Model"
    (here / "report_data" / "config.yaml").write_text(yaml.safe_dump(named))
    refused(here, config_of_run, TrainedModel(here, here))
    assert config_of_run(TrainedModel(here, here, trust=True)).model.name == f"{MODULE}:Model"


def test_a_found_model_is_as_trusted_as_it_was_asked_for(run):
    for trust in (False, True):
        assert find_model(run / "models" / "ctr", trust).trust is trust
    shutil.rmtree(run)
