"""Batch scoring against probabilities worked out by hand, on every kind of log, and what it leaves when it fails."""

import dataclasses
import errno
import gzip
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.compare.scoring import read_scoring
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.serving.rows import Scorer
from ctrpipe.serving.scoring import folder as score_folder
from ctrpipe.serving.scoring import part as score_part
from ctrpipe.serving.scoring import score as score_module
from ctrpipe.serving.scoring.score import quantile, score
from ctrpipe.transforms.log.batches import LogBatch
from ctrpipe.transforms.log.first_bytes import ENCODING_HINT
from tests.e2e.small_run import call, one_line
from tests.serving.small_servable import probability, save, spec
from tests.warm_processes import WarmCommand, start_warm

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
    first_line = 1
    if kind == "parquet":
        columns = {"n": [row[1] for row in ROWS], "c": [row[2] for row in ROWS]}
        columns |= {"label": [row[0] for row in ROWS]} if labelled else {}
        pa.parquet.write_table(pa.table(columns), log)
    elif kind == "csv":  # another order than the configuration's, and a column more
        names = ["c", "more", "n"] + ["label"] * labelled
        rows = [[c, "x", "" if n is None else str(n)] + [str(label)] * labelled for label, n, c in ROWS]
        log.write_text("".join(",".join(row) + "\n" for row in [names, *rows]))
        first_line = 2
    else:
        log.write_text(text(labelled=labelled))
    result = score(models / kind, [str(log)], tmp_path / "out")
    assert (result.rows, result.scored, result.rejected, result.model_version) == (5, 5, 0, "3")
    found = read(tmp_path / "out")
    assert [row["ctr"] for row in found] == pytest.approx(EXPECTED, abs=1e-6)
    assert [row["line"] for row in found] == list(range(first_line, first_line + 5))
    assert {(row["file"], row["model_version"]) for row in found} == {(str(log), "3")}


def test_the_scores_of_a_query_name_rows_that_are_kept_and_a_second_call_knows_them(models, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("n,c\n" + text(delimiter=",", labelled=False))
    query = f"duckdb:select * from '{log}' where n is not null order by n"
    first = score(models / "parquet", [query], tmp_path / "out")
    found = read(tmp_path / "out")
    expected = [probability(n, c) for _, n, c in sorted(row for row in ROWS if row[1] is not None)]
    assert sorted(row["ctr"] for row in found) == pytest.approx(sorted(expected), abs=1e-6)
    [named] = {row["file"] for row in found}
    kept = pyarrow.parquet.read_table(named)
    assert pathlib.Path(named).is_relative_to(tmp_path / "out") and kept["n"].to_pylist() == [-2.0, 5.0, 30.5]
    again = score(models / "parquet", [query], tmp_path / "out")
    assert (again.parts_before, again.scores) == (first.parts, first.scores)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/_data: a file is in the way of the output folder"):
        score(models / "parquet", [query], tmp_path / "file")


@pytest.mark.parametrize("kind", ["tsv", "csv", "parquet"])
def test_columns_that_are_kept_stand_beside_the_scores(models, tmp_path, small_pieces, kind):
    rows = [(f"u{row % 7}" if row % 5 else "", 10**9 + row, float(row), "é" * (row % 3)) for row in range(60)]
    log, kept = tmp_path / f"log.{kind}", ["user", "id", "n"]
    if kind == "parquet":
        user, ids, n, c = zip(*rows, strict=True)
        table = {"user": [one or None for one in user], "id": pa.array(ids, pa.int64()), "n": n, "c": c}
        pa.parquet.write_table(pa.table(table), log)
    elif kind == "csv":
        log.write_text("id,c,n,user\n" + "".join(f"{i},{c},{n:.0f},{u}\n" for u, i, n, c in rows))
    else:
        rows[7] = ("", 0, "many", "")  # malformed
        log.write_text("".join(f"{int(i) % 2}\t{n}\t{c}\n" for _, i, n, c in rows))
        kept = ["c", "label"]
    result = score(models / kind, [str(log)], tmp_path / "out", kept=kept)
    found = read(tmp_path / "out")
    assert list(found[0]) == ["file", "line", *kept, "ctr", "model_version"] and (result.parts > 1) == (
        kind != "parquet"
    )
    for row, (user, number, n, c) in zip(found, rows, strict=True):
        if kind == "tsv":
            expected = [None, None] if n == "many" else [c or None, str(number % 2)]
        else:
            expected = [user or None, str(number), f"{n:.0f}"]
        assert [row[name] for name in kept] == expected
        assert row["ctr"] == (None if n == "many" else pytest.approx(probability(n, c), abs=1e-6))
    again = score(models / kind, [str(log)], tmp_path / "out", kept=kept)
    assert again.parts_before == again.parts
    with pytest.raises(InputError, match="holds the result of another scoring"):
        score(models / kind, [str(log)], tmp_path / "out", kept=kept[:1])


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (["ctr"], "--keep ctr: the scores have a column of this name; rename it in the log"),
        (["line"], "--keep line: the scores have"),
        (["c", "c"], "--keep c: named twice"),
        (["user"], "--keep user: no such column; it has id, c, n, User; did you mean User[?]"),
    ],
)
def test_a_column_that_cannot_be_kept_is_one_line(models, tmp_path, kept, message):
    (tmp_path / "log.csv").write_text("id,c,n,User\n1,a,2,u\n")
    with pytest.raises(InputError, match=message):
        score(models / "csv", [str(tmp_path / "log.csv")], tmp_path / "out", kept=kept)
    (tmp_path / "log.tsv").write_text("1\t2\ta\n")
    with pytest.raises(InputError, match="--keep lable: no such column; it has label, n, c; did you mean label[?]"):
        score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out", kept=["lable"])


