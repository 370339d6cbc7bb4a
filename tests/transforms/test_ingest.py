import gzip
import json
import pathlib
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log import ingest as ingestion
from ctrpipe.transforms.log.ingest import ingest, to_examples, why_empty
from ctrpipe.transforms.log.payload import payload_files, payload_schema, read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS
from ctrpipe.transforms.log.split_counts import count_splits

HERE = Workers(processes=1)
PLACES = {"two processes": Workers(processes=2), "beam": Workers(beam_args=("--direct_num_workers=1",))}
TIMES = {"by": "time", "column": "hour", "validation_from": "14102118", "test_from": "14102121"}


def spec(**data) -> LogSpec:
    features = [
        {"kind": "numeric", "columns": ["n"]},
        {"kind": "categorical", "columns": ["c"]},
        {"kind": "time", "columns": ["hour"]},
    ]
    data = {"columns": ["label", "n", "c", "hour"], "labels": {"ctr": "label"}, **data}
    return LogSpec.model_validate({"data": data, "features": features})


def lines(rows=100) -> list[str]:
    return [f"{row % 3 == 0:d}\t{row}\tv{row % 7}\t141021{row * 24 // rows:02d}" for row in range(rows)]


def run_files(folder, files, log=None, seed=0, workers=HERE, **options):
    folders = {name: folder / name for name in SPLITS}
    for split in folders.values():
        split.mkdir(exist_ok=True, parents=True)
    return ingest(log or spec(), [str(file) for file in files], seed, folders, folder / "dead", workers, **options)


def run(tmp_path, text, log=None, seed=0, **options):
    path = tmp_path / "log.tsv"
    path.write_text("\n".join(text) + "\n")
    return run_files(tmp_path, [path], log, seed, **options)


def table(folder, name, log=None) -> pa.Table:
    """A split, read back."""
    return pa.Table.from_batches(read_payload(payload_files(folder / name)), payload_schema(log or spec()))


def numbers(folder, name):
    return [int(number) for number in table(folder, name)["n"].to_pylist()]


def letters(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "dead" / "rejects.jsonl").read_text().splitlines()]


def in_many_ranges(monkeypatch, size=500):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", size)


def test_order_split_keeps_the_logs_order(tmp_path):
    result = run(tmp_path, lines(), spec(split={"validation": 0.1, "test": 0.2}))
    assert result.rows == {"train": 70, "validation": 10, "test": 20}
    assert numbers(tmp_path, "train") == list(range(70))
    assert numbers(tmp_path, "test") == list(range(80, 100))


def test_hash_split_covers_every_row_once_and_follows_the_seed(tmp_path):
    log = spec(split={"by": "hash", "validation": 0.2, "test": 0.3})
    first = run(tmp_path, lines(1000), log, seed=1)
    parts = [numbers(tmp_path, name) for name in SPLITS]
    assert sorted(sum(parts, [])) == list(range(1000))
    assert abs(first.rows["test"] - 300) < 60 and abs(first.rows["validation"] - 200) < 60
    run(tmp_path, lines(1000), log, seed=1)
    assert [numbers(tmp_path, name) for name in SPLITS] == parts
    run(tmp_path, lines(1000), log, seed=2)
    assert [numbers(tmp_path, name) for name in SPLITS] != parts


def drawn(*numbers: int) -> float:
    """SplitMix64 of the numbers in turn, in whole numbers of Python; in [0, 1)."""
    golden, mask, state = 0x9E3779B97F4A7C15, (1 << 64) - 1, 0
    for number in numbers:
        state = (state + (number + 1) * golden) & mask
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return (state >> 11) / 2**53


def test_a_hash_split_draws_by_the_seed_and_the_line_from_0(tmp_path):
    run(tmp_path, lines(300), spec(split={"by": "hash", "validation": 0.2, "test": 0.3}), seed=5)
    places = [int(drawn(5, 0, row) >= 0.5) + int(drawn(5, 0, row) >= 0.7) for row in range(300)]
    for place, name in enumerate(SPLITS):
        assert numbers(tmp_path, name) == [row for row in range(300) if places[row] == place]


