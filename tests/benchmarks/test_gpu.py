"""`python -m benchmarks.gpu`: time, resuming, failures and the page with parts that take no time, and one real part."""

import contextlib
import dataclasses
import json
import pathlib
import sys
import time
import types
from collections.abc import Iterator

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import gpu, precision, train
from benchmarks.gpu import ENDED, KEPT, Result, begin, in_order, main, read_results, run_part, run_parts
from benchmarks.harness import devices, measured, ours_server, printed_sections
from benchmarks.harness.gpu_page import NOTHING, section
from benchmarks.harness.gpu_parts import BARS, FULL, SMALL, Part, Usable, parts
from benchmarks.harness.ours import Ours
from benchmarks.harness.settings import HISTORIES, MODELS, SEVERAL_TASKS, Shape
from benchmarks.peers.line_process import ProcessError
from benchmarks.train import Comparison, chosen_peers, peer_version, some_with
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import available
from ctrpipe.pipeline.config import Training
from tests.warm_python import python

SEEN = {"tensorflow": {"backend": "tensorflow", "device": "G", "cuda": "12.5", "versions": {"tensorflow": "2"}}}
REPORT = {"benchmark": "gpu", "device": "gpu", "small": False, "parts": {}, "gpus": [{"name": "G", "driver": "1"}]}
REPORT |= {"machine": {"cpu": "C", "cores": 8, "python": "3"}, "date": "2026-01-02", "backends": SEEN}
REPORT |= {"peers": {"recbole": {"reason": "it is not installed; run `make peers`"}}}


def program(text: str, minutes: float = 0.1, name: str = "x") -> Part:
    return Part(name, (sys.executable, "-c", text), minutes)


def report(**changes) -> dict:
    return json.loads(json.dumps(REPORT)) | changes


def result(part: Part, *_: object) -> Result:
    return Result(part.command[1:], "2026-01-02", 1.0, 0.25, 0.5, {"of": part.name})


# The time, and going on -----------------------------------------------------------------------------------------


def test_parts_that_fail_or_take_too_long_are_reasons_and_a_report_is_kept(tmp_path):
    assert run_part(program("print('{\"a\": 1}')"), 1, tmp_path, "cpu").report == {"a": 1}
    crashed = run_part(program("import sys; print('half'); sys.exit('first\\nout of memory')"), 1, tmp_path, "cpu")
    assert (crashed.report, crashed.reason) == (None, "failed: out of memory")
    killed = run_part(program("import os; os.kill(os.getpid(), 9)"), 1, tmp_path, "cpu")
    assert killed.reason.startswith("failed: ") and "-9" in killed.reason
    assert (tmp_path / "x.txt").read_text().endswith("-9). Its last words:\n\n")
    assert run_part(program("import time; time.sleep(60)"), 0.2 / 60, tmp_path, "cpu").reason == ENDED
    slow = run_part(program("import time; time.sleep(60)"), 1, tmp_path, "cpu", most=0.25 / 60)
    assert slow.reason.startswith("failed: it took longer than the 0.00416667 minutes of --part-minutes")


def test_a_part_has_the_variables_that_it_names(tmp_path):
    part = program("import json, os; print(json.dumps({'of': os.environ['KERAS_BACKEND']}))")
    named = dataclasses.replace(part, variables={"KERAS_BACKEND": "jax"})
    assert run_part(named, 1, tmp_path, "cpu").report == {"of": "jax"}


def test_what_is_left_of_a_command_that_takes_too_long_is_ended():
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(77.25)'])"
    with pytest.raises(measured.TimeIsOver, match="x took longer than 1 s"):
        measured.run("x", [sys.executable, "-c", child], limit_seconds=1)
    # The child has no parent to wait for it: on a busy machine the system takes a moment to end it.
    end = time.monotonic() + 20
    while b"sleep(77.25)" in b"".join(commands_that_run()):
        assert time.monotonic() < end
        time.sleep(0.1)


def commands_that_run() -> Iterator[bytes]:
    for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            yield process.read_bytes()


