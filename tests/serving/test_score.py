"""Batch scoring against probabilities worked out by hand, on every kind of log, and what it leaves when it fails."""

import gzip
import json
import os
import pathlib
import signal
import subprocess
import time

import pyarrow as pa
import pyarrow.parquet
import pytest

from serving import score as score_module
from serving.score import score
from tests.e2e.small_run import call, one_line, start
from tests.serving.small_servable import probability, save, spec
from transforms.errors import InputError

ROWS = [(1, 5.0, "a"), (0, -2.0, ""), (1, None, "bé"), (0, 30.5, "ccc"), (0, None, "")]
EXPECTED = [probability(number, text) for _, number, text in ROWS]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("models")
    save(folder / "tsv" / "3", spec())
    save(folder / "csv" / "3", spec(format="csv", header=True, columns=[]))
    save(folder / "parquet" / "3", spec(format="parquet", columns=[]))
    return folder


def text(rows=ROWS, delimiter="\t", labelled=True) -> str:
    values = [[str(label)] * labelled + ["" if n is None else str(n), c] for label, n, c in rows]
    return "".join(delimiter.join(row) + "\n" for row in values)


def read(output: pathlib.Path) -> list[dict]:
    return [row for part in sorted(output.glob("part-*")) for row in pyarrow.parquet.read_table(part).to_pylist()]


def names(output: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("kind", ["tsv", "csv", "parquet"])
def test_each_kind_of_log_labelled_or_not(models, tmp_path, kind, labelled):
    log = tmp_path / f"log.{kind}"
    first_line = 0
    if kind == "parquet":
        columns = {"n": [row[1] for row in ROWS], "c": [row[2] for row in ROWS]}
        columns |= {"label": [row[0] for row in ROWS]} if labelled else {}
        pa.parquet.write_table(pa.table(columns), log)
    elif kind == "csv":  # another order than the configuration's, and a column more
        names = ["c", "more", "n"] + ["label"] * labelled
        rows = [[c, "x", "" if n is None else str(n)] + [str(label)] * labelled for label, n, c in ROWS]
        log.write_text("".join(",".join(row) + "\n" for row in [names, *rows]))
        first_line = 1
    else:
        log.write_text(text(labelled=labelled))
    result = score(models / kind, [str(log)], tmp_path / "out")
    assert (result.rows, result.scored, result.rejected, result.model_version) == (5, 5, 0, "3")
    found = read(tmp_path / "out")
    assert [row["ctr"] for row in found] == pytest.approx(EXPECTED, abs=1e-6)
    assert [row["row"] for row in found] == list(range(first_line, first_line + 5))
    assert {(row["file"], row["model_version"]) for row in found} == {(str(log), "3")}


def test_several_files_by_glob_and_gzip_keep_every_row_in_order(models, tmp_path, monkeypatch):
    monkeypatch.setattr(score_module, "CHUNK_ROWS", 7)  # several requests to the model per range
    monkeypatch.setattr("transforms.lines.CHUNK_BYTES", 100)
    lines = [(0, float(row), "x" * (row % 5)) for row in range(300)]
    (tmp_path / "b.tsv").write_text(text(lines[:120], labelled=False))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(text(lines[120:299]).encode()))
    (tmp_path / "c.txt").write_text(text(lines[299:]).rstrip("\n"))
    result = score(models / "tsv", [f"{tmp_path}/*.tsv*", f"{tmp_path}/c.txt"], tmp_path / "out")
    assert (result.rows, result.scored, result.rejected) == (300, 300, 0)
    found = read(tmp_path / "out")
    order = [("a.tsv.gz", row) for row in range(179)] + [("b.tsv", row) for row in range(120)] + [("c.txt", 0)]
    assert [(pathlib.Path(row["file"]).name, row["row"]) for row in found] == order
    expected = [probability(number, c) for _, number, c in lines[120:299] + lines[:120] + lines[299:]]
    assert [row["ctr"] for row in found] == pytest.approx(expected, abs=1e-6)


def test_malformed_lines_keep_their_place_without_a_score(models, tmp_path):
    lines = text(labelled=False).splitlines()
    lines[1:1] = ["only one", "x\ty", "", "1\t\udcff"]
    content = "\n".join(lines + ["3\tz\tmore", ""]).encode("utf-8", "surrogateescape")
    (tmp_path / "log.tsv").write_bytes(content)
    result = score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")
    assert (result.rows, result.scored, result.rejected) == (10, 5, 5)
    found = read(tmp_path / "out")
    assert [row["row"] for row in found] == list(range(10))
    assert [row["row"] for row in found if row["ctr"] is None] == [1, 2, 3, 4, 9]
    assert [row["ctr"] for row in found if row["ctr"] is not None] == pytest.approx(EXPECTED, abs=1e-6)
    letters = [json.loads(line) for line in open(tmp_path / "out" / "_dead_letter" / "part-00000-of-00001.jsonl")]
    assert [(letter["row"], letter["reason"]) for letter in letters] == [
        (1, "expected 2 columns, found 1"),
        (2, "n: 'x' is not a number"),
        (3, "the line is empty"),
        (4, "c: invalid UTF-8"),
        (9, "expected 2 columns, found 3"),
    ]
    assert {letter["file"] for letter in letters} == {str(tmp_path / "log.tsv")}


