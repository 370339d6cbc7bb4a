"""Rows of another format have the texts of the log of the model that takes them, or are refused."""

import json
import pathlib
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.formats.registry import FORMATS
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"format": "parquet", "labels": {"ctr": "y"}},
        "features": [
            {"kind": "categorical", "columns": ["c"]},
            {"kind": "categorical", "columns": ["hashed"], "transform": "hash", "buckets": 8},
            {"kind": "multivalent", "columns": ["tags"], "max_length": 3},
            {"kind": "sequence", "columns": ["seen"], "max_length": 3, "shared_with": "c"},
            {"kind": "numeric", "columns": ["n"]},
        ],
    }
)


def of_format(kind: str) -> LogSpec:
    return SPEC.model_copy(update={"data": SPEC.data.model_copy(update={"format": kind})})


def own(rows: dict[str, Sequence[bytes]] | None = None, **vocabularies: Sequence[bytes]) -> OwnValues:
    """The values of a log, given a few rows, and the vocabularies of its columns."""
    return OwnValues(
        SPEC, rows or {}, lambda name: pa.array(vocabularies[name], pa.binary()) if name in vocabularies else None
    )


def of(values: OwnValues, column: str, *texts: str, numbers: bool = True, truths: bool = False) -> list[str]:
    given = pa.array([text.encode() for text in texts], pa.binary())
    return [text.decode() for text in values.of_array(column, given, "here", numbers, truths).to_pylist()]


@pytest.mark.parametrize(
    ("known", "number"),
    [
        ("02139", "2139"),
        ("0.50", "0.5"),
        ("12e3", "12000"),
        ("+7", "7"),
        (".5", "0.5"),
        ("-0.50", "-0.5"),
        ("000000000000000000001234567890123456789", "1234567890123456789"),
        ("007.0", "7"),
    ],
)
def test_a_number_is_refused_whose_text_of_the_log_is_another(known: str, number: str) -> None:
    values = own(c=[b"10001", b"x", known.encode()])
    for column in ("c", "seen"):
        with pytest.raises(
            InputError, match=rf"here: numbers, and the model's log has texts such as '{re.escape(known)}'"
        ):
            of(values, column, "10001", number)
    assert of(values, "c", "10001", "99") == ["10001", "99"]  # known, and unknown by any text
    assert of(values, "c", number, numbers=False) == [number]  # a text is what it is


def test_a_number_that_the_log_has_in_two_ways_is_its_own() -> None:
    assert of(own(c=[b"02139", b"2139"]), "c", "2139") == ["2139"]


def test_without_a_vocabulary_every_number_is_refused_beside_codes() -> None:
    values = own({"hashed": [b"10001", b"02139"]})
    with pytest.raises(InputError, match="texts such as '02139'"):
        of(values, "hashed", "10001")
    assert of(own({"hashed": [b"10001"]}), "hashed", "2139") == ["2139"]


def test_elements_of_lists_are_compared_and_written_one_by_one() -> None:
    rows = {"tags": [b"True|x", b"", b"02139"]}
    values = own(rows, tags=[b"True", b"False", b"x", b"02139"])
    assert of(values, "tags", "1|x|0", "true", "", numbers=False, truths=True) == ["True|x|False", "True", ""]
    with pytest.raises(InputError, match="here: numbers, and the model's log has texts such as '02139'"):
        of(values, "tags", "7|2139")


def test_booleans_of_a_log_with_several_writings_are_refused_and_its_texts_stay() -> None:
    for known in ([b"True", b"false"], [b"True", b"1", b"0"]):
        values = own({"c": known[:1]}, c=known)
        assert of(values, "c", "TRUE", "1", numbers=False) == ["TRUE", "1"]
        with pytest.raises(InputError, match="here: booleans, and the model's log writes them in several ways"):
            of(values, "c", "1", numbers=False, truths=True)
    rare = own({"c": [b""]}, c=[b"yes", b"TRUE"])  # the few rows have none
    assert of(rare, "c", "1", "0", truths=True) == ["TRUE", "FALSE"]
    assert of(own(c=[b"0", b"1", b"2"]), "c", "1", truths=True) == ["1"]


def test_booleans_are_refused_where_the_words_of_a_log_of_text_are_not_known() -> None:
    for kind in FORMATS:
        behind_a_url = OwnValues(of_format(kind), {}, has_log=False)
        assert of(behind_a_url, "c", "1", "2139") == ["1", "2139"]
        if kind in ("tsv", "csv"):
            with pytest.raises(InputError, match="here: booleans, and only the files of the model say how its log"):
                of(behind_a_url, "c", "1", truths=True)
        else:
            assert of(behind_a_url, "c", "1", truths=True) == ["1"]


def written(folder: pathlib.Path, kind: str, rows: list[dict[str, object]]) -> str:
    path = folder / f"log.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "json"])
def test_files_of_each_format_with_types_have_the_logs_own_texts(kind: str, tmp_path: pathlib.Path) -> None:
    spec = of_format(kind)
    known = own({"c": [b"True"], "tags": [b"no|FALSE"]}, c=[b"True", b"02139"], tags=[b"TRUE", b"FALSE", b"no"])
    row = {"c": True, "hashed": "h", "tags": [True, False], "seen": ["a"], "n": 1.5}
    reader = LogReader(spec, labels=False, own=known)
    [batch] = reader.read(written(tmp_path, kind, [row]))
    assert batch.rows.to_pylist() == [
        {"c": b"True", "hashed": b"h", "tags": b"TRUE|FALSE", "seen": b"a", "n": 1.5},
    ]
    for column, value in (("c", 2139), ("seen", [2139]), ("c", 2139.0)):
        path = written(tmp_path, kind, [row | {column: value}])
        with pytest.raises(InputError, match=rf"log.{kind}: column {column}: numbers, and the model's log has texts"):
            list(LogReader(spec, labels=False, own=known).read(path))
        assert list(LogReader(spec, labels=False).read(path))  # the log itself
