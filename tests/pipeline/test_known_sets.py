"""`ctrpipe init --dataset`: published files are recognised, and a run goes on from the configuration."""

import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import ctrpipe
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config import load_config, read_yaml
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.draft.page import draft, draft_of_known
from ctrpipe.pipeline.draft.sets import registry
from ctrpipe.pipeline.draft.sets.registry import SETS
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.transforms.generate import generate_kddcup2012
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.split import SPLITS
from tests.pipeline.published_sets import (
    SHAPES,
    amazon_2014,
    amazon_2023,
    amazon_ratings,
    criteo_1tb,
    mind,
    movielens_1m,
    movielens_25m,
    taobao_ads,
    taobao_events,
    write,
)

# The training, validation and test rows; None where they follow from draws.
EXPECTED = {
    "criteo": [480, 60, 60],
    "criteo_1tb": [1000, 100, 100],
    "avazu": [480, 60, 60],
    "mind": [400, 400, 240],
    "taobao ads": [450, 75, 75],
}


def drafted(name, folder):
    text, unsure = draft_of_known(name, [str(folder)])
    assert all("meta_Electronics.json.gz is no JSON lines" in sentence for sentence in unsure)
    assert text.startswith(f"# Written by `ctrpipe init --dataset {name}`.")
    return load_config(read_yaml(text))


def ingested(config, folder):
    folders = {name: folder / name for name in SPLITS}
    for each in folders.values():
        each.mkdir()
    placed, files = config.placed(joined(config.data.paths, config, folder / "run"))
    result = ingest(placed.log_spec, files, 1, folders, folder, Workers(processes=1))
    rows = {name: pa.Table.from_batches(read_payload(payload_files(folders[name]))) for name in SPLITS}
    return result, rows


def test_each_set_that_the_option_names_has_a_shape_here():
    assert {name for name, _ in SHAPES.values()} | {"kddcup2012"} == set(SETS)
    shown = CliRunner().invoke(main, ["init", "--help"]).output
    assert all(name in shown for name in SETS)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_published_set_is_checked_and_read_from_its_configuration(tmp_path, shape):
    name, writes = SHAPES[shape]
    writes(tmp_path / "set")
    config = drafted(name, tmp_path / "set")
    assert not check_log(config, config.data.paths).errors
    result, rows = ingested(config, tmp_path)
    assert not result.rejected
    assert [table.num_rows for table in rows.values()] == EXPECTED.get(shape) or (
        shape not in EXPECTED and all(table.num_rows > 20 for table in rows.values())
    )
    for table in rows.values():
        clicks = table[config.label_columns[0]].to_pylist()
        assert 0 < sum(clicks) < len(clicks)
    every = pa.concat_tables(rows.values())
    empty = [column for column in config.feature_columns if every[column].null_count == every.num_rows]
    assert not empty


@pytest.mark.parametrize(
    ("shape", "column", "rows"),
    [
        ("criteo", "C1", 10),
        ("avazu", "site_id", 4),
        ("kuairand", "user_id", 2),
        ("mind", "title", 3),
        ("taobao ads", "user", 2),
        ("taobao events", "item", 2),
    ],
)
def test_an_id_of_a_published_set_has_its_own_embedding_from_so_many_rows_on(tmp_path, shape, column, rows):
    name, writes = SHAPES[shape]
    writes(tmp_path)
    features = drafted(name, tmp_path).features
    assert {feature.min_count for feature in features if column in feature.columns} == {rows}


def test_lists_of_impressions_become_rows_with_history_and_news(tmp_path):
    mind(tmp_path / "set")
    first = (tmp_path / "set" / "MINDsmall_train" / "behaviors.tsv").read_text().splitlines()[4].split("\t")
    _, rows = ingested(drafted("mind", tmp_path / "set"), tmp_path)
    shown = [token.rpartition("-") for token in first[4].split()]
    at = 16 // 2  # the fifth list, of the first day: validation rows are those of the second
    found = rows["train"].slice(at, 4).to_pylist()
    assert [(row["item"].decode(), row["label"]) for row in found] == [(item, float(y)) for item, _, y in shown]
    assert {row["history"].decode() for row in found} == {first[3]} and {row["user"] for row in found} == {b"U2"}
    number = int(found[0]["item"][1:])
    assert found[0]["category"] == [b"sports", b"news"][number % 2]
    assert found[0]["title"] == b'The "title" of number %d' % number


def test_films_and_users_are_joined_before_histories_are_made(tmp_path):
    movielens_1m(tmp_path / "set")
    _, rows = ingested(drafted("movielens", tmp_path / "set"), tmp_path)
    for row in rows["test"].to_pylist():
        assert row["genres"] == (b"Animation|Comedy" if int(row["item"]) % 2 else b"Drama")
        assert row["gender"] == [b"F", b"M"][int(row["user"]) % 2]
    assert any(row["item_history"] for row in rows["test"].to_pylist())