def test_hash_split_draws_for_each_row_alone(tmp_path, monkeypatch):
    """A row's random draw depends on its file and line alone, not on the parts of the log or on malformed rows."""
    log = spec(split={"by": "hash"}, max_bad_row_rate=0.1)
    (tmp_path / "whole").mkdir()
    run(tmp_path / "whole", lines(300), log)
    in_many_ranges(monkeypatch)
    (tmp_path / "cut").mkdir()
    text = ["bad" if row in (0, 7) else line for row, line in enumerate(lines(300))]
    run(tmp_path / "cut", text, log)
    for name in SPLITS:
        assert numbers(tmp_path / "cut", name) == [n for n in numbers(tmp_path / "whole", name) if n not in (0, 7)]


def test_time_split_compares_the_column(tmp_path):
    result = run(tmp_path, lines(96), spec(split=TIMES))
    assert result.rows == {"train": 72, "validation": 12, "test": 12}


def test_the_payload_holds_features_and_labels_and_null_where_a_value_is_missing(tmp_path):
    run(tmp_path, ["1\t\t\t14102100", *lines()])
    found = table(tmp_path, "train")
    assert found.schema.equals(payload_schema(spec()))
    assert found.slice(0, 2).to_pylist() == [
        {"n": None, "c": None, "hour": b"14102100", "label": 1.0},
        {"n": 0.0, "c": b"v0", "hour": b"14102100", "label": 1.0},
    ]


def test_missing_values_are_absent_features_of_an_example(tmp_path):
    run(tmp_path, ["1\t\t\t14102100", *lines()])
    rows = next(read_payload(payload_files(tmp_path / "train")))
    feature = tf.train.Example.FromString(to_examples(rows)[0]).features.feature
    assert set(feature) == {"hour", "label"} and list(feature["hour"].bytes_list.value) == [b"14102100"]


def test_an_example_has_each_column_in_the_list_of_its_type():
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    rows = pa.RecordBatch.from_pydict({"n": pa.array([0.5, None, 2.0]), "i": pa.array([1, 2, 3]), "w": words})
    found = [tf.train.Example.FromString(example).features.feature for example in to_examples(rows)]
    assert [list(each["n"].float_list.value) for each in found if "n" in each] == [[0.5], [2.0]]
    assert [list(each["i"].int64_list.value) for each in found] == [[1], [2], [3]]
    assert [list(each["w"].bytes_list.value) for each in found] == [[b"a"], [b"b"], [b"a"]]


