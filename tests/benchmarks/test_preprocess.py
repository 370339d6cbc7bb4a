"""What the measurement of preprocessing computes, the logs it makes, and what it sees of a process."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

from benchmarks import columns
from benchmarks.harness import measured
from benchmarks.harness.measured import Usage, marked
from benchmarks.harness.preprocess_logs import COLUMNS, VALUES, bad_log, raw_log, split_logs, values_of
from benchmarks.harness.preprocess_sides import TOP, Run, config
from benchmarks.peers.line_process import ProcessError
from benchmarks.preprocess import (
    LIBRARY_ROWS,
    Measurements,
    chosen_peers,
    growth,
    loss,
    ratio,
    same_ids,
    same_values,
    speed_ups,
    worker_counts,
)
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.transforms.features.packed_files import PackedWriter
from ctrpipe.transforms.log.readers import LogReader

ROOT = pathlib.Path(__file__).parents[2]


def run(rows: int, seconds: float, side: str = "ours", **more) -> Run:
    usage = Usage(seconds, more.pop("cpu_seconds", seconds), 0, 1)
    return Run(side, TOP.name, rows, usage, more.pop("stages", {}), more)


# What is computed ----------------------------------------------------------------------------------------------------


def test_a_peer_of_fewer_rows_starts_once():
    """20 s of start and 80 s for 100 rows are 820 s for 1,000, not 1,000 s."""
    found = ratio(
        run(1000, 41.0, cpu_seconds=50.0), run(100, 100.0, "stock", stages={"start": 20.0, "Transform": 80.0})
    )
    assert (found["peer_seconds"], found["ratio"], found["cpu_ratio"]) == (820.0, 20.0, 16.4)
    assert (found["rows"], found["peer_rows"]) == (1000, 100)


def test_a_peer_that_tells_no_start_is_not_scaled():
    assert ratio(run(100, 10.0), run(100, 30.0, "fuxictr"))["ratio"] == 3.0
    with pytest.raises(ValueError, match="fuxictr tells no stages: measure it at 1,000 rows"):
        ratio(run(1000, 10.0), run(100, 30.0, "fuxictr"))


@pytest.mark.parametrize(
    ("rows", "target", "seconds", "met"),
    [
        (1_000_000, 5.0, 18.0, True),
        (1_000_000, 5.0, 18.1, False),
        (999_999, 3.0, 30.0, True),
        (200_000, 3.0, 30.1, False),
        (199_999, None, 1.0, None),
    ],
)
def test_a_ratio_has_the_target_of_its_rows(rows, target, seconds, met):
    found = ratio(run(rows, seconds), run(rows, 90.0, "fuxictr"))
    assert (found["target"], found["met"]) == (target, met)


def test_growth_leaves_the_start_out():
    """After 10 s of start, 100 rows a second, then 50: twice the time a row."""
    first, second = growth([run(100, 11.0), run(1100, 21.0), run(2100, 41.0)])
    assert first == {"rows": [100, 1100], "marginal_rows_per_s": 100.0}
    assert (second["marginal_rows_per_s"], second["time_per_row"], second["met"]) == (50.0, 2.0, False)
    assert growth([run(100, 11.0), run(1100, 21.0), run(2100, 32.5)])[1]["met"] is True
    assert growth([run(100, 11.0)]) == []


def test_what_the_start_hides_is_not_said_to_grow():
    hidden, first = growth([run(100, 11.0), run(1100, 10.5), run(2100, 20.5)])
    assert (hidden["marginal_rows_per_s"], first["marginal_rows_per_s"]) == (None, 100.0)
    assert "met" not in first
    hidden = [run(100, 11.0), run(1100, 11.5)]
    assert speed_ups({1: [run(100, 11.0), run(1100, 21.0)], 4: hidden}) == []


def test_the_libraries_are_loaded_by_a_run_that_does_not_count(tmp_path):
    measurements, sizes = Measurements(tmp_path, rounds=3), []

    def once(rows):
        sizes.append(rows)
        return run(rows, 10.0 - len(sizes))

    assert measurements._measure(once, 5000).usage.seconds == 7.0
    assert sizes == [LIBRARY_ROWS, 5000, 5000, 5000]
    assert [(each.run.rows, each.run.usage.seconds) for each in measurements.done] == [(5000, 7.0)]


def test_speed_up_is_that_of_the_marginal_time():
    """One process 10 s for 1,000 rows more, two 5 s, though they start 20 s later."""
    runs = {1: [run(0, 5.0), run(1000, 15.0)], 2: [run(0, 25.0), run(1000, 30.0)], 4: [run(0, 25.0), run(1000, 30.0)]}
    two, four = speed_ups(runs)
    assert (two["workers"], two["speed_up"], two["met"]) == (2, 2.0, True)
    assert (four["workers"], four["speed_up"], four["met"]) == (4, 2.0, False)
    assert speed_ups({2: runs[2]}) == []


def packed(folder: pathlib.Path, split: str, ids: np.ndarray) -> None:
    (folder / f"Split-{split}").mkdir(parents=True)
    with PackedWriter(folder / f"Split-{split}" / "part.parquet") as writer:
        writer.write({"ids": ids, "label": np.zeros((len(ids), 1), np.float32)})


@pytest.mark.parametrize(("rejected", "none_lost"), [(10, True), (9, False)])
def test_every_row_is_packed_or_a_dead_letter(tmp_path, rejected, none_lost):
    counts = {"rows": {"train": 80, "validation": 5, "test": 5}, "rejected": rejected}
    (tmp_path / "counts.json").write_text(json.dumps(counts))
    for split, rows in counts["rows"].items():
        packed(tmp_path / "packed", split, np.ones((rows, 2), np.int32))
    stages = {"stages": {"LogExampleGen": 2.0}}
    answer = {"examples": str(tmp_path), "packed": str(tmp_path / "packed")}
    bad = run(100, 12.5, stages={"LogExampleGen": 4.0}, **answer)
    found = loss(run(100, 10.0, **stages), bad, 0.1)
    assert found["loss"] == pytest.approx(0.2)
    assert found["loss_of_reading"] == 0.5
    assert found["rows"] == {"in": 100, "out": 90, "dead_letters": rejected, "none_lost": none_lost}
    assert found["met"] is none_lost


# Whether both sides keep the same ------------------------------------------------------------------------------------


def graph(folder: pathlib.Path, prefix: str, vocabulary: list[str]) -> str:
    """A transform graph whose columns have the same vocabulary."""
    assets = folder / "transform_fn" / "assets"
    assets.mkdir(parents=True)
    for name in VALUES:
        (assets / f"{prefix}{name}").write_text("".join(f"{value}\n" for value in vocabulary))
    return str(folder)


@pytest.fixture
def log(tmp_path) -> pathlib.Path:
    """Ten rows; the ninth is the validation row: a, b, nothing, something else, a, a, ..."""
    values = ["a", "b", "", "z"] + ["a"] * 22
    rows = [["0"] * 14 + ["other"] * 26] * 8 + [["0"] * 14 + values] * 2
    path = tmp_path / "log.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_ids_are_those_of_the_lines_of_the_other_vocabulary(tmp_path, log):
    feature_map = FeatureMap.from_sizes([(name, "categorical", 2, 1, "feature") for name in VALUES])
    ids = np.array([[field.offset + 2 for field in feature_map.fields]], np.int32)
    ids[0, 1] += 1  # b is the second line
    ids[0, 2] -= 1  # missing
    ids[0, 3] -= 2  # unknown
    packed(tmp_path / "right", "validation", ids)
    ids[0, 4] += 1
    packed(tmp_path / "wrong", "validation", ids)
    ours = {"transform_graph": graph(tmp_path / "ours", "vocabulary_", ["a", "b"])}
    ours |= {"feature_map": feature_map.to_json()}
    stock = run(10, 1.0, "stock", transform_graph=graph(tmp_path / "stock", "", ["a", "b"]))
    found = same_ids(run(10, 1.0, packed=str(tmp_path / "right"), **ours), stock, log)
    assert (found["met"], found["lines"], found["ids"], found["different_ids"]) == (True, 52, 26, 0)
    assert same_ids(run(10, 1.0, packed=str(tmp_path / "wrong"), **ours), stock, log)["different_ids"] == 1
    swapped = run(10, 1.0, "stock", transform_graph=graph(tmp_path / "swapped", "", ["b", "a"]))
    found = same_ids(run(10, 1.0, packed=str(tmp_path / "right"), **ours), swapped, log)
    assert (found["met"], found["different_vocabularies"]) == (False, VALUES)


def test_kept_values_are_compared_whatever_their_order(tmp_path, log):
    ours = run(10, 1.0, transform_graph=graph(tmp_path / "ours", "vocabulary_", ["a", "b"]))
    kept = {name: {"b": 1, "a": 2, "__PAD__": 0, "__OOV__": 3} for name in VALUES}
    path = tmp_path / "feature_vocab.json"
    path.write_text(json.dumps(kept))
    theirs = run(10, 1.0, "fuxictr", vocabularies=str(path))
    assert same_values(ours, theirs, log)["met"]
    del kept["C7"]["a"]
    path.write_text(json.dumps(kept))
    assert same_values(ours, theirs, log)["different_vocabularies"] == ["C7"]


# The logs ------------------------------------------------------------------------------------------------------------


def test_the_peers_logs_are_the_raw_log_in_three_files(tmp_path):
    raw = raw_log(tmp_path, 50).read_bytes().splitlines()
    for separator in (",", "\t"):
        folder = split_logs(tmp_path, 50, separator)
        files = [(folder / name / "log.csv").read_bytes().splitlines() for name in ("train", "valid", "test")]
        assert [len(lines) for lines in files] == [41, 6, 6]
        assert {lines[0] for lines in files} == {separator.join(COLUMNS).encode()}
        assert [line for lines in files for line in lines[1:]] == [
            line.replace(b"\t", separator.encode()) for line in raw
        ]


def test_values_of_rows(log):
    assert values_of(log, 7, 2) == [[b"other"] * 26, [b"a", b"b", b"", b"z", *[b"a"] * 22]]


def test_a_share_of_the_bad_log_is_refused_and_no_other_row(tmp_path):
    raw, bad = raw_log(tmp_path, 3000), bad_log(tmp_path, 3000, 0.1)
    pairs = list(zip(raw.read_bytes().splitlines(), bad.read_bytes().splitlines(), strict=True))
    spoilt = [number for number, (before, after) in enumerate(pairs, 1) if before != after]
    assert 240 < len(spoilt) < 360
    spec = RunConfig.model_validate(config(TOP, None)).log_spec
    rejects = [reject for batch in LogReader(spec).read(str(bad)) for reject in batch.rejects]
    assert [reject.line for reject in rejects] == spoilt
    assert len({reject.reason.split(":")[0].split(" ")[0] for reject in rejects}) > 2


# What is seen of a process -------------------------------------------------------------------------------------------

CHILD = """
import subprocess, sys, time
work = "import sys, time; end = time.process_time() + {cpu}\\nwhile time.process_time() < end: pass\\n"
work += "held = bytearray(50 << 20)\\nfor index in range(0, len(held), 4096): held[index] = 1\\n"
work += "print('held', flush=True); sys.stdin.read()"
pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
children = [subprocess.Popen([sys.executable, "-c", work], **pipes) for _ in range(2)]
assert [child.stdout.readline() for child in children] == [b"held\\n"] * 2
time.sleep({held})
for child in children:
    child.communicate()