def test_no_part_starts_that_has_too_little_time_or_whose_backend_sees_nothing(tmp_path):
    found, wrote = report(backends=SEEN | {"jax": {"reason": "jax sees no GPU"}}), []
    wanted = [program("", 1, "first"), dataclasses.replace(program("", 1, "jax"), backends=("jax",))]
    run_parts([*wanted, program("", 5, "long")], 4, found, tmp_path, lambda: wrote.append(len(found["parts"])), result)
    assert wrote == [1, 2, 3]
    assert found["parts"]["first"]["report"] == {"of": "first"}
    assert found["parts"]["jax"] == {"report": None, "reason": "jax sees no GPU"}
    assert found["parts"]["long"] == {"report": None, "reason": ENDED}


def test_a_second_call_measures_what_is_left_and_what_failed_last():
    kept, changed, failed, late, new = (program(name, name=name) for name in "abcde")
    done = {"a": {"report": {}, "command": ["-c", "a"]}, "b": {"report": {}, "command": ["-c", "other sizes"]}}
    done |= {"c": {"report": None, "reason": "failed: out of memory"}, "d": {"report": None, "reason": ENDED}}
    assert in_order([kept, changed, failed, late, new], done) == [changed, late, new, failed]


def test_a_failure_takes_no_earlier_results_away(tmp_path):
    """What was measured by another command stays until this one has measured."""
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps(report(parts={"peak": {"report": {}, "command": []}})))
    assert begin(path, "gpu", False, [{"name": "G"}])["parts"] == {"peak": {"report": {}, "command": []}}
    for device, small, name in (("cpu", False, "G"), ("gpu", True, "G"), ("gpu", False, "H")):
        with pytest.raises(InputError, match="of another device or other sizes; give another file"):
            begin(path, device, small, [{"name": name}])
    assert begin(tmp_path / "none.json", "cpu", True, [])["parts"] == {}


@pytest.mark.parametrize("contents", ["{", '{"benchmark": "train"}', '{"benchmark": "gpu"}', "[]"])
def test_a_file_of_something_else_is_one_line(contents, tmp_path):
    path = tmp_path / "gpu.json"
    path.write_text(contents)
    with pytest.raises(InputError, match="--output .*: no results of this command"):
        read_results(path)


# The command ----------------------------------------------------------------------------------------------------


def test_without_a_gpu_it_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "gpus", lambda: [])
    done = CliRunner().invoke(main, ["--output", str(tmp_path / "gpu.json")])
    assert done.exit_code == 2 and not list(tmp_path.iterdir())
    assert done.stderr.splitlines() == [
        "gpu: no GPU is visible; give --device cpu --small to try the command without one"
    ]


def test_only_a_gpu_is_kept_in_the_documents(tmp_path):
    arguments = ["--device", "cpu", "--small", "--keep", "--output", str(tmp_path / "gpu.json")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2 and "--keep: only full sizes on a GPU" in done.stderr


def test_nothing_is_measured_to_render(tmp_path):
    path = tmp_path / "gpu.json"
    assert CliRunner().invoke(main, ["--render", "--output", str(path)]).output == NOTHING
    path.write_text(json.dumps(report(parts={"peak": {"report": None, "reason": "failed: x", "busy": 0.0}})))
    assert CliRunner().invoke(main, ["--render", "--output", str(path)]).output == section(read_results(path))


@pytest.mark.large(like="tests/benchmarks/test_gpu.py::test_the_operations_of_a_step_are_those_of_its_products")
@pytest.mark.slow
def test_a_real_part_on_the_cpu_and_going_on(monkeypatch, tmp_path):
    path, backends = tmp_path / "gpu.json", {"jax": {"backend": "jax", "device": "cpu", "versions": {"jax": "1"}}}
    arguments = ["--device", "cpu", "--small", "--only", "peak", "--output", str(path)]
    monkeypatch.setattr(gpu, "see_backends", lambda device: backends)  # TensorFlow and PyTorch take seconds to start
    monkeypatch.setattr(gpu, "ENVIRONMENTS", tmp_path)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output.splitlines()[-1])
    assert found == read_results(path) and set(found["parts"]) == {"peak"}
    assert found["backends"] == backends and found["gpus"] == []
    rates = found["parts"]["peak"]["report"]["flops_per_s"]["jax"]
    assert set(rates) == {"float32", "tf32", "bfloat16"} and min(rates.values()) > 1e8
    assert "figures say nothing of a GPU" in path.with_suffix(".md").read_text()
    monkeypatch.setattr(gpu.measured, "run", lambda *_, **__: pytest.fail("it is measured already"))
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0 and read_results(path)["parts"] == found["parts"], again.output


