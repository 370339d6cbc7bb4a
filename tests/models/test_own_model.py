"""A model of a user's own, named `module:Class`: found, checked, trained and served like those of the registry."""

import json
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from ctrpipe.models.base.registry import (
    check_hyperparameters,
    check_values,
    create,
    derives_from,
    model_class,
    source_of,
)
from ctrpipe.pipeline.config import Model, load_config
from ctrpipe.pipeline.training.buildable import why_impossible
from tests.models.small_models import batch, feature_map
from tests.small_config import SMALL as SMALL_CONFIG

SOURCE = """
    from keras import ops
    from ctrpipe.models import CTRModel
    from ctrpipe.models.lr import LR

    class Sum(CTRModel):
        '''The sum of all embeddings.'''

        def __init__(self, feature_map, *, factor: float = 1.0, power: float | None = None, **options):
            super().__init__(feature_map, **options)
            self.factor = factor

        def interact(self, rows, inputs, training=None):
            return self.factor * ops.sum(rows, axis=(1, 2))[:, None]

    class Linear(LR):
        pass

    class NotAModel:
        pass
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A name for a module, which is written into the working directory."""
    name = f"own_{re.sub('[^a-z0-9]', '_', tmp_path.name.lower())}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(SOURCE))
    (tmp_path / f"{name}_old.py").write_text(
        textwrap.dedent(SOURCE).replace("from ctrpipe.models", "from models.ctr_model")
    )
    (tmp_path / "models").mkdir()  # of the user's own
    (tmp_path / "models" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # so that the path is taken out again
    return name


def test_an_own_model_in_the_working_directory_is_made_and_computes(own):
    model = create(f"{own}:Sum", feature_map(), embedding_dim=3, embedding_stddev=0.5, factor=2, power=0.5)
    inputs = batch()
    logits = np.asarray(model(inputs))
    rows = np.asarray(model.table.table)[inputs["ids"]] * (inputs["ids"] > 0)[:, :, None]
    np.testing.assert_allclose(logits[:, 0], 2 * rows.sum(axis=(1, 2)), rtol=1e-5, atol=1e-6)


def test_an_own_subclass_is_of_its_bases_kind(own):
    assert derives_from(f"{own}:Linear", "lr") and derives_from("lr", "lr")
    assert not derives_from(f"{own}:Sum", "lr") and not derives_from("fm", "lr")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{own}:Missing", r"The model '{own}:Missing' does not exist: /.*/{own}.py has no class 'Missing'"),
        (
            "{own}:NotAModel",
            r"The model '{own}:NotAModel' should be a subclass of ctrpipe.models.CTRModel. Rec",
        ),
        ("{own}_:Sum", r"The model '{own}_:Sum' cannot be imported \(ModuleNotFoundError: .*; its module should be"),
        (
            "{own}_old:Sum",
            r"The model '{own}_old:Sum' cannot be imported \(ModuleNotFoundError: .*models.ctr_model.*\); "
            r"what 0.2 called models.ctr_model is now ctrpipe.models.base.ctr_model; change the imports of {own}_old",
        ),
        (":Sum", r"The model ':Sum' cannot be imported \(ValueError: Empty module name\)"),
        ("{own}:", "The model '{own}:' does not exist"),
    ],
)
def test_an_own_model_that_cannot_be_found_is_one_line(own, name, message):
    with pytest.raises(ValueError, match="^" + message.format(own=own)) as raised:
        model_class(name.format(own=own))
    assert "\n" not in str(raised.value)


def test_an_own_module_that_cannot_be_read_is_one_line(own, tmp_path):
    (tmp_path / f"{own}_broken.py").write_text("def call(:\n")
    with pytest.raises(ValueError, match=r"cannot be imported \(SyntaxError: .*line 1\)") as raised:
        model_class(f"{own}_broken:Sum")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factors": 2}, "has no hyperparameter 'factors'; did you mean 'factor'"),
        ({"factor": "large"}, "factor should be like its default 1.0. Received: 'large'"),
        ({"embedding_dim": 0}, "`embedding_dim` should be positive. Received: embedding_dim=0"),
    ],
)
def test_an_own_models_options_are_checked(own, options, message):
    with pytest.raises(ValueError, match=message):
        check_hyperparameters(f"{own}:Sum", **options)


