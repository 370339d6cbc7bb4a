"""Two runs' packed rows are compared in any order, and what is lost, doubled or other is seen."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ctrpipe.transforms.features.packed_files import PackedWriter
from tests.clusters import __main__ as module
from tests.clusters.results import packed_rows

IDS = np.arange(60, dtype=np.int32).reshape(20, 3)
LABELS = (np.arange(20) % 2).astype(np.float32)[:, None]


def packed(path: pathlib.Path, rows: list[int]) -> pathlib.Path:
    with PackedWriter(path) as writer:
        writer.write({"ids": IDS[rows], "label": LABELS[rows]})
    return path


def test_rows_are_the_same_in_any_order_and_in_any_files(tmp_path):
    whole = packed_rows([packed(tmp_path / "whole.parquet", list(range(20)))])
    parts = [packed(tmp_path / "a.parquet", [19, 3, 7]), packed(tmp_path / "b.parquet", [*range(3), *range(4, 7)])]
    parts.append(packed(tmp_path / "c.parquet", list(range(8, 19))))
    assert whole == packed_rows(parts) and whole[0] == 20


def test_a_row_twice_in_the_place_of_another_is_seen(tmp_path):
    whole = packed_rows([packed(tmp_path / "whole.parquet", list(range(20)))])
    twice = packed_rows([packed(tmp_path / "twice.parquet", [*range(19), 0])])
    assert twice[0] == whole[0] and twice != whole


def test_a_label_of_another_row_is_seen(tmp_path):
    whole = packed_rows([packed(tmp_path / "whole.parquet", list(range(20)))])
    with PackedWriter(tmp_path / "other.parquet") as writer:
        writer.write({"ids": IDS, "label": LABELS[::-1].copy()})
    assert packed_rows([tmp_path / "other.parquet"]) != whole


def scored(folder: pathlib.Path, lines: list[int], first: float = 0.5) -> None:
    (folder / "scores").mkdir(parents=True)
    rows = {"file": ["a.tsv"] * len(lines), "line": lines, "ctr": [first, *([0.25] * (len(lines) - 1))]}
    pq.write_table(pa.table(rows), folder / "scores" / "part.parquet")


def side(name: str, auc: float = 0.7) -> module.Side:
    return module.Side(name, {}, 0.0, {"rows": {"train": (2, 5)}, "metrics": {"auc": auc}})


def test_what_a_cluster_made_otherwise_is_named(tmp_path):
    scored(tmp_path / "here", [1, 2])
    scored(tmp_path / "same", [1, 2])
    scored(tmp_path / "other", [1, 2], first=0.75)
    sides = [side("here"), side("same"), side("other", auc=0.6)]
    assert module.differences(sides, tmp_path) == ["other: other metrics", "other: other scores"]


@pytest.mark.parametrize("engine", module.CLUSTERS)
@pytest.mark.parametrize("java", [None, "/usr/bin/java"])
def test_a_machine_without_the_engine_is_told_so_in_one_line(engine, java, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: java)
    monkeypatch.setattr(module.CLUSTERS[engine], "jars", {"FOLDER": (tmp_path, "engine-*.jar")})
    done = CliRunner().invoke(module.main, ["--engine", engine, "--folder", str(tmp_path / "none")])
    no_jar = f"no engine-*.jar in {tmp_path}: run `make {engine}`, or set FOLDER\n"
    assert done.exit_code == 2
    assert done.output.endswith(no_jar) if java else done.output.startswith("clusters: no java on the PATH")
    assert len(done.output.splitlines()) == 1 and not (tmp_path / "none").exists()
