"""`ctrpipe init` on logs with gaps, mixed spellings, blanks and signs: what it drafts, or the line it ends in."""

import datetime
import json
import pathlib
import random
import re

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.draft.page import Said, draft
from ctrpipe.pipeline.draft.recipe import count_rows
from ctrpipe.transforms.log.composed import several_in_one
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.sample import read_sample

pytestmark = pytest.mark.usefixtures("trees")

ROWS = 200
CLICKS = [number * 7 % 10 < 3 for number in range(ROWS)]
NUMBERS = [f"{number % 37}.{number % 3}" for number in range(ROWS)]
RARE = [f"{number}.{number % 9}" for number in range(ROWS)]  # another one in each row


def log(folder: pathlib.Path, header: str = "click,site,price", end: str = "\n", **columns) -> str:
    values = {"click": [str(int(click)) for click in CLICKS], "site": [f"s{n % 7}" for n in range(ROWS)]}
    values |= {"price": NUMBERS} | columns
    lines = [header, *(",".join(row) for row in zip(*values.values(), strict=True))]
    (folder / "log.csv").write_bytes((end.join(lines) + end).encode())
    return str(folder / "log.csv")


def drafted(path: str) -> tuple[dict, list[str]]:
    text, unsure = draft([path])
    return yaml.safe_load(text), unsure


def written_form(config: dict) -> dict | None:
    return next(entry.get("written") for entry in config["features"] if "price" in entry["columns"])


def kinds(config: dict) -> dict[str, str]:
    return {column: entry["kind"] for entry in config["features"] for column in entry["columns"]}


# Labels --------------------------------------------------------------------------------------------------------------


def test_a_name_that_is_also_a_value_is_a_header(tmp_path):
    config, _ = drafted(log(tmp_path, click=["click" if click else "no_click" for click in CLICKS]))
    assert config["data"]["header"] is True
    assert config["data"]["labels"] == {"ctr": {"column": "click", "positive": ["click"], "negative": ["no_click"]}}
    assert kinds(config) == {"site": "categorical", "price": "numeric"}


def test_a_name_that_is_also_one_of_many_values_is_a_header_above_a_column_of_numbers(tmp_path):
    channels = ["channel", "email", "search", "direct"] * 10
    rows = [f"{channel},{place % 7},{place % 3 == 0:d}" for place, channel in enumerate(channels)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["channel,visits,click", *rows]) + "\n")
    assert yaml.safe_load(draft([str(path)])[0])["data"]["labels"] == {"ctr": "click"}


PLACES = range(ROWS)
RESULTS = ["good" if number % 3 else "bad" for number in PLACES]


@pytest.mark.parametrize(
    ("header", "values", "label"),
    [
        ("site,status,impressions,ctr", [NUMBERS, [f"0.{n % 9}" for n in PLACES]], "ctr"),
        ("site,device_class,click_time", [[f"2026-01-0{1 + n % 9}" * (n % 4 == 0) for n in PLACES]], "click_time"),
        ("site,ticket_class,click", [["1" * (n % 4 == 0) for n in PLACES]], "click"),
    ],
)
def test_a_result_in_words_is_no_label_beside_a_rate_or_a_click_with_gaps(tmp_path, header, values, label):
    columns = [[f"s{n % 7}" for n in PLACES], RESULTS, *values]
    path = tmp_path / "log.csv"
    path.write_text("\n".join([header, *map(",".join, zip(*columns, strict=True))]) + "\n")
    [found] = drafted(str(path))[0]["data"]["labels"].values()
    assert (found if isinstance(found, str) else found["column"]) == label


@pytest.mark.parametrize("name", ["payment_status", "Class"])
def test_a_result_in_words_is_asked_about(tmp_path, name):
    config, unsure = drafted(log(tmp_path, f"{name},site,price", click=RESULTS))
    assert config["data"]["labels"]["ctr"]["column"] == name
    assert any(line.startswith(f"{name}: positive is ") and "is it the label" in line for line in unsure)