def test_only_an_own_models_source_is_part_of_a_trainings_fingerprint(own, tmp_path):
    path, beside = tmp_path / f"{own}.py", tmp_path / f"{own}_layers.py"
    before = source_of(f"{own}:Sum")
    assert source_of("deepfm") == "" and len(before) == 16
    path.write_text(f"{path.read_text()}    # another line\n")
    changed = source_of(f"{own}:Sum")
    beside.write_text("FACTOR = 1\n")
    assert source_of(f"{own}:Sum") == changed != before
    path.write_text(f"{path.read_text()}import {own}_layers\nimport numpy\n")
    with_layers = source_of(f"{own}:Sum")
    beside.write_text("FACTOR = 2\n")
    assert source_of(f"{own}:Sum") not in (with_layers, changed)


def test_an_own_model_that_fails_or_returns_another_shape_is_one_line_before_the_training(own, tmp_path):
    path = tmp_path / f"{own}.py"
    for name, body in {
        "Wide": "return ops.sum(rows, axis=2)",
        "Flat": "return ops.sum(rows, axis=(1, 2))",
        "Key": "raise KeyError('b')",
    }.items():
        path.write_text(
            f"{path.read_text()}\n\nclass {name}(Sum):\n    def interact(self, rows, inputs, training=None):\n"
        )
        path.write_text(f"{path.read_text()}        {body}\n")
    config = load_config({**SMALL_CONFIG, "model": {"name": "lr"}})

    def why(name: str) -> str:
        return why_impossible(Model(name=f"{own}:{name}"), config)

    assert why("Sum") == ""
    said = "for 2 rows; `interact` must return one for each row and task, here [2, 1]"
    assert why("Wide") == f"{own}:Wide returned logits of shape [2, 3] {said}"
    assert why("Flat") == f"{own}:Flat returned logits of shape [2] {said}"
    assert re.fullmatch(
        rf"/.*/{own}.py, line \d+: code of {own} failed \(KeyError: .*b\); correct it or leave it out", why("Key")
    )


@pytest.mark.slow
def test_a_check_of_an_own_model_prints_what_a_check_prints_alone(own, tmp_path):
    (tmp_path / "log.csv").write_text("click,c\n" + "".join(f"{n % 2},v{n % 7}\n" for n in range(200)))
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}, "paths": ["log.csv"]}
    config = {
        "name": "own",
        "data": {**data, "split": {"by": "hash"}},
        "features": [{"kind": "categorical", "columns": ["c"]}],
        "model": {"name": f"{own}:Sum"},
    }
    (tmp_path / "own.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-m", "ctrpipe", "check", "own.yaml"]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "200 rows read" in done.stdout


@pytest.mark.slow
def test_an_own_model_is_trained_exported_and_served(own, tmp_path):
    from ctrpipe.pipeline.run.sample_export import make_export
    from ctrpipe.serving.loader import Servable

    version = make_export(f"{own}:Sum", tmp_path / "served", rows=2000, embedding_dim=2, factor=0.0)
    assert json.loads((version / "assets.extra" / "training.json").read_text())["model"]["name"] == f"{own}:Sum"
    servable = Servable(version)
    try:
        packed = {name: np.ones((2, 39), np.int32) for name in servable.signatures["serving_packed"].inputs}
        [click_rate] = servable.run("serving_packed", packed).values()
    finally:
        servable.close()
    np.testing.assert_array_equal(click_rate, [0.5, 0.5])  # of the logit 0


def test_a_changed_source_is_another_training(own, tmp_path):
    from ctrpipe.pipeline.config import Model, RunConfig
    from ctrpipe.pipeline.run.inputs import RunInputs

    values = {"name": "own", "data": {"columns": ["label", "I1"], "labels": {"ctr": "label"}}}
    features = [{"columns": ["I1"], "kind": "numeric", "transform": "log_bucketize"}]
    config = RunConfig.model_validate({**values, "features": features, "model": {"name": "lr"}})
    inputs = RunInputs((), "data", (), tmp_path, "")

    def fingerprints() -> list[str]:
        return [inputs.training_fingerprint(config, Model(name=name)) for name in (f"{own}:Sum", "lr")]

    (before, lr), source = fingerprints(), tmp_path / f"{own}.py"
    source.write_text(source.read_text().replace("self.factor *", "2 * self.factor *"))
    after, still_lr = fingerprints()
    assert after != before and still_lr == lr


def test_a_key_of_the_section_is_named_beside_the_hyperparameters():
    with pytest.raises(ValueError, match="lr has no hyperparameter 'nam'; did you mean 'name'[?]"):
        check_values("lr", {"l2": 0.0}, {"nam": "fm"})
    with pytest.raises(ValueError, match="lr has no hyperparameter 'x'; known: l2"):
        check_values("lr", {"l2": 0.0}, {"x": 1})