def test_the_command_takes_names_with_commas_between_them(models, tmp_path):
    (tmp_path / "log.csv").write_text('id,c,n,"a,b"\n1,a,2,u\n')
    given = ("score", "--model", models / "csv", "--input", tmp_path / "log.csv", "--output", tmp_path / "out")
    code, output = call(*given, "--keep", 'id, "a,b"', "--keep", "c")
    assert code == 0, output
    [row] = read(tmp_path / "out")
    assert (row["id"], row["a,b"], row["c"]) == ("1", "u", "a")


@pytest.fixture
def small_pieces(monkeypatch) -> None:
    """Several parts of a file, several blocks of a part, several requests to the model of a block."""
    for module in ("ctrpipe.transforms.log.lines", "ctrpipe.serving.scoring.score"):
        monkeypatch.setattr(f"{module}.CHUNK_BYTES", 100)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 500)
    monkeypatch.setattr("ctrpipe.serving.scoring.part.BLOCK_BYTES", 200)
    monkeypatch.setattr("ctrpipe.serving.rows.MODEL_ROWS", 7)


def test_several_files_by_glob_and_gzip_keep_every_row_in_order(models, tmp_path, small_pieces):
    lines = [(0, float(row), "x" * (row % 5)) for row in range(300)]
    (tmp_path / "b.tsv").write_text(text(lines[:120], labelled=False))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(text(lines[120:299]).encode()))
    (tmp_path / "c.txt").write_text(text(lines[299:]).rstrip("\n"))
    result = score(models / "tsv", [f"{tmp_path}/*.tsv*", f"{tmp_path}/c.txt"], tmp_path / "out")
    assert (result.rows, result.scored, result.rejected) == (300, 300, 0)
    assert result.parts == len(list((tmp_path / "out").glob("part-*"))) == 4  # b.tsv is two
    found = read(tmp_path / "out")
    order = [("a.tsv.gz", 1 + row) for row in range(179)] + [("b.tsv", 1 + row) for row in range(120)] + [("c.txt", 1)]
    assert [(pathlib.Path(row["file"]).name, row["line"]) for row in found] == order
    expected = [probability(number, c) for _, number, c in lines[120:299] + lines[:120] + lines[299:]]
    assert [row["ctr"] for row in found] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("others", [{"workers": 3}, {"beam_args": ["--direct_num_workers=1"]}])
