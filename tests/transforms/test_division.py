"""The division of a log into training, validation and test rows, whatever decides it."""

import datetime
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log import group_sample
from ctrpipe.transforms.log.division import placed_files
from ctrpipe.transforms.log.ingest import described_splits, ingest
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS, Split
from ctrpipe.transforms.log.split_counts import count_splits

HERE = Workers(processes=1)
FIRST = datetime.datetime(2026, 5, 1)


def spec_of(split, when="categorical", **data) -> LogSpec:
    """A log of the columns click, row and when."""
    features = [{"kind": "categorical", "columns": ["row"]}, {"kind": when, "columns": ["when"]}]
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}, "split": split, **data}
    return LogSpec.model_validate({"data": data, "features": features if when else features[:1]})


def write(path, whens) -> str:
    rows = (f"{row % 2},r{row},{when}" for row, when in enumerate(whens))
    path.write_text("\n".join(["click,row,when", *rows]) + "\n")
    return str(path)


def parquet(path, whens) -> str:
    rows = range(len(whens))
    table = pa.table({"click": [row % 2 for row in rows], "row": [f"r{row}" for row in rows], "when": whens})
    pa.parquet.write_table(table, path)
    return str(path)


def divided(tmp_path, spec, *files):
    """The numbers of the rows of each split, and the result of the ingestion."""
    folders = {name: tmp_path / "splits" / name for name in SPLITS}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    result = ingest(spec, list(files), spec.data.split.seed, folders, tmp_path / "dead", HERE)
    rows = {
        name: [int(row[1:]) for batch in read_payload(payload_files(folder)) for row in batch["row"].to_pylist()]
        for name, folder in folders.items()
    }
    assert {name: len(found) for name, found in rows.items()} == result.rows == count_splits(spec, list(files)).rows
    return rows, result


DAYS = [row % 30 + 1 for row in range(120)]  # days 1 to 30, four rows each, in no order of time
BY_DAY = {"by": "time", "column": "when", "validation_from": "9", "test_from": "28"}


def expected(first, second) -> dict[str, list[int]]:
    """The rows before a day, between two days, and from the second on."""
    bounds = [0, first, second, 99]
    return {
        name: [row for row, day in enumerate(DAYS) if bounds[place] <= day < bounds[place + 1]]
        for place, name in enumerate(SPLITS)
    }


def of_day(day: int, form: str):
    moment = FIRST + datetime.timedelta(days=day - 1, hours=1)
    epoch = int((moment - datetime.datetime(1970, 1, 1)).total_seconds())
    return {
        "date": f"{moment:%Y-%m-%d}",
        "T": f"{moment:%Y-%m-%dT%H:%M:%S}",
        "zone": f"{moment + datetime.timedelta(hours=5, minutes=30):%Y-%m-%d %H:%M}+05:30",
        "s": epoch,
        "ms": epoch * 10**3,
        "us": epoch * 10**6,
        "ns": epoch * 10**9,
    }[form]


@pytest.mark.parametrize("when", ["categorical", "numeric", None])
def test_days_are_compared_as_numbers(tmp_path, when):
    rows, result = divided(tmp_path, spec_of(BY_DAY, when), write(tmp_path / "log.csv", DAYS))
    assert rows == expected(9, 28)
    assert result.spans == {"train": ["1", "8"], "validation": ["9", "27"], "test": ["28", "30"]}
    assert list(described_splits(Split(**BY_DAY), result))[2] == "Split by time: test 12 rows, 28 to 30"


@pytest.mark.parametrize("form", ["date", "T", "zone", "s", "ms", "us", "ns"])
def test_dates_and_moments_are_compared_as_moments(tmp_path, form):
    split = {"by": "time", "column": "when", "validation_from": "2026-05-09", "test_from": "2026-05-28T00:00Z"}
    rows, result = divided(tmp_path, spec_of(split), write(tmp_path / "log.csv", [of_day(d, form) for d in DAYS]))
    assert rows == expected(9, 28)
    assert [end[:10] for end in result.spans["test"]] == ["2026-05-28", "2026-05-30"]


