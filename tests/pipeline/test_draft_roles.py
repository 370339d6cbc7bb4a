"""The columns that `ctrpipe init` makes no features of: weights, split markers, ids of the row and other labels."""

import pathlib

import numpy as np
import pytest
import yaml

from ctrpipe.pipeline.draft.page import draft

ROWS = 600
RANDOM = np.random.default_rng(11)
CLICK = (RANDOM.random(ROWS) < 0.3).astype(int)
SITE = RANDOM.integers(0, 9, ROWS)
VIEWS = RANDOM.integers(1, 200, ROWS)
CLICKS = RANDOM.binomial(VIEWS, 0.2)
ROUNDED_RATE = [f"{clicks / views:.4f}" for clicks, views in zip(CLICKS, VIEWS, strict=True)]


def drafted(folder: pathlib.Path, label: str | None = None, **columns: object) -> tuple[dict, str, list[str]]:
    """Returns the draft of a log of these columns and `site`: its values, its text and what it is unsure of."""
    named = {"site": [f"s{value}" for value in SITE], **columns}
    lines = [",".join(named), *(",".join(map(str, row)) for row in zip(*named.values(), strict=True))]  # type: ignore[call-overload]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    text, unsure = draft([str(folder / "log.csv")], label)
    return yaml.safe_load(text), text, unsure


def features(values: dict) -> dict[str, str]:
    return {column: group["kind"] for group in values["features"] for column in group["columns"]}


def by_label(of_click: float, of_other: float) -> list[float]:
    return [of_click if click else of_other for click in CLICK]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sample_weight", RANDOM.choice([0.5, 1, 3], ROWS)),
        ("importance_weight", RANDOM.random(ROWS) * 7),
        ("ips_weight", RANDOM.integers(1, 900, ROWS)),
        ("weight", by_label(1, 10)),  # downsampled rows without a click
        ("Weight", by_label(2.5, 0.4)),
        ("weight", 1 + np.linspace(-0.5, 0.5, ROWS)),  # scaled to a mean of 1
    ],
)
def test_a_weight_is_drafted_as_the_weight(tmp_path: pathlib.Path, name: str, values: object) -> None:
    found, _, unsure = drafted(tmp_path, click=CLICK, **{name: values})
    assert found["data"]["weight"] == name and features(found) == {"site": "categorical"}
    assert any(line.startswith(f"{name}: taken for the weight") for line in unsure)


def test_a_weight_that_may_be_a_product_s_is_asked_for_or_a_feature(tmp_path: pathlib.Path) -> None:
    few, text, unsure = drafted(tmp_path, click=CLICK, weight=RANDOM.choice([1, 2, 5, 10], ROWS))
    assert "weight" not in few["data"] and features(few) == {"site": "categorical"}
    assert "#? weight: the weight of the row (data.weight), or a feature?" in text
    assert any("Left out until you say which" in line for line in unsure)
    kilos = np.round(RANDOM.lognormal(1, 1, ROWS), 2)
    many, text, _ = drafted(tmp_path, click=CLICK, weight=kilos, weight_kg=kilos, price=kilos)
    assert "weight" not in many["data"]
    assert features(many) == {"site": "categorical"} | dict.fromkeys(("weight", "weight_kg", "price"), "numeric")
    assert "#? weight: " in text and "or the weight of the row (data.weight)?" in text
    constant, text, _ = drafted(tmp_path, click=CLICK, sample_weight=[1] * ROWS)
    assert "weight" not in constant["data"] and "sample_weight" not in features(constant)


@pytest.mark.parametrize("name", ["impressions", "num_impressions", "imps", "views", "total_shows"])
def test_a_rate_has_its_impressions_as_weight_and_not_its_clicks_as_feature(tmp_path: pathlib.Path, name: str) -> None:
    columns = {name: VIEWS, "clicks": CLICKS, "ctr": ROUNDED_RATE}
    found, _, _ = drafted(tmp_path, **columns)
    assert found["data"]["labels"] == {"ctr": "ctr"} and found["data"]["weight"] == name
    assert features(found) == {"site": "categorical"}