def test_the_days_of_a_terabyte_are_in_the_order_of_their_numbers(tmp_path):
    criteo_1tb(tmp_path)
    files = drafted("criteo_1tb", tmp_path).data.split.files
    assert [path.rpartition("/")[2] for path in files.train] == [f"day_{day}.gz" for day in range(10)]
    assert files.validation[0].endswith("day_10.gz") and files.test[0].endswith("day_11.gz")


@pytest.mark.parametrize(
    ("shape", "absent", "said"),
    [
        ("movielens 1M", "movies.dat", "has no movies.dat: the configuration goes without the columns of this table"),
        ("mind", "news.tsv", "has 1 news.tsv for 2 behaviors.tsv, whose news may lack"),
        ("criteo_1tb", "day_3.gz", "has no day_3, between days that it has"),
        ("kuairand", "user_features_pure.csv", "has no user_features_[*].csv: the configuration goes without"),
        ("taobao ads", "ad_feature.csv", "has no ad_feature.csv: the configuration goes without"),
    ],
)
def test_what_of_a_set_is_not_there_is_said(tmp_path, shape, absent, said):
    name, writes = SHAPES[shape]
    writes(tmp_path)
    next(iter(tmp_path.rglob(absent))).unlink()
    _, [sentence] = draft_of_known(name, [str(tmp_path)])
    assert re.fullmatch(f"{re.escape(str(tmp_path))} {said}.*", sentence)


@pytest.mark.parametrize(
    ("name", "writers", "read", "others"),
    [
        ("movielens", (movielens_1m, movielens_25m), "ml-1m/ratings.dat", "ratings.csv"),
        ("taobao", (taobao_ads, taobao_events), "raw_sample.csv", "UserBehavior.csv"),
        ("amazon", (amazon_2023, amazon_ratings), "All_Beauty.jsonl", "ratings_Electronics.csv"),
    ],
)
def test_a_second_log_in_the_folder_is_said_to_be_unread(tmp_path, name, writers, read, others):
    for writes in writers:
        writes(tmp_path)
    text, unsure = draft_of_known(name, [str(tmp_path)])
    assert unsure == [f"{tmp_path / read} is read, and {tmp_path / others} not: a set has one such file"]
    assert load_config(read_yaml(text)).data.paths == [str(tmp_path / read)]


def test_impressions_without_labels_and_a_table_that_cannot_be_read_are_said(tmp_path):
    mind(tmp_path / "mind")
    test = tmp_path / "mind" / "MINDlarge_test" / "behaviors.tsv"
    write(test, "1\tU1\t11/13/2019 8:36:57 AM\tN1\tN2 N3\n")
    _, unsure = draft_of_known("mind", [str(tmp_path / "mind")])
    assert f"{test} has no labels, as in the test set, and is not read" in unsure
    amazon_2014(tmp_path / "amazon")
    _, [sentence] = draft_of_known("amazon", [str(tmp_path / "amazon")])
    assert f"{tmp_path / 'amazon' / 'meta_Electronics.json.gz'} is no JSON lines with asin and one of" in sentence


def test_a_draft_has_no_anchors(tmp_path):
    amazon_2023(tmp_path)
    text, _ = draft_of_known("amazon", [str(tmp_path)])
    assert "sequences: [main_category, store]" in text and "&" not in text and "*" not in text


def test_a_file_that_is_there_plain_and_compressed_is_read_once(tmp_path):
    criteo_1tb(tmp_path)
    write(tmp_path / "day_3", gzip.decompress((tmp_path / "day_3.gz").read_bytes()).decode())
    files = drafted("criteo_1tb", tmp_path).data.split.files
    plain = [path.rpartition("/")[2] for path in files.train]
    assert plain == [f"day_{day}.gz" if day != 3 else "day_3" for day in range(10)]


def test_the_files_of_kdd_cup_2012(tmp_path):
    generate_kddcup2012(300, 1, tmp_path / "track2")
    config = drafted("kddcup2012", tmp_path)
    assert config.data.paths == [str(tmp_path / "track2")] and config.name == "kddcup2012"