@pytest.mark.parametrize(
    "kind",
    [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "Asia/Tokyo"), pa.int64()],
    ids=str,
)
def test_types_of_parquet_are_compared_as_moments(tmp_path, kind):
    moments = [FIRST + datetime.timedelta(days=day - 1, hours=1) for day in DAYS]
    if kind == pa.int64():
        values = pa.array([of_day(day, "ms") for day in DAYS])
    elif pa.types.is_date(kind):
        values = pa.array([moment.date() for moment in moments], kind)
    else:
        values = pa.array([moment.replace(tzinfo=datetime.UTC) if kind.tz else moment for moment in moments], kind)
    split = {"by": "time", "column": "when", "validation_from": "2026-05-09", "test_from": "2026-05-28"}
    file = parquet(tmp_path / "log.parquet", values)
    for when in [None, "numeric"] if kind == pa.int64() else [None]:
        rows, _ = divided(tmp_path, spec_of(split, when, format="parquet"), file)
        assert rows == expected(9, 28)


def test_the_last_days_are_whole_days_and_hours_reach_to_the_newest_row(tmp_path):
    split = {"by": "time", "column": "when", "last": "3d"}
    rows, _ = divided(tmp_path, spec_of(split), write(tmp_path / "log.csv", [of_day(d, "date") for d in DAYS]))
    assert rows == expected(25, 28)  # three dates of test rows, and three of validation rows
    hours = [f"2026-05-01T{row // 4:02d}:{row % 4 * 15:02d}" for row in range(96)]
    rows, result = divided(tmp_path, spec_of({**split, "last": "1h"}), write(tmp_path / "log.csv", hours))
    assert rows["test"] == [92, 93, 94, 95] and rows["validation"] == [88, 89, 90, 91]
    assert result.spans["test"] == ["2026-05-01T23:00:00", "2026-05-01T23:45:00"]


@pytest.mark.parametrize("form", ["number", "date", "ms"])
def test_shares_are_of_the_time_and_not_of_the_rows(tmp_path, form):
    split = {"by": "time", "column": "when", "validation": 0.2, "test": 0.1}
    whens = DAYS if form == "number" else [of_day(day, form) for day in DAYS]
    rows, _ = divided(tmp_path, spec_of(split), write(tmp_path / "log.csv", [*whens, *whens[:5] * 30]))
    # 29 days lie between the first and the last: the last 2.9 are the test rows, the 5.8 before them validation rows.
    assert {name: found for name, found in rows.items() if name != "train"} == {
        name: found for name, found in expected(22, 28).items() if name != "train"
    }


def test_texts_are_compared_only_where_it_is_said(tmp_path):
    parts = [("1_train", "2_validation", "3_test")[row % 3] for row in range(60)]
    named = {"by": "time", "column": "when", "validation_from": "2_validation", "test_from": "3_test"}
    rows, _ = divided(tmp_path, spec_of({**named, "compare_as": "text"}), write(tmp_path / "log.csv", parts))
    assert rows["test"] == list(range(2, 60, 3))
    with pytest.raises(ValueError, match=r"'2_validation' is not a number, a date or a moment; .*compare_as: text"):
        spec_of(named)


@pytest.mark.parametrize(
    ("whens", "split", "message"),
    [
        (
            DAYS,
            {"validation_from": "2026-05-09", "test_from": "2026-05-28"},
            r"'2026-05-09' is a date or moment, which",
        ),
        ([of_day(d, "date") for d in DAYS], {"validation_from": "9", "test_from": "28"}, r"'9' is a number, which"),
        (["mon", "tue"] * 60, {"validation_from": "9", "test_from": "28"}, r"values as 'mon', which are not numbers"),
        (DAYS, {"last": "2d"}, r"last needs dates or moments, and when has numbers as 1"),
        ([2026050112] * 120, {"last": "2d"}, r"last needs dates or moments, and when has numbers as 2026050112"),
        ([20260430, 20260501] * 60, {"validation": 0.1, "test": 0.1}, r"look like dates, .*time_format: '%Y%m%d', or"),
        (
            [2026050112, 2026050113] * 60,
            {"validation": 0.1, "test": 0.1},
            r"set time_format: '%Y%m%d%H', or compare_as",
        ),
        ([""] * 120, {"last": "2d"}, r"when has no value in the first rows"),
    ],
)
def test_a_boundary_of_another_type_is_said_before_the_log_is_read(tmp_path, monkeypatch, whens, split, message):
    monkeypatch.setattr("ctrpipe.transforms.log.ingest._IngestRange", lambda *a: pytest.fail("the log is read"))
    spec = spec_of({"by": "time", "column": "when", **split})
    with pytest.raises(InputError, match=re.escape("data.split: ") + ".*" + message):
        divided(tmp_path, spec, write(tmp_path / "log.csv", whens))