def test_a_first_row_of_values_is_no_header_although_a_column_has_two_words(tmp_path):
    words = ["click" if click else "no_click" for click in CLICKS]
    path = log(tmp_path, f"{words[0]},s3,s5", click=words, price=[f"s{number % 9}" for number in range(ROWS)])
    config, unsure = drafted(path)
    assert config["data"]["columns"] == ["c1", "c2", "c3"]
    assert config["data"]["labels"] == {"ctr": {"column": "c1", "positive": ["click"], "negative": ["no_click"]}}
    assert any(line.startswith("c1: positive in ") and "is it the label" in line for line in unsure)


@pytest.mark.parametrize("spelt", [("1", "0"), ("1.0", "0"), ("1", "1.0", "0"), ("true", "1", "0", "FALSE")])
def test_spellings_of_a_label_may_be_mixed(tmp_path, spelt):
    of = {True: [word for word in spelt if word[0] in "1t"], False: [word for word in spelt if word[0] in "0F"]}
    path = log(tmp_path, click=[of[click][number % len(of[click])] for number, click in enumerate(CLICKS)])
    (tmp_path / "made.yaml").write_text(draft([path])[0])
    config = load_config(tmp_path / "made.yaml")
    assert config.data.labels["ctr"].column == "click" and not config.data.labels["ctr"].positive
    assert check_log(config, [path]).errors == []


@pytest.mark.parametrize("gap", ["", "nan", "NULL"])
def test_a_label_with_gaps_is_drafted_and_the_gaps_are_said(tmp_path, gap):
    values = [gap if number % 20 == 3 else str(int(click)) for number, click in enumerate(CLICKS)]
    config, unsure = drafted(log(tmp_path, click=values, copy=values, header="click,site,price,copy"))
    assert config["data"]["labels"] == {"ctr": "click"}
    clicks = sum(value == "1" for value in values)
    assert f"click: positive in {clicks / 190:.1%} of the first 190 rows; no value in 5.0% of the" in unsure[0]
    assert kinds(config) == {"site": "categorical", "price": "numeric"}  # the copy is the label, gaps or not


def test_where_only_clicks_have_a_label_the_others_are_negative(tmp_path):
    path = log(tmp_path, click=["1.0" if click else "" for click in CLICKS])
    text, unsure = draft([path])
    assert yaml.safe_load(text)["data"]["labels"] == {"ctr": {"column": "click", "positive": ["1.0"], "negative": [""]}}
    assert "is taken for the negative class" in unsure[0]
    (tmp_path / "made.yaml").write_text(text)
    assert sum(check_log(load_config(tmp_path / "made.yaml"), [path]).splits.values()) == ROWS


def test_numbers_of_parquet_with_nan_for_a_label_are_a_label_with_gaps(tmp_path):
    values = [float("nan") if number % 20 == 3 else float(click) for number, click in enumerate(CLICKS)]
    table = pa.table({"click": values, "site": [f"s{n % 7}" for n in range(ROWS)]})
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    config, unsure = drafted(str(tmp_path / "log.parquet"))
    assert config["data"]["labels"] == {"ctr": "click"} and "no value in 5.0%" in unsure[0]


@pytest.mark.parametrize("only", ["0", "1", "True"])
def test_a_label_of_one_class_is_one_line(tmp_path, only):
    with pytest.raises(InputError, match=f"the label click is {only} in all 200 rows, and a model needs both classes"):
        draft([log(tmp_path, click=[only] * ROWS)])


def test_counted_clicks_are_a_click_and_a_rating_is_a_rating(tmp_path):
    counts = [str(int(click) * (1 + number % 3)) for number, click in enumerate(CLICKS)]
    config, _ = drafted(log(tmp_path, click=counts))
    assert config["data"]["labels"] == {"ctr": {"column": "click", "threshold": 1}}
    config, _ = drafted(log(tmp_path, click=counts, header="click_count,site,price"))
    assert config["data"]["labels"] == {"ctr": {"column": "click_count", "threshold": 1}}
    config, _ = drafted(log(tmp_path, click=counts, header="stars,site,price"))
    assert config["data"]["labels"] == {"ctr": {"column": "stars", "threshold": 3}}