def test_every_model_and_every_library_is_in_the_parts():
    every = parts(FULL, "gpu", devices=4)
    assert len({part.name for part in every}) == len(every)
    trained = {part.name.removeprefix("train_") for part in every if part.name.startswith("train_")}
    assert trained == {*MODELS, "text_only", "shallow_interaction_n", "bert4ctr", "numbert"} - {"lightgbm"}
    by_name = {part.name: part.command for part in every}
    assert by_name["train_xdeepfm"][-1] == "gpu" and "fuxictr,recbole" in by_name["train_xdeepfm"]
    assert "1,2,4" in by_name["sharded_tables"] and "100000000" in by_name["lazy_tables_jax"]
    assert by_name["inference_on_cpu"][-1] == "cpu"
    for name, against, batch in (
        ("train_bert4ctr", "none", "256"),
        ("train_xdeepfm", "fuxictr,recbole", "4096"),
        ("large_batch_xdeepfm", "fuxictr", "32768"),
    ):
        options = by_name[name]
        assert options[options.index("--against") + 1] == against and options[options.index("--batch") + 1] == batch
        assert {"float32", "mixed_bfloat16", "same"} <= set(options)
    alone = {part.name: part.command for part in parts(SMALL, "cpu", usable=Usable(("jax",), ()))}
    assert "none" in alone["train_xdeepfm"] and "tensorflow" not in alone["train_xdeepfm"]
    assert "inference_on_cpu" not in alone
    of_zoo = {part.name: part.command for part in parts(FULL, "gpu", usable=Usable(zoo="FuxiCTR"))}
    for name, against, zoo in (("gdcn", "fuxictr", True), ("rank_mixer", "fuxictr,recbole", False)):
        options = of_zoo[f"train_{name}"]
        assert options[options.index("--against") + 1] == against and ("FuxiCTR" in options) is zoo


def test_what_needs_no_tensorflow_is_measured_where_only_jax_is_there():
    of_jax = {part.name: part for part in parts(FULL, "gpu", usable=Usable(("jax",), ()))}
    assert of_jax["precision"].backends == ("jax",) and of_jax["precision"].variables == {"KERAS_BACKEND": "jax"}
    assert {part.variables["KERAS_BACKEND"] for part in parts(FULL, "gpu") if part.name == "precision"} == {
        "tensorflow"
    }
    assert {name for name, part in of_jax.items() if "tensorflow" in part.backends} == {
        "inference",
        "inference_on_cpu",
        "lazy_tables_tensorflow",
        "text_cost",
    }


# The page -------------------------------------------------------------------------------------------------------


def trained(peer: str, ours: float, theirs: float, **more) -> dict:
    return Comparison("xdeepfm", {}, peer, {}, [ours], [theirs], 0.0, step_flops=4e9, **more).as_json()


def test_two_settings_of_a_model_are_two_rows_and_never_one_median():
    linear = Comparison("xdeepfm", {"dim": 4, "cin": "linear"}, "fuxictr", {}, [300.0], [100.0], 0.0, step_flops=4e9)
    relu = Comparison("xdeepfm", {"dim": 4, "cin": "relu"}, "recbole", {}, [100.0], [50.0], 0.0, step_flops=4e9)
    train = {"models": [linear.as_json(), relu.as_json()], "xla": False, "shape": {"batch": 1000}}
    text = section(report(parts={"train_xdeepfm": {"report": train, "reason": None, "busy": 0.0, "gpu_busy": 0.0}}))
    assert "| xdeepfm, cin linear | tensorflow | 1,000 | 300 |  | 3.00 | at least 3: met |  |" in text
    assert "| xdeepfm, cin relu | tensorflow | 1,000 | 100 |  |  |  | 2.00 |" in text