@pytest.mark.parametrize(
    ("whens", "bad", "split"),
    [
        (DAYS, "2026-05-09", BY_DAY),
        (
            [of_day(d, "date") for d in DAYS],
            "25",
            {**BY_DAY, "validation_from": "2026-05-09", "test_from": "2026-05-28"},
        ),
        ([of_day(d, "ms") for d in DAYS], "2026-05-09", {"by": "time", "column": "when", "last": "2d"}),
    ],
)
def test_a_mixture_of_kinds_is_an_error_with_its_line(tmp_path, whens, bad, split):
    file = write(tmp_path / "log.csv", [*whens[:70], bad, *whens[70:]])
    with pytest.raises(InputError, match=rf"{file}: line 72: when: '{bad}' is among (numbers|dates|epochs)"):
        divided(tmp_path, spec_of(split), file)


@pytest.mark.parametrize("split", [{"last": "3d"}, {"validation": 0.1, "test": 0.1}])
def test_many_parts_and_processes_divide_as_one(tmp_path, monkeypatch, split):
    spec = spec_of({"by": "time", "column": "when", **split})
    files = [write(tmp_path / f"{n}.csv", [of_day(d, "T") for d in DAYS[n::2]]) for n in (0, 1)]
    whole, result = divided(tmp_path, spec, *files)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 300)
    assert divided(tmp_path, spec, *files) == (whole, result)


def test_missing_and_unreadable_times_are_dead_letters(tmp_path):
    whens = [*DAYS, "", "soon", "NA"]
    rows, result = divided(tmp_path, spec_of(BY_DAY, max_bad_row_rate=0.1), write(tmp_path / "log.csv", whens))
    assert rows == expected(9, 28) and result.rejected == 3
    assert result.reasons == {"when: there is no time to split by": 2, "when: is no time to split by": 1}
    letters = [json.loads(line) for line in (tmp_path / "dead" / "rejects.jsonl").read_text().splitlines()]
    assert [letter["line"] for letter in letters] == [122, 123, 124]


def test_no_group_is_in_two_splits_and_the_shares_are_of_groups(tmp_path):
    random = np.random.default_rng(3)
    users = [f"u{user}" for user in random.zipf(1.3, 4000) % 1000]
    log = write(tmp_path / "log.csv", users)
    split = {"by": "group", "column": "when", "validation": 0.2, "test": 0.3}
    rows, _ = divided(tmp_path, spec_of(split), log)
    of_split = {name: {users[row] for row in found} for name, found in rows.items()}
    assert sum(map(len, of_split.values())) == len(set(users))
    assert abs(len(of_split["test"]) / len(set(users)) - 0.3) < 0.06
    assert divided(tmp_path, spec_of({**split, "seed": 2}), log)[0] != rows
    # The same ids as whole floats are the same groups, and rows without an id are spread by chance.
    numbers = [int(user[1:]) for user in users]
    text, _ = divided(tmp_path, spec_of(split), write(tmp_path / "a.csv", numbers))
    floats, _ = divided(tmp_path, spec_of(split), write(tmp_path / "b.csv", [f"{number}.0" for number in numbers]))
    assert text == floats
    without, _ = divided(tmp_path, spec_of(split), write(tmp_path / "c.csv", [*range(100), *[""] * 900]))
    assert 0.2 < np.mean(np.array(without["test"]) >= 100) and len([r for r in without["test"] if r >= 100]) > 200


