"""Entry points of installed packages: the examples of docs/hooks.md, and hooks that misbehave."""

import json
import re
import sys
import tarfile

import pytest

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.config.hooks import Hooks
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.run.finished import FinishedRun, call_after_run, check_hooks, write_sections
from ctrpipe.pipeline.run.inputs import run_inputs
from ctrpipe.transforms.log.described_files import describe_file
from ctrpipe.transforms.log.readers import LogReader, plan
from tests.e2e.small_run import ROOT
from tests.small_config import SMALL, joined

PAGE = (ROOT / "docs" / "hooks.md").read_text()
EXAMPLES = re.findall(r"<!-- hook: (\w+) (\w+) (\w+)\.py:(\w+) -->\n```python\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(name="package")
def _package(tmp_path, monkeypatch):
    """Installs a package: a function of the kind, name, module, attribute and code of a hook."""
    folder = tmp_path / "site"
    information = folder / "my_hooks-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-hooks\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(folder))
    points = []

    def install(kind, name, module, attribute, code):
        (folder / f"{module}.py").write_text(code)
        points.append(f"[ctrpipe.{kind}]\n{name} = {module}:{attribute}\n")
        (information / "entry_points.txt").write_text("".join(points))
        sys.modules.pop(module, None)
        hooks.names.cache_clear()

    yield install
    hooks.names.cache_clear()
    for module in [name for name in sys.modules if name.startswith("my_hooks_")]:
        del sys.modules[module]


@pytest.fixture(name="examples")
def _examples(package):
    for example in EXAMPLES:
        package(*example)


@pytest.fixture(name="run")
def _run(tmp_path):
    version = tmp_path / "run" / "models" / "ctr" / "17"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "run" / "report_data").mkdir()
    return FinishedRun(
        name="mine",
        folder=tmp_path / "run",
        config={"model": {"name": "lr"}, "data": {"labels": {"ctr": "click"}}},
        metrics={"auc": 0.75, "model_version": "17", "blessed": True},
        history=({"step": 10, "validation_log_loss": 0.5}, {"step": 20, "validation_log_loss": 0.4}),
        version=version,
        columns={"device": "categorical", "<price>": "numeric"},
    )


def test_the_page_has_an_example_of_each_kind_of_about_thirty_lines():
    assert {kind for kind, *_ in EXAMPLES} == set(hooks.KINDS)
    assert all(f"`ctrpipe.{kind}`" in PAGE and code.count("\n") <= 32 for kind, _, _, _, code in EXAMPLES)


@pytest.mark.usefixtures("examples")
def test_the_reader_of_the_page_reads_in_parts_with_dead_letters(tmp_path, monkeypatch):
    lines = [f"click:{n % 2}\tdevice:m{n % 3}\tquery:q\tad:a:{n}" for n in range(200)]
    (tmp_path / "log.ltsv").write_text("\n".join([*lines[:50], "broken", *lines[50:]]) + "\n")
    config = load_config(joined(SMALL, {"data": {"format": "ltsv", "header": False, "max_bad_row_rate": 0.1}}))
    assert check_log(config, [str(tmp_path / "log.ltsv")]).rejected == 1
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 1000)
    parts = plan([str(tmp_path / "log.ltsv")], config.log_spec)
    batches = [batch for part in parts for batch in LogReader(config.log_spec).read_range(part)]
    ads = [ad for batch in batches for ad in batch.rows["ad"].to_pylist()]
    assert len(parts) > 2 and ads == [f"a:{n}".encode() for n in range(200)]
    [reject] = [reject for batch in batches for reject in batch.rejects]
    assert (reject.line, reject.reason, reject.text) == (51, "a value without a label", "broken")


@pytest.mark.usefixtures("examples")
def test_the_code_of_a_reader_is_in_the_fingerprint_of_a_run(tmp_path, package):
    (tmp_path / "log.ltsv").write_text("click:1\tdevice:m\n")
    config = load_config(joined(SMALL, {"data": {"format": "ltsv", "header": False}}))
    data = [describe_file(str(tmp_path / "log.ltsv"))]
    before = run_inputs(config, [], data, tmp_path).data_fingerprint
    assert before == run_inputs(config, [], data, tmp_path).data_fingerprint
    [example] = [example for example in EXAMPLES if example[0] == "readers"]
    package(*example[:4], example[4].replace("without a label", "with no label"))
    assert run_inputs(config, [], data, tmp_path).data_fingerprint != before


@pytest.mark.usefixtures("examples")
def test_a_model_of_a_package_is_the_class_that_it_names():
    config = load_config(joined(SMALL, {"model": {"name": "fwfm"}}))
    assert config.model.name == "my_hooks_fwfm:FwFM"
    assert load_config(joined(SMALL, {"model": {"name": "fm"}})).model.name == "fm"