def test_training_stands_beside_its_bar_and_the_peak():
    failed = Comparison("xdeepfm", {}, "recbole", reason="out of memory").as_json()
    train = {"models": [trained("fuxictr", 300.0, 100.0), failed], "xla": True, "precision": "float32"}
    peak = {"flops_per_s": {"tensorflow": {"float32": 1e9, "tf32": 4e9, "bfloat16": 8e9}}}
    done = {"peak": peak, "train_xdeepfm": train | {"shape": {"batch": 1000}}}
    named = {name: {"report": one, "reason": None, "busy": 0.25, "gpu_busy": 0.5} for name, one in done.items()}
    named |= {"precision": {"report": None, "reason": "failed: it ended"}}
    lower = [trained("fuxictr", 450.0, 100.0, precision="mixed_bfloat16", peer_precision="mixed_bfloat16")]
    larger = {"report": train | {"shape": {"batch": 2000}, "models": lower}, "busy": 0.0}
    assert "| xdeepfm | tensorflow with XLA, bfloat16 | 2,000 | 450 | 11.25% | 4.50 | at least 3: met |" in section(
        report(parts=named | {"large_batch_xdeepfm": larger})
    )
    text = section(report(parts=named))
    # 300 samples/s of 4e6 operations each are 0.3 of 4e9.
    assert (
        "| xdeepfm | tensorflow with XLA | 1,000 | 300 | 30.00% | 3.00 | at least 3: met | failed: out of memory |"
        in text
    )
    assert "| tensorflow | 0.001 | 0.004 | 0.008 |" in text
    assert "2026-01-02, G, driver 1; C, 8 cores, Python 3. tensorflow 2 (CUDA 12.5)." in text
    assert "up to 25% of the cores and 50% of the GPU" in text
    assert "- Not measured: `precision`: failed: it ended" in text
    assert "`train_fm`" in text and "not asked for yet" in text
    assert "- recbole was left out: it is not installed; run `make peers`" in text
    small = section(report(parts=named, small=True))
    assert "at least" not in small and "figures say nothing of a GPU" in small
    slower = [trained("fuxictr", 299.0, 100.0)]
    named["train_xdeepfm"]["report"] = train | {"shape": {"batch": 1000}, "models": slower}
    assert "| 2.99 | at least 3: missed |" in section(report(parts=named))
    assert BARS["deepfm"] == 1.5


def test_every_model_without_a_text_is_trained():
    assert set(MODELS) == {model.name for model in available() if not model.needs_text}
    with_history = {model.name for model in available() if model.needs_history or model.needs_items}
    assert set(HISTORIES) == with_history
    assert set(SEVERAL_TASKS) == {model.name for model in available() if model.needs_tasks}