SHOWN = [1 + number % 5 for number in range(ROWS)]  # as a rating from 1 to 5
CLICKED = [shown * (number % 2) for number, shown in enumerate(SHOWN)]


@pytest.mark.parametrize("label", [None, "clicks"])
def test_counted_clicks_of_impressions_need_their_rate(tmp_path, label):
    def counted(**columns) -> str:
        values = {"click": CLICKED, "impressions": SHOWN, **columns}
        texts = {column: list(map(str, numbers)) for column, numbers in values.items()}
        header = ["clicks", "site", "price", *list(texts)[1:]]
        return log(tmp_path, ",".join(header), **texts)

    rule = "clicks counts the clicks of a row's impressions, and a label is their rate; .* --weight impressions"
    with pytest.raises(InputError, match=rule):
        draft([counted()], label)
    with pytest.raises(InputError, match="clicks is larger than impressions in 2 of the first 200 rows, as 6 and 4"):
        draft([counted(click=[*CLICKED[:3], 6, *CLICKED[4:199], 6])], label)
    rates = [clicks / shown for clicks, shown in zip(CLICKED, SHOWN, strict=True)]
    config = yaml.safe_load(draft([counted(rate=[rate or 0.125 for rate in rates])], "rate")[0])
    assert config["data"]["labels"] == {"ctr": "rate"} and config["data"]["weight"] == "impressions"


def test_a_rating_that_is_known_by_its_values_alone_is_asked_about(tmp_path):
    texts = list(map(str, SHOWN))
    for name, asked in (
        ("stars", []),
        ("place", ["place: a rating up to 5: 4 and more in 40.0% of the first 200 rows; is it the label (--label)?"]),
    ):
        _, unsure = drafted(log(tmp_path, f"{name},site,price", click=texts))
        assert [line for line in unsure if line.startswith(name)] == asked


@pytest.mark.parametrize(
    ("value", "said"),
    [("7", "found '7': a rating needs a threshold in data.labels; "), ("1.5", "and a rate has no more clicks than")],
)
def test_check_says_what_a_label_above_1_needs(tmp_path, value, said):
    path = log(tmp_path)
    (tmp_path / "config.yaml").write_text(draft([path])[0])
    log(tmp_path, click=[*[value] * 50, *[str(int(click)) for click in CLICKS[50:]]])
    [line] = check_log(load_config(tmp_path / "config.yaml"), [path]).errors
    assert line.startswith("50 of 200 rows are malformed, as ") and said in line


# Numbers and blanks --------------------------------------------------------------------------------------------------


def test_infinite_numbers_are_numbers_and_said(tmp_path):
    values = ["inf" if number % 50 == 7 else value for number, value in enumerate(NUMBERS)]
    config, unsure = drafted(log(tmp_path, price=values))
    assert kinds(config)["price"] == "numeric"
    assert "infinite in 4 rows, which a run takes for malformed" in unsure[0]


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("${}", {"prefix": "$", "thousands": ","}),
        ("{}%", {"suffix": "%", "thousands": ","}),
        ("€ {}", {"prefix": "€", "thousands": ","}),
        ('"1,{:0>5}"', {"thousands": ","}),
        ("{} EUR", {"suffix": "EUR", "thousands": ","}),
        ("1'{:0>5}", {"thousands": "'"}),
        ("KSh {}", {"prefix": "KSh", "thousands": ","}),
        ("{} Kč", {"suffix": "Kč", "thousands": ","}),
        ("{} kg", {"suffix": "kg", "thousands": ","}),
        ("{}min", {"suffix": "min", "thousands": ","}),
        ("{} / 5", {"suffix": "/ 5", "thousands": ","}),
    ],
)
@pytest.mark.parametrize("values", [RARE, NUMBERS])
def test_numbers_with_a_unit_or_thousands_are_numbers_of_that_form(tmp_path, form, written, values):
    path = log(tmp_path, price=[form.format(value) for value in values])
    config, unsure = drafted(path)
    assert (kinds(config)["price"], written_form(config), unsure) == ("numeric", written, [])
    texts = [form.format(value).split(" / ")[0].strip('"').replace("1,", "1").replace("'", "") for value in values]
    expected = [float(re.sub(r"[^0-9.]", "", text)) for text in texts]
    reader = LogReader(RunConfig.model_validate(config).log_spec)
    read = [row["price"] for batch in reader.read(path) for row in batch.rows.to_pylist()]
    assert read == pytest.approx(expected)


