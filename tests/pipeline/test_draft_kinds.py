"""What `ctrpipe init` drafts for labels of numbers, weighted lists and lists of lists."""

import json
import pathlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import check_hyperparameters
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.draft import page
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.draft.page import Said, draft
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.guess import ColumnSample
from ctrpipe.transforms.log.sample import read_sample

pytestmark = pytest.mark.usefixtures("trees")

ROWS = 600


def rows(**more: Callable[[int, np.random.Generator], object]) -> list[dict]:
    random = np.random.default_rng(5)
    made = []
    for number in range(ROWS):
        tags = [f"g{tag}" for tag in random.integers(0, 12, random.integers(0, 5))]
        seen = [f"i{item}" for item in random.integers(0, 30, random.integers(0, 4))]
        row = {
            "click": int(random.random() < 0.3),
            "site": f"s{random.integers(5)}",
            "item": f"i{random.integers(30)}",
            "tags": tags,
            "tag_weights": [round(float(weight), 3) for weight in random.random(len(tags))],
            "seen": seen,
            "topics": [[f"t{topic}" for topic in random.integers(0, 6, random.integers(1, 4))] for _ in seen],
            "watch_time": None if number % 7 == 0 else round(float(random.gamma(2, 10)), 2),
        }
        made.append(row | {name: make(number, random) for name, make in more.items()})
    return made


def as_parquet(folder: pathlib.Path, log: list[dict]) -> str:
    pq.write_table(pa.Table.from_pylist(log), folder / "log.parquet")
    return str(folder / "log.parquet")


def as_jsonl(folder: pathlib.Path, log: list[dict]) -> str:
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
    return str(folder / "log.jsonl")


def drafted(log: str, **said: object) -> tuple[dict, str, list[str]]:
    text, unsure = draft([log], said=Said(**said))  # type: ignore[arg-type]
    values = yaml.safe_load(text)
    assert not check_log(RunConfig.model_validate(values), [log]).errors
    check_hyperparameters(**values["model"])
    return values, text, unsure


def feature_of(values: dict, column: str) -> dict | None:
    return next((group for group in values["features"] if column in group["columns"]), None)


@pytest.mark.parametrize("write", [as_parquet, as_jsonl])
def test_lists_with_weights_and_lists_of_lists_are_drafted_in_every_format(tmp_path, write):
    log = write(tmp_path, rows())
    assert read_sample(log).rows == ROWS and read_sample(log).within == {"topics": ","}
    values, _, unsure = drafted(log)
    assert values["derived"] == {"weighted_tags": {"kind": "weighted", "values": "tags", "weights": "tag_weights"}}
    weighted = feature_of(values, "weighted_tags")
    assert (weighted["kind"], weighted["weights"], weighted["max_length"]) == ("multivalent", ":", 4)
    assert not feature_of(values, "tags") and not feature_of(values, "tag_weights")
    assert any(line.startswith("weighted_tags: tags with the weights in tag_weights") for line in unsure)
    nested = feature_of(values, "topics")
    assert values["model"]["name"] == "lightgbm"
    assert nested == {
        **{"columns": ["seen", "topics"], "shared_with": ["item", None]},
        **{"kind": "sequence", "separator": "|", "max_length": 3, "within": ",", "values_per_item": {"topics": 3}},
    }


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([f"{number**3:06d}" for number in range(60)], "code"),
        ([str(number**3) for number in range(60)], "amount"),  # many values, most of them small
        (["0.5", "10", "2"], "amount"),
    ],
)
def test_numbers_with_leading_zeros_are_codes(values, what):
    assert ColumnSample("place", values * 60).numbers.what == what