def test_the_other_tables_of_the_page():
    ratio = {"median": 1.25, "min": 1.0, "max": 2.0}
    growth = {
        "optimizer": "lazy_adam",
        "zipf": 1.2,
        "small_ms": ratio,
        "large_ms": ratio,
        "ratio": ratio,
        "target": 1.3,
    }
    times = [{"rows": rows, "baseline_p50_ms": 2.0, "p50_ms": 0.5} for rows in (1, 10_000)]
    aucs = {"float32": {"auc": [0.75, 0.77]}}
    aucs["mixed_bfloat16"] = {"auc": [0.75], "difference": {"difference": -0.01, "interval": [-0.02, 0.001]}}
    case = {"features": 57, "models": {"text_only": {"median": 3.0}}, "numbert over bert4ctr": 3.5}
    sharded = {"optimizer": "lazy_adam", "devices": 2, "rows": 1000, "row_bytes": 192.0, "device_bytes": 2**20}
    called = {"model": "dcn_v2", "backend": "jax", "p50_ms": [0.5, 12.0]}
    reports = {
        "calls": {"rows": [1, 10_000], "results": [called]},
        "inference": {"device": "gpu", "results": [{"rows": times}]},
        "inference_on_cpu": {"device": "cpu", "results": [{"error": "no room"}]},
        "precision": {"models": {"fm": aucs}},
        "text_cost": {"measured": [case | {"bert4ctr over shallow_interaction_n": 1.01}]},
        "lazy_tables_jax": {"backend": "jax", "rows": [10, 10_000], "results": [growth]},
        "sharded_tables": {"results": [sharded | {"step_ms": ratio}]},
    }
    text = section(report(parts={name: {"report": one, "busy": 0.0} for name, one in reports.items()}))
    assert "| rows | 1 | 10,000 |" in text and "| GPU | 2 | 2 |\n| GPU, XLA | 0.5 | 0.5 |" in text
    assert "| model | ours | 1 rows | 10,000 rows |" in text and "| dcn_v2 | jax | 0.5 | 12 |" in text
    assert "| CPU | failed: no room |" in text
    assert "| fm | float32 | 0.76000 |  |  |" in text
    assert "| fm | mixed_bfloat16 | 0.75000 | -0.01000 | -0.02000 .. +0.00100 |" in text
    assert "| 57 | 3 | 1.01 (at most 1.05: met) | 3.50 (at least 4: missed) |" in text
    assert "| jax | lazy_adam | Zipf 1.2 | 1.25 | 1.25 | 1.25 (at most 1.3: met) |" in text
    assert "| lazy_adam | 2 | 1,000 | 192.0 | 1 | 1.25 |" in text


def test_the_documents_have_the_section_of_the_results_that_are_kept(monkeypatch, tmp_path):
    text, printed = printed_sections.PAGE.read_text(), printed_sections.read_section("gpu")
    assert printed == section(read_results(KEPT) if KEPT.exists() else None)
    page = tmp_path / "measured.md"
    page.write_text(text)
    monkeypatch.setattr(printed_sections, "PAGE", page)
    monkeypatch.setattr(gpu, "KEPT", tmp_path / "last_gpu.json")
    kept = report(parts={"peak": {"report": None, "reason": "failed: x"}})
    gpu.keep(kept)
    assert page.read_text() == text.replace(printed, section(kept)) and read_results(tmp_path / "last_gpu.json") == kept


# What is there, and what is beside it ---------------------------------------------------------------------------