def test_who_scores_does_not_change_the_result(models, tmp_path, small_pieces, others):
    lines = [(0, float(row), "x" * (row % 5)) for row in range(300)]
    (tmp_path / "log.tsv").write_text(text(lines).replace("\t77.0\t", "\tmany\t"))
    one = score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "one", workers=1)
    other = score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "other", **others)
    assert one.parts == other.parts > 3 and one.scores == other.scores
    assert names(tmp_path / "one") == names(tmp_path / "other")
    for name in names(tmp_path / "one"):
        if name != "_summary.json":  # which has seconds
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_the_summary_counts_rows_and_scores(models, tmp_path):
    (tmp_path / "log.tsv").write_text(text() + "1\tmany\ta\n")
    score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "_summary.json").read_text())
    assert (summary["rows"], summary["scored"], summary["rejected"], summary["parts"]) == (6, 5, 1, 1)
    found = summary["scores"]["ctr"]
    assert found["mean"] == pytest.approx(np.mean(EXPECTED), abs=1e-6)
    bins = {int(value * 1000) for value in EXPECTED}  # none is within 1e-6 of a bin's end
    assert {index for index, count in enumerate(found["histogram"]) if count} == bins
    assert sum(found["histogram"]) == 5 and found["not_finite"] == 0
    assert quantile(found, 0.5) == pytest.approx(sorted(EXPECTED)[2], abs=0.001)
    assert summary["rows_per_s"] == pytest.approx(6 / summary["seconds"])


def test_a_log_of_malformed_lines_only_has_rows_without_scores(models, tmp_path):
    (tmp_path / "log.tsv").write_text("1\tmany\ta\n" * 3)
    result = score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out", sample_rows=10)
    assert (result.rows, result.scored, result.rejected, result.scores["ctr"]["mean"]) == (3, 0, 3, None)
    assert [row["ctr"] for row in read(tmp_path / "out")] == [None] * 3


def test_scores_that_are_no_numbers_are_counted_apart():
    empty = pa.RecordBatch.from_pydict({})
    rows = [LogBatch("log.tsv", empty, np.array(lines), []) for lines in ([1, 3], [4, 7])]
    scores = {"ctr": np.array([0.25, np.nan, 1.0, np.inf], np.float32), "seconds": np.float32([30, 45, 1e5, -1])}
    counts = score_part._count(scores, rows, 2, ["seconds"])
    numbers = counts.tasks["seconds"]
    assert (numbers["sum"], numbers["not_finite"], numbers["histogram"]) == (100074.0, 0, None)
    total = score_part.ScoreCounts.none(["ctr", "seconds"], ["seconds"])
    for _ in range(2):
        total.add(counts)
    assert total.tasks["seconds"]["histogram"] is None and total.tasks["seconds"]["sum"] == 200148.0
    found = counts.tasks["ctr"]
    assert found["first_not_finite"] == "log.tsv:3"
    assert (counts.scored, counts.rejected, found["not_finite"], found["sum"]) == (4, 2, 2, 1.25)
    assert found["histogram"][250] == found["histogram"][-1] == 1 and sum(found["histogram"]) == 2


