"""Which model a warm start begins with, and one line for each that it cannot."""

import fcntl
import json

import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.saved import DESCRIPTION, save_model
from ctrpipe.pipeline.components import KEPT_MODEL, SERVABLE
from ctrpipe.pipeline.config import WarmStart, check_config, with_parent
from ctrpipe.pipeline.run.inputs import RunInputs
from ctrpipe.pipeline.run.parent import find_parent
from ctrpipe.pipeline.training.parent import Parent, check_alike
from ctrpipe.transforms.log.spec import LogSpec
from tests.models.small_models import randomised
from tests.small_config import SMALL

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "a"], "labels": {"ctr": "click"}},
        "features": [{"kind": "categorical", "columns": ["a"]}],
    }
)


@pytest.fixture
def run(tmp_path):
    """As far as a warm start looks at it, the folder of a finished run."""
    model = tmp_path / "run" / "tfx" / "7"
    (model / SERVABLE / "assets.extra").mkdir(parents=True)
    for name, text in (("log_spec", SPEC.model_dump_json()), ("numbers", "{}"), ("ages", "{}"), ("training", "{}")):
        (model / SERVABLE / "assets.extra" / f"{name}.json").write_text(text)
    save_model(model / KEPT_MODEL, "lr", randomised("lr"))
    (tmp_path / "run" / "report_data").mkdir()
    (tmp_path / "run" / "report_data" / "lineage.json").write_text(json.dumps({"model": str(model)}))
    (tmp_path / "run" / "metrics.json").write_text("{}")
    return tmp_path / "run"


def test_a_run_is_known_by_its_weights(run, tmp_path):
    found = find_parent(run, tmp_path / "out")
    assert found.name == str(run) and found.kept == str(run / "tfx" / "7" / KEPT_MODEL)
    assert find_parent(run, tmp_path / "out") == found
    model = randomised("lr")
    model.output_biases()[0].assign([0.25])
    save_model(run / "tfx" / "7" / KEPT_MODEL, "lr", model)
    assert find_parent(run, tmp_path / "out").fingerprint != found.fingerprint


def test_a_parent_that_is_gone_or_unfinished_is_one_line(run, tmp_path):
    with pytest.raises(InputError, match="^training.warm_start: .*absent: no model version here"):
        find_parent(tmp_path / "absent", tmp_path / "out")
    (run / "metrics.json").unlink()
    with pytest.raises(InputError, match="its run has not finished; wait for it"):
        find_parent(run, tmp_path / "out")


def test_a_parent_that_is_being_written_is_one_line_but_for_its_own_next_run(run, tmp_path):
    with open(run / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="a run is writing it; wait for it, or name one of its versions"):
            find_parent(run, tmp_path / "out")
        assert find_parent(run, run).name == str(run)
    assert find_parent(run, tmp_path / "out").name == str(run)


def test_a_parent_of_before_and_a_damaged_one_are_one_line(run, tmp_path):
    kept = run / "tfx" / "7" / KEPT_MODEL
    described = json.loads((kept / DESCRIPTION).read_text())
    described.pop("weights")
    (kept / DESCRIPTION).write_text(json.dumps(described))
    with pytest.raises(InputError, match="saved by a ctrpipe without warm starts; train it again"):
        find_parent(run, tmp_path / "out")
    (kept / DESCRIPTION).unlink()
    with pytest.raises(InputError, match="its Keras model is not there; name the run that trained it"):
        find_parent(run, tmp_path / "out")


def test_another_model_and_other_columns_are_refused_or_listed(run, tmp_path):
    parent = find_parent(run, tmp_path / "out")
    assert check_alike(parent, SPEC, "lr", WarmStart()) == []
    two = SPEC.model_copy(update={"features": [SPEC.features[0].model_copy(update={"columns": ["a", "b"]})]})
    with pytest.raises(InputError, match="run has new columns: b; another model: lr; set training.warm_start.on_mism"):
        check_alike(parent, two, "fm", WarmStart())
    assert len(check_alike(parent, two, "fm", WarmStart(on_mismatch="take"))) == 2
    with pytest.raises(InputError, match="run has logits before training.fake_negative_calibration; set"):
        check_alike(parent, SPEC, "lr", WarmStart(), fake_negatives=True)


def test_the_command_lines_parent_goes_with_the_configurations_settings():
    config = check_config({**SMALL, "training": {"warm_start": "latest"}}, (), "small.yaml")
    assert config.training.warm_start == WarmStart(parent="latest")
    config = check_config({**SMALL}, ("training.warm_start.boundaries=learn",), "small.yaml")
    assert with_parent(config, "runs/a").training.warm_start == WarmStart(parent="runs/a", boundaries="learn")
    plain = check_config(SMALL, (), "small.yaml")
    assert with_parent(plain, "runs/a").training.warm_start == WarmStart(parent="runs/a")


@pytest.mark.slow
def test_a_version_is_known_by_its_parent_where_that_is_named_and_without_it_where_it_is_the_latest(tmp_path):
    """The latest parent is searched for by a version's hash; the training's own says what it began with."""

    def hashes(parent: str, fingerprint: str) -> tuple[str, str]:
        config = check_config({**SMALL, "training": {"warm_start": parent}}, (), "small.yaml")
        begins_with = Parent("a", "b", "c", fingerprint)
        inputs = RunInputs((), "data", (), tmp_path, baseline_version="", parent=begins_with)
        return inputs.version_fingerprint(config, config.model), inputs.training_fingerprint(config, config.model)

    (version, training), (other_version, other_training) = hashes("latest", "one"), hashes("latest", "other")
    assert version == other_version and training != other_training
    (version, training), (other_version, other_training) = hashes("runs/a", "one"), hashes("runs/a", "other")
    assert version != other_version and training != other_training


@pytest.mark.slow
def test_a_teachers_new_version_and_another_teacher_train_again_and_an_absent_one_is_said(tmp_path):
    def push(number: int, fingerprint: str) -> None:
        version = tmp_path / "ctr" / str(number)
        (version / "assets.extra").mkdir(parents=True)
        (version / "saved_model.pb").touch()
        (version / "assets.extra" / "training_fingerprint").write_text(fingerprint)

    def trained(teacher: object, files: tuple[str, ...] = ("log.tsv",)) -> str:
        config = check_config({**SMALL, "training": {"distillation": {"teacher": str(teacher)}}}, (), "small.yaml")
        return RunInputs(files, "data", {}, tmp_path, "").training_fingerprint(config, config.model)

    push(3, "one")
    first = trained(tmp_path / "ctr")
    assert first == trained(tmp_path / "ctr")
    push(4, "two")
    assert trained(tmp_path / "ctr") != first
    by_url = trained(f"file://{tmp_path}/ctr/3")
    (tmp_path / "ctr" / "3" / "assets.extra" / "training_fingerprint").write_text("three")
    assert trained(f"file://{tmp_path}/ctr/3") != by_url
    with pytest.raises(InputError, match="^training.distillation.teacher: .*absent: no model version here"):
        trained(tmp_path / "absent")
    trained(tmp_path / "absent", files=())  # for a cluster, where it will be