@pytest.mark.parametrize("form", ["\u2212{}", "\u2212{}.5"])
def test_numbers_with_the_minus_of_typesetting_are_numbers(tmp_path, form):
    plain = "{}.5" if "." in form else "{}"
    texts = [(form if number % 4 == 0 else plain).format(1 + number % 37) for number in range(ROWS)]
    path = log(tmp_path, price=texts)
    config, unsure = drafted(path)
    assert (kinds(config)["price"], written_form(config), unsure) == ("numeric", {"decimal": "."}, [])
    read = [
        row["price"]
        for batch in LogReader(RunConfig.model_validate(config).log_spec).read(path)
        for row in batch.rows.to_pylist()
    ]
    assert read == [float(text.replace("\u2212", "-")) for text in texts]


@pytest.mark.parametrize(("name", "every"), [("id", 1), ("item_id", 20), ("ref", 1), ("n", 20)])
def test_codes_that_may_be_numbers_with_an_exponent_are_asked_about(tmp_path, name, every):
    texts = [f"{10 + row % 7}{'e' if row % every == 0 else '4'}3" for row in range(ROWS)]
    config, unsure = drafted(log(tmp_path, header=f"click,site,{name}", price=texts))
    if name == "n":
        assert kinds(config)[name] == "numeric"
        return
    assert kinds(config)[name] == "categorical"
    assert unsure[0].startswith(f"{name}: ") and "e3 is read as a code: or is it a number (kind: numeric)?" in unsure[0]


def test_a_label_of_1_and_2_is_asked_about(tmp_path):
    config, unsure = drafted(log(tmp_path, click=[str(1 + click) for click in CLICKS]))
    assert config["data"]["labels"] == {"ctr": {"column": "click", "positive": ["2"], "negative": ["1"]}}
    assert unsure[0].startswith("click: 2 is positive in ") and unsure[0].endswith("is it the other way round?")


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        (["-999" if n % 5 == 0 else f"{n % 37}.5" for n in range(ROWS)], "-999, in 20% of the rows, lies far from all"),
        (["9999" if n % 50 == 0 else f"{n % 37}.5" for n in range(ROWS)], "9999, in 2% of the rows, lies far from all"),
        (["0" if n % 50 == 0 else f"{100 + n % 37}.5" for n in range(ROWS)], "0, in 2% of the rows, lies far from all"),
        (["9999" if n == 7 else f"{n % 37}.5" for n in range(ROWS)], ""),
        (["-1" if n % 5 == 0 else f"{n % 37}.5" for n in range(ROWS)], ""),
        ([f"1.{n % 12}" for n in range(ROWS)], "1.1 and 1.10 are one number: or are they versions or codes"),
        ([f"{n % 37}.{n % 3}0" for n in range(ROWS)], ""),
        ([("1.5E1", "1.5E10", "2.5E1")[n % 3] for n in range(ROWS)], ""),
    ],
)
def test_a_number_that_may_stand_for_none_and_versions_are_asked_about(tmp_path, values, asked):
    config, unsure = drafted(log(tmp_path, price=values))
    assert kinds(config)["price"] == "numeric"
    assert len(unsure) == bool(asked) and all(asked in text for text in unsure)


