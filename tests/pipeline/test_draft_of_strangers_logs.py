"""What `ctrpipe init` drafts for logs of searches, mailings, insurances, and for the input of other learners."""

import pathlib
import re

import numpy as np
import pandas as pd
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config.load import check_config
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.draft.page import Said, draft
from ctrpipe.transforms.log.words import USUAL_MISSING

pytestmark = pytest.mark.usefixtures("trees")

RANDOM = np.random.default_rng(3)


def drafted(folder: pathlib.Path, rows: dict, **said: object) -> tuple[dict, list[str]]:
    path = folder / "log.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    text, unsure = draft([str(path)], said=Said(**said))  # type: ignore[arg-type]
    return yaml.safe_load(text), unsure


def kinds(values: dict) -> dict[str, str]:
    return {column: entry["kind"] for entry in values["features"] for column in entry["columns"]}


def searches(number: int = 150, each: int = 6) -> dict:
    """Rows of searches: those of one lie together and have one time, and the searches are in the order of their ids."""
    rows = number * each
    clicks = (np.arange(rows) + np.repeat(RANDOM.integers(0, each, number), each)) % each == 0
    times = pd.Timestamp("2026-01-01") + pd.to_timedelta(RANDOM.integers(0, 10**7, number), unit="s")
    return {
        "srch_id": np.repeat(np.arange(number), each),
        "date_time": np.repeat(times.strftime("%Y-%m-%d %H:%M:%S"), each),
        "prop_id": RANDOM.integers(0, 50, rows),
        "click_bool": clicks.astype(int),
        "booking_bool": (clicks & (RANDOM.random(rows) < 0.6)).astype(int),
    }


def test_rows_of_one_search_do_not_hide_that_a_log_is_not_in_the_order_of_time(tmp_path):
    values, unsure = drafted(tmp_path, searches())
    assert values["data"]["split"]["by"] == "time" and values["data"]["split"]["column"] == "date_time"
    assert values["data"]["labels"] == {"ctr": "click_bool"}
    assert kinds(values) == {"date_time": "time", "prop_id": "categorical"}
    [of_search] = [line for line in unsure if line.startswith("srch_id:")]
    assert "hardly any value of the last fifth of the rows occurs in the rows before" in of_search
    assert any(line.startswith("booking_bool: looks like a label too") for line in unsure)


def test_ids_that_only_pass_are_left_out_where_no_time_says_so_and_users_who_return_are_kept(tmp_path):
    log = searches()
    log.pop("date_time"), log.pop("booking_bool")
    log["user"] = RANDOM.integers(0, 40, len(log["prop_id"]))
    values, _ = drafted(tmp_path, log)
    assert values["data"]["split"] == {"by": "order"}
    assert kinds(values) == {"prop_id": "categorical", "user": "categorical"}


