"""Several ways to write one value: a served model reads requests as it read the training log."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from ctrpipe.common.processes import Workers
from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.kinds.kind import MISSING
from ctrpipe.transforms.features.kinds.numeric import LOG_BUCKETS
from ctrpipe.transforms.features.packed_files import packed_files
from ctrpipe.transforms.features.transform import analyze, load_graph, transform
from ctrpipe.transforms.features.understood import all_unknown
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import explained


def spec(data: str, features: str = "[{kind: numeric, columns: [n]}, {kind: categorical, columns: [c]}]") -> LogSpec:
    return LogSpec.model_validate({"data": yaml.safe_load(data), "features": yaml.safe_load(features)})


def read(tmp_path, log, text, name="log.csv"):
    path = tmp_path / name
    path.write_text(text)
    batches = list(LogReader(log).read(str(path)))
    rows = [tuple(row.values()) for batch in batches for row in batch.rows.to_pylist()]
    return rows, [(reject.line, reject.reason) for batch in batches for reject in batch.rejects]


def test_a_number_with_the_minus_of_typesetting_is_refused_with_what_to_write(tmp_path):
    data = "format: csv, header: true, labels: {ctr: y}"
    text = "y,n,c\n1,-2.5,a\n0,\u22122.5,a\n"
    [(line, reason)] = read(tmp_path, spec("{" + data + "}"), text)[1]
    assert line == 3
    assert explained(reason).endswith(
        "the form of the column's numbers in written: its prefix, suffix, thousands and decimal"
    )
    features = "[{kind: numeric, columns: [n], written: {decimal: .}}, {kind: categorical, columns: [c]}]"
    rows, rejects = read(tmp_path, spec("{" + data + "}", features), text)
    assert [row[0] for row in rows] == [-2.5, -2.5] and not rejects


def labels(tmp_path, label, values, data="format: csv, header: true"):
    log = spec(f"{{{data}, labels: {{ctr: {label}}}}}", "[{kind: categorical, columns: [c]}]")
    rows, rejects = read(tmp_path, log, "y,c\n" + "".join(f"{value},a\n" for value in values))
    return [row[-1] for row in rows], rejects


@pytest.mark.parametrize(
    ("label", "values", "found"),
    [
        ("y", ["1", "0", "1.0", "0.0"], [1, 0, 1, 0]),
        ("y", ["True", "false", "TRUE", "False"], [1, 0, 1, 0]),
        ("{column: y, positive: [click]}", ["click", "noclick", "view"], [1, 0, 0]),
        ("{column: y, positive: [yes], negative: [no]}", ["yes", "no", "Yes", "NO"], [1, 0, 1, 0]),
        ("{column: y, positive: [2], negative: [1]}", ["2", "1", "2.0"], [1, 0, 1]),
        ("{column: y, negative: ['']}", ["2026-01-01 00:00:05", "", "x"], [1, 0, 1]),
        ("{column: y, negative: [view, 3]}", ["click", "view", "3.0", "4"], [1, 0, 0, 1]),
        ("{column: y, threshold: 4}", ["5", "4", "3.5", "1"], [1, 1, 0, 0]),
        ("{column: y, threshold: 0.7}", ["0.7", "0.69"], [1, 0]),
    ],
)
def test_labels_are_words_numbers_or_a_threshold(tmp_path, label, values, found):
    assert labels(tmp_path, label, values) == (found, [])


@pytest.mark.parametrize(
    ("label", "values", "rejects"),
    [
        ("y", ["1", "yes", ""], ["0 or 1, found 'yes'", "0 or 1, found nothing"]),
        ("{column: y, positive: [a], negative: [b]}", ["a", "c"], ["one of a, b, found 'c'"]),
        ("{column: y, positive: [a]}", ["a", "", "NULL"], ["a value, found nothing", "a value, found 'NULL'"]),
        ("{column: y, negative: [a]}", ["b", "", "NULL"], ["a value, found nothing", "a value, found 'NULL'"]),
        ("{column: y, threshold: 4}", ["4", "good", "NA"], ["a number, found 'good'", "a number, found 'NA'"]),
    ],
)
def test_a_label_of_another_kind_is_malformed(tmp_path, label, values, rejects):
    reasons = [f"y: the label must be {reason}" for reason in rejects]
    assert labels(tmp_path, label, values) == ([1], list(enumerate(reasons, 3)))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("{column: y, positive: [a], threshold: 1}", "threshold replaces"),
        ("{column: y, positive: [1], negative: [1.0]}", "1, 1.0 is both positive and negative"),
        ("y, other: {column: y, threshold: 2}", "two tasks read y in two ways"),
    ],
)
def test_rules_of_labels_that_contradict_are_a_mistake(label, message):
    with pytest.raises(ValueError, match=message):
        spec(f"{{header: true, labels: {{ctr: {label}}}}}")


def test_labels_of_parquet_are_numbers_and_booleans(tmp_path):
    path = tmp_path / "log.parquet"
    columns = {"y": pa.array([True, False]), "r": pa.array([4.0, 3.0]), "c": pa.array(["a", "b"])}
    pa.parquet.write_table(pa.table(columns), path)
    log = spec(
        "{format: parquet, labels: {y: {column: y, positive: [true]}, r: {column: r, threshold: 4}}}",
        "[{kind: categorical, columns: [c]}]",
    )
    (batch,) = LogReader(log).read(str(path))
    assert batch.rows["y"].to_pylist() == batch.rows["r"].to_pylist() == [1, 0]


@pytest.mark.parametrize("word", ["NULL", "NaN", "nan", "NA", "\\N", "-", "None", "?", ""])
@pytest.mark.parametrize("others", ["7", "-7.25"])  # digits alone are read in another way
def test_usual_words_for_a_missing_number_are_missing(tmp_path, word, others):
    text = "y,n,c\n" + f"1,{others},x\n" * 40 + f"0,{word},{word}\n"
    rows, rejects = read(tmp_path, spec("{format: csv, header: true, labels: {ctr: y}}"), text)
    assert not rejects and rows[0][0] == float(others)
    assert rows[-1] == (None, word.encode() or None, 0.0)  # a category may be called NA


def test_words_of_the_configuration_take_the_place_of_the_usual_ones(tmp_path):
    log = spec("{format: csv, header: true, missing_values: [unknown, '0'], labels: {ctr: y}}")
    rows, rejects = read(tmp_path, log, "y,n,c\n1,unknown,unknown\n0,0,b\n0,NULL,NULL\n")
    assert rows == [(None, None, 1.0), (None, b"b", 0.0)]
    assert rejects == [(4, "n: 'NULL' is not a number")]


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_infinite_number_may_mean_a_missing_one(tmp_path, kind, labels):
    numbers, path = ["1.5", "inf", "-inf", "nan"], tmp_path / f"log.{kind}"
    if kind == "csv":
        path.write_text("y,n,c\n" + "".join(f"1,{number},a\n" for number in numbers))
    else:
        pa.parquet.write_table(pa.table({"y": [1] * 4, "n": list(map(float, numbers)), "c": ["a"] * 4}), path)
    data = "{format: csv, header: true" if kind == "csv" else "{format: parquet"
    for words, expected, rejected in (
        ("", [1.5, None] if labels else [1.5, 3.4028235e38, -3.4028235e38, None], 2 if labels else 0),
        (
            ", missing_values: [inf, nan]",
            [1.5, None, None] if labels else [1.5, None, -3.4028235e38, None],
            int(labels),
        ),
        (", missing_values: [inf, -inf, nan]", [1.5, None, None, None], 0),
    ):
        log = spec(f"{data}, labels: {{ctr: y}}{words}}}")
        [batch] = LogReader(log, labels=labels).read(str(path))
        assert batch.rows["n"].to_pylist() == [value and pytest.approx(value) for value in expected], words
        assert len(batch.rejects) == rejected


def test_a_decimal_comma_is_read(tmp_path):
    log = spec("{format: csv, delimiter: ;, decimal: ',', header: true, labels: {ctr: y}}")
    rows, rejects = read(tmp_path, log, "y;n;c\n1;1,5;a,b\n0;-3;c\n0;1.234,5;d\n0;x;e\n0;NA;f\n")
    assert rows == [(1.5, b"a,b", 1.0), (-3.0, b"c", 0.0), (None, b"f", 0.0)]
    assert rejects == [(4, "n: '1.234,5' is not a number"), (5, "n: 'x' is not a number")]


@pytest.mark.parametrize("delimiter", [";", "|", "^", "]"])
def test_a_delimiter_of_ones_own_is_read_with_and_without_quotes(tmp_path, delimiter):
    lines = [f'1,5,"a{delimiter}b"', '0,6,"q""r"', "0,7", '0,8,"open', '0,9,x"y']
    text = "\n".join(line.replace(",", delimiter) for line in lines) + "\n"
    data = f"delimiter: '{delimiter}', columns: [y, n, c], labels: {{ctr: y}}"
    rows, rejects = read(tmp_path, spec(f"{{format: csv, {data}}}"), text)
    assert [row[1] for row in rows] == [f"a{delimiter}b".encode(), b'q"r', b'x"y']
    assert rejects == [(3, "expected 3 columns, found 2"), (4, "a quote is not closed")]
    rows, rejects = read(tmp_path, spec(f"{{format: tsv, {data}}}"), text)
    assert [row[1] for row in rows] == [b'"q""r"', b'"open', b'x"y'] and [line for line, _ in rejects] == [1, 3]


@pytest.mark.parametrize("delimiter", ["''", "'\"'", '"\\n"'])
def test_a_delimiter_holds_no_quote_and_no_line_end(delimiter):
    with pytest.raises(ValueError, match="delimiter must be characters other than quotes and line ends"):
        spec(f"{{header: true, delimiter: {delimiter}, labels: {{ctr: y}}}}")


LOG = spec(
    "{format: csv, header: true, labels: {ctr: y}, missing_values: [NULL, 0]}",
    "[{kind: numeric, columns: [n]}, {kind: categorical, columns: [id, c], whole_numbers: true},"
    " {kind: time, columns: [t]}, {kind: multivalent, columns: [tags], max_length: 2}]",
)


@pytest.mark.slow
def test_a_request_is_understood_as_the_log_was(tmp_path):
    random = np.random.default_rng(1)
    forms = {"id": ["12", "12.0", "12.", "7", "NULL", "0", ""], "c": ["x", "0.50", "NULL", "-3.00"]}
    forms |= {"n": ["0", "0.0", "3", "", "NULL"]}
    forms |= {"t": ["2026-11-01T05:00:00Z", "1414281600", "NULL", "14102107", ""], "tags": ["a|b", "NULL", "b", ""]}
    raw = {name: random.choice(values, 300).tolist() for name, values in forms.items()}
    path = tmp_path / "log.csv"
    lines = [",".join([str(row % 2), *values]) for row, values in enumerate(zip(*raw.values(), strict=True))]
    path.write_text("\n".join(["y," + ",".join(raw), *lines]) + "\n")
    (batch,) = LogReader(LOG).read(str(path))
    assert not batch.rejects
    assert set(batch.rows["id"].to_pylist()) == {b"12", b"7", None}
    with PayloadWriter(tmp_path, "part", payload_schema(LOG)) as writer:
        writer.write(batch.rows)
    analyze(LOG, payload_files(tmp_path), tmp_path / "graph", Workers(processes=1))
    run = load_graph(tmp_path / "graph")
    label = {"y": np.zeros(300, np.float32)}

    def ids(columns):
        arrays = {name: np.array(values, object) for name, values in columns.items() if name != "n"}
        return run({**arrays, "n": columns["n"], **label})["ids"]

    read_columns = {name: [value or b"" for value in batch.rows[name].to_pylist()] for name in raw if name != "n"}
    read_columns["n"] = number_array(batch.rows["n"])
    assert set(batch.rows["n"].to_pylist()) == {3.0, None}
    columns = {name: [value.encode() for value in values] for name, values in raw.items()}
    numbers = np.array([float(value) if value not in ("", "NULL") else np.nan for value in raw["n"]], np.float32)
    sent = ids({**columns, "n": numbers})
    np.testing.assert_array_equal(sent, ids(read_columns))
    assert (sent[:, 0] == 1 + MISSING).sum() == sum(value != "3" for value in raw["n"])
    offset = 1 + LOG_BUCKETS + RESERVED_IDS
    by_form = dict(zip(raw["id"], (sent[:, 1] - offset).tolist(), strict=True))
    assert by_form["12"] == by_form["12.0"] == by_form["12."] >= RESERVED_IDS and by_form["7"] != by_form["12"]
    assert by_form["NULL"] == by_form["0"] == by_form[""] == MISSING


@pytest.mark.slow
def test_fields_of_unknown_values_alone_are_found(tmp_path):
    splits = {
        "train": "1,a,x,p|q\n0,b,x,q\n",
        "test": "1,zz,x,zz|yy\n0,,x,zz\n",
        "all": "1,zz,y,zz|yy\n0,yy,x,zz|p\n",
    }
    log = spec(
        "{format: csv, columns: [y, c, d, tags], labels: {ctr: y}}",
        "[{kind: categorical, columns: [c, d]}, {kind: multivalent, columns: [tags], max_length: 2}]",
    )
    folders = {}
    for name, text in splits.items():
        folders[name] = (tmp_path / name, tmp_path / f"packed-{name}")
        folders[name][0].mkdir()
        (tmp_path / "log.csv").write_text(text)
        with PayloadWriter(tmp_path / name, "part", payload_schema(log)) as writer:
            writer.write(next(LogReader(log).read(str(tmp_path / "log.csv"))).rows)
    analyze(log, payload_files(tmp_path / "train"), tmp_path / "graph", Workers(processes=1))
    transform(log, tmp_path / "graph", folders, 1, Workers(processes=1))
    found = {name: all_unknown(log, tmp_path / "graph", packed_files(packed)) for name, (_, packed) in folders.items()}
    assert found == {"train": [], "test": ["tags"], "all": ["c"]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["t_hour"], "t and t_hour both make a field t_hour; rename one"),
        (["t_weekday", "x"], "t and t_weekday both make a field t_weekday"),
        ([""], "the column '' has a name"),
        (["a\nb"], r"the column 'a\\nb' has a name that cannot be printed"),
        (["a\0"], "has a name that cannot be printed"),
    ],
)
def test_names_that_cannot_be_told_apart_or_shown_are_refused(columns, message):
    features = [{"kind": "time", "columns": ["t"]}, {"kind": "categorical", "columns": columns}]
    with pytest.raises(ValueError, match=message):
        LogSpec.model_validate({"data": {"header": True, "labels": {"ctr": "y"}}, "features": features})


@pytest.mark.parametrize("word", ["nan", "NaN", "NULL", "n/a"])
def test_a_rate_of_no_impressions_is_malformed_and_said(tmp_path, word):
    found, [(line, reason)] = labels(tmp_path, "y", ["0.5", word, "1"])
    assert (found, line) == ([0.5, 1], 3)
    assert explained(reason).endswith(
        f"found '{word}': leave the row out of the log, as where no impression gives a rate"
    )