@pytest.mark.parametrize("error", ["#DIV/0!", "#NUM!", "#REF!"])
def test_errors_of_a_spreadsheet_are_missing_numbers(tmp_path, error):
    config, unsure = drafted(log(tmp_path, price=[error if n % 2 else value for n, value in enumerate(NUMBERS)]))
    assert kinds(config)["price"] == "numeric" and error in config["data"]["missing_values"]
    assert f"'{error}' is taken for a missing value" in unsure[0]


def test_negative_numbers_with_the_sign_behind_them_are_asked_about(tmp_path):
    config, unsure = drafted(log(tmp_path, price=[f"{n % 37}-" if n % 3 == 0 else f"{n % 41}" for n in range(ROWS)]))
    assert kinds(config)["price"] == "categorical"
    assert "numbers, as 0-, of several forms are read as categories: write them alike" in unsure[0]


@pytest.mark.parametrize("zero", [0x660, 0xFF10])
def test_numbers_in_digits_of_another_script_are_asked_about(tmp_path, zero):
    digits = [str(n % 37).translate({ord("0") + digit: zero + digit for digit in range(10)}) for n in range(ROWS)]
    config, unsure = drafted(log(tmp_path, price=digits))
    assert kinds(config)["price"] == "categorical"
    assert f"digits of another script, as {digits[0]}, are read as categories: write them in 0 to 9" in unsure[0]


def test_a_column_w_may_be_the_weight_of_the_row(tmp_path):
    _, unsure = drafted(log(tmp_path, header="click,site,w"))
    assert unsure[0].startswith("w: ") and "or the weight of the row (data.weight)?" in unsure[0]


def test_a_text_file_beside_parquet_is_refused_by_name(tmp_path):
    text = log(tmp_path)
    pyarrow.parquet.write_table(
        pa.table({"click": [0, 1] * 20, "site": ["a", "b", "c", "d"] * 10}), tmp_path / "log.parquet"
    )
    with pytest.raises(InputError, match=r"log.csv: not Parquet, as .*log.parquet is; name files of one format"):
        draft([str(tmp_path / "log.parquet"), text])


@pytest.mark.parametrize("forms", [("{} kg", "{} g"), ("${}", "{}"), ("{}k", "{}"), ("${}", "€{}")])
def test_numbers_of_several_forms_are_said(tmp_path, forms):
    texts = [f'"{forms[number % 2].format(number % 9)}"' for number in range(ROWS)]
    config, unsure = drafted(log(tmp_path, price=texts))
    assert kinds(config)["price"] == "categorical"
    assert unsure[0].startswith("price: ") and "of several forms are read as categories: write them alike" in unsure[0]


WHOLE, PARTED = (
    [f"{number % 37}" for number in range(ROWS)],
    [f"{1 + number % 37},{number % 9}34" for number in range(ROWS)],
)
POINTED = [value.replace(",", ".") for value in PARTED]


@pytest.mark.parametrize(
    ("price", "other", "written", "asked"),
    [
        (PARTED, WHOLE, {"thousands": ","}, "is read as 1034; or is it 1.034 (written: {decimal: ','})?"),
        (PARTED, NUMBERS, {"thousands": ","}, ""),
        (POINTED, WHOLE, None, "1.034 is read as 1.034; or is it 1034 (written: {thousands: '.', decimal: ','})?"),
        (POINTED[:150] + WHOLE[:50], WHOLE, {"thousands": ".", "decimal": ","}, "is read as 1034; or is it 1.034"),
        (POINTED, NUMBERS, None, ""),
        (POINTED, [value.replace(".", ",") for value in NUMBERS], {"thousands": "."}, ""),
        (["0.125", *POINTED[1:]], WHOLE, None, ""),
        (["1234.125", *POINTED[1:]], WHOLE, None, ""),
    ],
)
def test_a_sign_that_may_stand_between_thousands_or_before_decimals_is_asked_about(
    tmp_path, price, other, written, asked
):
    quoted = {"price": [f'"{value}"' for value in price], "other": [f'"{value}"' for value in other]}
    config, unsure = drafted(log(tmp_path, header="click,site,price,other", **quoted))
    assert (kinds(config)["price"], written_form(config)) == ("numeric", written)
    of_price = [line for line in unsure if line.startswith("price: ")]
    assert all(asked in line for line in of_price) and bool(of_price) == bool(asked)