def test_what_the_first_rows_of_a_longer_log_have_once_is_asked_about_and_kept(tmp_path, monkeypatch):
    log = searches()
    rows = len(log["prop_id"])
    log = {"visitor": np.arange(rows) // 4 + 7_000, **{key: log[key] for key in ("prop_id", "click_bool")}}
    monkeypatch.setattr("ctrpipe.pipeline.draft.page.ROWS", rows)
    values, unsure = drafted(tmp_path, log)
    assert kinds(values)["visitor"] == "categorical"
    assert [line for line in unsure if line.startswith("visitor:") and "do values return later in the log?" in line]
    values, unsure = drafted(tmp_path, log, drop=("visitor",))
    assert not [line for line in unsure if line.startswith("visitor:") and "?" in line]


def test_openings_and_unsubscriptions_of_a_mailing_are_no_features(tmp_path):
    rows = 600
    clicked, opened = RANDOM.random(rows) < 0.2, RANDOM.random(rows) < 0.4
    log = {
        "Campaign": RANDOM.choice(["a", "b", "c"], rows),
        "Subject": RANDOM.choice(["spring sale", "your weekly digest", "we miss you so much"], rows),
        "Opened": np.where(opened | clicked, "Yes", "No"),
        "Clicked": np.where(clicked, "Yes", "No"),
        "Unsubscribed": np.where(RANDOM.random(rows) < 0.05, "Yes", "No"),
    }
    values, unsure = drafted(tmp_path, log)
    assert values["data"]["labels"]["ctr"]["column"] == "Clicked"
    assert kinds(values) == {"Campaign": "categorical", "Subject": "categorical"}  # a few texts are names, not words
    assert "Opened and Unsubscribed" in {line.split(":")[0] for line in unsure}


def test_whole_numbers_that_hardly_repeat_are_amounts_and_nouns_of_ids_are_codes(tmp_path):
    rows = 500
    log = {
        "Annual_Sum": RANDOM.integers(20_000, 60_000, rows),
        "premium": RANDOM.integers(1, 90, rows),
        "publisher": RANDOM.zipf(1.3, rows) % 200,
        "n_items": RANDOM.integers(0, 30, rows),
        "is_new": RANDOM.integers(0, 2, rows),
        "response": RANDOM.integers(0, 2, rows),
    }
    values, unsure = drafted(tmp_path, log)
    assert values["data"]["labels"] == {"ctr": "response"}
    found = kinds(values)
    assert [name for name, kind in found.items() if kind == "numeric"] == ["Annual_Sum", "premium", "n_items"]
    assert [name for name, kind in found.items() if kind == "categorical"] == ["publisher", "is_new"]
    assert [line.split(":")[0] for line in unsure] == ["Annual_Sum"]


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("https://shop.example/p/{0}?x=1", "parts of an address, such as its host, repeat: write them as columns"),
        ("52.{0},13.{0}", "two numbers in a column, such as a place: write each as a column of its own"),
        ("u{0}@mail.example", "the part after the @ may repeat: write it as a column of its own"),
        ("name{0}", ""),
    ],
)
def test_texts_that_do_not_repeat_but_have_parts_that_do_are_told(tmp_path, value, advice):
    rows = 200
    log = {"site": RANDOM.choice(["a", "b"], rows), "text": [value.format(1000 + row) for row in range(rows)]}
    _, unsure = drafted(tmp_path, {**log, "click": RANDOM.integers(0, 2, rows)})
    [line] = [line for line in unsure if line.startswith("text:")]
    assert "nothing repeats: left out" in line and (advice in line if advice else line.endswith("left out."))


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("{0} 3:1 17:0.5", "LIBSVM or LIBFFM"),
        ("+{0} 3:1 17:0.5 # a row", "LIBSVM or LIBFFM"),
        ("{0} 0:3:1 1:17:0.5", "LIBSVM or LIBFFM"),
        ("{0} qid:7 1:0.5 2:0.25 #docid = d3", "LIBSVM or LIBFFM"),
        ("{0} |a site_{0} |b ad_4 price:0.5", "Vowpal Wabbit"),
        ("{0} 2.0 'tag |a site_{0} b", "Vowpal Wabbit"),
    ],
)
def test_the_input_of_another_learner_is_told_in_place_of_a_label(tmp_path, line, program):
    (tmp_path / "train.txt").write_text("".join(line.format(row % 2) + "\n" for row in range(40)))
    with pytest.raises(InputError, match=f"are input of {program}, whose values have no columns; write a column for"):
        draft([str(tmp_path / "train.txt")])


def test_a_table_of_blanks_or_bars_is_no_input_of_another_learner(tmp_path):
    for text in ("click|city|price\n" + "1|a|3\n0|b|4\n" * 30, "click city\n" + "1 a\n0 b\n" * 30):
        (tmp_path / "log.txt").write_text(text)
        try:
            draft([str(tmp_path / "log.txt")])
        except InputError as error:
            assert "input of" not in str(error)


@pytest.mark.parametrize(
    ("columns", "label"),
    [
        (
            {"previous_cancellations": "01", "is_repeated_guest": "01", "is_canceled": "01", "meal": "abc"},
            "is_canceled",
        ),
        ({"SeniorCitizen": "01", "Partner": ["Yes", "No"], "Churn": ["Yes", "No"]}, "Churn"),
        ({"ID": "01", "No-show": ["Yes", "No"], "Scholarship": "01", "gender": "MF"}, "No-show"),
        ({"service (1-5)": "12345", "omistaa auton": ["kyllä", "ei"], "suosittelisi": ["kyllä", "ei"]}, "suosittelisi"),
        ({"wiek": ["18-24", "25-34"], "plec": "KM", "poleca": ["tak", "nie"]}, "poleca"),
    ],
)
def test_a_label_is_known_by_a_name_of_an_end_or_by_yes_and_no_in_other_languages(tmp_path, columns, label):
    random = np.random.default_rng(7)
    values, unsure = drafted(tmp_path, {name: random.choice(list(words), 200) for name, words in columns.items()})
    rule = values["data"]["labels"]["ctr"]
    assert (rule if isinstance(rule, str) else rule["column"]) == label
    assert any(text.startswith(f"{label}: ") and "is it the label" in text for text in unsure)