@pytest.mark.parametrize(("far", "told"), [("9999-12-31", ["7,97"]), ("1970-01-01", ["56"]), ("2026-05-03", [])])
def test_times_of_a_split_that_stand_for_never_are_named(tmp_path, far, told):
    days = [f"{FIRST + datetime.timedelta(hours=row):%Y-%m-%d}" for row in range(480)]
    log = write(tmp_path / "log.csv", [far if row % 40 == 7 else day for row, day in enumerate(days)])
    spec = spec_of({"by": "time", "column": "when", "validation_from": "2026-05-15", "test_from": "2026-05-18"}, None)
    _, result = divided(tmp_path, spec, log)
    name = "test" if far > "2026" else "train"
    assert [text.startswith(f"the times of the {name} rows span {told[0]}") for text in result.of_column] == [
        True
    ] * len(told)
    assert count_splits(spec, [log]).of_column == result.of_column


def test_a_word_for_a_missing_group_is_no_group(tmp_path):
    log = write(tmp_path / "log.csv", [*range(100), *["NULL"] * 900])
    split = {"by": "group", "column": "when", "validation": 0.2, "test": 0.3}
    rows, result = divided(tmp_path, spec_of(split, when=None, missing_values=["NULL"]), log)
    assert 200 < sum(row >= 100 for row in rows["test"]) < 340 and not result.of_column
    rows, result = divided(tmp_path, spec_of(split, when=None), log)
    assert [sum(row >= 100 for row in found) for found in rows.values()].count(0) == 2
    [text] = result.of_column
    assert text.startswith("'NULL', in 90.0% of the rows, is one group, whose rows are all in one split: if it means")


@pytest.mark.parametrize("word", ["NULL", "4.12E+11"])
def test_a_word_or_a_rounded_number_is_named_with_its_share_however_many_groups_there_are(tmp_path, monkeypatch, word):
    monkeypatch.setattr(group_sample, "MOST", 1)
    groups = [word if row % 8 == 3 else f"u{row}" for row in range(1600)]
    logs = [write(tmp_path / "1.csv", groups[:800]), write(tmp_path / "2.csv", groups[800:])]
    split = spec_of({"by": "group", "column": "when"}, when=None)
    [text] = divided(tmp_path, split, *logs)[1].of_column
    assert text.startswith(f"'{word}', in 12.5% of the rows, is ")
    rare = [word if row == 3 else group for row, group in enumerate(f"u{row}" for row in range(800))]
    assert divided(tmp_path, split, write(tmp_path / "rare.csv", rare))[1].of_column == []


def test_groups_that_look_the_same_have_their_share_of_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(group_sample, "MOST", 50)
    groups = [f"{'user' if row < 1000 else 'User'}{row % 1000}" for row in range(2000)]
    split = spec_of({"by": "group", "column": "when"}, when=None)
    [text] = divided(tmp_path, split, write(tmp_path / "log.csv", groups))[1].of_column
    assert ", in 0.1% and 0.1% of the rows, and 49 more like them, are two groups" in text


def test_groups_that_a_spreadsheet_has_rounded_are_named(tmp_path):
    ids = [f"4.{row % 90 + 10}E+11" if row % 3 else f"4{row % 90 + 10}000000017" for row in range(900)]
    split = spec_of({"by": "group", "column": "when"}, when=None)
    [text] = divided(tmp_path, split, write(tmp_path / "log.csv", ids))[1].of_column
    assert text.startswith("'4.11E+11', in 1.1% of the rows, is a number that a spreadsheet has rounded")