def test_a_label_or_a_weight_of_another_form_is_refused(tmp_path):
    path = log(tmp_path, price=[f"${value}" for value in NUMBERS])
    for said in ({"label": "price"}, {"weight": "price"}):
        with pytest.raises(InputError, match="price: numbers as .*, and a label or a weight has plain ones"):
            draft([path], said=Said(**said))


@pytest.mark.parametrize("form", ["10.0.{}", "{}x250", "v{}", "{}-a", "SKU-{}"])
def test_codes_with_digits_are_no_numbers(tmp_path, form):
    _, unsure = drafted(log(tmp_path, price=[form.format(value) for value in NUMBERS]))
    assert unsure == []


@pytest.mark.parametrize("header", ["click,site,price", " click, site ,price "])
@pytest.mark.parametrize("form", [" {} ", "{} ", "  {}"])
def test_blanks_around_numbers_and_names_are_no_part_of_them(tmp_path, header, form):
    values = [" " if number % 11 == 0 else form.format(value) for number, value in enumerate(NUMBERS)]
    path = log(tmp_path, header=header, price=values)
    (tmp_path / "made.yaml").write_text(draft([path])[0])
    config = load_config(tmp_path / "made.yaml")
    assert config.data.trim_spaces and config.inputs.keys() == {"site", "price"}
    assert config.inputs["price"].kind == "numeric"
    found = check_log(config, [path])
    assert (found.errors, found.rejected, found.rows) == ([], 0, ROWS)


def test_a_column_of_blanks_is_left_out(tmp_path):
    blanks = [" " * (1 + number % 3) for number in range(ROWS)]
    config, unsure = drafted(log(tmp_path, header="click,site,price,note", note=blanks))
    assert kinds(config) == {"site": "categorical", "price": "numeric"}
    assert unsure == ["note: nothing but blanks in the first rows: left out."]


def test_a_value_of_a_megabyte_is_a_value(tmp_path):
    values = ['"' + "x" * 1_000_000 + '"' if number == 9 else f"s{number % 7}" for number in range(ROWS)]
    config, _ = drafted(log(tmp_path, site=values))
    assert kinds(config) == {"site": "categorical", "price": "numeric"}


# Lines ---------------------------------------------------------------------------------------------------------------


def test_a_header_without_some_names_is_one_line(tmp_path):
    with pytest.raises(InputError, match="line 1 has no name for column 2; give it one"):
        draft([log(tmp_path, header="click,,price")])


def test_carriage_returns_alone_are_one_line_to_init_and_check(tmp_path):
    (tmp_path / "made.yaml").write_text(draft([log(tmp_path)])[0])
    path = log(tmp_path, end="\r")
    message = "its lines end in carriage returns only, as on old Macs; write line feeds"
    with pytest.raises(InputError, match=message):
        draft([path])
    assert any(message in error for error in check_log(load_config(tmp_path / "made.yaml"), [path]).errors)


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%S+00:00", "%d/%b/%Y:%H:%M:%S +0000", "%Y-%m-%d"])
def test_a_log_that_is_not_in_the_order_of_its_times_is_divided_by_them(tmp_path, form):
    start = datetime.datetime(2026, 2, 27, tzinfo=datetime.UTC)
    times = [(start + datetime.timedelta(hours=7 * number)).strftime(form) for number in range(ROWS)]
    in_order, _ = drafted(log(tmp_path, header="click,site,price,shown_at", shown_at=times))
    assert in_order["data"]["split"] == {"by": "order"}
    random.Random(3).shuffle(times)
    path = log(tmp_path, header="click,site,price,shown_at", shown_at=times)
    (tmp_path / "made.yaml").write_text(draft([path])[0])
    config = load_config(tmp_path / "made.yaml")
    assert config.data.split.by == "time" and config.data.split.column == "shown_at"
    found = check_log(config, [path])
    assert found.errors == [] and sum(found.splits.values()) == ROWS
    assert found.splits["test"] == (18 if form == "%Y-%m-%d" else 20)  # the last six days have 18 rows