def numbers_and_words(words: dict[str, str], rows: int = 600) -> dict[str, np.ndarray]:
    """Columns of which one in eight values is the given word, and of amounts, days, codes and bounds otherwise."""
    random = np.random.default_rng(11)
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.sort(random.integers(0, 200, rows)), unit="D")
    others = {
        "amount": random.normal(50, 9, rows).round(2).astype(str),
        "day": days.strftime("%Y-%m-%d").to_numpy(),
        "code": random.integers(1, 6, rows).astype(str),
        "income": random.integers(0, 900, rows).astype(str),
    }
    rare = random.random((len(words), rows)) < 1 / 8
    known = {name: np.where(one, words[name], others[name]) for name, one in zip(words, rare, strict=True)}
    return {**known, "site": random.choice(["a", "b", "unknown"], rows), "click": random.integers(0, 2, rows)}


def test_a_word_among_numbers_or_times_is_taken_for_a_missing_value_and_asked_about(tmp_path):
    values, unsure = drafted(tmp_path, numbers_and_words({"amount": " ", "day": "never", "income": "unknown"}))
    assert kinds(values) == {"amount": "numeric", "day": "time", "income": "numeric", "site": "categorical"}
    assert values["data"]["missing_values"] == [*USUAL_MISSING, " ", "never", "unknown"]
    asked = {text.split(":")[0] for text in unsure if "taken for a missing value, in every column" in text}
    assert asked == {"amount", "day", "income"}
    config = check_config(values, (), tmp_path / "x.yaml")
    assert check_log(config, values["data"]["paths"]).errors == []


def test_a_word_among_codes_and_a_bound_among_amounts_are_values(tmp_path):
    values, unsure = drafted(tmp_path, numbers_and_words({"code": "other", "income": "900+"}))
    assert kinds(values) == {"code": "categorical", "income": "categorical", "site": "categorical"}
    assert "missing_values" not in values["data"] and not any("missing value" in text for text in unsure)


@pytest.mark.parametrize(
    ("words", "highest", "kind"),
    [
        ("SML", 44, "categorical"),
        ("SML", 400, "numeric"),  # an amount, and the words are asked about
        (["unknown", "not set"], 44, "numeric"),
        (["one size"], 44, "numeric"),
    ],
)
def test_several_words_beside_a_few_numbers_are_sizes(tmp_path, words, highest, kind):
    random = np.random.default_rng(5)
    size = np.where(random.random(600) < 1 / 4, random.choice(list(words), 600), random.integers(36, highest, 600))
    values, unsure = drafted(tmp_path, {"size": size, "click": random.integers(0, 2, 600)})
    assert kinds(values) == {"size": kind}
    assert ("missing_values" in values["data"]) == (kind == "numeric") == any("missing value" in one for one in unsure)


@pytest.mark.parametrize(("other", "words"), [("has_car", ["no", "yes"]), ("click", ["no", "yes"])])
def test_a_word_among_numbers_that_is_a_value_of_another_column_is_no_missing_value(tmp_path, other, words):
    random = np.random.default_rng(3)
    columns = numbers_and_words({"amount": "no", "income": "unknown"})
    values, _ = drafted(tmp_path, columns | {other: random.choice(words, 600)})
    assert values["data"]["missing_values"] == [*USUAL_MISSING, "unknown"]
    assert kinds(values)["income"] == "numeric" and kinds(values).get("amount") != "numeric"


@pytest.mark.parametrize("beside", [False, True])
def test_a_usual_word_stays_a_value_of_texts_unless_numbers_have_it_too(tmp_path, beside):
    random = np.random.default_rng(3)
    columns = numbers_and_words({"amount": " ", "income": "NA" if beside else "unknown"})
    values, _ = drafted(tmp_path, columns | {"region": random.choice(["NA", "EU"], 600)})
    assert ("NA" in values["data"]["missing_values"]) == beside and "N/A" in values["data"]["missing_values"]
    assert kinds(values)["income"] == "numeric"


@pytest.mark.parametrize(("label", "values"), [("click", "01"), ("score", "12345")])
def test_a_column_with_a_word_for_a_missing_value_is_no_label(tmp_path, label, values):
    random = np.random.default_rng(3)
    columns = {"site": random.choice(list("abc"), 300), label: random.choice([*values, "pending"], 300)}
    with pytest.raises(InputError, match=f"none of site, {label} looks like a label; name it with --label"):
        drafted(tmp_path, columns)


