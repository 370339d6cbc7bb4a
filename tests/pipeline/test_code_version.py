"""Which code decides about a stage's result, and so about its place in the cache."""

import json
import pathlib
import subprocess
import sys

import pytest

from ctrpipe.common import code_version as versions
from ctrpipe.common.code_version import code_version, imported, stage_version
from ctrpipe.common.packages import PARTS
from ctrpipe.pipeline.training.code import TRAINING

ROOT = pathlib.Path(__file__).parents[2]
COMPONENTS = {
    path.stem: f"ctrpipe.pipeline.components.{path.stem}"
    for path in (ROOT / "pipeline" / "components").glob("*.py")
    if path.stem != "__init__"
}
# One stage as the graph runs it on a small log, then the project's modules that Python has imported.
RUN_A_STAGE = """
import json, pathlib, sys
from tfx.types import standard_artifacts as kinds
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.pipeline.components.log_example_gen import ExampleGenSettings, LogExampleGen
folder, stages = pathlib.Path(sys.argv[1]), sys.argv[2:]
(folder / "log.tsv").write_text("".join(f"{row % 2}\\t{row}\\t{row % 3}\\n" for row in range(400)))
features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"], "min_count": 1}]
data = {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}}
spec = LogSpec.model_validate({"data": data, "features": features})

def artifact(kind, name):
    made = kind()
    made.uri = str(folder / name)
    (folder / name).mkdir()
    return made

examples, common = artifact(kinds.Examples, "examples"), {"workers": Workers(processes=1).to_json(), "code_version": ""}
settings = ExampleGenSettings(
    spec=spec, files=[str(folder / "log.tsv")], data_fingerprint="", states=None, seed=0, dead_letter=folder / "dead"
)
LogExampleGen.test_call(examples=examples, settings=settings.model_dump_json(), **common)
if "log_statistics_gen" in stages:
    from ctrpipe.pipeline.components.log_statistics_gen import LogStatisticsGen

    statistics = artifact(kinds.ExampleStatistics, "statistics")
    spec = spec.model_dump_json()
    LogStatisticsGen.test_call(examples=examples, statistics=statistics, max_rows=100, seed=0, spec=spec, **common)
if "log_transform" in stages:
    from ctrpipe.pipeline.components.log_transform import LogTransform, TransformSettings

    graph, packed = artifact(kinds.TransformGraph, "graph"), artifact(kinds.Examples, "packed")
    settings = TransformSettings(spec=spec, seed=0, former=None).model_dump_json()
    LogTransform.test_call(
        examples=examples, transform_graph=graph, transformed_examples=packed, settings=settings, **common
    )
loaded = [*sys.modules]
print(json.dumps([name for name in loaded if name.partition(".")[0] == "ctrpipe"]))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes a project of some files below a folder, which the versions are then of."""

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        versions._parse.cache_clear()

    monkeypatch.setattr(versions, "ROOT", tmp_path)
    yield write
    versions._parse.cache_clear()


def test_changed_code_is_another_version(tmp_path, monkeypatch):
    folders = [tmp_path / "ctrpipe" / part for part in PARTS]
    for folder in folders:
        (folder / "below").mkdir(parents=True)
        (folder / "below" / "code.py").write_text(folder.name)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    seen = [code_version()]
    assert code_version() == seen[0]
    for folder in folders:
        (folder / "below" / "code.py").write_text("changed")
        seen.append(code_version())
        (folder / "below" / "code.py").rename(folder / "code.py")
        seen.append(code_version())
    assert len(set(seen)) == len(seen)


def test_imports_count_wherever_they_stand(project):
    project(
        {
            "ctrpipe.__init__": "if TYPE_CHECKING:\n    import ctrpipe.face\nHOME = {'run': 'ctrpipe.face'}",
            "ctrpipe.face": "",
            "ctrpipe.pipeline.__init__": "",
            "ctrpipe.pipeline.stage": "import os\nimport ctrpipe.transforms.plain\n"
            "from ctrpipe.transforms.names import thing\n"
            "def run():\n    from ctrpipe.models import inside\n    import ctrpipe.serving.deep.module as m\n"
            "TABLE = {'a': ('ctrpipe.models.table', 'A'), 'b': 'serving', 'c': 'ctrpipe.models.no_such'}\n",
            "ctrpipe.pipeline.other": "",
            "ctrpipe.transforms.__init__": "import ctrpipe.common.base",
            "ctrpipe.transforms.plain": "from . import sibling",
            "ctrpipe.transforms.sibling": "",
            "ctrpipe.transforms.names": "",
            "ctrpipe.models.__init__": "HOME = {'X': 'ctrpipe.models.lazy'}",
            "ctrpipe.models.inside": "",
            "ctrpipe.models.lazy": "",
            "ctrpipe.models.table": "",
            "ctrpipe.serving.__init__": "",
            "ctrpipe.serving.deep.__init__": "",
            "ctrpipe.serving.deep.module": "",
            "ctrpipe.common.__init__": "",
            "ctrpipe.common.base": "",
        }
    )
    found = (
        *("pipeline", "pipeline.stage", "transforms", "transforms.plain", "transforms.sibling", "transforms.names"),
        *("models", "models.inside", "models.table", "serving", "serving.deep", "serving.deep.module"),
        *("common", "common.base"),
    )
    assert imported("ctrpipe.pipeline.stage") == {"ctrpipe", *(f"ctrpipe.{name}" for name in found)}
    project({"ctrpipe.pipeline.stage": "from ctrpipe.models import X"})
    found = ("pipeline", "pipeline.stage", "models", "models.lazy")
    assert imported("ctrpipe.pipeline.stage") == {"ctrpipe", *(f"ctrpipe.{name}" for name in found)}
    with pytest.raises(ModuleNotFoundError, match="no module ctrpipe.pipeline.absent"):
        imported("ctrpipe.pipeline.absent")