def test_the_newest_version_scores_unless_one_is_named(tmp_path):
    for number in (9, 10):
        save(tmp_path / "m" / str(number), spec())
    (tmp_path / "log.tsv").write_text(text())
    assert score(tmp_path / "m", [str(tmp_path / "log.tsv")], tmp_path / "newest").model_version == "10"
    assert score(tmp_path / "m" / "9", [str(tmp_path / "log.tsv")], tmp_path / "named").model_version == "9"


def test_a_file_that_cannot_be_read_to_its_end_leaves_no_result(models, tmp_path):
    (tmp_path / "a.tsv").write_text(text())
    whole = gzip.compress("".join(f"1\t{row * 7919 % 10007}\tv{row}\n" for row in range(3000)).encode())
    (tmp_path / "b.tsv.gz").write_bytes(whole[:-100])
    output = tmp_path / "out"
    found = call("score", "--model", models / "tsv", "--input", f"{tmp_path}/[ab].tsv*", "--output", output)
    one_line(*found, "b.tsv.gz: the gzip file is cut short")
    assert names(output) == []
    (tmp_path / "b.tsv.gz").write_bytes(whole)
    code, printed = call("score", "--model", models / "tsv", "--input", f"{tmp_path}/[ab].tsv*", "--output", output)
    assert code == 0 and "3,005 rows in, 3,005 scored, 0 malformed" in printed
    assert len(read(output)) == 3005
    assert [name for name in names(output) if not name.startswith("_dead_letter")] == [
        "part-00000-of-00002.parquet",
        "part-00001-of-00002.parquet",
    ]


def wait_for_part(process: subprocess.Popen, output: pathlib.Path) -> None:
    """Until the second part has been begun."""
    end = time.monotonic() + 120
    while not list((output / "_unfinished").glob(".part-00001*")):
        assert process.poll() is None and time.monotonic() < end, process.stderr.read()
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_scoring_leaves_nothing_that_looks_complete(models, tmp_path, number):
    (tmp_path / "a.tsv").write_text(text())
    slow, output = tmp_path / "b.tsv", tmp_path / "out"
    slow.write_text("1\t5\ta\n" * 3_000_000)  # seconds of work
    arguments = ["score", "--model", models / "tsv", "--input", tmp_path / "a.tsv", "--input", slow, "--output", output]
    process = start(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_for_part(process, output)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert not list(output.glob("part-*"))
    if number == signal.SIGINT:
        assert process.returncode == 130 and "ctrpipe: interrupted" in said and "Traceback" not in said
        assert names(output) == []
    (tmp_path / "b2.tsv").write_text(text())
    result = score(models / "tsv", [str(tmp_path / "a.tsv"), str(tmp_path / "b2.tsv")], output)
    assert result.rows == 10 and len(read(output)) == 10
    assert not (output / "_unfinished").exists()


def test_a_result_that_lacks_rows_is_not_published(models, tmp_path, monkeypatch):
    (tmp_path / "log.tsv").write_text(text())
    monkeypatch.setattr(score_module, "_run", lambda *arguments: {"scored": 5, "rejected": 0})
    with pytest.raises(RuntimeError, match="5 rows of 1 files read, but 0 written in 0 files"):
        score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")
    assert names(tmp_path / "out") == []


def test_parts_moved_by_a_scoring_that_was_killed_meanwhile_are_no_result(models, tmp_path):
    output = tmp_path / "out"
    (output / "_unfinished").mkdir(parents=True)
    (output / "part-00000-of-00009.parquet").write_bytes(b"cut")
    (tmp_path / "log.tsv").write_text(text())
    assert score(models / "tsv", [str(tmp_path / "log.tsv")], output).rows == 5
    assert len(read(output)) == 5


def test_what_cannot_be_used_is_one_line(models, tmp_path):
    (tmp_path / "log.tsv").write_text(text())
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "none").mkdir()
    (tmp_path / "file").touch()

    def score_with(model="tsv", log="log.tsv", output="out"):
        return call("score", "--model", models / model, "--input", tmp_path / log, "--output", tmp_path / output)

    one_line(*score_with(model="absent"), "no model version here")
    one_line(*score_with(model=tmp_path / "none"), "no model version here")
    one_line(*score_with(log="absent.tsv"), "no such file")
    one_line(*score_with(log="*.csv"), "no file matches")
    one_line(*score_with(log="empty.tsv"), "the file has no rows")
    one_line(*score_with(output="file"), "a file is in the way")
    one_line(*score_with(model="csv"), "the header lacks n, c")
    assert not list((tmp_path / "out").glob("part-*"))
    damaged = save(tmp_path / "damaged" / "1", spec())
    (damaged / "saved_model.pb").write_bytes(b"no graph")
    one_line(*score_with(model=damaged), "the model cannot be loaded")
    (damaged / "assets.extra" / "log_spec.json").write_text("{")
    one_line(*score_with(model=damaged), "log_spec.json: damaged")
    os.remove(damaged / "assets.extra" / "log_spec.json")
    one_line(*score_with(model=damaged), "ctrpipe exports it with a model")
    assert score_with()[0] == 0
    one_line(*score_with(), "holds the result of another scoring")
    with pytest.raises(InputError):
        score(models / "tsv", [], tmp_path / "other")