MISTAKES = [
    ("criteo", {}, "lacks train.txt of criteo, plain or compressed; it has no files"),
    ("movielens", {"ml-1m.zip": "PK"}, r"lacks u\.data .*; it has ml-1m\.zip; unpack ml-1m\.zip first"),
    ("criteo", {"train.csv": "a,b\n"}, r"lacks train\.txt of criteo, plain or compressed; it has train\.csv"),
    (
        "criteo",
        {"train.txt": "1\t2\t3\n0\t4\t5\n"},
        r"3 columns without a header; a file of criteo has 40 without a header: draft another file by `ctrpipe init /",
    ),
    ("criteo_1tb", {"day_0": "1\n", "day_1": "0\n"}, "2 of the days day_0 to day_23; put three there at least"),
    (
        "avazu",
        {"train.csv": "id,click,hour\n1,0,14102100\n2,1,14102100\n"},
        "lacks the column C1 of avazu; it has id, click",
    ),
    ("movielens", {"movies.csv": "movieId,title\n"}, r"lacks u\.data or ratings\.dat or ratings\.csv of movielens"),
    ("movielens", {"ratings.csv": "user,item\n1,2\n3,4\n"}, r"ratings\.csv: lacks the column userId of movielens"),
    (
        "mind",
        {"behaviors.tsv": "1\tU1\t11/13/2019 8:36:57 AM\tN1\tN2 N3\n"},
        "its impressions have no labels, as in the test",
    ),
    ("mind", {"behaviors.tsv": "1\tU1\tN2-1\n"}, "3 columns without a header; a file of mind has 5"),
    ("taobao", {"raw_sample.csv": "user,clk\n1,0\n2,1\n"}, "lacks the column time_stamp of taobao"),
    ("kuairand", {"log_standard_1.csv": "user_id,video_id\n1,2\n3,4\n"}, "lacks the column time_ms of kuairand"),
    (
        "amazon",
        {"x.jsonl": '{"a": 1}\n'},
        "no reviews of amazon, which have reviewerID, asin, unixReviewTime or user_id",
    ),
    ("kddcup2012", {}, "lacks "),
]


@pytest.mark.parametrize(("name", "files", "message"), MISTAKES)
def test_what_is_not_the_set_is_refused_in_one_line(tmp_path, name, files, message):
    for file, text in files.items():
        write(tmp_path / file, text)
    done = CliRunner().invoke(main, ["init", "--dataset", name, str(tmp_path), "--output", str(tmp_path / "made.yaml")])
    assert done.exit_code == 2 and not (tmp_path / "made.yaml").exists()
    with pytest.raises(InputError, match=message) as error:
        draft_of_known(name, [str(tmp_path)])
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


def test_wrong_use_of_the_option_is_one_line(tmp_path):
    for arguments, message in (
        (["--dataset", "netflix", str(tmp_path)], "--dataset netflix: unknown; the known sets are criteo, criteo_1tb,"),
        (["--dataset", "mind", str(tmp_path), "b"], "--dataset mind and 2 paths: give the folder of the set alone"),
        (["--dataset", "mind", str(tmp_path), "--label", "y"], "--dataset mind and --label: give the folder"),
        (["--dataset", "mind", str(tmp_path / "no")], "no: no such folder; give the one with the files of mind"),
    ):
        done = CliRunner().invoke(main, ["init", *arguments])
        assert done.exit_code == 2 and message in done.output


def test_the_folder_of_a_set_is_on_this_machine(tmp_path):
    with pytest.raises(InputError, match="^s3://sets/criteo: --dataset takes a local path"):
        draft_of_known("criteo", ["s3://sets/criteo"])
    SHAPES["criteo"][1](tmp_path)
    assert draft_of_known("criteo", [f"file://{tmp_path}"]) == draft_of_known("criteo", [str(tmp_path)])


def test_from_python_too(tmp_path):
    movielens_1m(tmp_path / "set")
    made = ctrpipe.init(tmp_path / "set", dataset="movielens", output=tmp_path / "films.yaml")
    assert made.path == tmp_path / "films.yaml" and made.config["events"]["item_columns"] == ["genres"]


# Lists of impressions -------------------------------------------------------------------------------------------------

BEHAVIORS = "1\tU1\t11/11/2019 9:05:58 AM\tN1 N2\tN3-1 N4-0 \n2\tU2\t11/12/2019 9:05:58 PM\t\tN-5-0\n"


def prepared(tmp_path, text, *options):
    write(tmp_path / "behaviors.tsv", text)
    call = ["prepare", "impressions", str(tmp_path / "behaviors.tsv"), str(tmp_path / "out")]
    return CliRunner().invoke(main, [*call, "--columns", "id,user,time,history,impressions", *options])


def test_each_item_of_a_list_is_a_row(tmp_path):
    done = prepared(tmp_path, BEHAVIORS + "3\tU3\tx\t\t\n4\tU4\tx\tN1\tN5 N7\n5\tU5\tx\t\t-1 N7-0\n")
    assert done.output.startswith("5 rows of 5 lists; 2 malformed rows in dead_letter/")
    table = pa.parquet.read_table(tmp_path / "out" / "log")
    assert table.column_names == ["id", "user", "time", "history", "item", "label"]
    assert [(row["id"], row["history"], row["item"], row["label"]) for row in table.to_pylist()] == [
        (b"1", b"N1 N2", b"N3", b"1"),
        (b"1", b"N1 N2", b"N4", b"0"),
        (b"2", None, b"N-5", b"0"),
        (b"4", b"N1", b"N5", None),
        (b"4", b"N1", b"N7", None),
    ]
    letters = [json.loads(line) for line in (tmp_path / "out/dead_letter/rejects.jsonl").read_text().splitlines()]
    assert [(each["line"], each["reason"]) for each in letters] == [
        (3, "impressions: there is no impression"),
        (5, "impressions: an impression has no item"),
    ]