# No whole number occurs twice, and all are far from 0. Less than two apart on average, they count rows.
@pytest.mark.parametrize(("apart", "last", "what"), [(1, 0, "row"), (2, 0, "row"), (2, 9, "amount"), (3, 0, "amount")])
def test_different_whole_numbers_that_are_dense_count_rows_and_others_are_amounts(apart, last, what):
    numbers = [5_000_000 + apart * number for number in range(120)]
    numbers[-1] += last
    found = ColumnSample("place", [str(number) for number in numbers]).numbers
    assert (found.what, found.unsure) == (what, what == "amount")


def test_a_network_reads_lists_of_lists_beside_their_items(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "count_rows", lambda files, sample: 2_000_000)
    values, _, _ = drafted(as_parquet(tmp_path, rows()))
    history = feature_of(values, "topics")
    assert values["model"]["name"] == "din" and history is feature_of(values, "seen")
    assert (history["columns"], history["shared_with"]) == (["seen", "topics"], ["item", None])
    assert history["within"] == "," and history["values_per_item"] == {"topics": 3}


def test_the_inner_sign_is_none_of_the_values(tmp_path):
    log = as_jsonl(tmp_path, rows(topics=lambda number, random: [["a,b", f"t{number % 9}"], ["c;d"]]))
    values, _, _ = drafted(log)
    assert feature_of(values, "topics")["within"] == "/"


def test_weights_in_text_have_the_separator_of_their_values(tmp_path):
    lines = ["click,site,tags,score"]
    for row in rows():
        joined = (" ".join(row["tags"]), " ".join(map(str, row["tag_weights"])))
        lines.append(f"{row['click']},{row['site']},{joined[0]},{joined[1]}")
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    values, _, _ = drafted(str(tmp_path / "log.csv"))
    expected = {"kind": "weighted", "values": "tags", "weights": "score", "separator": " "}
    assert values["derived"] == {"weighted_tags": expected}


@pytest.mark.parametrize(
    "change",
    [
        lambda number, random: [0.5] * random.integers(1, 5),  # of another length
        lambda number, random: [f"w{number % 3}"],  # no numbers
    ],
)
def test_lists_that_only_look_like_weights_are_none(tmp_path, change):
    values, _, _ = drafted(as_parquet(tmp_path, rows(tag_weights=change)))
    assert "derived" not in values and feature_of(values, "tags")["kind"] == "multivalent"


def test_a_list_of_objects_is_left_out_and_costs_no_row(tmp_path):
    deep = [{"price": 1, "of": {"shop": "a"}}]
    log = as_jsonl(tmp_path, rows(topics=lambda number, random: [deep, deep]))
    values, _, unsure = drafted(log)
    assert "topics is left out: it does not have a single value per row." in unsure and not feature_of(values, "topics")
    assert read_sample(log).rows == ROWS


# Maps -------------------------------------------------------------------------------------------------------------


def interests(number: int, random: np.random.Generator) -> dict | None:
    chosen = random.choice(20, random.integers(0, 4), replace=False)
    return None if number % 9 == 0 else {f"k{key}": round(float(random.random()), 3) for key in chosen}


def as_maps(folder: pathlib.Path, log: list[dict]) -> str:
    kinds = [("likes", pa.map_(pa.string(), pa.float64())), ("of.likes", pa.map_(pa.string(), pa.int32()))]
    maps = {name: pa.array([row[name] for row in log], kind) for name, kind in kinds}
    pq.write_table(pa.table({"click": [row["click"] for row in log], **maps}), folder / "log.parquet")
    return str(folder / "log.parquet")


@pytest.mark.parametrize("write", [as_maps, as_jsonl])
def test_maps_of_values_to_numbers_are_weighted_values(tmp_path, write):
    counts = {"of.likes": lambda number, random: {str(key): int(key) for key in random.choice(30, 3, replace=False)}}
    log = write(tmp_path, rows(likes=interests, **counts))
    assert read_sample(log).maps == {"likes", "of.likes"}
    values, _, _ = drafted(log)
    settings = {"kind": "multivalent", "separator": "|", "top_k": 100_000, "weights": ":"}
    feature = feature_of(values, "likes")
    assert {**feature, "columns": sorted(feature["columns"])} == {
        "columns": ["likes", "of.likes"],
        **settings,
        "max_length": 3,
    }


