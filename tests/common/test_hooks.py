"""Entry points of installed packages: the examples of docs/hooks.md, and hooks that misbehave."""

import dataclasses
import json
import re
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common import hooks, stores
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.config.hooks import Hooks
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.evaluation.hooked import JudgedRows, hook_gates, hook_metrics, judged_rows
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows
from ctrpipe.pipeline.run.finished import FinishedRun, call_after_run, check_hooks, write_sections
from ctrpipe.pipeline.run.graph import evaluator_settings
from ctrpipe.pipeline.run.inputs import run_inputs
from ctrpipe.pipeline.training.learner import hook_loss, row_losses
from ctrpipe.transforms.features.kinds.numeric import hook_transform
from ctrpipe.transforms.features.transform import analyze, load_graph
from ctrpipe.transforms.log.described_files import describe_file
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
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
    hooks._places.cache_clear()
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


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "raise ValueError('no\\x1b[1m\\ncolumn')",
            "the reader h .my_hooks_h:Own. failed .ValueError: no column.; correct it",
        ),
        ("raise SystemExit(0)", "the reader h .* failed .SystemExit: 0.; correct it or leave it out"),
        ("return [1]", "the reader h .my_hooks_h:Own. failed .ValueError: not enough values to unpack"),
        ("return {}, {}", "log.ltsv: the reader h returned no column "),
        ("columns.update(ad=columns['ad'][1:])", "returned 1 values of the column ad for 2 rows; correct it"),
        ("columns.update(ad=columns['ad'].cast('string'))", "the type string for the column ad, which must be binary"),
        ("columns.update(ad=['a', 'b'])", "the reader h returned list for the column ad, no Arrow array"),
    ],
)
def test_a_reader_that_misbehaves_is_one_line(tmp_path, package, body, message):
    [example] = [example for example in EXAMPLES if example[0] == "readers"]
    package(*example)
    own = f"        columns, wrong = super()._parse(text, rows, names)\n        {body}\n        return columns, wrong\n"
    code = f"class Own(Ltsv):\n    def _parse(self, text, rows, names):\n{own}"
    package("readers", "h", "my_hooks_h", "Own", f"from my_hooks_ltsv import Ltsv\n{code}")
    (tmp_path / "log.ltsv").write_text("click:1\tdevice:m\tquery:q\tad:a\n" * 2)
    config = load_config(joined(SMALL, {"data": {"format": "h", "header": False}}))
    with pytest.raises(InputError, match=message) as error:
        list(LogReader(config.log_spec).read(str(tmp_path / "log.ltsv")))
    assert "\n" not in str(error.value)


def test_a_reader_that_is_no_format_is_said(tmp_path, package):
    package("readers", "h", "my_hooks_h", "read", "def read(*_):\n    return []\n")
    config = load_config(joined(SMALL, {"data": {"format": "h", "header": False}}))
    with pytest.raises(InputError, match="the reader h is <function .*, not a subclass of Format; see docs/hooks.md"):
        list(LogReader(config.log_spec).read(str(tmp_path / "log.ltsv")))


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


def judged(**changes) -> JudgedRows:
    """Ten rows of two slices; the model ranks the third row highest."""
    labels = np.array([1, 0, 1, 0, 0, 1, 0, 0, 0, 1], np.float32)
    probabilities = np.array([0.3, 0.2, 0.9, 0.4, 0.1, 0.8, 0.3, 0.2, 0.1, 0.6], np.float32)
    slices = {"site": pa.array(["news", "shop"] * 5)}
    scored = ScoredRows("these", {"ctr": labels}, {"ctr": probabilities}, slices)
    return judged_rows(dataclasses.replace(scored, **changes), probabilities, None, {"auc": 0.7})