def test_gpus_are_those_that_nvidia_smi_lists_and_no_variable_hides(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    lines = "NVIDIA X, 550.1, 81559\\nNVIDIA X, 550.1, [N/A]\\n"
    program.write_text(f"#!/bin/sh\ncase $1 in *utilization*) printf '7\\n42\\n';; *) printf '{lines}';; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = [{"name": "NVIDIA X", "driver": "550.1", "mib": mib} for mib in (81559, None)]
    assert devices.gpus() == found and devices.gpu_busy() == 0.42
    for visible, count in (("", 0), ("-1", 0), ("1", 1), ("0,1", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert len(devices.gpus()) == count, visible
    program.unlink()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(devices, "DRIVER", tmp_path)
    assert devices.gpus() == [] and devices.gpu_busy() is None
    (tmp_path / "gpus" / "0000").mkdir(parents=True)
    (tmp_path / "gpus" / "0000" / "information").write_text("Model: \t\t NVIDIA Y\nIRQ: 1\n")
    assert devices.gpus() == [{"name": "NVIDIA Y", "driver": None, "mib": None}]


def test_a_backend_without_a_gpu_says_what_to_install(monkeypatch):
    ours = Ours("jax", 1, device="gpu")
    monkeypatch.setattr(Ours, "ask", lambda *_: {"device": "cpu"})
    with pytest.raises(ProcessError, match=r'jax sees no GPU; .* pip install "jax\[cuda12\]"'):
        ours.about()
    assert Ours("jax", 1).about() == {"device": "cpu"}
    assert ours.environment["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert Ours("jax", 1, 2, "gpu").environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    on_cpu = Ours("jax", 1, 2, "cpu").environment
    assert on_cpu["JAX_PLATFORMS"] == "cpu" and on_cpu["XLA_FLAGS"].endswith("=2")


def test_backends_are_left_out_with_the_reason(monkeypatch):
    class Fake:
        def __init__(self, backend, *_, device):
            self.backend, self.device = backend, device

        __enter__, __exit__ = (lambda self: self), (lambda *_: None)

        def about(self):
            if self.backend == "jax":
                raise ProcessError("ctrpipe on jax ended. Its last words:\nTraceback\nno driver\n")
            return {"device": self.device}

    monkeypatch.setattr(gpu, "Ours", Fake)
    assert gpu.see_backends("gpu") == {"tensorflow": {"device": "gpu"}, "jax": {"reason": "no driver"}}


def test_a_benchmark_that_loads_tensorflow_itself_wants_the_gpu_too(monkeypatch):
    monkeypatch.setattr(devices.os, "environ", dict(devices.os.environ))
    with pytest.raises(InputError, match="^tensorflow sees no GPU; "):
        devices.load_tensorflow_on("gpu")
    assert devices.ON_GPU.items() <= devices.os.environ.items()
    devices.load_tensorflow_on("cpu")
    assert devices.os.environ["CUDA_VISIBLE_DEVICES"] == "-1"


def test_the_version_of_cuda_is_that_of_jax_s_plugin(monkeypatch):
    """PyTorch brings a package of CUDA too, where JAX may have none."""
    there = {"nvidia-cuda-runtime": "13.0.96", "nvidia-cuda-runtime-cu12": "12.9.79"}

    def version(package: str) -> str:
        if package not in there:
            raise ours_server.importlib.metadata.PackageNotFoundError(package)
        return there[package]

    monkeypatch.setattr(ours_server.importlib.metadata, "version", version)
    assert ours_server.cuda_version("jax") is None
    for plugin, cuda in (("jax-cuda13-plugin", "13.0.96"), ("jax-cuda12-plugin", "12.9.79")):
        there[plugin] = "0.11.2"
        assert ours_server.cuda_version("jax") == cuda


def test_a_model_s_processes_train_it_in_each_pair_of_precisions(monkeypatch):
    asked = []

    class Fake:
        def __init__(self, name, *_, **__):
            self.name = self.backend = name

        __enter__, __exit__ = (lambda self: self), (lambda *_: None)
        about = lambda self: {"device": "cpu", "versions": {}}  # noqa: E731
        models = lambda self: {"fm": True}  # noqa: E731

    def compare(benchmark, model):
        asked.append((benchmark.training["precision"], benchmark.peer_precision, *benchmark.peers))
        if benchmark.peer_precision != "float32" and "recbole" in benchmark.peers:
            raise ProcessError("out of memory")
        return Comparison(model, {}, precision=benchmark.training["precision"])

    for name, fake in (("Ours", Fake), ("Peer", Fake), ("busy", lambda: 0.0), ("step_flops", lambda *_: 4e9)):
        monkeypatch.setattr(train, name, fake)
    monkeypatch.setattr(train.Sides, "compare", compare)
    pairs = [(own, train.their_precision(own, "same")) for own in ("float32", "mixed_bfloat16")]
    settings = {
        "training": {},
        "shape": Shape(),
        "rounds": 1,
        "steps": 1,
        "seconds": 1.0,
        "precisions": pairs,
        "zoo": "",
    }
    groups = (("fuxictr",), ("recbole",))
    ((_, found),) = train.measure(["fm"], ["jax"], 1, groups, None, "cpu", flops=True, **settings)
    assert asked == [(own, own, peer) for own in ("float32", "mixed_bfloat16") for peer in ("fuxictr", "recbole")]
    assert [one.step_flops for one in found] == [4e9] * 4
    last = found[-1]
    assert (last.reason, last.peer, last.precision) == ("out of memory", "recbole", "mixed_bfloat16")
    assert train.their_precision("mixed_float16", "same") == "float32"
    assert train.their_precision("float32", "mixed_bfloat16") == "mixed_bfloat16"


def test_low_precision_stands_beside_the_same_seeds_in_float32(monkeypatch, tmp_path):
    labels, random = np.arange(4000) % 2, np.random.default_rng(1)
    log, asked = types.SimpleNamespace(labels=labels), []
    noise = {"float32": 1.0, "mixed_bfloat16": 1.0, "mixed_float16": 3.0}
    monkeypatch.setattr(
        precision,
        "trained",
        lambda model, training, log, seed, work: (
            asked.append((model.name, training.precision, seed)) or training.precision
        ),
    )
    drawn = lambda name, log: 1 / (1 + np.exp(-labels - random.normal(scale=noise[name], size=4000)))  # noqa: E731
    monkeypatch.setattr(precision, "predicted", drawn)
    found = precision.measure("fm", log, Training(), precision.LOW, 3, Shape(), tmp_path)
    assert asked == [("fm", name, seed) for name in noise for seed in range(3)]
    assert "difference" not in found["float32"] and len(found["mixed_float16"]["auc"]) == 3
    low, high = found["mixed_float16"]["difference"]["interval"]
    means = [np.mean(found[name]["auc"]) for name in ("float32", "mixed_float16")]
    assert found["mixed_float16"]["difference"]["difference"] == pytest.approx(means[1] - means[0], abs=0.01)
    assert low < high < 0
    assert found["mixed_bfloat16"]["difference"]["interval"][1] > 0


def test_peers_are_left_out_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "ENVIRONMENTS", tmp_path)
    python = tmp_path / "fuxictr" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho \'[false, "13.0", "2.13"]\'\n')
    python.chmod(0o755)
    found = gpu.see_peers("gpu")
    assert "its PyTorch 2.13 (CUDA 13.0) sees no GPU" in found["fuxictr"]["reason"]
    assert found["recbole"] == {"reason": "it is not installed; run `make peers`"}
    assert gpu.see_peers("cpu")["fuxictr"] == {"version": peer_version("fuxictr"), "torch": "2.13", "cuda": "13.0"}
    python.write_text("#!/bin/sh\necho 'No module named torch' >&2; exit 1\n")
    assert gpu.see_peers("gpu")["fuxictr"]["reason"].endswith("No module named torch")


def test_each_named_peer_is_compared_with_where_it_has_the_model():
    assert chosen_peers("none") == ((),) and len(chosen_peers("peers")[0]) == 3
    assert chosen_peers("fuxictr, recbole") == (("fuxictr",), ("recbole",))
    with pytest.raises(InputError, match="--against: unknown 'nobody'; give some of fuxictr"):
        chosen_peers("fuxictr,nobody")

    class Has:
        def __init__(self, *names):
            self.models = lambda: dict.fromkeys(names, True)

    groups = chosen_peers("fuxictr,recbole")
    running = {"fuxictr": Has("fm", "pnn"), "recbole": Has("fm")}
    assert some_with("fm", groups, running) == list(groups)
    assert some_with("pnn", groups, running) == [("fuxictr",)]
    assert some_with("ccpm", groups, running) == [()]


def test_a_peers_version_is_its_own():
    assert all(peer_version(name)[0].isdigit() for name in ("fuxictr", "deepctr_torch", "recbole"))
    assert peer_version("fuxictr") in (gpu.FOLDER / "peers" / "fuxictr.in").read_text()


@pytest.mark.slow
def test_the_operations_of_a_step_are_those_of_its_products():
    """An MLP's forward and backward products: three times 2 x inputs x outputs a row, the first layer's input too."""
    shape, client = Shape(fields=4, ids=10, dim=16, batch=128), Ours("jax", 1, device="cpu")
    client.command = [*python("jax"), *client.command[1:]]
    with client as ours:
        found = ours.flops("mlp", {"hidden_units": (400, 400), "embedding_dim": 16}, shape)
    products = 3 * 2 * 128 * (64 * 400 + 400 * 400 + 400)
    assert products < found < 1.15 * products