@pytest.mark.usefixtures("examples")
def test_the_tracker_section_and_export_of_the_page(tmp_path, monkeypatch, run):
    monkeypatch.setenv("RUNS_FILE", str(tmp_path / "runs.jsonl"))
    named = Hooks(trackers=["lines"], sections=["Columns"], exports=["archive"])
    assert set(check_hooks(named)) == {"trackers/lines", "sections/Columns", "exports/archive"}
    write_sections(run, named, run.folder / "report_data")
    sections = json.loads((run.folder / "report_data" / "sections.json").read_text())
    assert "<td>&lt;price&gt;</td><td>numeric</td>" in sections["Columns"]
    call_after_run(run, named)
    line = json.loads((tmp_path / "runs.jsonl").read_text())
    assert (line["name"], line["auc"], line["pushed"], line["evaluations"]) == ("mine", 0.75, "17", [0.5, 0.4])
    with tarfile.open(run.folder / "exports" / "archive" / "model.tar.gz") as archive:
        assert "17/saved_model.pb" in archive.getnames()
    assert "AUC 0.7500" in (run.folder / "exports" / "archive" / "README.md").read_text()


def test_a_hook_that_fails_is_one_line_and_the_others_are_called(package, run):
    package("trackers", "bad", "my_hooks_bad", "track", "def track(run):\n    raise ValueError('no\\nserver')\n")
    package("trackers", "good", "my_hooks_good", "track", "def track(run):\n    (run.folder / 'tracked').touch()\n")
    code = "def export(run, place):\n    (place / 'half').touch()\n    raise KeyError('x')\n"
    package("exports", "half", "my_hooks_half", "export", code)
    with pytest.raises(InputError) as error:
        call_after_run(run, Hooks(trackers=["bad", "good"]))
    line = f"{run.folder}: the run is finished, but the experiment tracker bad (my_hooks_bad:track) failed "
    assert str(error.value) == line + "(ValueError: no server); correct it or leave it out"
    assert (run.folder / "tracked").exists()
    with pytest.raises(InputError, match="the export half .* failed .KeyError: 'x'.; correct it"):
        call_after_run(run, Hooks(exports=["half"]))
    assert not (run.folder / "exports" / "half").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nothing_of_that_name\n", "the report section s .my_hooks_s:section. failed .ModuleNotFoundError"),
        ("section = None\ndef other(): 1 / 0\nother()\n", "failed .ZeroDivisionError: division by zero"),
        ("def part(run): return ''\n", "failed .AttributeError: .*section"),
        ("def section(run): return 5\n", "the report section s returned int, no text; return HTML as a str"),
        ("def section(run, more): return ''\n", "failed .TypeError"),
    ],
)
def test_a_section_that_misbehaves(package, run, code, message):
    package("sections", "s", "my_hooks_s", "section", code)
    with pytest.raises(InputError, match=message) as error:
        write_sections(run, Hooks(sections=["s"]), run.folder / "report_data")
    assert "\n" not in str(error.value)


def test_what_is_not_installed_is_said_before_anything_is_trained(tmp_path):
    with pytest.raises(
        InputError, match="there is no experiment tracker none; .*ctrpipe.trackers; installed: mlflow, wandb"
    ):
        check_hooks(Hooks(trackers=["none"]))
    (tmp_path / "log.csv").write_text("click,device,query,ad\n" + "1,a,b,c\n0,d,e,f\n" * 50)
    config = load_config(joined(SMALL, {"data": {"format": "csv"}, "hooks": {"exports": ["onnx"]}}))
    assert any(
        "hooks: there is no export onnx" in text for text in check_log(config, [str(tmp_path / "log.csv")]).errors
    )
    with pytest.raises(
        InputError, match="data.format: 'xml' is none of tsv, csv, .* and no installed package has such a"
    ):
        load_config(joined(SMALL, {"data": {"format": "xml"}}))


def test_an_export_of_a_blocked_model_is_not_called(package, run):
    package("exports", "e", "my_hooks_e", "export", "def export(run, place): raise ValueError\n")
    call_after_run(FinishedRun(**{**vars(run), "version": None}), Hooks(exports=["e"]))
    assert not (run.folder / "exports").exists()


# Shipped trackers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_without_its_client_a_tracker_names_the_extra(monkeypatch, run, name):
    monkeypatch.setattr("ctrpipe.common.extras.is_installed", lambda module: module != name)
    with pytest.raises(InputError, match=rf"the tracker {name} needs the extra {name} .*'ctrpipe\[{name}\]'"):
        call_after_run(run, Hooks(trackers=[name]))