def many_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Plain, gzipped and small files with malformed rows among the others."""
    text = [line if row % 50 else "bad\t\udcff" for row, line in enumerate(lines(1200))]
    blocks = [text[:700], text[700:701], text[701:1000], text[1000:]]
    files = [folder / name for name in ("a.tsv", "b.tsv", "c.tsv.gz", "d.tsv")]
    for file, block in zip(files, blocks, strict=True):
        content = "\n".join(block).encode("utf-8", "surrogateescape")
        file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return files


@pytest.mark.slow
@pytest.mark.parametrize(
    "split",
    [{"by": "order"}, *(pytest.param(split, marks=pytest.mark.large) for split in ({"by": "hash"}, TIMES))],
    ids=lambda split: split["by"],
)
def test_who_reads_the_ranges_changes_nothing(tmp_path, monkeypatch, split):
    log, files = spec(split=split, max_bad_row_rate=0.1), many_files(tmp_path)
    whole = run_files(tmp_path / "whole", files, log)
    assert whole.rejected == 24 and whole.reasons == {"expected 4 columns": 24}
    assert sum(whole.rows.values()) == 1200 - 24
    in_many_ranges(monkeypatch, 2000)
    for place in ["one process", *PLACES]:
        folder = tmp_path / place
        assert run_files(folder, files, log, workers=PLACES.get(place, HERE)) == whole
        assert len(payload_files(folder / "train")) > 5
        assert letters(folder) == letters(tmp_path / "whole")
        for name in SPLITS:
            assert table(folder, name).equals(table(tmp_path / "whole", name))
            if place in PLACES:
                found = [(file.name, file.read_bytes()) for file in payload_files(folder / name)]
                assert found == [(f.name, f.read_bytes()) for f in payload_files(tmp_path / "one process" / name)]


def test_an_order_split_may_cut_a_part_twice_and_moves_the_others(tmp_path, monkeypatch):
    in_many_ranges(monkeypatch, 400)  # about 26 rows
    moved: list[str] = []
    rename = pathlib.Path.replace
    monkeypatch.setattr(pathlib.Path, "replace", lambda path, to: moved.append(path.name) or rename(path, to))
    run(tmp_path, lines(200), spec(split={"validation": 0.03, "test": 0.45}))
    assert [len(numbers(tmp_path, name)) for name in SPLITS] == [104, 6, 90]
    assert sum((numbers(tmp_path, name) for name in SPLITS), []) == list(range(200))
    names = {path.name for name in SPLITS for path in payload_files(tmp_path / name)}
    assert len([name for name in moved if name in names]) >= 6


def test_what_an_interrupted_ingestion_left_is_removed(tmp_path, monkeypatch):
    def interrupt(*_arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ingestion, "_count", interrupt)  # when the parts are in their places
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, lines())
    assert not [path for name in SPLITS for path in (tmp_path / name).iterdir()]
    for left in ("train/000099-00000.parquet", "test/.000099-00000.parquet.unfinished", ".unfinished/x/y.parquet"):
        (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / left).write_bytes(b"half")  # as a killed process leaves it
    assert run(tmp_path, lines()).rows["train"] == 80
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["000000-00000-00000.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dead", "log.tsv", *sorted(SPLITS)]


def test_a_row_that_goes_lost_is_no_result(tmp_path, monkeypatch):
    def lose(spec, found, folders):
        return move_to_splits(spec, found, folders)[1:]

    move_to_splits = ingestion._move_to_splits
    monkeypatch.setattr(ingestion, "_move_to_splits", lose)
    with pytest.raises(RuntimeError, match="0 malformed ones of 100 lines"):
        run(tmp_path, lines())


def test_dead_letters_are_the_first_ones_in_log_order(tmp_path, monkeypatch):
    monkeypatch.setattr(ingestion, "DEAD_LETTERS_KEPT", 5)
    in_many_ranges(monkeypatch)
    text = [line if row % 10 else f"bad {row}" for row, line in enumerate(lines(200))]
    assert run(tmp_path, text, spec(max_bad_row_rate=0.2)).rejected == 20
    assert [(letter["line"], letter["text"]) for letter in letters(tmp_path)] == [
        (row + 1, f"bad {row}") for row in range(0, 50, 10)
    ]


def test_a_parquet_log_is_read_by_row_groups(tmp_path):
    log = spec(format="parquet", columns=[])
    rows = [line.split("\t") for line in lines(1000)]
    columns = {name: [row[index] for row in rows] for index, name in enumerate(["label", "n", "c", "hour"])}
    columns["n"] = [float(number) for number in columns["n"]]
    pa.parquet.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=90)
    result = run_files(tmp_path, [tmp_path / "log.parquet"], log)
    assert result.rows == {"train": 800, "validation": 100, "test": 100}
    assert sum((numbers(tmp_path, name) for name in SPLITS), []) == list(range(1000))


def test_a_row_of_parquet_has_its_number_from_1_for_a_line(tmp_path):
    log = spec(format="parquet", columns=[])
    numbers = [float(row) for row in range(100)]
    numbers[40] = numbers[95] = float("inf")
    columns = {"label": [row % 2 for row in range(100)], "n": numbers, "c": ["a"] * 100, "hour": ["14102100"] * 100}
    pa.parquet.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=30)
    with pytest.raises(
        InputError, match="2 of 100 rows are malformed, .* the first is row 41: n: 'inf' is not a number"
    ):
        run_files(tmp_path, [tmp_path / "log.parquet"], log)
    assert [letter["line"] for letter in letters(tmp_path)] == [41, 96]


def test_malformed_rows_go_to_the_dead_letters(tmp_path):
    result = run(tmp_path, [*lines(), "1\tx\ty\t14102100"], spec(max_bad_row_rate=0.01))
    assert result.rejected == 1 and sum(result.rows.values()) == 100
    assert result.reasons == {"n: is not a number": 1}
    [letter] = letters(tmp_path)
    assert letter == {
        "file": str(tmp_path / "log.tsv"),
        "line": 101,
        "reason": "n: 'x' is not a number",
        "text": "1\tx\ty\t14102100",
    }


@pytest.mark.slow
@pytest.mark.parametrize("workers", [HERE, Workers(processes=2)])
def test_a_hopeless_log_is_not_read_to_its_end(tmp_path, monkeypatch, workers):
    in_many_ranges(monkeypatch, 200)
    text, said = ["bad"] * 1000 + lines(30_000), []  # so many parts that a starved judge is in time
    with pytest.raises(InputError, match=r"log.tsv: \d+ of the first \d+ rows are malformed.*the first is line 1: "):
        run(tmp_path, text, spec(max_bad_row_rate=0.01), workers=workers, progress=said.append)
    read, all_parts = re.fullmatch(r"([\d,]+) of ([\d,]+) parts of the log read", said[-1]).groups()
    assert int(read) < int(all_parts.replace(",", "")) / 2
    assert letters(tmp_path)[0]["line"] == 1 and not list(tmp_path.rglob("*.parquet*"))


@pytest.mark.slow
def test_a_log_that_begins_badly_is_read_to_its_end(tmp_path, monkeypatch):
    in_many_ranges(monkeypatch, 200)
    result = run(tmp_path, ["bad"] * 30 + lines(3000), spec(max_bad_row_rate=0.01))
    assert result.rejected == 30 and sum(result.rows.values()) == 3000


def test_too_many_malformed_rows_stop_the_run(tmp_path):
    with pytest.raises(InputError, match=r"2 of 102 rows are malformed.*line 101: "):
        run(tmp_path, [*lines(), "bad", "bad"])
    assert len((tmp_path / "dead" / "rejects.jsonl").read_text().splitlines()) == 2


def test_it_says_how_far_it_is(tmp_path, monkeypatch):
    in_many_ranges(monkeypatch, 2000)
    said: list[str] = []
    run(tmp_path, lines(1000), progress=said.append)
    assert len(said) > 5
    assert said == [f"{done} of {len(said)} parts of the log read" for done in range(1, len(said) + 1)]


def test_one_class_only_is_refused(tmp_path):
    with pytest.raises(InputError, match="label is 0 in all"):
        run(tmp_path, [f"0\t{row}\ta\t14102100" for row in range(50)])


def test_a_column_that_is_always_missing_is_refused(tmp_path):
    with pytest.raises(InputError, match="Always missing.*: c;"):
        run(tmp_path, [f"{row % 2}\t{row}\t\t14102100" for row in range(50)])


def test_too_few_rows_for_the_splits_are_refused(tmp_path):
    with pytest.raises(InputError, match="split has no rows"):
        run(tmp_path, lines(3))


@pytest.mark.parametrize(("groups", "said"), [(1, "1 group, whose rows are"), (2, "2 groups, each with its rows")])
def test_a_log_of_few_groups_says_how_many_there_are(groups, said, tmp_path):
    log = spec(split={"by": "group", "column": "c"})
    (tmp_path / "counted.tsv").write_text("".join(f"{row % 2}\t{row}\t{row % groups}\t14102100\n" for row in range(50)))
    counted = count_splits(log, [str(tmp_path / "counted.tsv")])
    assert why_empty(counted, log.data.split) == f" (c has {said} in one split)"
    with pytest.raises(InputError, match=rf"split has no rows \(c has {said} in one split\); give more data"):
        run(tmp_path, (tmp_path / "counted.tsv").read_text().splitlines(), log)


def test_the_real_log_splits_as_the_protocol_says(tmp_path, real_data):
    features = [{"kind": "numeric", "columns": ["I1..I13"]}, {"kind": "categorical", "columns": ["C1..C26"]}]
    split = {"validation": 0.1, "test": 0.2}
    data = {"columns": ["label", "I1..I13", "C1..C26"], "labels": {"ctr": "label"}, "split": split}
    log = LogSpec.model_validate({"data": data, "features": features})
    result = run_files(tmp_path, [real_data / "criteo_60k.tsv.gz"], log)
    assert result.rows == {"train": 42_000, "validation": 6_000, "test": 12_000}
    assert np.isclose(sum(result.positives.values()) / 60_000, 0.226, atol=0.002)


def test_json_with_numbers_in_one_file_and_texts_that_are_written_otherwise_in_another_is_refused(tmp_path):
    features = [{"kind": "categorical", "columns": ["c"]}]
    log = LogSpec.model_validate({"data": {"format": "jsonl", "labels": {"ctr": "y"}}, "features": features})
    for name, value in (("a", 2139), ("b", "02139")):
        rows = "".join(json.dumps({"y": row % 2, "c": value}) + "\n" for row in range(20))
        (tmp_path / f"{name}.jsonl").write_text(rows)
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    with pytest.raises(
        InputError, match=r"a\.jsonl: line 1: column c is a number, and the text '02139' in .*b\.jsonl, line 1:"
    ):
        run_files(tmp_path / "out", files, log)
    assert run_files(tmp_path / "one", files[:1], log).rows["train"] == 16
