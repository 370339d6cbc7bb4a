"""The commands as a user runs them, on tiny sizes; what they measure here means nothing."""

import collections
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.harness.preprocess_logs import VALUES, raw_log, values_of
from benchmarks.harness.preprocess_sides import fuxictr
from benchmarks.peers.client import ENVIRONMENTS, NAMES, Peer
from tests.warm_python import python

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
MISSING = [name for name in NAMES if not (ENVIRONMENTS / name / "bin" / "python").exists()]
needs_peers = pytest.mark.skipif(bool(MISSING), reason=f"no environment of {', '.join(MISSING)}: run `make peers`")
TINY = ["--fields", "3", "--dim", "4", "--batch", "16", "--threads", "1"]
QUICK = ["--rounds", "2", "--steps", "2"]


def run(module: str, *arguments: str, output: pathlib.Path) -> dict:
    """The command's last line, which is also what it wrote."""
    command = [*python("tensorflow"), "-m", f"benchmarks.{module}", *arguments, "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report == json.loads(output.read_text())
    return report


@pytest.mark.large(like="tests/benchmarks/test_arithmetic.py::test_the_fastest_peer_alternates_with_ours")
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_train_alone(backend, tmp_path):
    arguments = ["--models", "fm", "--ids", "5", "--against", "none", "--backend", backend, "--optimizer", "lazy_adam"]
    report = run("train", *arguments, *TINY, *QUICK, output=tmp_path / "train.json")
    assert (report["backend"], report["threads"], report["peers"]) == (backend, 1, {})
    (model,) = report["models"]
    assert len(model["ours"]) == 2
    assert all(speed > 0 for speed in model["ours"])
    assert "ratio" not in model


@pytest.mark.large(like="tests/benchmarks/test_commands.py::test_reader")
def test_calls(tmp_path):
    arguments = ["--models", "fm", "--rows", "1,64", "--seconds", "0.01", "--ids", "5", "--fields", "3", "--dim", "4"]
    report = run("calls", *arguments, "--threads", "1", output=tmp_path / "calls.json")
    assert [(one["model"], one["backend"]) for one in report["results"]] == [("fm", "tensorflow"), ("fm", "jax")]
    assert all(len(one["p50_ms"]) == 2 and min(one["p50_ms"]) > 0 for one in report["results"])


@pytest.mark.large(like="tests/benchmarks/test_arithmetic.py::test_the_fastest_peer_alternates_with_ours")
@needs_peers
def test_train_against_peers(tmp_path):
    report = run("train", "--models", "xdeepfm", "--ids", "5", *TINY, *QUICK, output=tmp_path / "train.json")
    (model,) = report["models"]
    assert set(model["trials"]) == set(NAMES) == set(report["peers"])
    assert model["peer"] == max(model["trials"], key=model["trials"].get)
    ratios = sorted(ours / theirs for ours, theirs in zip(model["ours"], model["theirs"], strict=True))
    assert model["ratio"] == pytest.approx({"median": sum(ratios) / 2, "min": ratios[0], "max": ratios[1]})


BFLOAT16 = """
import json, sys; sys.path.insert(0, {folder!r})
import torch, {name}_server as server
from peer_server import Server, Spec
losses = []
asked = {{"cmd": "train", "model": "mlp", "steps": 3, "batch": 64, "warmup": 0}}
asked |= {{"sizes": [50] * 6, "dim": 8, "hidden": [32, 16]}}
for autocast in (False, True):
    torch.manual_seed(1)
    answer = Server(server.build, {{"mlp": True}}).answer({{**asked, "autocast": autocast}})
    losses.append(answer["loss"])
seen, entropy = [], torch.nn.functional.binary_cross_entropy
def noted(given, *rest, **more):
    seen.append((given.dtype, torch.is_autocast_enabled("cpu")))
    return entropy(given, *rest, **more)
torch.nn.functional.binary_cross_entropy = noted
built = server.build("dcn_v2", Spec(sizes=(50,) * 4, dim=8, hidden=(32,), cin=(4,)), False)
with torch.autocast("cpu", torch.bfloat16):
    loss = built.loss(built.inputs(torch.ones(8, 4, dtype=torch.int64), torch.ones(8)))
print(json.dumps([losses, [[str(kind), is_on] for kind, is_on in seen], str(loss.dtype)]))
"""


@functools.cache
def in_bfloat16(name: str) -> list:
    """Of a peer: losses without and with autocast from the same weights, and how it computes the cross-entropy."""
    text = BFLOAT16.format(folder=str(ROOT / "benchmarks" / "peers"), name=name)
    done = subprocess.run([ENVIRONMENTS / name / "bin" / "python", "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.large(like="tests/benchmarks/test_arithmetic.py::test_the_fastest_peer_alternates_with_ours")
@needs_peers
def test_a_peer_computes_in_bfloat16_where_it_is_asked_to():
    losses, *_ = in_bfloat16("fuxictr")
    assert 0 < abs(losses[0] - losses[1]) < 0.01


@pytest.mark.large(like="tests/benchmarks/test_arithmetic.py::test_the_fastest_peer_alternates_with_ours")
@needs_peers
@pytest.mark.parametrize("name", ["fuxictr", "recbole"])
def test_a_peers_loss_is_not_in_bfloat16(name):
    """On a GPU PyTorch refuses the cross-entropy of probabilities where it rounds."""
    _, *computed = in_bfloat16(name)
    assert computed == [[["torch.float32", False]], "torch.float32"]


@pytest.mark.large(like="tests/benchmarks/test_commands.py::test_memory_of_packed_files")
@needs_peers
def test_memory(tmp_path):
    arguments = ["--only", "cin", "--maps", "4,4", "--ids", "5"]
    report = run("memory", *arguments, *TINY, output=tmp_path / "memory.json")
    for side in ("ours", "theirs"):
        assert 0 < report["cin"][side]["baseline_bytes"] < report["cin"][side]["peak_bytes"]
    (line,) = report["lines"]
    assert line["value"] == report["cin"]["ratio"] and line["met"] == (line["value"] <= 0.5)


@pytest.mark.large(like="tests/benchmarks/test_commands.py::test_memory_of_packed_files")
def test_memory_of_a_run(tmp_path):
    arguments = ["--only", "run", "--rows", "3000", "--models", "lr", "--folder", str(tmp_path / "logs")]
    report = run("memory", *arguments, *TINY, output=tmp_path / "memory.json")
    (line,), (whole,) = report["lines"], report["run"]["models"]["lr"]
    assert whole["rows"] == 3000 and whole["peak_bytes"] / 2**30 == line["value"] > 0.5
    assert (line["unit"], line["target"], line["met"]) == ("GiB", 4.0, line["value"] <= 4)


def test_memory_of_packed_files(tmp_path):
    arguments = ["--only", "files", "--rows-files", "500,2000", "--folder", str(tmp_path / "files")]
    report = run("memory", *arguments, *TINY, output=tmp_path / "memory.json")
    peaks = report["files"]["peaks"]
    assert [peak["rows"] for peak in peaks] == [500, 2000] and all(peak["peak_bytes"] > 0 for peak in peaks)
    added = (peaks[1]["peak_bytes"] - peaks[0]["peak_bytes"]) / (peaks[1]["log_bytes"] - peaks[0]["log_bytes"])
    assert report["lines"][0]["value"] == pytest.approx(added)


@pytest.mark.large(
    like="tests/benchmarks/test_arithmetic.py::test_ways_to_train_alternate_and_are_compared_round_by_round"
)
def test_backends(tmp_path):
    arguments = ["--models", "lr,fm", "--ids", "5", "--ways", "tensorflow,jax,tensorflow_avx2", "--batches", "16,32"]
    sizes = ["--fields", "3", "--dim", "4", "--threads", "1", "--rounds", "2", "--seconds", "0.01"]
    report = run("backends", *arguments, *sizes, output=tmp_path / "backends.json")
    measured = [(one["model"], one["batch"]) for one in report["results"]]
    assert measured == [("lr", 16), ("lr", 32), ("fm", 16), ("fm", 32)]
    for one in report["results"]:
        assert set(one["over"]) == set(one["cpu_over"]) == {"jax", "tensorflow_avx2"}
        assert all(len(rounds) == 2 for rounds in one["samples_per_s"].values())
        assert min(one["first_step_cpu_s"].values()) > 0
    assert min(report["start_cpu_s"].values()) > 0.5


# The trainings of the others are in test_quality.py.
@pytest.mark.large(like="tests/benchmarks/test_arithmetic.py::test_the_fastest_peer_alternates_with_ours")
@needs_peers
@pytest.mark.parametrize("name", NAMES)
def test_every_peer_trains_every_model(name):
    sizes = {"sizes": [5] * 6, "dim": 4, "hidden": [8, 8], "cin": [4, 4, 4], "attention": 4}
    with Peer(name) as peer:
        for model in peer.models():
            assert peer.train(model, steps=1, batch=8, threads=1, warmup=0, **sizes)["samples_per_s"] > 0


@pytest.mark.large(like="tests/benchmarks/test_arithmetic.py::test_the_step_of_a_table_reads_a_history_of_any_model")
@pytest.mark.parametrize(("model", "history"), [("mlp", 0), ("mlp", 4), ("din", 4)])
def test_tables(tmp_path, model, history):
    arguments = ["--small", "60", "--large", "600", "--model", model, "--history", str(history)]
    report = run("tables", *arguments, *TINY, *QUICK, output=tmp_path / "tables.json")
    assert (report["rows"], report["history"]) == ([60, 600], history)
    measured = [(result["optimizer"], result["zipf"]) for result in report["results"]]
    assert measured == [("lazy_adam", 1.2), ("lazy_adam", None), ("adam", 1.2), ("adam", None)]
    for result in report["results"]:
        assert len(result["small"]) == len(result["large"]) == 2


@pytest.mark.large(like="tests/benchmarks/test_arithmetic.py::test_the_table_that_devices_hold")
def test_sharded_tables(tmp_path):
    arguments = ["--rows", "20000", "--devices", "2", "--rounds", "1", "--steps", "1"]
    arguments += ["--optimizer", "rowwise_adagrad"]
    report = run("sharded_tables", *arguments, *TINY, output=tmp_path / "sharded_tables.json")
    (result,) = report["results"]
    assert result["row_bytes"] == pytest.approx(4 * (4 + 1), rel=0.02)
    assert result["formula_row_bytes"] == 4 * (4 + 1)
    state = result["device_bytes"] - result["rest_bytes"]
    assert state == pytest.approx(result["rows"] * result["row_bytes"] / 2)
    assert result["live_bytes"] > 0 < result["step_ms"]["median"]


def test_reader(tmp_path):
    arguments = ["--rows", "700", "--fields", "3", "--batch", "64", "--threads", "1", "--rounds", "2"]
    report = run("reader", *arguments, output=tmp_path / "reader.json")
    assert (report["rows"], report["threads"]) == (700, 1)
    names = [reader["name"] for reader in report["readers"]]
    assert len(set(names)) == 4
    for speed in report["readers"] + report["epochs"]:
        assert len(speed["seconds"]) == len(speed["cpu_seconds"]) == 2
        assert speed["target"] == (None if speed["name"].startswith(("gzip", "lr")) else 500_000)


@pytest.mark.large(like="tests/benchmarks/test_commands.py::test_reader")
def test_preprocess(tmp_path):
    arguments = ["--rows", "3000", "--against", "none", "--bad-rate", "0.05", "--workers", "1"]
    arguments += ["--folder", str(tmp_path / "logs")]
    report = run("preprocess", *arguments, output=tmp_path / "preprocess.json")
    good, bad = report["results"]
    assert (good["rows"], good["workers"], good["bad_rate"], bad["bad_rate"]) == (3000, 1, 0.0, 0.05)
    for result in (good, bad):
        assert {"start", "LogExampleGen", "LogStatisticsGen", "LogTransform"} <= set(result["stages"])
        assert sum(result["stages"].values()) == pytest.approx(result["seconds"])
        assert 0 < min(result["stages"].values())
        assert result["cpu_seconds"] > 0 < result["peak_bytes"]
    rows = report["bad_rows"]["rows"]
    assert 100 < rows["dead_letters"] < 200
    assert rows["in"] == 3000 == rows["out"] + rows["dead_letters"]


@pytest.mark.large(like="tests/benchmarks/test_preprocess.py::test_ids_are_those_of_the_lines_of_the_other_vocabulary")
@needs_peers
def test_fuxictr_keeps_the_values_that_occur_often_in_the_training_rows(tmp_path):
    done = fuxictr(tmp_path, 3000, tmp_path / "fuxictr")
    kept = json.loads(pathlib.Path(done.answer["vocabularies"]).read_text())
    rows = values_of(raw_log(tmp_path, 3000), 0, 2400)
    for column, name in enumerate(VALUES):
        counts = collections.Counter(row[column].decode() for row in rows)
        often = {value for value, count in counts.items() if value and count >= 10}
        assert set(kept[name]) == often | {"__PAD__", "__OOV__"}


@pytest.mark.large(like="tests/benchmarks/test_preprocess.py::test_an_interrupt_leaves_nothing_running")
def test_interrupt(tmp_path):
    """Ctrl-C reaches the whole group, as from a terminal: one line, the shell's exit code, nothing left running."""
    arguments = ["--models", "fm", "--against", "none", "--ids", "5", "--rounds", "1000000", "--steps", "1", *TINY]
    command = [sys.executable, "-m", "benchmarks.train", *arguments, "--output", str(tmp_path / "train.json")]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while "round" not in process.stderr.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    until = time.monotonic() + 30
    while _alive(process.pid):
        assert time.monotonic() < until
        time.sleep(0.1)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.large(like="tests/benchmarks/test_commands.py::test_reader")
def test_columns_counts_the_seconds_of_each_stage(tmp_path):
    report = run("columns", "--columns", "70", "--rows", "90", output=tmp_path / "columns.json")
    [each] = report["runs"]
    assert each["columns"] == 70
    assert list(each["stages"])[0] == "start" and list(each["stages"])[-1] == "AtomicPusher"
    assert {"LogTransform", "ExampleValidator", "Trainer", "Writing the servable"} <= each["stages"].keys()
    assert sum(each["stages"].values()) == pytest.approx(each["seconds"], abs=2) and each["cpu_seconds"] > 5