assert [child.returncode for child in children] == [0, 0]
print("said before"); print('{{"answer": 7}}')
"""


@pytest.mark.slow
def test_time_and_memory_are_those_of_all_processes():
    look_at_memory = measured.LOOKS_PER_MEMORY * measured.INTERVAL
    child = CHILD.format(cpu=0.5, held=3 * look_at_memory)
    answer, usage = measured.run("test", [sys.executable, "-c", child])
    assert answer == {"answer": 7}
    assert usage.processes == 3
    assert usage.peak_bytes > 2 * 50 * 2**20
    assert 0.8 < usage.cpu_seconds < 5
    assert usage.seconds > 0.5


def test_memory_and_time_are_told_by_the_stage_that_was_announced_last(monkeypatch):
    monkeypatch.setattr(measured, "INTERVAL", 0.02)
    monkeypatch.setattr(measured, "LOOKS_PER_MEMORY", 1)
    say = "import sys, time\nsay = lambda text: print(text, file=sys.stderr, flush=True)\n"
    work = "say('[   0.1s] Trainer ...')\nsay('[   0.1s] 3 of 9 parts ...')\nend = time.process_time() + 0.3\n"
    work += "while time.process_time() < end: pass\n"
    held = "say('[   0.2s] Trainer.baseline ...')\nsay('[   0.3s] Writing the servable')\n"
    held += "held = b'x' * (60 << 20)\ntime.sleep(0.4)\ndel held\nsay('[   0.4s] AtomicPusher ...')\ntime.sleep(0.4)\n"
    _, usage = measured.run_plain("test", [sys.executable, "-c", say + work + held])
    servable = f"Trainer.baseline, {measured.SERVABLE}"
    assert {"Trainer", servable, "AtomicPusher"} <= usage.stages.keys() and "parts" not in str(usage.stages)
    assert max(usage.stages, key=lambda stage: usage.stages[stage].cpu_seconds) == "Trainer"
    assert usage.stages[servable].peak_bytes > usage.stages["AtomicPusher"].peak_bytes + (50 << 20)
    assert usage.peak_bytes == usage.stages[servable].peak_bytes
    assert sum(each.cpu_seconds for each in usage.stages.values()) == pytest.approx(usage.cpu_seconds)


def test_a_stage_that_is_announced_before_the_first_look_is_told(monkeypatch):
    monkeypatch.setattr(measured, "INTERVAL", 0.3)
    say = "import sys, time\nprint('[   0.1s] Trainer ...', file=sys.stderr, flush=True)\ntime.sleep(0.7)"
    _, usage = measured.run_plain("test", [sys.executable, "-S", "-c", say])
    assert "Trainer" in usage.stages


def test_a_baseline_is_a_stage_of_its_own():
    text = "[   1.0s] Trainer ...\n[   4.0s] Trainer.baseline ...\n[   9.0s] AtomicPusher ...\n"
    found = columns.stages(text, 10.0)
    assert found == {"start": 1.0, "Trainer": 3.0, "Trainer.baseline": 5.0, "AtomicPusher": 1.0}


def test_a_command_that_fails_says_why():
    with pytest.raises(ProcessError, match="theirs failed.*\n.*no such thing"):
        measured.run("theirs", [sys.executable, "-c", "raise SystemExit('no such thing')"])


def test_processes_that_a_command_leaves_are_ended():
    leave = "import os, subprocess, sys; print(os.environ['CTRPIPE_MEASURED'], file=sys.stderr)\n"
    leave += "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    leave += 'print(\'{"mark": "%s", "child": %d}\' % (os.environ[\'CTRPIPE_MEASURED\'], child.pid))'
    answer, _ = measured.run("test", [sys.executable, "-c", leave])
    deadline = time.monotonic() + 10  # a killed process is gone a moment later
    while marked(answer["mark"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(answer["mark"]) == []


def test_an_interrupt_leaves_nothing_running():
    start = "import signal, sys; from benchmarks.harness import measured\n"
    start += "signal.signal(signal.SIGALRM, signal.default_int_handler); signal.alarm(1)\n"
    start += "measured.run('test', ['sh', '-c', 'echo $$ > ' + sys.argv[1] + '; sleep 60'])"
    with tempfile.NamedTemporaryFile("r") as file:
        done = subprocess.run([sys.executable, "-c", start, file.name], cwd=ROOT, capture_output=True, timeout=30)
        assert b"KeyboardInterrupt" in done.stderr
        assert not pathlib.Path(f"/proc/{file.read().strip()}").exists()


# What the command refuses --------------------------------------------------------------------------------------------


def test_numbers():
    assert worker_counts("5,1, 5") == [5, 1]
    assert worker_counts("auto,2") == [None, 2]
    for text in ("", "0", "many", "1,,2"):
        with pytest.raises(InputError, match="--workers"):
            worker_counts(text)


def test_peers():
    assert chosen_peers("none") == []
    assert chosen_peers("fuxictr,stock") == ["fuxictr", "stock"]
    with pytest.raises(InputError, match="--against: unknown 'polars'; give some of stock,fuxictr"):
        chosen_peers("stock,polars")