def test_records_and_maps_to_texts_are_no_weighted_values(tmp_path):
    record = {f"field{place}": place for place in range(12)}
    text = [("a", "b")]
    log = as_jsonl(tmp_path, rows(ad=lambda number, random: {**record, "price": 0.5 * number}))
    assert not read_sample(log).maps and "ad.price" in read_sample(log).columns
    pq.write_table(
        pa.table({"click": [0, 1], "words": pa.array([text, text], pa.map_(pa.string(), pa.string()))}),
        tmp_path / "words.parquet",
    )
    assert not read_sample(str(tmp_path / "words.parquet")).columns.keys() - {"click"}


# Numbered columns ---------------------------------------------------------------------------------------------------


def of_numbers(columns: dict[str, np.ndarray], tmp_path: pathlib.Path) -> str:
    random = np.random.default_rng(3)
    table = {"click": random.integers(0, 2, ROWS), "site": [f"s{site}" for site in random.integers(0, 5, ROWS)]}
    pq.write_table(pa.table({**table, **columns}), tmp_path / "log.parquet")
    return str(tmp_path / "log.parquet")


def normal(count: int, name: str, **other: float) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {name.format(place): random.normal(0, other.get("scale", 1.0), ROWS) for place in range(count)}


@pytest.mark.parametrize(
    ("name", "written"), [("emb_{:02}", "emb_00..emb_11"), ("user vec{}", "user vec0..user vec11")]
)
def test_numbered_columns_of_one_scale_are_one_vector(tmp_path, name, written):
    values, _, unsure = drafted(of_numbers(normal(12, name), tmp_path))
    [(vector, made)] = values["derived"].items()
    assert made == {"kind": "vector", "of": [written]}
    assert feature_of(values, vector) == {"columns": [vector], "kind": "vector", "length": 12}
    assert any("seem to be the elements of one vector" in line for line in unsure)


def test_a_constant_element_is_left_out_of_its_vector(tmp_path):
    columns = normal(20, "e{:03}") | {"e005": np.zeros(ROWS)}
    values, _, _ = drafted(of_numbers(columns, tmp_path))
    assert values["derived"] == {"e": {"kind": "vector", "of": ["e000..e004", "e006..e019"]}}
    assert feature_of(values, "e")["length"] == 19