def test_a_comment_a_docstring_and_the_layout_change_no_stage_and_code_does(project):
    code = {
        "ctrpipe.__init__": "",
        "ctrpipe.pipeline.__init__": "",
        "ctrpipe.common.base": "def f(x):\n    return x + 1\n",
    }
    stage = "from ctrpipe.common.base import f\n\nclass A:\n    text = 'a'\n"
    project({**code, "ctrpipe.common.__init__": "", "ctrpipe.pipeline.stage": stage, "ctrpipe.pipeline.other": "x = 1"})
    seen = stage_version("ctrpipe.pipeline.stage")
    for text in (
        '"""Says what it is."""\n' + stage,
        "# why\n" + stage.replace("class A:", 'class A:\n    """A class."""\n'),
        stage.replace("'a'", '("a")  # a comment'),
    ):
        project({"ctrpipe.pipeline.stage": text})
        assert stage_version("ctrpipe.pipeline.stage") == seen
    project({"ctrpipe.pipeline.other": "x = 2"})
    assert stage_version("ctrpipe.pipeline.stage") == seen
    project({"ctrpipe.common.base": "def f(x):\n    return x + 2\n"})
    assert stage_version("ctrpipe.pipeline.stage") != seen
    project({**code, "ctrpipe.pipeline.stage": stage.replace("'a'", "'b'")})
    assert stage_version("ctrpipe.pipeline.stage") != seen
    project({"ctrpipe.pipeline.stage": stage})
    assert stage_version("ctrpipe.pipeline.stage") == seen
    project({"ctrpipe.pipeline.__init__": "x = 1"})
    assert stage_version("ctrpipe.pipeline.stage") != seen


@pytest.mark.slow
def test_no_stage_depends_on_a_command_or_a_report():
    for name, module in COMPONENTS.items():
        rooms = {".".join(found.split(".")[:3]) for found in imported(module)}
        assert {"ctrpipe.common.errors", "ctrpipe.pipeline.components"} & rooms, name
        left_out = ("commands", "cli", "report", "graph")
        face = {f"ctrpipe.{path.stem}" for path in (ROOT / "ctrpipe").glob("*.py")}
        assert not rooms & {*face, *(f"ctrpipe.pipeline.{room}" for room in left_out)}, name


def test_models_decide_about_training_and_not_about_what_comes_before():
    before = ("log_example_gen", "log_statistics_gen", "log_transform", "drift_check", "gated_evaluator")
    for name in before:
        assert not {"ctrpipe.models.deepfm", "ctrpipe.models.base.registry"} & imported(COMPONENTS[name]), name
    assert {"ctrpipe.models.deepfm", "ctrpipe.models.text.bert4ctr", "ctrpipe.models.layers.cin"} <= imported(*TRAINING)
    assert {"ctrpipe.models.deepfm", "ctrpipe.models.text.bert4ctr"} <= imported(COMPONENTS["log_trainer"])


def test_the_stages_see_what_they_load_by_name():
    assert "ctrpipe.transforms.log.values" in imported(COMPONENTS["log_example_gen"])
    assert {"ctrpipe.pipeline.training.jax_learner", "ctrpipe.pipeline.training.tensorflow_learner"} <= imported(
        *TRAINING
    )
    assert "ctrpipe.pipeline.evaluation.click_metrics" in imported(COMPONENTS["gated_evaluator"])
    # Weights do not depend on how they are exported.
    assert "ctrpipe.serving.export.export" in imported(COMPONENTS["log_trainer"])
    assert "ctrpipe.pipeline.components.log_trainer" not in imported(*TRAINING)


@pytest.mark.large(like="tests/pipeline/test_code_version.py::test_the_stages_see_what_they_load_by_name")
@pytest.mark.slow
@pytest.mark.parametrize("stage", ["log_example_gen", "log_statistics_gen", "log_transform"])
def test_what_a_stage_imports_when_it_runs_was_found_without_running_it(tmp_path, stage):
    command = [sys.executable, "-c", RUN_A_STAGE, str(tmp_path), stage]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    known = imported(COMPONENTS["log_example_gen"], COMPONENTS[stage])
    assert COMPONENTS[stage] in loaded and loaded <= known, loaded - known