@pytest.mark.parametrize(
    ("twin", "way"),
    [
        (lambda user: f" {user}", "blanks or invisible signs"),
        (str.upper, "upper and lower case"),
        (lambda user: user.replace("é", "e\u0301"), "how Unicode composes an accent (NFC, NFD)"),
        (lambda user: user.replace("é", "&eacute;"), "the entities of HTML"),
        (lambda user: user.encode().decode("cp1252"), "an encoding that was read as another one"),
    ],
)
def test_groups_that_look_the_same_are_named_although_they_are_no_feature(tmp_path, monkeypatch, twin, way):
    """The second half of the rows, in a file of its own, writes the users of each tenth of them otherwise."""
    monkeypatch.setattr(group_sample, "MOST", 300)
    users = [f"usér{row % 1000}" for row in range(3000)]
    first = write(tmp_path / "1.csv", users)
    second = write(tmp_path / "2.csv", [twin(user) if row % 1000 < 200 else user for row, user in enumerate(users)])
    spec = spec_of({"by": "group", "column": "when"}, when=None)
    _, result = divided(tmp_path, spec, first, second)
    [text] = result.of_column
    assert f"more like them, are two groups of the split that differ in {way} alone: write them alike" in text
    assert count_splits(spec, [first, second]).of_column == [text]
    assert divided(tmp_path, spec, first)[1].of_column == []


def test_three_sets_of_files_are_the_splits(tmp_path, monkeypatch):
    for number in (1, 2, 10, 11):
        write(tmp_path / f"day_{number}.csv", [number] * 6)
    files = {"validation": [f"{tmp_path}/day_10.csv"], "test": [f"{tmp_path}/day_11.csv"]}
    split = Split.model_validate({"by": "files", "files": {**files, "train": [f"{tmp_path}/day_?.csv"]}})
    placed, paths = placed_files(split, [])
    assert [path.rsplit("_")[-1] for path in paths] == ["1.csv", "2.csv", "10.csv", "11.csv"]
    spec = spec_of(placed.model_dump())
    rows, result = divided(tmp_path, spec, *paths)
    assert {name: len(found) for name, found in rows.items()} == {"train": 12, "validation": 6, "test": 6}
    assert result.spans["train"] == [f"{tmp_path}/day_1.csv", f"{tmp_path}/day_2.csv"]
    monkeypatch.chdir(tmp_path)
    open_end = Split.model_validate({"by": "files", "files": files})
    assert placed_files(open_end, ["day_?.csv"]) == (placed, paths)
    with pytest.raises(InputError, match=r"day_10.csv is in train and in validation"):
        placed_files(open_end, ["day_*.csv"])
    with pytest.raises(InputError, match="leave out data.paths and --data, or train"):
        placed_files(split, ["day_1.csv"])
    with pytest.raises(InputError, match="No data"):
        placed_files(open_end, [])


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"by": "time"}, "by: time needs column"),
        ({"by": "time", "column": "when"}, "needs validation_from and test_from, or last, or the shares"),
        ({"by": "time", "column": "when", "test_from": "3"}, "go together"),
        ({"by": "time", "column": "when", "validation_from": "28", "test_from": "9"}, "must be before"),
        ({"by": "time", "column": "when", "validation_from": "2026-05-02", "test_from": "28"}, "of different kinds"),
        ({"by": "time", "column": "when", "last": "2 days"}, "'2 days' is not a duration above 0"),
        ({"by": "time", "column": "when", "last": "0d"}, "'0d' is not a duration above 0"),
        ({**BY_DAY, "last": "2d"}, "last replaces"),
        ({"by": "time", "column": "when", "last": "2d", "compare_as": "number"}, "last applies to compare_as: time"),
        ({**BY_DAY, "time_format": "%q"}, "%q cannot be read"),
        ({"by": "group"}, "by: group needs column"),
        ({"by": "hash", "column": "when"}, "column applies to by: time and by: group"),
        ({"by": "order", "last": "2d"}, "apply to by: time only"),
        ({"by": "files"}, "go together"),
        ({"by": "hash", "files": {"validation": ["a"], "test": ["b"]}}, "go together"),
    ],
)
def test_keys_that_do_not_go_together_are_said(split, message):
    with pytest.raises(ValueError, match=message):
        Split.model_validate(split)


def test_numbers_and_dates_of_yaml_are_boundaries(tmp_path):
    assert Split(by="time", column="when", validation_from=9, test_from=28) == Split(**BY_DAY)
    found = Split(by="time", column="d", validation_from=datetime.date(2026, 5, 1), test_from="2026-05-02")
    assert found.validation_from == "2026-05-01"