@pytest.mark.parametrize(
    "change",
    [
        {"emb_3": np.arange(ROWS) * 1.5},  # of another scale
        {"emb_3": np.arange(ROWS) % 7},  # of whole numbers
        {"emb_3": np.where(np.arange(ROWS) % 5, np.arange(ROWS) % 11 / 8, np.nan)},  # missing where others are not
        {f"emb_{place}": np.array(["a", "b"] * (ROWS // 2)) for place in range(2, 9)},  # gaps
    ],
)
def test_numbered_columns_that_differ_stay_numbers(tmp_path, change):
    values, _, _ = drafted(of_numbers(normal(12, "emb_{}") | change, tmp_path))
    assert "derived" not in values and feature_of(values, "emb_0")["kind"] == "numeric"


def test_a_few_numbered_columns_whose_name_says_no_vector_stay_numbers(tmp_path):
    values, _, _ = drafted(of_numbers(normal(12, "price{}"), tmp_path))
    assert "derived" not in values and feature_of(values, "price0")["kind"] == "numeric"


# Labels of numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["watch_time", "play_duration_ms", "dwell_time", "order_value", "revenue", "time_spent", "watched_seconds"]
)
def test_a_number_that_follows_the_click_is_no_feature(tmp_path, name):
    log = [{name if key == "watch_time" else key: value for key, value in row.items()} for row in rows()]
    values, _, unsure = drafted(as_parquet(tmp_path, log))
    assert not feature_of(values, name) and values["data"]["labels"] == {"ctr": "click"}
    assert any(line.startswith(f"{name}: a number that follows the click") and "--label" in line for line in unsure)


@pytest.mark.parametrize(
    ("name", "value"), [("duration", 9.5), ("view_time", 1_700_000_000), ("price", 3.5), ("watch_time", "long")]
)
def test_other_numbers_and_moments_stay_features(tmp_path, name, value):
    log = rows(**{name: lambda number, random: value if isinstance(value, str) else value + number % 50})
    log = [{key: value for key, value in row.items() if key in (name, "click", "site")} for row in log]
    if name == "watch_time":
        log = [{**row, name: f"{row[name]}{number % 3}"} for number, row in enumerate(log)]
    values, _, _ = drafted(as_parquet(tmp_path, log))
    assert feature_of(values, name)


@pytest.mark.parametrize(("sign", "predicts"), [(1, "count"), (-1, "mean")])
def test_a_number_as_the_label_is_predicted_beside_the_clicks(tmp_path, sign, predicts):
    log = [{**row, "watch_time": row["watch_time"] and sign * row["watch_time"]} for row in rows()]
    values, text, _ = drafted(as_parquet(tmp_path, log), label="watch_time")
    number = {"column": "watch_time", "predicts": predicts}
    assert values["data"]["labels"] == {"ctr": "click", "watch_time": number}
    assert values["model"]["name"] == "mmoe" and not feature_of(values, "watch_time")
    assert values["gates"]["numbers"] == {"watch_time": {"r2": {"min": 0}}}
    known = [row["watch_time"] for row in log if row["watch_time"] is not None]
    assert f"# watch_time: a number, {np.mean(known):.4g} on average, 14% missing" in text


@pytest.mark.parametrize(("count", "batch"), [(2_000_000, 1024), (5_000_000, 4096)])
def test_a_number_beside_the_clicks_of_a_long_log_is_learned_in_one_epoch(tmp_path, monkeypatch, count, batch):
    monkeypatch.setattr(page, "count_rows", lambda files, sample: count)
    values, _, _ = drafted(as_parquet(tmp_path, rows()), label="watch_time")
    training = RunConfig.model_validate(values).training
    assert (values["model"]["name"], training.epochs, training.decay) == ("mmoe", 1, "cosine")
    assert (training.batch_size, training.refit, training.start_at_base_rate) == (batch, False, True)


def test_a_name_that_is_no_task_is_made_one(tmp_path):
    log = [{"1. time-seen" if key == "watch_time" else key: value for key, value in row.items()} for row in rows()]
    values, _, _ = drafted(as_parquet(tmp_path, log), label="1. time-seen")
    assert values["data"]["labels"]["timeseen"] == {"column": "1. time-seen", "predicts": "count"}


def test_a_number_without_clicks_beside_it_and_a_list_are_one_line(tmp_path):
    log = as_parquet(tmp_path, [{"site": row["site"], "watch_time": row["watch_time"]} for row in rows()])
    with pytest.raises(InputError, match="--label watch_time: numbers, which a model predicts in addition to clicks"):
        draft([log], label="watch_time")
    with pytest.raises(InputError, match="--label tags: .* are not values of a label"):
        draft([as_parquet(tmp_path, rows())], label="tags")


@pytest.mark.parametrize(
    ("repeated", "once", "least"), [(1001, 0, 2), (101, 900, 2), (100, 1500, None), (1000, 0, None)]
)
def test_an_id_that_occurs_once_is_unknown_where_there_are_many_ids_that_repeat(repeated, once, least):
    values = [f"r{number % repeated}" for number in range(20 * repeated)] + [f"o{number}" for number in range(once)]
    found = Categorical.guess(ColumnSample("id", values))
    assert found and found.settings.get("min_count") == least