def test_a_comparison_gets_a_sample_of_the_good_rows(models, tmp_path, small_pieces):
    lines = [(0, float(row), f"x{row}") for row in range(1000)]
    (tmp_path / "log.tsv").write_text(text(lines) + "0\tmany\tx\n")

    def compare(version, files, rows, rejected):
        drawn = pa.concat_tables(map(pa.parquet.read_table, files))
        drawn = [(row["n"], row["c"].decode()) for row in drawn.to_pylist()]
        return {"version": version.name, "rows": rows, "rejected": rejected, "drawn": drawn}

    result = score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out", sample_rows=200, compare=compare)
    found = result.drift
    assert (found["version"], found["rows"], found["rejected"]) == ("3", 1000, 1)
    assert 120 < len(found["drawn"]) < 280  # 200 by a rate: 5 standard deviations are 63
    assert all(c == f"x{n:.0f}" for n, c in found["drawn"])
    numbers = [n for n, _ in found["drawn"]]
    assert numbers == sorted(set(numbers)) and numbers[0] < 100 and numbers[-1] > 900
    assert not (tmp_path / "out" / "_unfinished").exists()


def test_malformed_lines_keep_their_place_without_a_score(models, tmp_path):
    lines = text(labelled=False).splitlines()
    lines[1:1] = ["only one", "x\ty", "", "1\t\udcff"]
    content = "\n".join(lines + ["3\tz\tmore", ""]).encode("utf-8", "surrogateescape")
    (tmp_path / "log.tsv").write_bytes(content)
    result = score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")
    assert (result.rows, result.scored, result.rejected) == (10, 5, 5)
    found = read(tmp_path / "out")
    assert [row["line"] for row in found] == list(range(1, 11))
    assert [row["line"] for row in found if row["ctr"] is None] == [2, 3, 4, 5, 10]
    assert [row["ctr"] for row in found if row["ctr"] is not None] == pytest.approx(EXPECTED, abs=1e-6)
    letters = [json.loads(line) for line in open(tmp_path / "out" / "_dead_letter" / "part-00000-of-00001.jsonl")]
    assert [(letter["line"], letter["reason"]) for letter in letters] == [
        (2, "expected 2 columns, found 1"),
        (3, "n: 'x' is not a number"),
        (4, "the line is empty"),
        (5, f"c: invalid UTF-8{ENCODING_HINT}"),
        (10, "expected 2 columns, found 3"),
    ]
    assert {letter["file"] for letter in letters} == {str(tmp_path / "log.tsv")}


def test_the_newest_version_scores_unless_one_is_named(tmp_path):
    for number in (9, 10):
        save(tmp_path / "m" / str(number), spec())
    (tmp_path / "log.tsv").write_text(text())
    assert score(tmp_path / "m", [str(tmp_path / "log.tsv")], tmp_path / "newest").model_version == "10"
    assert score(tmp_path / "m" / "9", [str(tmp_path / "log.tsv")], tmp_path / "named").model_version == "9"


# Interrupted --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch) -> None:
    """The end of a gzip file is not yet seen when the log is planned."""
    monkeypatch.setattr("ctrpipe.transforms.log.lines.CHUNK_BYTES", 1000)