@pytest.mark.usefixtures("examples")
def test_the_store_of_the_page_is_read_listed_and_written_to_by_its_urls(tmp_path, monkeypatch, package):
    monkeypatch.setenv("TEAM_DISK", str(tmp_path / "disk"))
    (tmp_path / "disk" / "ads" / "days").mkdir(parents=True)
    for day in (2, 10):
        rows = f"click,device,query,ad\n1,a,b,{day}\n0,d,e,f\n"
        (tmp_path / "disk" / "ads" / "days" / f"day-{day}.csv").write_text(rows)
    assert stores.matching("team://ads/days/*.csv") == ["team://ads/days/day-2.csv", "team://ads/days/day-10.csv"]
    stores.write_bytes("team://ads/new/scores.txt", b"0.5")
    assert (tmp_path / "disk" / "ads" / "new" / "scores.txt").read_bytes() == b"0.5"
    assert stores.is_file("team://ads/new/scores.txt") and not stores.is_file("team://ads/new/other.txt")
    config = load_config(joined(SMALL, {"data": {"format": "csv"}}))
    [batch] = LogReader(config.log_spec).read("team://ads/days/day-10.csv")
    assert batch.rows["ad"].to_pylist() == [b"10", b"f"]
    data = [describe_file("team://ads/days/day-2.csv")]
    before = run_inputs(config, [], data, tmp_path).data_fingerprint
    [example] = [example for example in EXAMPLES if example[0] == "stores"]
    package(*example[:4], f"{example[4]}\n# another line\n")
    assert run_inputs(config, [], data, tmp_path).data_fingerprint != before
    with pytest.raises(
        InputError, match="store team .my_hooks_team:team. failed .FileNotFoundError: .* no folder none"
    ):
        stores.read_bytes("team://none/x.csv")
    with pytest.raises(InputError, match="teem:// is not a known store; use s3://, .*, file://, .*team://"):
        stores.check_scheme("teem://ads/x.csv")


@pytest.mark.usefixtures("examples")
def test_the_metric_of_the_page_leaves_out_rows_without_a_label():
    assert hook_metrics(["lift"], judged()) == {"lift": pytest.approx(1 / 0.4)}
    labels = np.array([1, 0, np.nan, 0, 0, 0, 0, 0, 0, 1], np.float32)  # the highest of the nine is the sixth row
    assert hook_metrics(["lift"], judged(labels={"ctr": labels})) == {"lift": 0.0}
    assert hook_metrics(["lift"], judged(labels={"ctr": np.zeros(10, np.float32)})) == {"lift": None}
    weighted = judged(weights=np.array([1, 1, 2, 1, 1, 0, 1, 1, 1, 1], np.float32))
    assert hook_metrics(["lift"], weighted) == {"lift": pytest.approx(10 / 4)}


@pytest.mark.usefixtures("examples")
def test_the_gate_of_the_page_objects_to_a_slice_that_is_worse():
    many = {name: np.tile(getattr(judged(), name), 20) for name in ("labels", "probabilities", "weights")}
    now = JudgedRows(**many, slices={"site": np.tile(judged().slices["site"], 20)})
    [row] = hook_gates(["no_worse_slice"], now)
    assert row["passed"] and (row["metric"], row["kind"], row["value"]) == ("no_worse_slice", "hook", None)
    assert hook_gates(["no_worse_slice"], dataclasses.replace(now, last=now.probabilities))[0]["passed"]
    # Before, the model was surer of the right labels in the shop.
    better = np.where(now.slices["site"] == "shop", 0.05 + 0.9 * now.labels, now.probabilities)
    [row] = hook_gates(["no_worse_slice"], dataclasses.replace(now, last=better))
    own = now.slices["site"] == "shop"
    y, p = now.labels[own], now.probabilities[own]
    loss = -np.mean(np.where(y == 1, np.log(p), np.log(1 - p)))
    assert not row["passed"] and row["reason"] == f"log loss where site is shop: {loss:.4f}"