def test_a_planned_time_does_not_hide_that_a_log_is_in_the_order_of_its_own_time(tmp_path):
    random = np.random.default_rng(5)
    booked = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.sort(random.integers(0, 10**7, 400)), unit="s")
    rows = {
        "booked_at": booked.strftime("%Y-%m-%d %H:%M:%S"),
        "arrival_date": (booked + pd.to_timedelta(random.integers(1, 300, 400), unit="D")).strftime("%Y-%m-%d"),
        "meal": random.choice(list("abc"), 400),
        "is_canceled": random.integers(0, 2, 400),
    }
    assert drafted(tmp_path, rows)[0]["data"]["split"] == {"by": "order"}
    # Moments of a day are no plan: a log in the order of its days alone is divided by them.
    within = booked.normalize() + pd.to_timedelta(random.integers(0, 86_400, 400), unit="s")
    moments = {"day": booked.strftime("%Y-%m-%d"), "moment": within.strftime("%Y-%m-%d %H:%M:%S")}
    rows = {**moments, "meal": rows["meal"], "click": rows["is_canceled"]}
    assert drafted(tmp_path, rows)[0]["data"]["split"]["column"] == "moment"


def test_one_value_in_the_first_rows_of_a_longer_log_is_asked_about(tmp_path, monkeypatch):
    monkeypatch.setattr("ctrpipe.transforms.log.sample.ROWS", 200)
    monkeypatch.setattr("ctrpipe.pipeline.draft.page.ROWS", 200)
    random = np.random.default_rng(2)
    rows = {"experiment": ["v3"] * 400, "site": random.choice(list("abc"), 400), "click": random.integers(0, 2, 400)}
    values, unsure = drafted(tmp_path, rows)
    assert kinds(values) == {"experiment": "categorical", "site": "categorical"}
    assert "experiment: one value, v3, in the first 200 rows: does it vary later in the log?" in unsure


def test_many_columns_that_are_alike_share_one_comment(tmp_path):
    random = np.random.default_rng(2)
    flags = {f"f{place}": random.integers(0, 2, 300) for place in range(30)}
    path = tmp_path / "wide.csv"
    pd.DataFrame({**flags, "site": random.choice(list("abc"), 300), "target": random.integers(0, 2, 300)}).to_csv(
        path, index=False
    )
    text, _ = draft([str(path)])
    comments = [line.strip() for line in text.splitlines() if "different values" in line]
    assert comments == [
        "# f0 to f29, 30 columns: 2 different values, never missing",
        "# site: 3 different values, never missing",
    ]


def test_a_rare_word_among_numbers_is_left_to_the_check_of_malformed_rows(tmp_path):
    rows = numbers_and_words({"amount": " "})
    rows["amount"] = np.where(rows["amount"] == " ", "1.5", rows["amount"])
    rows["amount"][7] = "oops"
    values, _ = drafted(tmp_path, rows)
    assert kinds(values)["amount"] == "numeric" and "missing_values" not in values["data"]


def test_an_ids_digits_are_no_time_beside_a_column_whose_name_is_a_times(tmp_path):
    rows = 2000
    item = RANDOM.integers(0, 100, rows)
    log = {"member": RANDOM.integers(0, 90, rows), "isbn": 978_000_000_000 + 37 * item, "thing": 978_000_000_000 + item}
    log |= {"score": RANDOM.integers(1, 11, rows), "rated_at": 1_600_000_000 + 60 * np.arange(rows)}
    values, _ = drafted(tmp_path, log)
    assert kinds(values)["isbn"] == "categorical" and values["data"]["split"] == {"by": "order"}
    assert values["data"]["labels"] == {"ctr": {"column": "score", "threshold": 8}}


def test_where_a_row_was_shown_is_no_rating(tmp_path):
    rows = 300
    log = {"slot_rank": RANDOM.integers(1, 11, rows), "user": RANDOM.integers(0, 20, rows), "a": ["x", "y", "z"] * 100}
    with pytest.raises(InputError, match="none of slot_rank, user, a looks like a label"):
        drafted(tmp_path, log)


