"""Ids that a dict holds as numbers, as pandas makes of them, are the texts that a log has."""

import datetime
import decimal
import pathlib
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ctrpipe
from ctrpipe.serving.assets import GoldenRows
from ctrpipe.serving.client.columns import Column
from ctrpipe.serving.layout import Asset, asset_path
from tests.serving.small_servable import probability, save, spec

DAY = datetime.datetime(2026, 11, 1, 12)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ctrpipe.Model:
    return ctrpipe.load(save(tmp_path_factory.mktemp("models") / "ctr" / "1", spec()))


@pytest.mark.slow
@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("1", "0")])
def test_booleans_are_the_words_of_the_log(yes: str, no: str, tmp_path: pathlib.Path) -> None:
    """pandas writes booleans to CSV as True and False, and reads them as booleans again."""
    version = save(tmp_path / "ctr" / "1", spec(), explains=True)
    texts = np.array([no.encode(), b"", yes.encode()], object)
    rows = GoldenRows({"n": np.zeros(3, np.float32), "c": texts}, {}, np.zeros((3, 1), np.float32), None, 1e-6)
    rows.save(asset_path(version, Asset.GOLDEN))
    expected = [probability(1, yes), probability(2, no), probability(3, "")]
    for given in ([True, False, None], pa.array([True, False, None])):
        found = ctrpipe.load(version).predict({"n": [1.0, 2.0, 3.0], "c": given})["ctr"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    frame = pa.table({"n": [1.0, 2.0, 3.0], "c": [True, False, None]})
    scored = ctrpipe.score(version, frame).to_pandas()["ctr"]
    np.testing.assert_allclose(scored, expected, rtol=1e-5)
    explained = ctrpipe.explain(version, row={"n": 2.0, "c": False}, baseline="missing", method="shapley", orders=4)
    assert explained.probability == pytest.approx(expected[1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("of_log", [("True", "False"), ("1", "0")])
def test_a_file_with_booleans_has_the_scores_of_the_words_of_the_log(
    of_log: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    version = save(tmp_path / "ctr" / "1", spec())
    raw = {"n": np.zeros(2, np.float32), "c": np.array([of_log[0].encode(), b""], object)}
    GoldenRows(raw, {}, np.zeros((2, 1), np.float32), None, 1e-6).save(asset_path(version, Asset.GOLDEN))
    vocabulary = version / "assets" / "vocabulary_c"
    vocabulary.write_text("\n".join(of_log) + "\n")
    table = pa.table({"n": [1.0, 2.0, 3.0], "c": [True, False, None]})
    pq.write_table(table, tmp_path / "log.parquet")
    (tmp_path / "log.tsv").write_text("1\tTrue\n2\tfalse\n3\t\n")
    expected = [probability(1, of_log[0]), probability(2, of_log[1]), probability(3, "")]
    for log in ("log.parquet", "log.tsv"):
        scored = ctrpipe.score(version, str(tmp_path / log)).to_pandas()["ctr"]
        np.testing.assert_allclose(scored, expected, rtol=1e-5)
    numbers = {"n": [1.0, 2.0, 3.0], "c": [1, 0, None]}
    for given in (numbers, pa.table(numbers), numbers | {"c": ["1", "0", None]}):
        np.testing.assert_allclose(ctrpipe.load(version).predict(given)["ctr"], expected, rtol=1e-5)
    np.testing.assert_allclose(ctrpipe.score(version, pa.table(numbers)).to_pandas()["ctr"], expected, rtol=1e-5)
    vocabulary.write_text("true\nTRUE\n2\n")  # neither a column of 1 and 0, nor of one writing
    scored = ctrpipe.score(version, str(tmp_path / "log.tsv")).to_pandas()["ctr"]
    np.testing.assert_allclose(scored, [probability(1, "True"), probability(2, "false"), expected[2]], rtol=1e-5)


@pytest.mark.slow
def test_booleans_that_the_log_writes_in_several_ways_are_refused(tmp_path: pathlib.Path) -> None:
    version = save(tmp_path / "ctr" / "1", spec())
    raw = {"n": np.zeros(2, np.float32), "c": np.array([b"True", b"false"], object)}
    GoldenRows(raw, {}, np.zeros((2, 1), np.float32), None, 1e-6).save(asset_path(version, Asset.GOLDEN))
    with pytest.raises(
        ctrpipe.InputError, match="column 'c': booleans, and the model's log writes them in several ways"
    ):
        ctrpipe.load(version).predict({"n": [1.0], "c": [True]})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "numbers"), [("02139", [2139]), ("0.50", [0.5, None]), ("+7", [decimal.Decimal(7)]), ("12e3", [12e3])]
)
def test_numbers_are_refused_where_the_log_has_texts_that_no_number_becomes(
    code: str, numbers: list[float], tmp_path: pathlib.Path
) -> None:
    """pandas reads 02139 of a CSV file as 2139, which is another category."""
    version = save(tmp_path / "ctr" / "1", spec())
    raw = {"n": np.zeros(2, np.float32), "c": np.array([b"x", code.encode()], object)}
    GoldenRows(raw, {}, np.zeros((2, 1), np.float32), None, 1e-6).save(asset_path(version, Asset.GOLDEN))
    frame = pa.table({"n": [1.0] * len(numbers), "c": numbers})
    told = f"numbers, and the model's log has texts such as '{re.escape(code)}', which are other categories"
    with pytest.raises(ctrpipe.InputError, match=f"column 'c': {told}"):
        ctrpipe.load(version).predict(frame)
    with pytest.raises(ctrpipe.InputError, match=f"the DataFrame: column c: {told}"):
        ctrpipe.score(version, frame)
    pq.write_table(frame, tmp_path / "log.parquet")
    with pytest.raises(ctrpipe.InputError, match=f"log.parquet: column c: {told}"):
        ctrpipe.score(version, str(tmp_path / "log.parquet"))
    with pytest.raises(ctrpipe.InputError, match=f"column 'c': {told}"):
        ctrpipe.load(version).predict({"n": [1.0, 2.0], "c": [float(numbers[0]), "x"]})
    answer = ctrpipe.load(version).predict({"n": [1.0], "c": [code]})["ctr"]
    np.testing.assert_allclose(answer, [probability(1, code)], rtol=1e-5)


@pytest.mark.slow
def test_numbers_of_a_dict_are_the_texts_that_a_frame_has(model: ctrpipe.Model) -> None:
    cases: list[tuple[Column, list[str]]] = [
        ([123.0, 7.0], ["123", "7"]),
        ([123.0, None], ["123", ""]),
        ([float("nan"), 20018000054.0], ["", "20018000054"]),
        ([1, 22], ["1", "22"]),
        ([True, False], ["1", "0"]),
        ([0.1, 1e-5], ["0.1", "1e-05"]),
        (["a", 123.0], ["a", "123"]),
        ([4, "bb"], ["4", "bb"]),
        ([np.float64(5.0), np.int64(66)], ["5", "66"]),
        (np.array([123.0, np.nan]), ["123", ""]),
        (np.array([123.0, 4.0], np.float32), ["123", "4"]),
        (np.array([123, 4]), ["123", "4"]),
        (np.array([123.0, "x"], object), ["123", "x"]),
        (pa.array([123.0, None]), ["123", ""]),
        (pa.chunked_array([[1.0], [20.0]]), ["1", "20"]),
        ([DAY, DAY], ["2026-11-01 12:00:00"] * 2),
        ([decimal.Decimal("0.10"), decimal.Decimal("7.00")], ["0.1", "7"]),
        ([datetime.time(3), datetime.time(3, 0, 0, 500_000)], ["03:00:00", "03:00:00.5"]),
        (pa.array([DAY, None], pa.timestamp("ns")), ["2026-11-01 12:00:00", ""]),
        (pa.array([datetime.time(3), None], pa.time32("ms")), ["03:00:00", ""]),
        ([0.1234567891, "x"], ["0.1234567891", "x"]),
        (["a", None], ["a", ""]),
        ([None, None], ["", ""]),
    ]
    for values, texts in cases:
        found = model.predict({"n": [1.0, 2.0], "c": values})["ctr"]
        expected = [probability(number, text) for number, text in zip((1.0, 2.0), texts, strict=True)]
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=repr(values))
    rows = model.predict([{"n": 1, "c": 123.0}, {"n": 2, "c": "x"}, {"n": 3}])["ctr"]
    expected = [probability(1, "123"), probability(2, "x"), probability(3, "")]
    np.testing.assert_allclose(rows, expected, rtol=1e-5)
    for large in ([1e30, 1.0], [1e30, "x"], np.array([2.0**53 + 2, 1.0])):
        with pytest.raises(ctrpipe.InputError, match="the rows, row 0: c: .* is beyond 9,007,199,254,740,992"):
            model.predict({"n": [1.0, 2.0], "c": large})
    with pytest.raises(ctrpipe.InputError, match="column 'c'"):
        model.predict({"n": [1.0, 2.0], "c": [object(), "x"]})