RETURNS = "def hook(*_):\n    return "


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("metrics", f"{RETURNS}'high'\n", "the metric h returned str, not a finite number; return a float, or None"),
        ("metrics", f"{RETURNS}float('nan')\n", "the metric h returned nan, not a finite number"),
        ("metrics", f"{RETURNS}_[0].labels / 0\n", "the metric h returned ndarray, not a finite number"),
        ("metrics", "def hook(rows):\n    rows.labels[0] = 2\n", "failed .ValueError: assignment destination is read"),
        ("metrics", "def hook(rows):\n    rows.metrics['auc'] = 1\n", "failed .TypeError: .*item assignment"),
        ("metrics", f"{RETURNS}1 / 0\n", "the metric h .my_hooks_h:hook. failed .ZeroDivisionError: division by zero"),
        ("gates", f"{RETURNS}True\n", "the gate h returned True; return None, or a text that says why it objects"),
        ("gates", f"{RETURNS}' '\n", "the gate h returned ' '; return None"),
        ("gates", f"{RETURNS}_[0].clicks\n", "the gate h .* failed .AttributeError: .*clicks"),
        ("transforms", f"{RETURNS}_[0] * 0 + 1\n", "the transform h returned float32 of shape .5, 1., not all of them"),
        (
            "transforms",
            f"{RETURNS}[1.0]\n",
            "the transform h returned float32 of shape .1. for 5 numbers; return a finite",
        ),
        (
            "transforms",
            "import numpy\ndef hook(x):\n    return numpy.nan_to_num(x)\n",
            "the transform h .* failed .NotImpl",
        ),
        ("stores", f"{RETURNS}'/mnt'\n", "the store h returned str, not a file system; return one of pyarrow.fs"),
        ("stores", f"{RETURNS}1 / 0\n", "the store h .my_hooks_h:hook. failed .ZeroDivisionError"),
        ("metrics", f"import sys\n{RETURNS}sys.exit(0)\n", "the metric h .my_hooks_h:hook. failed .SystemExit: 0.; c"),
        ("gates", "hook = 5\n", "the gate h .my_hooks_h:hook. is of type int, which cannot be called; name a function"),
        ("transforms", "import absent\n", "the transform h .my_hooks_h:hook. failed .ModuleNotFoundError: No module"),
        ("losses", f"{RETURNS}sum(_)\n", None),
        (
            "losses",
            f"{RETURNS}_[0] * 0 / 0\n",
            "the loss h returned float32 of shape .4., not all of them finite floats",
        ),
        (
            "losses",
            f"{RETURNS}_[0][:, None]\n",
            "the loss h returned float32 of shape .4, 1. for 4 rows; return a finite",
        ),
        ("losses", f"{RETURNS}1.0\n", "the loss h returned float.* of shape .. for 4 rows"),
        (
            "losses",
            "import numpy\ndef hook(y, z):\n    return numpy.exp(z) - y\n",
            "the loss h cannot be part of a training step .*; use keras.ops",
        ),
        (
            "losses",
            "def hook(logits):\n    return logits\n",
            "the loss h .* failed .TypeError: hook.. takes 1 positional",
        ),
    ],
)
def test_a_metric_a_gate_a_loss_and_a_transform_that_misbehave(package, kind, code, message):
    package(kind, "h", "my_hooks_h", "hook", code)
    call = {"metrics": lambda: hook_metrics(["h"], judged()), "gates": lambda: hook_gates(["h"], judged())}
    call |= {"losses": lambda: hook_loss("h"), "transforms": lambda: hook_transform("h")}
    call["stores"] = lambda: stores.read_bytes("h://bucket/key")
    if message is None:
        assert call[kind]()
        return
    with pytest.raises(InputError, match=message) as error:
        call[kind]()
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("examples")
def test_the_loss_of_the_page_is_the_paper_s_beside_a_task_of_another_one():
    labels = np.array([[1, 0], [0, 1], [np.nan, 1]], np.float32)
    logits = np.array([[0.5, 0.1], [2.0, -1.0], [3.0, 0.0]], np.float32)
    training = load_config(joined(SMALL, {"training": {"loss": "poly1"}})).training
    training = training.model_copy(update={"loss": {"ctr": "poly1"}})
    fields = FeatureMap.from_sizes([("device", "categorical", 3, 1)], tasks=("ctr", "cvr"))
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    of_label = np.where(labels == 1, p, 1 - p)
    expected = -np.log(of_label)
    expected[:, 0] += 1 - of_label[:, 0]
    expected[2, 0] = 0.0
    found = row_losses(fields, training)(labels, logits, None)
    np.testing.assert_allclose(np.asarray(found), expected.mean(axis=1), rtol=1e-5)


@pytest.mark.usefixtures("examples")
def test_the_code_of_a_loss_a_metric_and_a_gate_decides_what_is_done_again(tmp_path, package):
    (tmp_path / "log.csv").write_text("click,device,query,ad\n1,a,b,c\n")
    named = {"training": {"loss": "poly1"}, "hooks": {"metrics": ["lift"], "gates": ["no_worse_slice"]}}
    named["features"] = [{"kind": "numeric", "columns": ["ad"], "transform": "signed_log"}]
    config = load_config(joined(SMALL, {"data": {"format": "csv"}, **named}))
    data = [describe_file(str(tmp_path / "log.csv"))]

    def done() -> tuple[str, str, str]:
        inputs = run_inputs(config, [], data, tmp_path)
        trained = inputs.training_fingerprint(config, config.model)
        return inputs.transform_version(config), trained, evaluator_settings(config, inputs).model_dump_json()

    before = done()
    assert done() == before
    changes = {
        "transforms": (True, True, False),
        "losses": (False, True, False),
        "metrics": (False, False, True),
        "gates": (False, False, True),
    }
    for kind, changed in changes.items():
        [example] = [example for example in EXAMPLES if example[0] == kind]
        package(*example[:4], f"{example[4]}\n# another line\n")
        assert tuple(one != other for one, other in zip(done(), before, strict=True)) == changed
        before = done()


