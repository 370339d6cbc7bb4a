"""The columns that a model should not have, in rows that are written out here."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.transforms.log.payload import PayloadWriter, payload_schema
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.suspects import constant_columns, spread_rows, suspects

ROWS = 3000
RANDOM = np.random.default_rng(5)
CLICK = RANDOM.random(ROWS) < 0.1
FREE = RANDOM.random(ROWS)


def texts(values, present=None) -> pa.Array:
    return pa.array(
        [str(value).encode() if present is None or present[row] else None for row, value in enumerate(values)]
    )


def numbers(values) -> pa.Array:
    return pa.array(np.asarray(values, np.float32))


def found(column: pa.Array, kind: str = "categorical", keys: dict | None = None, **data: object) -> list[str]:
    """Returns the findings about a column, in a log with one honest column."""
    longest = {"max_length": 3} if kind in ("multivalent", "sequence") else {}
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}, **data},
            "features": [
                {"kind": kind, "columns": ["x"], **longest, **(keys or {})},
                {"kind": "categorical", "columns": ["site"]},
            ],
        }
    )
    site = texts(np.where(RANDOM.random(ROWS) < np.where(CLICK, 0.6, 0.3), "a", "b"))
    columns = {"click": numbers(CLICK), "x": column, "site": site, "w": numbers(1 + np.round(FREE * 9))}
    return [f"{each.column}: {each.text}" for each in suspects(spec, pa.table(columns))]


ALONE = "x: its values alone give the label away"


@pytest.mark.parametrize(
    ("column", "kind", "text"),
    [
        (texts(CLICK.astype(int)), "categorical", ALONE),  # the label again
        (texts(RANDOM.integers(0, 4, ROWS), CLICK), "categorical", ALONE),  # case: the page after the click
        (texts(np.arange(ROWS), CLICK), "categorical", ALONE),  # an id that only clicks have
        (numbers(np.where(CLICK, 2.0, 0.5) + FREE), "numeric", ALONE),  # the price paid
        (numbers(np.where(CLICK, -3.0, 3.0) + RANDOM.normal(size=ROWS)), "numeric", ALONE),  # falls with the click
        (numbers(np.where(CLICK, np.nan, FREE)), "numeric", ALONE),  # missing for clicks
        (texts(np.where(CLICK & (FREE < 0.4), "bought", "no")), "categorical", "x: 'bought' is in "),
        (texts(np.arange(ROWS), CLICK & (FREE < 0.4)), "categorical", "x: it has a value in "),
        (numbers(np.where(CLICK & (FREE < 0.4), np.nan, FREE)), "numeric", "x: a missing value is in "),
    ],
)  # fmt: skip
def test_a_column_that_gives_the_label_away_is_named(column: pa.Array, kind: str, text: str) -> None:
    [line] = found(column, kind)
    assert line.startswith(text) and line.endswith("; is it known before the click?")


def test_of_mostly_positive_rows_the_value_of_the_others_is_named() -> None:
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [{"kind": "categorical", "columns": ["x"]}],
        }
    )
    table = pa.table({"click": numbers(~CLICK), "x": texts(np.where(CLICK & (FREE < 0.5), "cancelled", "ok"))})
    [line] = suspects(spec, table)
    assert line.text.startswith("'cancelled' is in ") and "of the rows without a click and in no other" in line.text


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (texts(np.where(CLICK, RANDOM.random(ROWS) < 0.9, RANDOM.random(ROWS) < 0.2)), "categorical"),  # a strong one
        (numbers(2.0 * CLICK + RANDOM.normal(size=ROWS)), "numeric"),
        (texts(RANDOM.integers(0, 1500, ROWS)), "categorical"),  # rare values, some with clicks alone
        (texts(np.where(FREE < 0.5, "never", RANDOM.integers(0, 9, ROWS))), "categorical"),
        (numbers(FREE), "numeric"),  # another number in each row, as prices are
        (numbers(np.full(ROWS, np.nan)), "numeric"),
        (texts(RANDOM.integers(0, 4, ROWS), FREE < 0.02), "categorical"),  # hardly ever there
    ],
)
def test_an_honest_column_is_not_named(column: pa.Array, kind: str) -> None:
    assert found(column, kind) == []


def test_few_clicks_say_nothing() -> None:
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [{"kind": "categorical", "columns": ["x"]}],
        }
    )
    click = np.arange(400) < 20
    assert not list(suspects(spec, pa.table({"click": numbers(click), "x": texts(click)})))


def test_an_id_of_the_row_and_the_weight_are_named() -> None:
    for column, kind in ((texts(np.arange(ROWS) * 7919), "categorical"), (numbers(np.arange(ROWS)), "numeric")):
        [line] = found(column, kind)
        assert line.startswith("x: another value in each of 3,000 rows")
    assert found(numbers(1 + np.round(FREE * 9)), "numeric", weight="w") == ["x: its values are those of the weight, w"]
    same = texts((1 + np.round(FREE * 9)).astype(int))
    assert found(same, weight="w") == ["x: its values are those of the weight, w"]


@pytest.mark.parametrize(("heaviest", "told"), [(1e4, "77%"), (1e9, "100%"), (1e3, "")])
def test_a_row_with_most_of_the_weight_is_named(heaviest: float, told: str) -> None:
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}, "weight": "w"}
    spec = LogSpec.model_validate({"data": data, "features": [{"kind": "categorical", "columns": ["site"]}]})
    weights = np.where(np.arange(ROWS) == 7, heaviest, 1.0)
    columns = {"click": numbers(CLICK), "site": texts(np.where(FREE < 0.5, "a", "b")), "w": numbers(weights)}
    lines = [f"{each.column}: {each.text}" for each in suspects(spec, pa.table(columns))]
    assert [line[: line.index(" of their")] for line in lines] == [f"w: one of 3,000 rows has {told}"] * bool(told)


def test_a_column_with_one_value_in_a_split_is_named_unless_by_chance() -> None:
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [
                {"kind": "categorical", "columns": ["day", "most", "one"]},
                {"kind": "numeric", "columns": ["n"]},
            ],
        }
    )

    def table(days, most, number) -> pa.Table:
        count = len(days)
        return pa.table({"day": texts(days), "most": texts(most), "one": texts(["x"] * count), "n": numbers(number)})

    most = np.where(np.arange(2000) % 500 == 0, "b", "a")
    rows = {
        "train": table(np.arange(2000) % 5, most, np.arange(2000)),
        "validation": table(np.full(400, 5), most[1:401], np.full(400, 3.0)),
        "test": table(np.arange(400) % 2, most[1:401], np.arange(400)),
    }
    lines = [(each.column, each.split, each.text) for each in constant_columns(spec, rows)]
    assert lines == [
        ("day", "validation", "one value in all rows, '5', which 0% of the training rows have"),
        ("n", "validation", "one value in all rows, 3, which 0% of the training rows have"),
    ]


def test_a_column_that_is_missing_in_all_rows_of_a_split_is_named_unless_by_chance() -> None:
    features = [{"kind": "categorical", "columns": ["gone", "rare"]}, {"kind": "numeric", "columns": ["n"]}]
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}}
    spec = LogSpec.model_validate({"data": data, "features": features})

    def table(has: bool) -> pa.Table:
        rare = pa.array([None if row % 500 else b"a" for row in range(2000)], pa.binary())
        none = pa.nulls(2000, pa.binary())
        if has:
            return pa.table({"gone": texts(["a"] * 2000), "rare": rare, "n": numbers(np.arange(2000))})
        return pa.table({"gone": none, "rare": none, "n": pa.nulls(2000, pa.float32())})

    rows = {"train": table(True), "validation": table(True), "test": table(False).slice(0, 400)}
    lines = [(each.column, each.split, each.text) for each in constant_columns(spec, rows)]
    text = "missing in all rows, as in 0% of the training rows"
    assert lines == [("gone", "test", text), ("n", "test", text)]


def test_rows_are_spread_over_all_files(tmp_path: pathlib.Path) -> None:
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [{"kind": "numeric", "columns": ["x"]}],
        }
    )
    schema = payload_schema(spec)
    for part in range(3):
        with PayloadWriter(tmp_path, f"part-{part}", schema) as writer:
            values = np.arange(20_000) + part * 20_000
            writer.write(pa.record_batch({"x": numbers(values), "click": numbers(values % 2)}, schema=schema))
    files = sorted(tmp_path.glob("*.parquet"))
    assert spread_rows(files, 100_000)["x"].to_numpy().tolist() == list(range(60_000))
    rows = spread_rows(files, 20_000)
    assert rows.get_total_buffer_size() <= 1.1 * rows.nbytes  # not the row groups that they were read from
    some = rows["x"].to_numpy()
    assert 15_000 <= len(some) <= 25_000 and len(set(some)) == len(some)
    assert np.histogram(some, 3, (0, 60_000))[0].min() > 4000


def test_the_last_rows_of_one_hour_are_no_finding_where_the_column_is_a_time() -> None:
    moments = {"train": np.arange(600), "validation": np.full(400, 700), "test": np.full(400, 701)}
    hours = {
        split: [f"2026-11-{1 + hour // 24 % 28:02} {hour % 24:02}:00" for hour in each]
        for split, each in moments.items()
    }
    for kind, splits in (("time", []), ("categorical", ["validation", "test"])):
        spec = LogSpec.model_validate(
            {
                "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
                "features": [{"kind": kind, "columns": ["hour"]}],
            }
        )
        rows = {split: pa.table({"hour": texts(each)}) for split, each in hours.items()}
        assert [each.split for each in constant_columns(spec, rows)] == splits


def lists(element) -> pa.Array:
    """Lists of three elements, each of a topic 0..39 and a number in [0, 1)."""
    topics, weights = RANDOM.integers(0, 40, (ROWS, 3)), RANDOM.random((ROWS, 3))
    return texts(
        ["|".join(element(*pair) for pair in zip(*row, strict=True)) for row in zip(topics, weights, strict=True)]
    )


@pytest.mark.parametrize(
    "element",
    [lambda topic, weight: f"t{topic}:{weight:.2f}", lambda topic, weight: f"t{topic}={weight:.1e}"],
)
@pytest.mark.parametrize("kind", ["multivalent", "sequence"])
def test_elements_with_weights_are_named(element, kind: str) -> None:
    [line] = found(lists(element), kind)
    assert line.startswith("x: its elements seem to have weights, as 't0") and "each pair counts as a value" in line


@pytest.mark.parametrize(
    "element",
    [
        lambda topic, _: f"t{topic}",
        lambda topic, weight: f"{topic:02d}:{weight * 60:02.0f}",  # a time of the day
        lambda topic, weight: f"shop:{topic}",  # a value with the name of its space
        lambda topic, weight: f"{topic}.5",
        lambda topic, weight: f"t{topic}:{weight:.2f}" if topic < 20 else f"t{topic}",
    ],
)
def test_elements_with_a_colon_are_no_weights(element) -> None:
    assert found(lists(element), "multivalent") == []


HEAVY = np.exp(RANDOM.normal(scale=2, size=ROWS))  # as prices are, the largest a thousand times the median
SENTINEL = np.where(np.arange(ROWS) % 300 == 0, 1e38, 10 * FREE)


@pytest.mark.parametrize("transform", ["standardize", "min_max"])
@pytest.mark.parametrize("extreme", [1e38, -1e9, 5e4])
def test_extreme_numbers_that_make_the_others_alike_are_named(transform: str, extreme: float) -> None:
    [text] = found(numbers(np.where(SENTINEL == 1e38, extreme, SENTINEL)), "numeric", {"transform": transform})
    what = "standard deviation" if transform == "standardize" else "range"
    assert text.startswith(f"x: its {what} is ") and "99% of its values lie between 0" in text
    assert f"extreme values such as {extreme:g} make all others alike; name them in missing_values" in text


@pytest.mark.parametrize(
    ("column", "transform"),
    [
        (SENTINEL, "quantile_normalize"),
        (SENTINEL, "log_bucketize"),
        (HEAVY, "standardize"),
        (HEAVY, "min_max"),
        (np.where(np.arange(ROWS) % 500 == 0, 7.0, 0.0), "standardize"),  # nearly all zero: nothing is lost
    ],
)
def test_numbers_whose_transform_keeps_them_apart_are_not(column: np.ndarray, transform: str) -> None:
    assert found(numbers(column), "numeric", {"transform": transform}) == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (FREE.round(2).astype(np.float32).astype(np.float64), "0."),  # float32 made wider, as a CSV has it
        (FREE.round(2) / 3, "in 32 and in 64 bits"),
        ((FREE.round(2) / 3).astype(np.float32), "in 32 and in 64 bits"),
    ],
)
def test_fractions_with_many_digits_as_categories_are_named(values: np.ndarray, told: str) -> None:
    [line] = found(texts(list(map(str, values))), "categorical")
    assert line.startswith("x: numbers with many digits, as 0.") and f"are categories, and {told}" in line
    assert line.endswith("; make the column numeric, or round it in the log and in requests")


@pytest.mark.parametrize("values", [FREE.round(2), [f"{number:.1f}.{number * 9:.0f}" for number in FREE]])
def test_short_fractions_and_versions_are_no_finding(values) -> None:
    assert found(texts(list(map(str, values))), "categorical") == []


@pytest.mark.parametrize(
    ("spelt", "way"),
    [
        (("Rome", "Rome "), "in blanks or invisible signs alone"),
        (("New York", "New\u00a0York"), "in blanks or invisible signs alone"),
        (("Rome", "\0Rome"), "in blanks or invisible signs alone"),
        (("Caf\u00e9", "Cafe\u0301"), "how Unicode composes an accent"),
        (("iOS", "ios"), "upper and lower case alone"),
        (("R&amp;B", "R&B"), "the entities of HTML alone"),
        (("Caf\u00c3\u00a9", "Caf\u00e9"), "an encoding that was read as another one alone"),
        (("\uff32ome", "Rome"), "the width or form of a sign alone"),
    ],
)
def test_two_categories_that_look_alike_are_said(spelt, way):
    column = texts(np.where(FREE < 0.2, spelt[0], np.where(FREE < 0.3, spelt[1], "other")))
    [text] = found(column)
    shown = ascii if "Unicode" in way else repr
    assert text.startswith(f"x: {shown(spelt[0])} and {shown(spelt[1])}, in ") and way in text


@pytest.mark.parametrize("spelt", [("a1", "A1"), ("cafe", "caf\u00e9"), ("x-1", "x 1"), ("AB", "ab"), ("R&B", "R&&B")])
def test_codes_and_other_words_do_not_look_alike(spelt):
    assert found(texts(np.where(FREE < 0.2, spelt[0], np.where(FREE < 0.3, spelt[1], "other")))) == []


@pytest.mark.parametrize(("share", "weight", "is_said"), [(0.01, "", True), (0.2, "", False), (0.01, "w", False)])
def test_a_label_that_is_a_rate_in_a_few_rows_is_said(share, weight, is_said):
    """In many rows, or with their impressions as weights, it is meant."""
    labels = {"ctr": "click"}
    data = {"format": "csv", "header": True, "labels": labels, **({"weight": weight} if weight else {})}
    features = [{"kind": "categorical", "columns": ["x"]}]
    spec = LogSpec.model_validate({"data": data, "features": features})
    clicks = np.where(np.arange(ROWS) < share * ROWS, 0.25, CLICK)
    rows = pa.table({"click": numbers(clicks), "x": texts(np.where(FREE < 0.5, "a", "b")), "w": numbers(FREE + 1)})
    texts_found = [each.text for each in suspects(spec, rows) if each.column == "click"]
    assert [text.partition(" of the rows")[0] for text in texts_found] == (
        ["the label is a rate, such as 0.25, in 1.00%"] if is_said else []
    )


def test_a_rare_spelling_is_not_said():
    assert found(texts(np.where(np.arange(ROWS) < 8, "Rome ", np.where(FREE < 0.5, "Rome", "other")))) == []


def test_rare_twins_are_said_together() -> None:
    """Each of 400 postcodes is in 0.25% of the rows, and half of the rows lack its zeros."""
    codes = RANDOM.integers(0, 400, ROWS)
    written = [f"{code:05d}" if row % 2 else str(code) for row, code in enumerate(codes)]
    [text] = found(texts(written))
    assert "differ in leading zeros alone" in text and "more like them" in text
    assert not found(texts([f"{code:05d}" for code in codes])) and not found(texts(["007", "07x", "7y"] * 1000))


def test_the_label_with_noise_is_named() -> None:
    noisy = CLICK ^ (RANDOM.random(ROWS) < 0.03)
    assert found(texts(noisy.astype(int)))[0].startswith(ALONE)


def test_rounded_ids_and_words_beside_missing_values_are_named() -> None:
    ids = [f"1.{row % 50:02d}E+11" for row in range(ROWS)]
    assert "as 1.00E+11, in 100.0% of the rows" in found(texts(ids))[0]
    words = np.array(["a", "b", "NULL", r"\N"])[RANDOM.integers(0, 4, ROWS)]
    [text] = found(texts(words))
    assert "data.missing_values" in text and ("'NULL'" in text or r"'\\N'" in text)
    assert found(texts(np.where(words == "NULL", "NULL", "a"), words != "b"))
    assert not found(texts(np.where(words == "NULL", "NULL", "a")))  # one way alone may be a value


def test_an_expression_without_numbers_is_named() -> None:
    derived = {"e": {"kind": "expression", "of": "x / zero"}}
    features = [{"kind": "numeric", "columns": ["x", "e"], "transform": "standardize"}]
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}}
    spec = LogSpec.model_validate({"data": data, "features": features, "derived": derived})
    for share, told in ((0.9, True), (0.3, False)):
        zero = np.where(FREE < share, 0, 1)
        rows = pa.table({"click": numbers(CLICK), "x": numbers(1 + FREE), "zero": numbers(zero)})
        texts_found = [each.text for each in suspects(spec, rows) if each.column == "e"]
        assert [text.startswith("x / zero has no finite number in 90%") for text in texts_found] == [True] * told


def test_a_lookup_and_a_pretrained_table_without_a_match_are_named(tmp_path: pathlib.Path) -> None:
    pa.parquet.write_table(pa.table({"id": ["a", "b"], "v": [[1.0], [2.0]]}), tmp_path / "v.parquet")
    table = {"path": str(tmp_path / "v.parquet"), "length": 1, "key": "id", "vector": "v"}
    spec = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
            "features": [
                {"kind": "categorical", "columns": ["ad"], "pretrained": table},
                {"kind": "numeric", "columns": ["liked"]},
            ],
            "derived": {"liked": {"kind": "lookup", "key": "topic", "map": "likes"}},
        }
    )
    topics = texts(RANDOM.integers(0, 4, ROWS))
    for prefix, told in (("x", True), ("", False)):
        likes = [f"{prefix}{row % 4}:.5|{prefix}9:2" for row in range(ROWS)]
        ads = np.array([f"{prefix}a", f"{prefix}c"])[RANDOM.integers(0, 2, ROWS)]
        rows = pa.table({"click": numbers(CLICK), "ad": texts(ads), "topic": topics, "likes": texts(likes)})
        said = {each.column: each.text for each in suspects(spec, rows) if "written alike" in each.text}
        assert set(said) == ({"ad", "liked"} if told else set())
        if told:
            assert said["liked"].startswith(f"no likes of {ROWS:,} rows has the row's topic, as 'x0:.5|x9:2' lacks '")
            assert said["ad"].endswith("has none and 'a' has one: are the keys written alike?")


def test_a_label_of_numbers_with_an_extreme_one_or_of_one_number_is_named() -> None:
    data = {"format": "csv", "header": True, "labels": {"ctr": "click", "time": {"column": "t", "predicts": "mean"}}}
    spec = LogSpec.model_validate({"data": data, "features": [{"kind": "numeric", "columns": ["x"]}]})
    extreme = np.where(np.arange(ROWS) == 7, 1e9, FREE)
    for label, said in ((extreme, "one is 1e+09"), (FREE * 0 + 3, "the label is 3 in all of 3,000 rows"), (FREE, "")):
        rows = pa.table({"click": numbers(CLICK), "t": numbers(label), "x": numbers(RANDOM.random(ROWS))})
        texts_found = [each.text for each in suspects(spec, rows) if each.column == "t"]
        assert [said in text for text in texts_found] == [True] * bool(said)


def test_times_before_1970_are_no_click_rates_and_raise_no_warning() -> None:
    numbers_of_days = -86_400 * RANDOM.integers(1, 400, ROWS)
    with np.errstate(over="raise"):
        assert found(numbers(numbers_of_days), "numeric") == []


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("{}.85;2.{}5", "x: two numbers in one column, such as a place, as "),
        ("({}.5, -0.{})", "x: two numbers in one column"),
        ('{{"a": {}, "b": {}}}', "x: objects, as {"),
        ("{{'a': {}, 'b': {}}}", "x: objects, as {"),
        ("v{}.85;2.{}5", ""),
        ("{{{}}}{}", ""),
        ("{}.{}", ""),
    ],
)
def test_categories_that_are_composed_of_several_values_are_named(form: str, told: str) -> None:
    column = texts([form.format(row % 7, row % 5) for row in range(ROWS)])
    named = [text for text in found(column) if "read as categories" in text]
    assert [text.startswith(told) for text in named] == ([True] if told else [])


@pytest.mark.parametrize("kind", ["numeric", "categorical"])
@pytest.mark.parametrize(
    ("name", "falls", "is_said"),
    [("pos", True, True), ("ad_rank", True, True), ("pos", False, False), ("price", True, False)],
)
def test_the_place_of_an_impression_is_named(kind: str, name: str, falls: bool, is_said: bool) -> None:
    place = RANDOM.integers(1, 11, ROWS)
    clicks = RANDOM.random(ROWS) < (0.5 / place if falls else 0.2)
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}}
    feature = {"kind": kind, "columns": [name]}
    rows = pa.table({"click": numbers(clicks), name: texts(place) if kind == "categorical" else numbers(place)})
    said = [each.text for each in suspects(LogSpec.model_validate({"data": data, "features": [feature]}), rows)]
    assert ["as the place of an impression" in text for text in said] == [True] * is_said
    placed = LogSpec.model_validate({"data": data, "features": [feature | {"role": "position"}]})
    assert not list(suspects(placed, rows))