@pytest.mark.parametrize(
    "words", [("Erfolg", "Kein Erfolg"), ("bought", "not bought"), ("subscriber", "non-subscriber")]
)
def test_a_word_and_its_opposite_are_a_label(tmp_path, words):
    results = [words[one] for one in RANDOM.integers(0, 2, 400)]
    log = {"Alter": RANDOM.integers(18, 70, 400), "Kanal": ["a", "b", "c", "d"] * 100, "Ergebnis": results}
    values, _ = drafted(tmp_path, log)
    expected = {"column": "Ergebnis", "positive": [words[0]], "negative": [words[1]]}
    assert values["data"]["labels"] == {"ctr": expected}


def test_what_happened_before_a_row_is_a_feature(tmp_path):
    rows = 1200
    log = {"user": [f"u{one}" for one in RANDOM.integers(0, 300, rows)], "cancelled": RANDOM.integers(0, 2, rows)}
    log["last_action"] = RANDOM.choice(["none", "purchase"], rows, p=[0.8, 0.2])
    values, _ = drafted(tmp_path, log)
    assert values["data"]["labels"] == {"ctr": "cancelled"} and "last_action" in kinds(values)


@pytest.mark.parametrize("words", [("", "IN"), ("feed", "in-feed")])
def test_a_country_and_a_place_are_no_opposites(tmp_path, words):
    log = {"user": [f"u{one}" for one in RANDOM.integers(0, 300, 600)], "where": RANDOM.choice(words, 600)}
    with pytest.raises(InputError, match="none of user, where looks like a label"):
        drafted(tmp_path, log)


def test_words_for_what_happened_are_a_label(tmp_path):
    rows = 1200
    log = {"user": [f"u{one}" for one in RANDOM.integers(0, 300, rows)], "position": RANDOM.integers(1, 9, rows)}
    log |= {"video": [f"v{one}" for one in RANDOM.integers(0, 99, rows)], "is_hd": RANDOM.integers(0, 2, rows)}
    log["interaction"] = RANDOM.choice(["none", "click", "like"], rows, p=[0.8, 0.15, 0.05])
    values, unsure = drafted(tmp_path, log)
    rule = {"column": "interaction", "positive": ["click", "like"], "negative": ["none"]}
    assert values["data"]["labels"] == {"ctr": rule} and set(kinds(values)) == {"user", "position", "video", "is_hd"}
    assert any(line.startswith("interaction: click or like in ") and line.endswith("?") for line in unsure)


@pytest.mark.parametrize("said", [{}, {"label": "event"}])
def test_a_click_beside_the_row_of_its_view_is_an_event_and_no_impression(tmp_path, said):
    views = [(f"u{RANDOM.integers(200)}", f"i{RANDOM.integers(80)}") for _ in range(600)]
    rows = [(time, *view, event) for time, view in enumerate(views) for event in ("view", "click")[: 1 + time % 2]]
    log = dict(zip(("ts", "user", "item", "event"), map(list, zip(*rows, strict=True)), strict=True))
    log["ts"] = [1_700_000_000 + 9 * time for time in log["ts"]]
    message = (
        "event names events: a row with click has an earlier one with view of the same user and item, .*prepare labels"
    )
    with pytest.raises(InputError, match=message):
        drafted(tmp_path, log, **said)


@pytest.mark.parametrize("said", [{}, {"label": "clicked_at"}])
def test_the_time_of_a_click_is_a_label_where_others_have_none(tmp_path, said):
    rows = 600
    shown = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows) * 60, unit="s")
    clicked = pd.Series(shown + pd.to_timedelta(7, unit="s")).where(RANDOM.random(rows) < 0.3)
    log = {"shown_at": shown, "ad": [f"a{one}" for one in RANDOM.integers(0, 30, rows)], "clicked_at": clicked}
    values, unsure = drafted(tmp_path, log, **said)
    assert values["data"]["labels"] == {"ctr": {"column": "clicked_at", "negative": [""]}}
    assert any(line.startswith("clicked_at: a row without a time, ") for line in unsure)
    found = check_log(check_config(values, (), "log.yaml"), [str(tmp_path / "log.csv")])
    assert not found.errors and found.rejected == 0


def test_a_word_among_amounts_with_a_sign_is_asked_about(tmp_path):
    rows = 400
    cost = [f"€ {one:.2f}" for one in RANDOM.uniform(1, 30, rows)]
    cost[::9] = ["free"] * len(cost[::9])
    values, unsure = drafted(
        tmp_path, {"cost": cost, "a": ["x", "y", "z", "w"] * 100, "click": RANDOM.integers(0, 2, rows)}
    )
    assert kinds(values)["cost"] == "numeric" and "free" in values["data"]["missing_values"]
    assert any(line.startswith("cost: ") and "'free' is taken for a missing value" in line for line in unsure)