# Columns that are left out or asked about -----------------------------------------------------------------------------


def test_ids_that_a_spreadsheet_has_rounded_are_named_and_left_out(tmp_path):
    rounded = [f"{412345678901 + 1234567890 * (number % 37):.2E}" for number in range(ROWS)]
    config, unsure = drafted(log(tmp_path, "click,item_id,price", site=rounded))
    assert "item_id" not in kinds(config)
    assert unsure == [
        "item_id: ids as 4.12E+11, which a spreadsheet has rounded (several ids became one): left out; export "
        "the ids as text."
    ]
    config, unsure = drafted(log(tmp_path, "click,volume,price", site=rounded))
    assert kinds(config)["volume"] == "numeric" and not unsure


@pytest.mark.parametrize("name", ["country", "account", "language", "page", "strategy"])
def test_codes_are_no_amounts_by_a_part_of_a_word(tmp_path, name):
    codes = [str(number * 7 % 23) for number in range(ROWS)]
    assert kinds(drafted(log(tmp_path, f"click,{name},price", site=codes))[0])[name] == "categorical"


@pytest.mark.parametrize("name", ["view_count", "viewCount", "unitprice", "user age", "I3", "income", "AGE"])
def test_whole_numbers_are_amounts_by_a_word(tmp_path, name):
    amounts = [str(20 + number * 7 % 37) for number in range(ROWS)]
    config, unsure = drafted(log(tmp_path, f"click,{name},price", site=amounts))
    assert kinds(config)[name] == "numeric" and not unsure


def test_durations_are_asked_about(tmp_path):
    durations = [f"{number % 37}:{number % 37:02d}" for number in range(ROWS)]
    config, [line] = drafted(log(tmp_path, site=durations))
    assert kinds(config)["site"] == "categorical"
    assert "times of the day or durations, as 0:00, are read as categories" in line


def test_a_header_that_is_repeated_is_still_the_header(tmp_path):
    path = pathlib.Path(log(tmp_path))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:90], lines[0], *lines[90:150], lines[0], *lines[150:]]))
    config, unsure = drafted(str(path))
    assert config["data"]["header"] is True and kinds(config) == {"site": "categorical", "price": "numeric"}
    assert unsure == [
        "The header stands in line 91 again, and in 1 more: a run counts these lines as malformed rows; remove them "
        "from the file."
    ]


def test_a_row_of_units_below_the_header_is_named(tmp_path):
    path = pathlib.Path(log(tmp_path))
    path.write_text(path.read_text().replace("\n", "\n0/1,name,EUR\n", 1))
    with pytest.raises(
        InputError, match="'0/1' in the first row is not a label, but the others are; is it a second header"
    ):
        draft([str(path)], label="click")


def test_too_few_clicks_and_clicks_that_end_early_are_said(tmp_path):
    few = [str(int(number in (30, 90))) for number in range(ROWS)]
    _, unsure = drafted(log(tmp_path, click=few))
    assert unsure == ["click: positive in 2 of 200 rows: too few to train a model and to test it."]
    early = [str(int(click and number < 120)) for number, click in enumerate(CLICKS)]
    _, unsure = drafted(log(tmp_path, click=early))
    assert unsure[0].startswith("click: 0 in the last 8") and "their clicks may not have arrived yet" in unsure[0]


def test_a_history_that_ends_with_the_clicked_item_of_its_row_is_said(tmp_path):
    items = [str(number * 7 % 31) for number in range(ROWS)]
    before = [[str(n % 29), str(n % 23), str(n % 19)][: 1 + n % 3] for n in range(ROWS)]
    seen = ["|".join([*before[n], *([items[n]] if CLICKS[n] else [])]) for n in range(ROWS)]
    users = [str(number % 149) for number in range(ROWS)]  # numbers too, among which all items are
    path = log(tmp_path, "click,user_id,price,item_id,seen", site=users, item=items, seen=seen)
    text, unsure = draft([path])
    assert "shared_with: item_id" in text
    assert [line for line in unsure if line.startswith("seen: item_id of the same row is its last element")]


