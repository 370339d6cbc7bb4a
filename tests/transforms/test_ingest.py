import json

import numpy as np
import pytest
import tensorflow as tf

from transforms import readers
from transforms.errors import InputError
from transforms.ingest import SPLITS, ingest
from transforms.spec import LogSpec


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


def run(tmp_path, text, log=None, seed=0, **options):
    path = tmp_path / "log.tsv"
    path.write_text("\n".join(text) + "\n")
    folders = {name: tmp_path / name for name in SPLITS}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    return ingest(log or spec(), [str(path)], seed, folders, tmp_path / "dead", **options)


def numbers(tmp_path, name):
    found = []
    for record in tf.data.TFRecordDataset(tf.io.gfile.glob(f"{tmp_path}/{name}/*"), "GZIP"):
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        found += list(feature["n"].float_list.value)
    return [int(number) for number in found]


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


def test_time_split_compares_the_column(tmp_path):
    times = {"by": "time", "column": "hour", "validation_from": "14102118", "test_from": "14102121"}
    result = run(tmp_path, lines(96), spec(split=times))
    assert result.rows == {"train": 72, "validation": 12, "test": 12}


def test_missing_values_are_absent_features(tmp_path):
    run(tmp_path, ["1\t\t\t14102100", *lines()])
    record = next(iter(tf.data.TFRecordDataset(tf.io.gfile.glob(f"{tmp_path}/train/*"), "GZIP"))).numpy()
    feature = tf.train.Example.FromString(record).features.feature
    assert not feature["n"].float_list.value and not feature["c"].bytes_list.value
    assert list(feature["hour"].bytes_list.value) == [b"14102100"]


def test_malformed_rows_go_to_the_dead_letters(tmp_path):
    result = run(tmp_path, [*lines(), "1\tx\ty\t14102100"], spec(max_bad_row_rate=0.01))
    assert result.rejected == 1 and sum(result.rows.values()) == 100
    letter = json.loads((tmp_path / "dead" / "rejects.jsonl").read_text())
    assert letter["line"] == 100 and letter["reason"] == "n: 'x' is not a number"


def test_too_many_malformed_rows_stop_the_run(tmp_path):
    with pytest.raises(InputError, match=r"2 of 102 rows are malformed.*line 101"):
        run(tmp_path, [*lines(), "bad", "bad"])
    assert len((tmp_path / "dead" / "rejects.jsonl").read_text().splitlines()) == 2


def test_it_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "RANGE_BYTES", 2000)
    said: list[str] = []
    run(tmp_path, ["bad", *lines(1000)], progress=said.append)
    passes = [text for text in said if text.endswith("rows read")], [text for text in said if "written" in text]
    assert [len(texts) for texts in passes] == [len(said) / 2] * 2 and len(said) > 10
    assert passes[0][-1] == "1,001 rows read" and passes[1][-1] == "1,000 of 1,000 rows written"
    counts = [int(text.split()[0].replace(",", "")) for text in passes[1]]
    assert counts == sorted(set(counts))


def test_one_class_only_is_refused(tmp_path):
    with pytest.raises(InputError, match="label is 0 in all"):
        run(tmp_path, [f"0\t{row}\ta\t14102100" for row in range(50)])


def test_a_column_that_is_always_missing_is_refused(tmp_path):
    with pytest.raises(InputError, match="Always missing.*: c;"):
        run(tmp_path, [f"{row % 2}\t{row}\t\t14102100" for row in range(50)])


def test_too_few_rows_for_the_splits_are_refused(tmp_path):
    with pytest.raises(InputError, match="split has no rows"):
        run(tmp_path, lines(3))


def test_the_real_log_splits_as_the_protocol_says(tmp_path, real_data):
    features = [{"kind": "numeric", "columns": ["I1..I13"]}, {"kind": "categorical", "columns": ["C1..C26"]}]
    split = {"validation": 0.1, "test": 0.2}
    data = {"columns": ["label", "I1..I13", "C1..C26"], "labels": {"ctr": "label"}, "split": split}
    folders = {name: tmp_path / name for name in SPLITS}
    for folder in folders.values():
        folder.mkdir()
    log = LogSpec.model_validate({"data": data, "features": features})
    result = ingest(log, [str(real_data / "criteo_60k.tsv.gz")], 0, folders, tmp_path / "dead")
    assert result.rows == {"train": 42_000, "validation": 6_000, "test": 12_000}
    assert np.isclose(sum(result.positives.values()) / 60_000, 0.226, atol=0.002)