def test_a_step_before_the_label_is_left_out_and_said(tmp_path):
    rows = 2000
    clicked = RANDOM.random(rows) < 0.3
    bought = clicked & (RANDOM.random(rows) < 0.3)
    words = {name: np.where(values, "ja", "nej") for name, values in (("klickade", clicked), ("köpte", bought))}
    free = np.where(RANDOM.random(rows) < 0.5, "ja", "nej")
    values, unsure = drafted(tmp_path, {"fri": free, "ort": ["x", "y", "z", "w"] * 500, **words}, label="köpte")
    assert set(kinds(values)) == {"fri", "ort"}
    assert any(line.startswith("klickade: ja in every row with a click, as a step before it") for line in unsure)


def test_a_column_of_two_words_is_named_where_no_label_is_known(tmp_path):
    rows = 200
    log = {"jinsia": RANDOM.choice(["me", "ke"], rows), "mji": RANDOM.choice(["a", "b", "c"], rows)}
    log |= {"alinunua": RANDOM.choice(["ndiyo", "hapana"], rows, p=[0.2, 0.8])}
    message = "looks like a label; name it with --label, such as jinsia (ke or me) or alinunua (hapana or ndiyo)"
    with pytest.raises(InputError, match=re.escape(message)):
        drafted(tmp_path, log)
    values, _ = drafted(tmp_path, log, label="alinunua")
    rule = {"column": "alinunua", "positive": ["ndiyo"], "negative": ["hapana"]}
    assert values["data"]["labels"] == {"ctr": rule}


def test_a_result_of_two_words_is_a_label_and_a_persons_status_is_none(tmp_path):
    rows = 400
    log = {"marital_status": RANDOM.choice(["single", "married"], rows), "term": RANDOM.choice(["36 m", "60 m"], rows)}
    with pytest.raises(InputError, match=r"such as term \(36 m or 60 m\) or marital_status \(married"):
        drafted(
            tmp_path,
            {"term": log["term"], "marital_status": log["marital_status"], "purpose": ["a", "b", "c", "d"] * 100},
        )
    log["Loan Status"] = RANDOM.choice(["Fully Paid", "Charged Off"], rows, p=[0.8, 0.2])
    values, unsure = drafted(tmp_path, log | {"purpose": ["x", "y", "z", "w"] * 100})
    rule = {"column": "Loan Status", "positive": ["Charged Off"], "negative": ["Fully Paid"]}
    assert values["data"]["labels"] == {"ctr": rule} and "Loan Status" not in kinds(values)
    assert any(line.startswith("Loan Status: positive is 'Charged Off'") and line.endswith("?") for line in unsure)


def test_shortened_names_of_amounts_are_numbers_and_flags_with_such_a_word_are_categories(tmp_path):
    rows = 600
    log = {"loan_amnt": RANDOM.integers(20, 90, rows) * 50, "mths_since_late": RANDOM.integers(1, 80, rows)}
    log |= {"is_premium": RANDOM.choice([1.0, 0.0, np.nan], rows), "hasDiscount": RANDOM.integers(0, 2, rows)}
    log |= {"premium": RANDOM.integers(1, 40, rows), "click": RANDOM.integers(0, 2, rows)}
    numbers = dict.fromkeys(("loan_amnt", "mths_since_late", "premium"), "numeric")
    assert kinds(drafted(tmp_path, log)[0]) == numbers | dict.fromkeys(("is_premium", "hasDiscount"), "categorical")


def test_the_rows_own_time_is_not_asked_about_because_a_signup_was_before(tmp_path):
    rows = 600
    shown = pd.Timestamp("2026-03-01") + pd.to_timedelta(np.arange(rows) * 60, unit="s")
    log = {"signup": shown - pd.to_timedelta(RANDOM.integers(1, 90, rows), unit="D"), "shown_at": shown}
    log |= {"until": shown + pd.to_timedelta(RANDOM.integers(1, 90, rows), unit="D"), "click": [0, 1] * 300}
    _, unsure = drafted(tmp_path, log)
    assert not any(line.startswith("shown_at:") for line in unsure)
    assert any(line.startswith("until:") and "times after those of shown_at: are they known" in line for line in unsure)
