"""Numbers with a currency, a unit or signs between thousands: the same number wherever a log or a request is read."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.written import Written, numbers_of

DOLLARS = {"prefix": "$", "thousands": ","}
EUROS = {"suffix": "€", "thousands": ".", "decimal": ","}


def spec(written: dict | None, **data: object) -> LogSpec:
    feature = {"kind": "numeric", "columns": ["n"], "transform": "standardize", "written": written}
    return LogSpec.model_validate({"data": {"labels": {"ctr": "y"}, "header": True, **data}, "features": [feature]})


def read(log: LogSpec, path: object) -> tuple[list[float | None], list[str]]:
    batches = list(LogReader(log).read(str(path)))
    numbers = [number for batch in batches for number in batch.rows["n"].to_pylist()]
    return numbers, [reject.reason for batch in batches for reject in batch.rejects]


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        (
            DOLLARS,
            {
                "$1,234.50": 1234.5,
                "-$5": -5,
                "$-5": -5,
                "($3.25)": -3.25,
                "$ 1,00,000": 1e5,
                "$.5": 0.5,
                "\u2212$4": -4,
            },
        ),
        (
            DOLLARS,
            {"$1,23": None, "5": None, "€5": None, "$": None, "$0,123": None, "": None, "$1e3": 1000, "--$5": None},
        ),
        (EUROS, {"3.892,71 €": 3892.71, "3.892,71\u00a0€": 3892.71, "12€": 12, "1.50€": None, "1,50": None}),
        ({"suffix": "kg"}, {"0.4 kg": 0.4, "400 g": None, "0.4kg": 0.4, "4": None}),
        ({"suffix": "%"}, {"85%": 85, "8.5 %": 8.5}),
        ({"suffix": "/ 5"}, {"3.1 / 5": 3.1, "4/ 5": 4, "5": None, "3.1 / 10": None, "/ 5": None}),
        ({"thousands": "'"}, {"1'234.5": 1234.5, "1\u2019234": 1234, "12'34": None, "77": 77}),
        ({"thousands": " ", "decimal": ","}, {"1 234,5": 1234.5, "1\u202f234\u00a0567": 1234567, "1.5": None}),
        ({"decimal": ","}, {"1,5": 1.5, "1.5": None, "7": 7}),
    ],
)
def test_a_form_is_one_number_or_none(written, numbers):
    found = numbers_of(Written.model_validate(written).decided("."), list(numbers))
    assert [None if text is None else float(text) for text in found] == list(numbers.values())


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ({}, "give a prefix"),
        ({"prefix": "2x"}, "without digits"),
        ({"suffix": "5 kg"}, "without digits"),
        ({"thousands": "."}, "stands between thousands and before decimals"),
        ({"thousands": ",", "decimal": ","}, "stands between thousands and before decimals"),
    ],
)
def test_a_form_that_says_nothing_or_two_things_is_refused(written, wrong):
    with pytest.raises(ValueError, match=wrong):
        spec(written)


def test_the_decimal_separator_is_that_of_the_log_where_the_form_has_none(tmp_path):
    (tmp_path / "log.csv").write_text("y;n\n1;1.234,5 kg\n0;7 kg\n")
    log = spec({"suffix": "kg", "thousands": "."}, format="csv", delimiter=";", decimal=",")
    assert read(log, tmp_path / "log.csv") == ([1234.5, 7.0], [])


def test_a_text_of_another_form_is_a_malformed_row_that_says_the_form_and_missing_words_are_missing(tmp_path):
    (tmp_path / "log.csv").write_text('y,n\n1,"$1,234.5"\n0,NA\n0,\n1,"12,5"\n')
    numbers, faults = read(spec(DOLLARS, format="csv"), tmp_path / "log.csv")
    assert numbers == [1234.5, None, None]
    assert faults == ["n: '12,5' is not a number written as $1,234.5"]


@pytest.mark.parametrize(
    ("written", "text"), [(EUROS, "1.234,5 €"), (DOLLARS, "$1,234.5"), ({"decimal": ","}, "1234,5")]
)
def test_numbers_of_json_and_parquet_are_numbers_beside_texts_of_the_form(tmp_path, written, text):
    lines = [{"y": 1, "n": text}, {"y": 0, "n": 1.234}, {"y": 0, "n": 1234}, {"y": 1, "n": None}, {"y": 1, "n": -2.5}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    numbers = [1234.5, pytest.approx(1.234), 1234.0, None, -2.5]
    assert read(spec(written, format="jsonl"), tmp_path / "log.jsonl") == (numbers, [])
    for kind in (pa.float64(), pa.decimal128(9, 3)):
        column = pa.array([1234.5, 1.234], pa.float64()).cast(kind)
        pq.write_table(pa.table({"y": [1, 0], "n": column}), tmp_path / "log.parquet")
        assert read(spec(written, format="parquet"), tmp_path / "log.parquet") == (numbers[:2], [])
    pq.write_table(pa.table({"y": [1, 0], "n": [text, None]}), tmp_path / "log.parquet")
    assert read(spec(written, format="parquet"), tmp_path / "log.parquet") == ([1234.5, None], [])


def test_numbers_of_json_are_numbers_where_the_log_has_decimal_commas(tmp_path):
    lines = [{"y": 1, "n": "1,5"}, {"y": 0, "n": 2.5}, {"y": 0, "n": 3}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read(spec(None, format="jsonl", decimal=","), tmp_path / "log.jsonl") == ([1.5, 2.5, 3.0], [])


# Numbers beside texts in a column of categories of JSON --------------------------------------------------------------

ZIPS = LogSpec.model_validate(
    {
        "data": {"labels": {"ctr": "y"}, "format": "jsonl"},
        "features": [
            {"kind": "categorical", "columns": ["zip"]},
            {"kind": "multivalent", "columns": ["zips"], "max_length": 3},
        ],
    }
)


def mixture_of(folder, *rows: dict) -> LogReader:
    (folder / "log.jsonl").write_text("".join(json.dumps({"y": 1, **row}) + "\n" for row in rows))
    reader = LogReader(ZIPS)
    assert not [reject for batch in reader.read(str(folder / "log.jsonl")) for reject in batch.rejects]
    return reader


@pytest.mark.parametrize(
    ("rows", "text", "line"),
    [
        ([{"zip": "x"}, {"zip": 2139}, {"zip": "02139"}], "02139", 3),
        ([{"zip": "5.50"}, {"zip": None}, {"zip": 5.5}], "5.50", 1),
        ([{"zips": ["a", "07"]}, {"zips": ["a", 7]}], "a|07", 1),
    ],
)
def test_a_number_beside_a_text_that_is_written_otherwise_is_refused(tmp_path, rows, text, line):
    with pytest.raises(
        InputError, match=rf"column zips? is a number, and the text '{text.replace('|', '.')}' in line {line}:"
    ):
        mixture_of(tmp_path, *rows).mixture().check()


def test_numbers_beside_texts_that_are_written_alike_and_texts_alone_are_read(tmp_path):
    mixture_of(tmp_path, {"zip": 2139}, {"zip": "2139"}, {"zip": "123.0"}, {"zip": "a02"}).mixture().check()
    mixture_of(tmp_path, {"zip": "02139"}, {"zip": "2139"}, {"zips": ["07"]}).mixture().check()
    mixture_of(tmp_path, {"zip": True}, {"zip": 1}, {"zip": "0"}, {"zip": "truth"}).mixture().check()
    mixture_of(tmp_path, {"zip": "true"}, {"zip": "False"}, {"zip": 1}).mixture().check()


@pytest.mark.parametrize("text", ["true", "True", "FALSE"])
def test_a_boolean_beside_the_text_of_one_is_refused(text, tmp_path):
    told = f"column zip is true or false, and the text '{text}' in line .*different categories; write all as texts"
    for rows in ([{"zip": True}, {"zip": text}], [{"zip": text}, {"zip": "a"}, {"zip": False}]):
        with pytest.raises(InputError, match=told):
            mixture_of(tmp_path, *rows).mixture().check()
    told = f"column zips is true or false, and the text '.*{text}.*' in line 2: equal values"
    for rows in ([{"zips": ["a", True]}, {"zips": ["a", text]}], [{"zips": [False]}, {"zips": f"a|{text}|b"}]):
        with pytest.raises(InputError, match=told):
            mixture_of(tmp_path, *rows).mixture().check()


@pytest.mark.parametrize("kept", ["uzer", "nothere"])
def test_a_column_to_carry_along_that_is_not_there_is_named_with_those_of_the_log(tmp_path, kept):
    (tmp_path / "log.csv").write_text("y,n,user\n1,$2,u1\n")
    with pytest.raises(InputError, match=rf"log.csv: --keep {kept}: no such column; it has y, n, user") as caught:
        plan([str(tmp_path / "log.csv")], spec(DOLLARS, format="csv"), labels=False, kept=["user", kept])
    assert ("did you mean user?" in str(caught.value)) == (kept == "uzer")