def unfinished(models: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """The scores of a.tsv and of the truncated b.tsv.gz, up to where it can be read."""
    (folder / "a.tsv").write_text(text())
    (folder / "b.tsv.gz").write_bytes(WHOLE[:-100])
    paths = ["--model", models / "tsv", "--input", f"{folder}/[ab].tsv*", "--output", folder / "out"]
    one_line(*call("score", "--workers", 1, *paths), "b.tsv.gz: the gzip file is cut short")
    return names(folder / "out")


WHOLE = gzip.compress("".join(f"1\t{row * 7919 % 10007}\tv{row}\n" for row in range(3000)).encode())


def test_a_file_that_cannot_be_read_to_its_end_leaves_no_result(models, tmp_path, small_chunks):
    left = unfinished(models, tmp_path)
    assert "_unfinished/part-00000-of-00002.parquet" in left
    assert all(name.startswith("_unfinished/") for name in left)
    (tmp_path / "b.tsv.gz").write_bytes(WHOLE)

    def score_both(output):
        return call("score", "--model", models / "tsv", "--input", f"{tmp_path}/[ab].tsv*", "--output", output)

    one_line(*score_both(tmp_path / "out"), "was begun here before")
    shutil.rmtree(tmp_path / "out" / "_unfinished")  # as that line says
    code, printed = score_both(tmp_path / "out")
    assert code == 0 and "3,005 rows in, 3,005 scored, 0 malformed" in printed
    assert len(read(tmp_path / "out")) == 3005


def test_where_nothing_is_done_nothing_is_left(models, tmp_path, small_chunks):
    (tmp_path / "b.tsv.gz").write_bytes(WHOLE[:-100])
    with pytest.raises(InputError, match="cut short"):
        score(models / "tsv", [str(tmp_path / "b.tsv.gz")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_part_that_fails_stops_the_others(models, tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.tsv").write_text(text())
    both, went_on = threading.Barrier(2), []

    def score_part(scorer, part, folder, rate, tell, check, kept):
        if both.wait(60) == 0:
            raise InputError("the disk is full; free some space")
        for _ in range(500):
            check()
            time.sleep(0.01)
        went_on.append(part)

    monkeypatch.setattr("ctrpipe.serving.scoring.score.score_part", score_part)
    with pytest.raises(InputError, match="the disk is full"):
        score(models / "tsv", [str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv")], tmp_path / "out", workers=2)
    assert not went_on


def wait_for(path: pathlib.Path, process: WarmCommand) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end, process.stderr.read()
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.large)])
def test_a_stopped_scoring_goes_on_where_it_was(models, tmp_path, number):
    inputs = []
    for name in "ab":
        (tmp_path / name).write_text(text())
        inputs += ["--input", tmp_path / name]
    (tmp_path / "slow").write_text("1\t5\ta\n" * 1_000_000)  # seconds of work
    arguments = [
        "score",
        "--model",
        models / "tsv",
        *inputs,
        "--input",
        tmp_path / "slow",
        "--output",
        tmp_path / "out",
    ]
    done = tmp_path / "out" / "_unfinished" / "part-00001-of-00003.parquet"
    for _ in range(3):  # on a busy machine the last part may be there before this process looks
        process = start_warm(*arguments, "--workers", 1, stderr=subprocess.PIPE)
        try:
            wait_for(done, process)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
        if done.exists() and not done.with_name("part-00002-of-00003.parquet").exists():
            break
        shutil.rmtree(tmp_path / "out")
    if number == signal.SIGINT:
        assert process.returncode == 130 and "ctrpipe: interrupted" in said and "Traceback" not in said
    assert done.exists() and not list((tmp_path / "out").glob("part-*"))
    written = done.stat().st_mtime_ns
    code, printed = call(*arguments)
    assert code == 0 and "3 parts, 2 of them by an earlier run" in printed, printed
    assert "1,000,010 rows in, 1,000,010 scored, 0 malformed" in printed
    assert (tmp_path / "out" / done.name).stat().st_mtime_ns == written
    table = pyarrow.parquet.read_table(sorted((tmp_path / "out").glob("part-*")))
    rows = [1 + np.arange(5), 1 + np.arange(5), 1 + np.arange(1_000_000)]
    assert np.array_equal(table["line"].to_numpy(), np.concatenate(rows))
    assert table["file"].value_counts().field("counts").to_pylist() == [5, 5, 1_000_000]
    assert table["ctr"].null_count == 0
    assert not (tmp_path / "out" / "_unfinished").exists()


def test_a_scoring_of_something_else_does_not_go_on(models, tmp_path, small_chunks):
    shutil.copytree(models / "tsv", tmp_path / "models")
    (tmp_path / "a.tsv").write_text(text())
    (tmp_path / "b.tsv.gz").write_bytes(WHOLE[:-100])

    def refused(message, files=("a.tsv", "b.tsv.gz"), **options):
        with pytest.raises(InputError, match=message) as caught:
            inputs = [str(tmp_path / name) for name in files]
            score(tmp_path / "models", inputs, tmp_path / "out", workers=1, **options)
        assert "\n" not in str(caught.value)

    refused("cut short")
    refused("cut short")  # the same goes on, as far as it can
    refused("with other options", sample_rows=5)
    refused("and now it would be of .*a.tsv;", files=("a.tsv",))
    refused("and now it would be of .*b.tsv.gz, .*a.tsv;", files=("b.tsv.gz", "a.tsv"))
    (tmp_path / "a.tsv").write_text(text(ROWS[::-1]))
    refused("begun here before .*a.tsv changed")
    plan = tmp_path / "out" / "_unfinished" / "plan.json"
    save(tmp_path / "models" / "4", spec())
    refused("with model version .*3, and now it would be .*4")
    shutil.rmtree(tmp_path / "models" / "4")
    plan.write_text("{")
    refused("plan.json: cannot be read")


def test_a_model_that_changed_in_its_place_does_not_go_on(models, tmp_path, small_chunks):
    shutil.copytree(models / "tsv", tmp_path / "tsv")
    unfinished(tmp_path, tmp_path)
    os.utime(tmp_path / "tsv" / "3" / "saved_model.pb", ns=(1, 1))
    found = call("score", "--model", tmp_path / "tsv", "--input", f"{tmp_path}/[ab].tsv*", "--output", tmp_path / "out")
    one_line(*found, "saved_model.pb changed")


def test_two_scorings_at_once_need_two_folders(models, tmp_path):
    (tmp_path / "log.tsv").write_text(text())
    with (
        score_folder.ScoringFolder(tmp_path / "out").opened(),
        pytest.raises(InputError, match="another scoring is running"),
    ):
        score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")


def refused_beside(folder, made, text="no line could be scored"):
    """Adds a table's rows to a scoring's folder, and refuses the scoring."""
    with pytest.raises(InputError, match=text), score_folder.unread_rows_removed(folder):
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(b"rows")
        raise InputError(text)


@pytest.mark.parametrize("relative", [True, False])
def test_rows_that_a_scoring_has_read_stay_when_it_is_refused(tmp_path, monkeypatch, relative):
    monkeypatch.chdir(tmp_path)
    folder = pathlib.Path("out") if relative else tmp_path / "out"
    made = folder / score_folder.DATA / "frame-1.parquet"
    refused_beside(folder, made)
    assert not folder.exists()
    folder.mkdir()
    (folder / score_folder.SUMMARY).write_text(json.dumps({"inputs": {"files": [str(made)]}}))
    refused_beside(folder, made)
    assert made.exists()


def test_rows_of_a_scoring_that_runs_stay_when_another_is_refused(tmp_path):
    made = tmp_path / "out" / score_folder.DATA / "frame-1.parquet"
    with score_folder.ScoringFolder(tmp_path / "out").opened():
        refused_beside(tmp_path / "out", made)
    assert made.exists()
    made.unlink()
    refused_beside(tmp_path / "out", made)
    assert not made.exists()


def test_a_scoring_that_was_stopped_while_it_moved_its_parts_only_moves_the_others(models, tmp_path, monkeypatch):
    (tmp_path / "log.tsv").write_text("".join(f"1\t{row}\ta\n" for row in range(99)) + "1\tmany\ta\n")
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 300)
    moved = []

    def replace(path, target, kept=pathlib.Path.replace):
        if path.parent.name == "_unfinished" and path.name.startswith("part-"):
            moved.append(path.name)
            if len(moved) == 2:
                raise KeyboardInterrupt
        return kept(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")
    assert len(list((tmp_path / "out").glob("part-*"))) == 1
    monkeypatch.setattr(score_module, "score_part", None)  # nothing is scored again
    result = score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")
    assert (result.parts, result.parts_before, result.rows, result.rejected) == (3, 3, 100, 1)
    assert [row["line"] for row in read(tmp_path / "out")] == list(range(1, 101))
    assert "_dead_letter/part-00002-of-00003.jsonl" in names(tmp_path / "out")


@pytest.mark.parametrize(("stopped_in", "name"), [(pathlib.Path, "unlink"), (score_folder.shutil, "rmtree")])
def test_a_scoring_that_was_killed_after_its_last_write_has_its_result(stopped_in, name, models, tmp_path, monkeypatch):
    (tmp_path / "log.tsv").write_text(text() + "1\tmany\ta\n")
    arguments = models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out"
    kept = getattr(stopped_in, name)

    def killed(path, *args, **options):
        if "_unfinished" in str(path) and (tmp_path / "out" / "_summary.json").exists():
            raise KeyboardInterrupt
        return kept(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(stopped_in, name, killed)
        with pytest.raises(KeyboardInterrupt):
            score(*arguments)
    assert (tmp_path / "out" / "_unfinished").exists()
    before = read(tmp_path / "out")
    monkeypatch.setattr(score_module, "score_part", None)  # nothing is scored again
    for _ in range(2):
        result = score(*arguments)
        assert (result.parts, result.parts_before, result.rejected, result.seconds) == (1, 1, 1, 0)
        assert result.rows == len(before) and result.scores["ctr"]["mean"] == pytest.approx(
            np.mean([row["ctr"] for row in before if row["ctr"] is not None])
        )
        assert not (tmp_path / "out" / "_unfinished").exists() and read(tmp_path / "out") == before
    with open(tmp_path / "log.tsv", "a") as log:
        log.write("0\t1\ta\n")
    with pytest.raises(InputError, match="holds the result of another scoring"):
        score(*arguments)


def test_a_result_that_lacks_rows_is_not_published(models, tmp_path, monkeypatch):
    (tmp_path / "log.tsv").write_text(text())
    whole = score_part._table
    monkeypatch.setattr(score_part, "_table", lambda *arguments: whole(*arguments).slice(1))
    with pytest.raises(RuntimeError, match="5 lines read, but 4 rows written"):
        score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")
    assert not list((tmp_path / "out").glob("part-*"))


def test_lines_between_two_parts_are_not_lost(models, tmp_path, monkeypatch, small_pieces):
    (tmp_path / "log.tsv").write_text(text(ROWS * 20))
    cut = score_module.plan

    def shifted(*arguments, **options):
        first, *others = cut(*arguments, **options)
        return [first, *(dataclasses.replace(part, line=part.line + 1) for part in others)]

    monkeypatch.setattr(score_module, "plan", shifted)
    with pytest.raises(RuntimeError, match="rows of the lines 1 to"):
        score(models / "tsv", [str(tmp_path / "log.tsv")], tmp_path / "out")
    assert not list((tmp_path / "out").glob("part-*"))


# Bad input ----------------------------------------------------------------------------------------------------------


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
    (tmp_path / "malformed.tsv").write_text("1\tmany\ta\n" * 3)
    one_line(*score_with(log="malformed.tsv", output="malformed"), "malformed/_dead_letter")
    assert score_with()[0] == 0
    one_line(*score_with(log="malformed.tsv"), "holds the result of another scoring")
    with pytest.raises(InputError, match="^No data: give --data PATH"):
        score(models / "tsv", [], tmp_path / "other")


@pytest.mark.slow
def test_scores_that_are_not_finite_are_null_counted_and_exit_1(models, tmp_path, small_pieces, monkeypatch):
    """A servable of this release gives no such answer, so the test replaces some answers."""
    lines = [(0, float(row), "x" * (row % 5)) for row in range(120)]
    log = tmp_path / "log.tsv"
    log.write_text("bad\n" + text(lines))
    wrong = {probability(40.0, ""): np.nan, probability(77.0, "xx"): np.inf, probability(119.0, "xxxx"): -np.inf}
    answers = Scorer.__call__

    def older(self, *given):
        found = answers(self, *given)
        for value, odd in wrong.items():
            found["ctr"] = np.where(np.isclose(found["ctr"], value, atol=1e-6), odd, found["ctr"]).astype(np.float32)
        return found

    monkeypatch.setattr(Scorer, "__call__", older)
    result = score(models / "tsv", [str(log)], tmp_path / "out")
    found = result.scores["ctr"]
    odd = [
        row
        for row, (_, number, c) in enumerate(lines)
        if min(abs(probability(number, c) - each) for each in wrong) < 1e-6
    ]
    assert result.parts > 1 and len(odd) >= 3
    assert (result.rows, result.scored, found["not_finite"]) == (121, 120, len(odd))
    assert found["first_not_finite"] == f"{log}:{odd[0] + 2}"
    good = [probability(number, c) for row, (_, number, c) in enumerate(lines) if row not in odd]
    assert found["mean"] == pytest.approx(np.mean(good), abs=1e-6) and sum(found["histogram"]) == len(good)
    rows = read(tmp_path / "out")
    assert [row["line"] for row in rows if row["ctr"] is None] == [1, *(row + 2 for row in odd)]
    assert "NaN" not in (tmp_path / "out" / "_summary.json").read_text()
    told = (
        f"ctr: the score of {len(odd)} of 120 rows is not a finite number, the first at {log}:{odd[0] + 2}; it is null"
    )
    for output in ("cli", "cli"):  # the second time from the finished folder
        command = ["score", "--model", str(models / "tsv"), "--input", str(log), "--output", str(tmp_path / output)]
        called = CliRunner().invoke(main, command)
        assert called.exit_code == 1 and [line for line in called.stderr.splitlines() if line.startswith(told)]
    config = RunConfig.model_validate(
        {
            "name": "x",
            "data": spec().data.model_dump(),
            "features": [f.model_dump() for f in spec().features],
            "model": {"name": "lr"},
        }
    )
    with pytest.raises(InputError, match=rf"the score of ctr for {log}:{odd[0] + 2} is not a finite number"):
        read_scoring(tmp_path / "out", config)


@pytest.mark.parametrize("small", [True, False], ids=["parts", "one part"])
def test_rows_of_json_that_contradict_each_other_are_scored_and_named(tmp_path, request, small):
    if small:
        request.getfixturevalue("small_pieces")
    save(tmp_path / "model" / "3", spec(format="jsonl", columns=[]))
    lines = tmp_path / "1.jsonl"
    lines.write_text("".join(f'{{"n": {row}, "c": "{row + 10}"}}\n' for row in range(60)) + '{"n": 1, "c": "02139"}\n')
    array = tmp_path / "2.json"
    array.write_text('[{"n": 2,\n  "c": "x"},\n {"n": 3, "c": 2139}]')
    command = ["score", "--model", str(tmp_path / "model"), "--output", str(tmp_path / "out"), "--input", str(lines)]
    assert CliRunner().invoke(main, [*command[:-3], str(tmp_path / "apart"), *command[-2:]]).exit_code == 0
    told = f"{array}: line 3: column c is a number, and the text '02139' in {lines}, line 61: equal values would be "
    for _ in range(2):  # the second time from the finished folder
        called = CliRunner().invoke(main, [*command, "--input", str(array)])
        assert called.exit_code == 1 and [line for line in called.stderr.splitlines() if line.startswith(told)]
    rows = read(tmp_path / "out")
    assert len(rows) == 63 and len(list((tmp_path / "out").glob("part-*"))) > 1 + small
    assert [row["ctr"] for row in rows[-3:]] == pytest.approx(
        [probability(1, "02139"), probability(2, "x"), probability(3, "2139")], abs=1e-6
    )


def test_a_full_disk_is_said_with_what_to_do(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(score_part, "_write", full)
    only = score_folder.ScoredPart(None, 0, 1)
    with pytest.raises(InputError, match=r"\(No space left on device\); free some space, or choose another --output$"):
        score_part.score_part(None, only, tmp_path)