def test_impressions_beside_a_click_are_a_number(tmp_path: pathlib.Path) -> None:
    found, _, _ = drafted(tmp_path, click=CLICK, views=VIEWS, ctr=ROUNDED_RATE)
    assert "weight" not in found["data"] and found["data"]["labels"] == {"ctr": "click"}
    assert features(found) == {"site": "categorical", "views": "numeric", "ctr": "numeric"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("split", ["train", "valid", "test"]),
        ("part", ["Train", "Test"]),
        ("dataset", ["train"]),  # the first rows are of one set
        ("somewhere", ["tr", "va", "te"]),
        ("fold", [0, 1, 2, 3, 4]),
        ("cv_fold", ["0.0", "1.0"]),
        ("split", [0, 1]),
        ("is_train", [0, 1]),
        ("holdout", ["test", "train"]),
        ("in_test", ["True", "False"]),
    ],
)
def test_a_split_marker_is_left_out_and_no_label(tmp_path: pathlib.Path, name: str, values: list) -> None:
    found, text, _ = drafted(tmp_path, **{name: RANDOM.choice(values, ROWS), "answer": CLICK})
    assert found["data"]["labels"] == {"ctr": "answer"} and features(found) == {"site": "categorical"}
    assert f"#? {name}: says which rows are for training" in text


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("vehicle", ["train", "bus", "car"]),
        ("part", ["engine", "wheel"]),
        ("set", [1, 2, 3]),
        ("group", ["test", "control"]),
        ("dataset", ["north", "south"]),
        ("manifold", [0, 1, 2]),
        ("is_valid", [0, 1]),
        ("paid", [0, 1]),
        ("weekend", [0, 1]),
    ],
)
def test_what_only_looks_like_a_marker_or_a_label_is_a_feature(tmp_path: pathlib.Path, name: str, values: list) -> None:
    found, _, _ = drafted(tmp_path, click=CLICK, **{name: RANDOM.choice(values, ROWS)})
    assert name in features(found)


@pytest.mark.parametrize("name", ["order", "is_order", "conversion", "add_to_cart", "is_like", "long_view"])
def test_another_label_is_left_out_with_a_question(tmp_path: pathlib.Path, name: str) -> None:
    found, text, unsure = drafted(tmp_path, click=CLICK, **{name: RANDOM.integers(0, 2, ROWS)})
    assert found["data"]["labels"] == {"ctr": "click"} and name not in features(found)
    assert any(line.startswith(name) and "looks like a label too" in line for line in unsure)


def test_what_is_1_in_clicked_rows_alone_is_left_out_whatever_its_name(tmp_path: pathlib.Path) -> None:
    after = CLICK * RANDOM.integers(0, 2, ROWS)
    words = ["yes" if value else "no" for value in after]
    found, text, _ = drafted(tmp_path, click=CLICK, reached=after, page_2=words, mobile=RANDOM.integers(0, 2, ROWS))
    assert features(found) == {"site": "categorical", "mobile": "categorical"}
    assert "#? reached: 1 only in rows with a click" in text and "#? page_2: yes only in rows with a click" in text


def test_a_number_that_is_0_without_a_click_is_left_out_and_another_is_kept(tmp_path: pathlib.Path) -> None:
    paid = CLICK * RANDOM.integers(0, 2, ROWS) * RANDOM.uniform(1, 90, ROWS).round(2)
    before = RANDOM.integers(0, 2, ROWS) * RANDOM.uniform(1, 90, ROWS).round(2)
    found, text, _ = drafted(tmp_path, click=CLICK, recovered=paid, owed=before)
    assert features(found) == {"site": "categorical", "owed": "numeric"}
    assert "#? recovered: other than 0 only in rows with a click" in text


@pytest.mark.parametrize(
    ("name", "of_click", "of_other", "is_left_out"),
    [
        ("order", "01", "", True),  # known after a click alone
        ("landing_page", "xyz", "", True),
        ("order", ["1", ""], "0", True),
        ("dwell", ["3.5", "0.4", ""], ["", "NULL"], True),
        ("referrer", ["", "web"], ["", "web"], False),
        ("coupon", ["", "5.5", "1.2"], ["", "5.5", "1.2", "0.5"], False),
    ],
)
def test_what_has_a_value_in_clicked_rows_alone_is_left_out(
    tmp_path: pathlib.Path, name: str, of_click: str, of_other: str, is_left_out: bool
) -> None:
    of_class = [list(of_other) or [""], list(of_click)]
    values = [of_class[click][RANDOM.integers(len(of_class[click]))] for click in CLICK]
    found, text, _ = drafted(tmp_path, click=CLICK, **{name: values})
    assert (name not in features(found)) == is_left_out
    assert (f"#? {name}: " in text) == is_left_out


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("request_id", np.arange(ROWS) // 2),  # two rows a request
        ("impression_id", [f"i{number // 3}" for number in range(ROWS)]),
        ("uuid", [f"{number * 7919:08x}" for number in range(ROWS)]),
        ("id", RANDOM.permutation(ROWS) + 17),
        ("n", RANDOM.permutation(ROWS)),  # no name of an id: the values number the rows
        ("n", [f"{number}.0" for number in RANDOM.permutation(ROWS)]),
    ],
)
def test_an_id_of_the_row_is_left_out(tmp_path: pathlib.Path, name: str, values: object) -> None:
    found, text, _ = drafted(tmp_path, click=CLICK, **{name: values})
    assert features(found) == {"site": "categorical"} and f"#? {name}: " in text


def test_ids_that_repeat_and_different_amounts_stay(tmp_path: pathlib.Path) -> None:
    amounts = RANDOM.permutation(900_000)[:ROWS]
    found, _, _ = drafted(
        tmp_path, click=CLICK, id=RANDOM.integers(0, 40, ROWS), ad_id=RANDOM.integers(0, 60, ROWS), cents=amounts
    )
    assert features(found) == {
        "site": "categorical",
        "id": "categorical",
        "ad_id": "categorical",
        "cents": "numeric",
    }