@pytest.mark.usefixtures("examples")
def test_the_transform_of_the_page_is_a_dense_feature_of_the_graph(tmp_path):
    numbers = np.where(np.arange(300) % 9 == 0, np.nan, np.linspace(-60, 90, 300)).astype(np.float32)
    price = {"kind": "numeric", "columns": ["price"], "transform": "signed_log"}
    features = [{"kind": "categorical", "columns": ["device"]}, price]
    spec = load_config(joined(SMALL, {"features": features})).log_spec
    columns = {"price": pa.array(numbers, from_pandas=True), "device": pa.array([b"a"] * 300)}
    with PayloadWriter(tmp_path, "part", payload_schema(spec)) as writer:
        writer.write(pa.RecordBatch.from_pydict(columns | {"click": pa.array(np.zeros(300, np.float32))}))
    analyze(spec, payload_files(tmp_path), tmp_path / "graph", Workers(processes=1))
    rows = {"price": np.array([0, -2.5, np.nan, 40], np.float32), "device": np.array([b"a"] * 4, object)}
    packed = load_graph(tmp_path / "graph")(rows | {"click": np.zeros(4, np.float32)})
    expected = [0.0, -np.log(3.5), 0.0, np.log(41)]
    np.testing.assert_allclose(packed["dense"][:, 0], expected, rtol=1e-6)


def test_the_code_of_a_hook_is_that_of_the_modules_beside_it_too(package, tmp_path):
    helper = tmp_path / "site" / "my_hooks_parts" / "ranks.py"
    helper.parent.mkdir()
    helper.with_name("other.py").write_text("LIMIT = 1\n")
    helper.with_name("__init__.py").write_text("")
    helper.write_text("BEST = 0.1\n")
    helper.with_name("lift.py").write_text(
        "import functools\nfrom . import ranks\ndef lift(rows, best):\n    return best\n"
        "hook = functools.partial(lift, best=ranks.BEST)\n"
    )
    package("metrics", "h", "my_hooks_parts.lift", "hook", "")
    before = hooks.version("metrics", "h")
    helper.with_name("other.py").write_text("LIMIT = 2\n")
    assert hooks.version("metrics", "h") == before
    helper.write_text("BEST = 0.2\n")
    assert hooks.version("metrics", "h") != before


def test_a_name_that_two_packages_have_is_said(package, tmp_path):
    package("metrics", "h", "my_hooks_h", "hook", f"{RETURNS}1.0\n")
    other = tmp_path / "site" / "others-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text(
        "[ctrpipe.metrics]\nh = others.metrics:h\n[ctrpipe.models]\nfm = others:F\n"
    )
    hooks.names.cache_clear()
    hooks._places.cache_clear()
    named = "the metric h is my_hooks_h:hook of my-hooks and others.metrics:h of others; uninstall"
    with pytest.raises(InputError, match=named):
        hook_metrics(["h"], judged())
    assert load_config(joined(SMALL, {"model": {"name": "fm"}})).model.name == "fm"


def test_an_export_s_name_is_that_of_a_folder():
    for name in ("..", "a/b"):
        with pytest.raises(ValueError, match=f"'{name}' cannot be the name of a folder; give the entry point another"):
            Hooks(exports=[name])


def test_a_loss_that_is_not_installed_is_said_with_the_nearest_one():
    with pytest.raises(InputError, match="'focla' is none of binary_cross_entropy, .*such a loss; did you mean focal"):
        load_config(joined(SMALL, {"training": {"loss": "focla"}}))
    features = [{"kind": "numeric", "columns": ["price"], "transform": "standardise"}]
    with pytest.raises(
        InputError, match="transform 'standardise' is none of log_.*transform; did you mean standardize"
    ):
        load_config(joined(SMALL, {"features": features}))


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
        ("def section(run): return 5\n", "the report section s returned int, not a text; return HTML as a str"),
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