def test_a_label_and_a_weight_of_amounts_are_one_line(tmp_path):
    path = log(tmp_path, "click,paid,price", site=[f"${number % 9}.50" for number in range(ROWS)])
    with pytest.raises(InputError, match=r"log.csv: paid: numbers as \$\d.50, and a label or a weight has plain ones"):
        draft([path], label="paid")
    values = {
        "name": "amounts",
        "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}, "weight": "paid"},
        "features": [{"kind": "numeric", "columns": ["price"]}],
        "model": {"name": "lr"},
    }
    [line] = check_log(RunConfig.model_validate(values), [path]).errors
    assert line.startswith("200 of 200 rows are malformed") and "found '$0.50'" in line


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("{}.85;2.{}5", "two numbers in one column, such as a place"),
        ("{}.85,2.{}5", "two numbers in one column"),
        ('{{""a"": {}, ""b"": {}}}', "objects, as "),
    ],
)
def test_a_column_of_two_values_in_one_is_asked_about(tmp_path, form, told):
    places = [f'"{form.format(n % 7, n % 5)}"' for n in range(ROWS)]
    config, unsure = drafted(log(tmp_path, header="click,site,price,place", place=places))
    assert kinds(config)["place"] == "categorical"
    assert unsure[0].startswith("place: ") and told in unsure[0]


def test_the_rows_of_parquet_files_after_text_are_counted(tmp_path):
    text = log(tmp_path)
    pyarrow.parquet.write_table(pa.table({"click": [0, 1] * 50_000, "site": ["a"] * 100_000}), tmp_path / "z.parquet")
    assert 100_000 <= count_rows([text, str(tmp_path / "z.parquet")], read_sample(text)) < 101_000


@pytest.mark.parametrize("first", [True, False])
def test_a_damaged_parquet_file_among_others_is_one_line(tmp_path, first):
    (tmp_path / "z.parquet").write_bytes(b"PAR1xxxxxxxxPAR1")
    good = tmp_path / "a.parquet" if first else log(tmp_path)
    if first:
        pyarrow.parquet.write_table(pa.table({"click": [0, 1] * 500, "site": ["a"] * 1000}), good)
    with pytest.raises(InputError, match=r"z.parquet: not a readable Parquet file"):
        count_rows([str(good), str(tmp_path / "z.parquet")], read_sample(str(good)))


def test_amounts_with_thousands_are_no_places():
    assert several_in_one([f"{1 + n % 7},{n + 100}.{n % 9}0" for n in PLACES]) == ""
    assert several_in_one(["48.85, 2.35", "51.50, 0.12"]).startswith("two numbers in one column")


@pytest.mark.parametrize(("most", "asks"), [(2, True), (5, False)])
def test_a_label_up_to_two_is_asked_about(tmp_path, most, asks):
    clicks = [most if n % 40 == 0 else int(click) for n, click in enumerate(CLICKS)]
    config, unsure = drafted(log(tmp_path, click=[str(click) for click in clicks]))
    assert config["data"]["labels"] == {"ctr": {"column": "click", "threshold": 1}}
    assert ["2.5% have 2: is it a count, or does it mean something else" in text for text in unsure[:1]] == [
        True
    ] * asks


@pytest.mark.parametrize("end", [",\n", ""])
@pytest.mark.parametrize("blank", [0, 2])
def test_objects_that_are_no_json_lines_are_named(tmp_path, end, blank):
    (tmp_path / "log.jsonl").write_text("\n" * blank + (json.dumps({"click": 1, "site": "s11111"}) + end) * 50)
    wrong = rf"line {1 + blank}: not valid JSON \(Extra data, column 31\); write one object per line"
    with pytest.raises(InputError, match=rf"log.jsonl: {wrong}"):
        draft([str(tmp_path / "log.jsonl")])
