"""`ctrpipe prepare labels`."""

import bz2
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.draft.page import draft
from ctrpipe.transforms.labels.labelled import join_labels
from ctrpipe.transforms.log import lines


def write(path, text) -> str:
    path.write_text(text)
    return str(path)


def joined(tmp_path, log, labels, **options):
    """The rows that a join writes, and its counts."""
    result = join_labels([log], [labels], tmp_path / "out", **options)
    files = sorted((tmp_path / "out" / "log").glob("*.parquet"))
    rows = pa.concat_tables([pa.parquet.read_table(file) for file in files]).to_pylist()
    decoded = [{name: value and value.decode() for name, value in row.items()} for row in rows]
    return decoded, (result.rows, result.unmatched, result.unused, result.rejected)


@pytest.mark.parametrize("size", [16, 100, 1 << 21])
def test_the_nth_label_is_that_of_the_nth_row(tmp_path, monkeypatch, size):
    monkeypatch.setattr(lines, "CHUNK_BYTES", size)
    random = np.random.default_rng(size)
    devices = [f"d{n}" for n in random.integers(0, 9, 400)]
    clicks = random.integers(0, 2, 400).tolist()
    log = write(tmp_path / "X.csv", "n,device\n" + "".join(f"{n},{device}\n" for n, device in enumerate(devices)))
    labels = write(tmp_path / "y.csv", "click\n" + "".join(f"{click}\n" for click in clicks))
    rows, counts = joined(tmp_path, log, labels)
    expected = zip(range(400), devices, clicks, strict=True)
    assert rows == [{"n": str(n), "device": device, "click": str(click)} for n, device, click in expected]
    assert counts == (400, 0, 0, 0)


def test_a_malformed_row_leaves_its_partner_out(tmp_path):
    log = write(tmp_path / "X.csv", "a,b\n" + "".join(f"{n},x\n" for n in range(50)) + "50\n51,x\n")
    labels = write(tmp_path / "y.tsv", "".join(f"{n}\t{n % 2}\n" for n in range(2, 5)) + "9\n" + "1\t1\n" * 48)
    rows, counts = joined(tmp_path, log, labels)
    assert [row["a"] for row in rows] == [str(n) for n in range(52) if n not in (3, 50)]
    assert [row["c1"] for row in rows[:4]] == ["2", "3", "4", "1"] and counts == (50, 0, 0, 2)
    letters = [json.loads(line) for line in open(tmp_path / "out" / "dead_letter" / "rejects.jsonl")]
    places = sorted((letter["file"].rsplit("/", 1)[1], letter["line"]) for letter in letters)
    assert places == [("X.csv", 52), ("y.tsv", 4)]


def test_labels_without_a_header_are_the_column_label(tmp_path):
    log = write(tmp_path / "X.tsv", "".join(f"{n % 7}\tv{n % 3}\n" for n in range(30)))
    labels = write(tmp_path / "y.txt", "".join(f"{n % 2}\n" for n in range(30)))
    rows, _ = joined(tmp_path, log, labels)
    assert rows[1] == {"c1": "1", "c2": "v1", "label": "1"}


KEYED = "id;price\n" + "".join(f"{n};{n}.5\n" for n in range(100))


@pytest.mark.parametrize(
    ("unmatched", "expected", "counts"),
    [(None, {3: "1", 5: "0"}, (2, 98, 1, 0)), ("0", {n: "1" if n == 3 else "0" for n in range(100)}, (100, 98, 1, 0))],
)
def test_a_key_finds_the_label_in_any_order(tmp_path, unmatched, expected, counts):
    table = pa.table({"click": [0, 1, 1], "id": [5, 3, 999]})
    pa.parquet.write_table(table, tmp_path / "y.parquet")
    log = write(tmp_path / "X.csv", KEYED)
    rows, found = joined(tmp_path, log, str(tmp_path / "y.parquet"), key="id", unmatched=unmatched)
    assert {int(row["id"]): row["click"] for row in rows} == expected and found == counts
    assert rows[0]["price"] == ("3.5" if unmatched is None else "0.5")


def test_a_list_of_clicked_keys_is_a_label(tmp_path):
    log = write(tmp_path / "X.csv", KEYED)
    clicks = write(tmp_path / "clicks.jsonl", '{"id": 7}\n{"id": 8}\n{"id": 7}\n')
    rows, _ = joined(tmp_path, log, clicks, key="id", unmatched="0")
    assert [row["label"] for row in rows] == ["1" if n in (7, 8) else "0" for n in range(100)]


@pytest.mark.parametrize(
    ("log", "labels", "options", "message"),
    [
        (KEYED, "click\n1\n0\n", {}, r"y\.csv: 2 rows of labels for 100 rows of .*X\.csv; without --key"),
        (KEYED, "id,click\n3,1\n3,0\n", {"key": "id"}, "id 3 has two labels"),
        (KEYED, "id,click\n3,1\n", {"key": "user"}, r"X\.csv: --key user: no such column; it has id, price"),
        (KEYED, "user,click\n3,1\n", {"key": "id"}, r"y\.csv: --key id: no such column; it has user, click"),
        (KEYED, "id,click\n900,1\n", {"key": "id"}, "no row of the log has a label in it"),
        (KEYED, "id,price\n3,1\n", {"key": "id"}, "the log has price already"),
    ],
)
def test_files_that_do_not_belong_together_are_one_line(tmp_path, log, labels, options, message):
    files = write(tmp_path / "X.csv", log), write(tmp_path / "y.csv", labels)
    with pytest.raises(InputError, match=message):
        join_labels([files[0]], [files[1]], tmp_path / "out", **options)
    assert not (tmp_path / "out" / "log").exists()


def test_the_command_s_log_is_one_that_init_and_run_read(tmp_path):
    random = np.random.default_rng(1)
    log = write(tmp_path / "X.csv", "id,price,shop\n" + "".join(f"r{n},{n % 90}.5,s{n % 8}\n" for n in range(900)))
    labels = write(tmp_path / "y.csv", "id,clicked\n" + "".join(f"r{n},{random.integers(2)}\n" for n in range(900)))
    made = CliRunner().invoke(main, ["prepare", "labels", log, labels, str(tmp_path / "out"), "--key", "id"])
    assert made.exit_code == 0, made.output
    assert "900 rows with clicked; 0 without a label" in made.output
    text, _ = draft([f"{tmp_path}/out/log/*.parquet"])
    config = RunConfig.model_validate(yaml.safe_load(text))
    assert {column: feature.kind for column, feature in config.feature_by_column.items()} == {
        "price": "numeric",
        "shop": "categorical",
    }
    found = check_log(config, config.data.paths)
    assert (found.rows, found.rejected, found.errors) == (900, 0, [])


def test_both_sides_may_be_compressed_and_of_any_encoding_and_delimiter(tmp_path):
    (tmp_path / "log").write_bytes(("id;größe\n" + "".join(f"{n};K{n % 5}ö\n" for n in range(60))).encode("cp1252"))
    labels = "id::klick\n" + "".join(f"{n}::{int(n % 3 == 0)}\n" for n in range(60))
    (tmp_path / "labels").write_bytes(bz2.compress(labels.encode("utf-16")))
    rows, counts = joined(tmp_path, str(tmp_path / "log"), str(tmp_path / "labels"), key="id")
    assert rows == [{"id": str(n), "größe": f"K{n % 5}ö", "klick": str(int(n % 3 == 0))} for n in range(60)]
    assert counts == (60, 0, 0, 0)