def test_other_separators_and_names(tmp_path):
    write(tmp_path / "log.csv", 'who,shown\nu,"a:b=1;c=0"\n')
    call = ["prepare", "impressions", str(tmp_path / "log.csv"), str(tmp_path / "out"), "--column", "shown"]
    done = CliRunner().invoke(
        main, [*call, "--separator", ";", "--label-separator", "=", "--item", "ad", "--label", "y"]
    )
    assert done.exit_code == 0
    assert pa.parquet.read_table(tmp_path / "out" / "log").to_pylist() == [
        {"who": b"u", "ad": b"a:b", "y": b"1"},
        {"who": b"u", "ad": b"c", "y": b"0"},
    ]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (BEHAVIORS, ["--column", "shown"], "column shown: no such column; it has id, user, time, history, impressions"),
        (BEHAVIORS, ["--item", "user"], "the log has a column user, which the rows get; choose another name"),
        (BEHAVIORS, ["--item", "y", "--label", "y"], "item and label are both y; they must be different columns"),
        ("1\tU1\tx\tN1\t\n", [], "impressions: no row has a list of impressions; is it the column?"),
    ],
)
def test_a_mistake_in_lists_is_one_line(tmp_path, text, options, message):
    done = prepared(tmp_path, text, *options)
    assert done.exit_code == 2 and message in done.output and not (tmp_path / "out" / "log").exists()


def test_a_first_look_at_lists_of_impressions(tmp_path):
    """MIND's own form is drafted as it is, and for another one the command that makes rows of it is named."""
    mind(tmp_path)
    [file, _] = sorted(map(str, tmp_path.rglob("behaviors.tsv")))
    text, _ = draft([file])
    config = load_config(read_yaml(text))
    assert config.data.impressions.columns[-1] == "impressions" and config.feature_columns[:2] == ["user", "item"]
    assert not check_log(config, [file]).errors
    write(tmp_path / "log.csv", "u,shown\n1,a-1 b-0\n2,b-1\n")
    with pytest.raises(
        InputError, match="shown lists impressions, as 'a-1 b-0'; make a row of each by ctrpipe prepare"
    ):
        draft([str(tmp_path / "log.csv")])
    write(tmp_path / "log.csv", "click,id\n1,a-1\n0,b-0\n1,c-1\n")  # a value with a number is no list
    assert "id" in draft([str(tmp_path / "log.csv")])[0]


@pytest.mark.large(
    like="tests/pipeline/test_known_sets.py::test_a_published_set_is_checked_and_read_from_its_configuration"
)
@pytest.mark.slow
def test_a_run_goes_on_from_a_known_set(tmp_path):
    mind(tmp_path / "set")
    made = ctrpipe.init(tmp_path / "set", dataset="mind")
    settings = {"training__epochs": 1, "training__batch_size": 64, "evaluation__baseline": None, "gates__rig": None}
    run = ctrpipe.run(made, data=made.config["data"]["paths"], output=tmp_path / "run", **settings)
    assert run.metrics["examples"] == 240 and run.blessed


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize(
    ("rows", "of_impressions", "of_histories", "batch"),
    # A sample of 600 rows has epochs of ten steps: of one step, the patience ended before the model had learnt.
    [(0, "lightgbm", "plateau", 64), (4000, "lightgbm", "plateau", 128), (10**5, "lightgbm", "plateau", 1024)]
    + [(45_000_000, "dcn_v2", "cosine", 4096)],
)
def test_the_model_is_that_of_the_number_of_rows(tmp_path, monkeypatch, rows, of_impressions, of_histories, batch):
    if rows:
        monkeypatch.setattr(registry, "count_rows", lambda files, sample: rows)
    SHAPES["criteo"][1](tmp_path / "criteo")
    movielens_1m(tmp_path / "movielens")
    assert drafted("criteo", tmp_path / "criteo").model.name == of_impressions
    films = drafted("movielens", tmp_path / "movielens")
    assert (films.model.name, films.training.decay) == ("din", of_histories)
    assert films.training.batch_size == batch
    # Beginning near 0, attention learned nothing of Amazon's histories in the epochs of a sample.
    named = films.model.model_dump()
    assert (named["embedding_stddev"], named["use_linear"], named["linear_rate"]) == (0.1, True, 3.0)
    assert films.training.monitor == "log_loss"
