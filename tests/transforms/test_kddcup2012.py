import gzip
import importlib
import json
import pathlib
import shutil
import zlib
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.generate import generate_kddcup2012
from ctrpipe.transforms.kddcup2012 import Options, Prepared, is_kddcup2012, prepare
from ctrpipe.transforms.kddcup2012.layout import COLUMNS, HISTORY, IDS, NUMBERS, TOKEN_TABLES
from ctrpipe.transforms.kddcup2012.lines import _draws
from ctrpipe.transforms.kddcup2012.tables import (
    Lookup,
    bits_for,
    bucket_of,
    id_keys,
    pair_keys,
    sort_by_key,
    sums_by_key,
    write_table,
)
from ctrpipe.transforms.log.first_bytes import ENCODING_HINT

steps = importlib.import_module("ctrpipe.transforms.kddcup2012.prepare")  # the package has a function of that name
LINES = 1500
OPTIONS = Options(seed=4, test=0.2, validation=0.2, prior_impressions=7.0, folds=3)
PLACES = {"two processes": Workers(processes=2), "beam": Workers(beam_args=("--direct_num_workers=1",))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("kdd")
    generate_kddcup2012(LINES, 3, path)
    return path


@pytest.fixture(scope="module")
def log(folder, tmp_path_factory) -> pd.DataFrame:
    return read_log(prepare(folder, tmp_path_factory.mktemp("log"), OPTIONS))


def read_log(made: Prepared, files: str | None = None) -> pd.DataFrame:
    found = sorted(pathlib.Path(files or made.log).parent.glob(pathlib.Path(files or made.log).name))
    return pa.concat_tables([pa.parquet.read_table(path) for path in found]).to_pandas()


def training_file(folder: pathlib.Path) -> pd.DataFrame:
    return pd.read_csv(folder / "training.txt", sep="\t", names=list(COLUMNS), dtype=str)


def lists(folder: pathlib.Path, name: str) -> dict[str, str]:
    return dict(line.split("\t") for line in (folder / f"{name}.txt").read_text().splitlines())


def line_of_rows(lines: pd.DataFrame) -> np.ndarray:
    """The source line of each row of an expanded log."""
    return np.repeat(np.arange(len(lines)), lines["impressions"].astype(int))


def lines_with_users(folder: pathlib.Path) -> pd.DataFrame:
    users = pd.read_csv(folder / "user.txt", sep="\t", names=["user", "gender", "age"], dtype=str)
    return training_file(folder).merge(users, how="left", on="user")


def rewritten(folder: pathlib.Path, place: pathlib.Path, change) -> pathlib.Path:
    """A copy of a folder with another training file."""
    shutil.copytree(folder, place)
    lines = change(training_file(folder))
    lines.to_csv(place / "training.txt", sep="\t", header=False, index=False)
    return place


# The log -------------------------------------------------------------------------------------------------------------


def test_every_impression_is_a_row_and_every_click_a_positive(folder, log):
    lines = training_file(folder).astype({"click": int, "impressions": int})
    assert len(log) == lines["impressions"].sum() > LINES
    clicks = log.groupby(line_of_rows(lines))["click"].agg(["sum", "first"])
    assert (clicks["sum"].to_numpy() == lines["click"]).all()
    assert (clicks["first"].to_numpy() == (lines["click"] > 0)).all()


def test_there_are_56_features_beside_the_position_and_the_texts(log):
    assert list(log) == ["click", "part", "position", *IDS, "query_tokens", "ad_tokens", *NUMBERS]
    assert len(IDS) + len(NUMBERS) == 56
    assert not any("position" in name for name in (*IDS, *NUMBERS))


def test_ids_and_texts_are_those_of_the_files(folder, log):
    lines = lines_with_users(folder)
    rows = lines.iloc[line_of_rows(lines)].reset_index(drop=True)
    for name in ("position", *IDS):
        assert (log[name].fillna("") == rows[name].fillna("")).all(), name
    assert (log["query_tokens"] == rows["query"].map(lists(folder, "query"))).all()
    assert (log["ad_tokens"] == rows["title"].map(lists(folder, "title")) + "|u" + rows["url"]).all()
    assert int(rows["url"].max(), 10) > 2**53  # ids that no float64 tells apart


def test_lengths_and_shared_tokens(folder, log):
    lines = training_file(folder)
    rows = lines.iloc[line_of_rows(lines)]
    for name in TOKEN_TABLES:
        tokens = rows[name].map(lists(folder, name)).str.split("|")
        assert (log[f"{name}_length"].to_numpy() == tokens.str.len()).all(), name
    shared = [
        len(set(query.split("|")) & set(ad.split("|")))
        for query, ad in zip(log["query_tokens"], log["ad_tokens"], strict=True)
    ]
    assert (log["shared_tokens"].to_numpy() == shared).all() and max(shared) > 1


def test_tf_idf_is_that_of_scikit_learn_on_the_lists_that_training_lines_name(folder, log):
    for name in TOKEN_TABLES:
        texts = lists(folder, name)
        seen = sorted(set(log[name][log["part"] == "1_train"]))
        assert name != "query" or len(seen) < len(texts)
        vectorizer = TfidfVectorizer(norm=None, token_pattern=r"\d+").fit([texts[id] for id in seen])
        known = vectorizer.vocabulary_
        # scikit-learn leaves out tokens that it has not seen; ours have the weight of a token in no list.
        unseen = np.log(1 + len(seen)) + 1
        for id in sorted(set(log[name]))[:100]:
            tokens = texts[id].split("|")
            weights = vectorizer.transform([texts[id]]).data.tolist()
            weights += [count * unseen for token, count in Counter(tokens).items() if token not in known]
            row = log[log[name] == id].iloc[0]
            assert row[f"{name}_tf_idf_sum"] == pytest.approx(sum(weights), rel=1e-5)
            assert row[f"{name}_tf_idf_mean"] == pytest.approx(sum(weights) / len(tokens), rel=1e-5)
            assert row[f"{name}_tf_idf_max"] == pytest.approx(max(weights), rel=1e-5)


# What a line knows of the past ---------------------------------------------------------------------------------------


def counted(lines: dict[str, list], part: list[str], name: str, row: int, held_out: set[int], prior: float) -> tuple:
    """ctr and impressions of a line, by a loop over the columns' values."""
    key = [lines[column][row] for column in HISTORY[name]]
    if any(pd.isna(value) for value in key):
        return np.nan, np.nan
    clicks = impressions = all_clicks = all_impressions = 0
    for other in range(len(part)):
        if part[other] != "1_train" or other in held_out:
            continue
        all_clicks += int(lines["click"][other])
        all_impressions += int(lines["impressions"][other])
        if [lines[column][other] for column in HISTORY[name]] == key:
            clicks += int(lines["click"][other])
            impressions += int(lines["impressions"][other])
    rate = all_clicks / all_impressions
    return (clicks + prior * rate) / (impressions + prior), impressions


def folds_of(count: int) -> np.ndarray:
    return (_draws(OPTIONS.seed, "fold", 1 + np.arange(count)) * OPTIONS.folds).astype(int)


@pytest.mark.parametrize("name", HISTORY)
def test_history_is_of_the_training_lines_outside_of_a_lines_fold(folder, log, name):
    lines = lines_with_users(folder)
    first = np.searchsorted(line_of_rows(lines), np.arange(LINES))
    rows, columns = log.iloc[first].reset_index(drop=True), lines.to_dict("list")
    part = rows["part"].tolist()
    fold = folds_of(LINES)
    assert np.bincount(fold).min() > 0.28 * LINES
    shown = [*range(0, LINES, 60), *rows.index[rows["part"] != "1_train"][:10]]
    assert {part[row] for row in shown} == {"1_train", "2_validation", "3_test"}
    for row in shown:
        own = set(np.flatnonzero(fold == fold[row]))
        ctr, impressions = counted(columns, part, name, row, own, OPTIONS.prior_impressions)
        assert rows[f"ctr_{name}"][row] == pytest.approx(ctr, rel=1e-5, nan_ok=True)
        assert rows[f"impressions_{name}"][row] == pytest.approx(impressions, nan_ok=True)


def test_lines_of_one_fold_know_the_same_whether_they_were_clicked_or_not(log):
    train = log[(log["part"] == "1_train") & log["gender"].notna()]
    # Lines that see as many impressions of their gender: only their own clicks could tell them apart.
    assert (train.groupby(["gender", "impressions_gender"])["ctr_gender"].nunique() == 1).all()
    assert (train.groupby("gender")["ctr_gender"].nunique() == OPTIONS.folds).all()


@pytest.mark.slow
def test_counts_and_rates_of_the_past_have_one_distribution_in_training_and_test(tmp_path):
    generate_kddcup2012(60_000, 3, tmp_path / "files")
    log = read_log(prepare(tmp_path / "files", tmp_path / "log", Options(seed=4, test=0.4, validation=0.05)))
    train, test = (log[log["part"] == part] for part in ("1_train", "3_test"))
    distances = {}
    for name in (f"{kind}_{key}" for kind in ("ctr", "impressions") for key in HISTORY):
        edges = np.unique(train[name].quantile(np.arange(1, 10) / 10))
        shares = []
        for part in (train, test):
            buckets = np.where(part[name].isna(), len(edges) + 1, np.searchsorted(edges, part[name], side="right"))
            shares.append(np.bincount(buckets, minlength=len(edges) + 2) / len(part))
        distances[name] = np.abs(shares[0] - shares[1]).sum() / 2
    assert len(distances) == 28 and max(distances.values()) < 0.05, distances


def test_the_labels_of_validation_and_test_rows_change_nothing_but_themselves(folder, log, tmp_path):
    train = log["part"] == "1_train"
    line = line_of_rows(training_file(folder))
    others = sorted(set(line[~train]))

    def clicked(lines: pd.DataFrame) -> pd.DataFrame:
        lines.loc[others, "click"] = lines.loc[others, "impressions"]
        return lines

    changed = read_log(prepare(rewritten(folder, tmp_path / "files", clicked), tmp_path / "log", OPTIONS))
    pd.testing.assert_frame_equal(changed[train], log[train])
    pd.testing.assert_frame_equal(changed.drop(columns="click"), log.drop(columns="click"))
    assert changed["click"][~train].all() and not log["click"][~train].all()


def test_a_training_line_does_not_see_its_own_label(folder, log, tmp_path):
    line = line_of_rows(training_file(folder))
    chosen = line[(log["part"] == "1_train") & (log["click"] == 0)][5]

    def clicked(lines: pd.DataFrame) -> pd.DataFrame:
        lines.loc[chosen, "click"] = lines.loc[chosen, "impressions"]
        return lines

    changed = read_log(prepare(rewritten(folder, tmp_path / "files", clicked), tmp_path / "log", OPTIONS))
    own = line == chosen
    pd.testing.assert_frame_equal(changed[own].drop(columns="click"), log[own].drop(columns="click"))
    assert changed["click"][own].all() and not log["click"][own].any()
    assert (changed[~own]["ctr_depth"] != log[~own]["ctr_depth"]).any()  # the others do


def test_a_line_is_in_one_part_and_shares_are_as_asked(folder, log):
    parts = log.groupby(line_of_rows(training_file(folder)))["part"].agg(["nunique", "first"])
    assert (parts["nunique"] == 1).all()
    shares = parts["first"].value_counts(normalize=True)
    assert shares["3_test"] == pytest.approx(0.2, abs=0.04)  # four standard errors
    assert shares["2_validation"] == pytest.approx(0.8 * 0.2, abs=0.04)


def test_another_seed_splits_otherwise(folder, log, tmp_path):
    other = read_log(prepare(folder, tmp_path, Options(**{**vars(OPTIONS), "seed": 5})))
    assert (other["part"] != log["part"]).mean() > 0.3


# Who works on it -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("place", [pytest.param("two processes", marks=pytest.mark.large), "beam"])
def test_the_log_does_not_depend_on_who_works_on_it(folder, log, tmp_path, monkeypatch, place):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 20_000)
    monkeypatch.setattr(steps, "_BUCKET_BYTES", 10_000)
    made = prepare(folder, tmp_path, OPTIONS, PLACES[place])
    pd.testing.assert_frame_equal(read_log(made), log)
    assert len(list((tmp_path / "log").glob("*.parquet"))) > 3
    assert not (tmp_path / steps.SCRATCH).exists()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["Lines counted", "Token lists weighed", "Lines joined"])
def test_an_interrupted_run_goes_on(folder, log, tmp_path, monkeypatch, moment):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 20_000)
    said: list[str] = []

    def interrupt(text: str) -> None:
        said.append(text)
        if text.startswith(moment):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(folder, tmp_path, OPTIONS, progress=interrupt)
    assert not (tmp_path / "log").exists()
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / steps.SCRATCH / "done").glob("*/*")}
    seen: dict[pathlib.Path, int] = {}

    def look(text: str) -> None:
        seen.update((path, path.stat().st_mtime_ns) for path in done if path.exists())

    made = prepare(folder, tmp_path, OPTIONS, progress=look)
    assert seen == done and len(done) > 3  # nothing was done twice
    pd.testing.assert_frame_equal(read_log(made), log)


@pytest.mark.slow
def test_a_run_that_ends_while_it_moves_the_log_goes_on(folder, log, tmp_path, monkeypatch):
    move_parts = steps.move_parts

    def move_one(parts: list[pathlib.Path], target: pathlib.Path) -> None:
        move_parts(parts[:1], target)
        raise KeyboardInterrupt

    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 20_000)
    monkeypatch.setattr(steps, "move_parts", move_one)
    with pytest.raises(KeyboardInterrupt):
        prepare(folder, tmp_path, OPTIONS)
    monkeypatch.setattr(steps, "move_parts", move_parts)
    pd.testing.assert_frame_equal(read_log(prepare(folder, tmp_path, OPTIONS)), log)


@pytest.mark.slow
def test_the_same_again_does_nothing_and_other_options_do_it_anew(folder, tmp_path):
    first = prepare(folder, tmp_path, OPTIONS)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "log").iterdir()}
    assert prepare(folder, tmp_path, OPTIONS) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "log").iterdir()} == files
    shorter = prepare(folder, tmp_path, Options(**{**vars(OPTIONS), "most_lines": 900}))
    assert shorter.lines == 900 and len(read_log(shorter)) < first.rows


# Bad input -----------------------------------------------------------------------------------------------------------


def letters(output: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (output / "dead_letter" / "rejects.jsonl").read_text().splitlines()]


GARBAGE = {
    "": "the line is empty",
    "0\t1\t5": "expected 12 columns, found 3",
    "2\t1\t5\t1\t1\t1\t1\t1\t1\t1\t1\t1": "click: more clicks than impressions, found 2 of 1",
    "0\t0\t5\t1\t1\t1\t1\t1\t1\t1\t1\t1": "impressions: expected 1 to 1,000,000, found 0",
    "0\t9999999\t5\t1\t1\t1\t1\t1\t1\t1\t1\t1": "impressions: expected 1 to 1,000,000, found 9999999",
    "\t1\t5\t1\t1\t1\t1\t1\t1\t1\t1\t1": "click and impressions: expected numbers, found nothing",
    "0\t1\t18446744073709551616\t1\t1\t1\t1\t1\t1\t1\t1\t1": (
        "url: expected a whole number below 2^64, found '18446744073709551616'"
    ),
    "0\t1\t5\t-3\t1\t1\t1\t1\t1\t1\t1\t1": "ad: expected a whole number below 2^64, found '-3'",
    "0\t1\t5\t1\t1\t1\t1\tabc\t1\t1\t1\t1": "query: expected a whole number below 2^64, found 'abc'",
}


def test_malformed_lines_are_dead_letters_and_the_rest_is_as_without_them(folder, log, tmp_path):
    files = tmp_path / "files"
    shutil.copytree(folder, files)
    with open(files / "training.txt", "ab") as file:  # behind the others, whose numbers and parts stay
        file.write("".join(f"{line}\n" for line in GARBAGE).encode() + b"\xff\t1\t5\t1\t1\t1\t1\t1\t1\t1\t1\t1\n")
    made = prepare(files, tmp_path / "log", OPTIONS)
    pd.testing.assert_frame_equal(read_log(made), log)
    reasons = {**GARBAGE, "\\xff\t1\t5\t1\t1\t1\t1\t1\t1\t1\t1\t1": f"click: invalid UTF-8{ENCODING_HINT}"}
    found = letters(tmp_path / "log")
    assert [(letter["line"], letter["text"], letter["reason"]) for letter in found] == [
        (LINES + index, text, reason) for index, (text, reason) in enumerate(reasons.items(), 1)
    ]
    assert {letter["file"] for letter in found} == {str(files / "training.txt")}
    assert made.rejected["training.txt"] == len(reasons) == sum(made.reasons.values())
    assert made.lines == LINES + len(reasons)
    assert sum(made.split.values()) == LINES


def test_garbage_and_repeated_ids_of_the_tables_are_dead_letters_and_their_values_missing(folder, tmp_path):
    files = tmp_path / "files"
    shutil.copytree(folder, files)
    title = (files / "title.txt").read_text().splitlines()
    usual = Counter(training_file(folder)["title"]).most_common(1)[0][0]
    title = [f"{usual}\t12|abc|" if line.split("\t")[0] == usual else line for line in title]
    (files / "title.txt").write_text("\n".join(title) + "\n")
    with open(files / "query.txt", "a") as file:
        file.write("0\t7777\n99999999\t\n\t3\n5000000\t1||2\n")
    with open(files / "user.txt", "a") as file:
        file.write("1\t1\t1\n2\tfemale\t1\n")
    options = Options(**{**vars(OPTIONS), "max_bad_row_rate": 0.1})
    made = prepare(files, tmp_path / "log", options)
    rows = read_log(made)
    assert {(letter["text"], letter["reason"]) for letter in letters(tmp_path / "log")} == {
        (f"{usual}\t12|abc|", "tokens: expected numbers with | between them, found '12|abc|'"),
        ("0\t7777", "the id comes again, found first in line 1"),
        ("99999999\t", "tokens: expected numbers with | between them, found nothing"),
        ("\t3", "query: expected a whole number below 2^64, found nothing"),
        ("5000000\t1||2", "tokens: expected numbers with | between them, found '1||2'"),
        ("1\t1\t1", "the id comes again, found first in line 1"),
        ("2\tfemale\t1", "gender: expected a whole number below 2^64, found 'female'"),
    }
    assert made.rejected == {
        "training.txt": 0, "user.txt": 2, "query.txt": 4, "title.txt": 1, "description.txt": 0, "keyword.txt": 0,
    }  # fmt: skip
    without = rows["title"] == usual
    assert (rows["ad_tokens"][without] == "u" + rows["url"][without]).all()
    assert rows["title_length"][without].isna().all() and rows["shared_tokens"][without].isna().all()
    assert rows["ctr_title"][without].notna().all()  # an id has a past whether its text is known or not
    lines = training_file(folder)
    assert made.without_partner["title"] == (lines["title"] == usual).sum() > 0
    assert made.without_partner["user"] == (lines["user"] == "0").sum() > 0
    assert made.without_partner["query"] == made.without_partner["keyword"] == 0
    assert rows["query_tokens"][rows["query"] == "0"].iloc[0] == lists(folder, "query")["0"]


def test_an_empty_id_is_missing_and_has_no_past(folder, tmp_path):
    def emptied(lines: pd.DataFrame) -> pd.DataFrame:
        lines.loc[::3, ["user", "ad", "url", "title"]] = ""
        return lines

    rows = read_log(prepare(rewritten(folder, tmp_path / "files", emptied), tmp_path / "log", OPTIONS))
    gone = line_of_rows(training_file(folder)) % 3 == 0
    for name in ("user", "gender", "ctr_user", "impressions_ad", "ctr_query_ad", "ctr_user_ad", "title_length"):
        assert rows[name][gone].isna().all() and rows[name][~gone].notna().any(), name
    assert (rows["ad_tokens"][gone] == "").all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: (path / "title.txt").unlink(), "lacks title.txt or titleid_tokensid.txt"),
        (lambda path: (path / "query.txt").write_text(""), "query.txt: the file has no rows"),
        (lambda path: (path / "user.txt").write_text("a,b\n"), "1 of 1 lines of .*user.txt are malformed"),
        (lambda path: (path / "training.txt").write_text("x\n" * 50), "50 of 50 lines of .*training.txt are malformed"),
        (
            lambda path: (path / "training.txt").write_text("0\t1" + "\t1" * 10 + "\n"),
            "the (train|validation|test).* part of the log would be empty",
        ),
    ],
)
def test_files_that_cannot_be_joined(folder, tmp_path, change, message):
    files = tmp_path / "files"
    shutil.copytree(folder, files)
    change(files)
    with pytest.raises(InputError, match=message) as error:
        prepare(files, tmp_path / "log", OPTIONS)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "log" / "log").exists()
    assert ("malformed" in message) == ("malformed" in str(error.value) and len(letters(tmp_path / "log")) > 0)


def test_bad_options():
    shares = {"test": 0.0}, {"validation": 1.0}, {"prior_impressions": 0.0}
    for bad in (*shares, {"folds": 0}, {"folds": 1}, {"folds": 101}):
        with pytest.raises(InputError, match="Received"):
            Options(**bad)


def test_gzip_and_the_competitions_own_names(folder, log, tmp_path):
    names = {"query": "queryid_tokensid", "title": "titleid_tokensid", "description": "descriptionid_tokensid"}
    names |= {"keyword": "purchasedkeywordid_tokensid", "user": "userid_profile", "training": "training"}
    (tmp_path / "files").mkdir()
    for name, real in names.items():
        contents = gzip.compress((folder / f"{name}.txt").read_bytes())
        (tmp_path / "files" / f"{real}.txt.gz").write_bytes(contents)
    assert is_kddcup2012(tmp_path / "files") and not is_kddcup2012(tmp_path)
    pd.testing.assert_frame_equal(read_log(prepare(tmp_path / "files", tmp_path / "log", OPTIONS)), log)


def test_the_public_test_file_knows_the_past_as_any_other_line_does(folder, log, tmp_path):
    files = tmp_path / "files"
    shutil.copytree(folder, files)
    line = training_file(folder).iloc[0]
    header = (
        "id,click,impression,adid,advertiserid,depth,position,queryid,keywordid,titleid,description,userid,displayurl"
    )
    ids = (line[name] for name in ("ad", "advertiser", "depth", "position", "query", "keyword", "title"))
    (files / "TestPublic.txt").write_text(
        f"{header}\n1,1,3,{','.join(ids)},{line.description},{line.user},{line.url}\n"
    )
    made = prepare(files, tmp_path / "log", OPTIONS)
    pd.testing.assert_frame_equal(read_log(made), log)
    rows = read_log(made, made.public_test)
    assert rows["click"].tolist() == [1, 0, 0] and set(rows["part"]) == {"4_public_test"}
    assert set(rows["ad"]) == {line.ad} and set(rows["url"]) == {line.url}
    lines = lines_with_users(folder)
    first = np.searchsorted(line_of_rows(lines), np.arange(LINES))
    lines.loc[LINES] = lines.loc[0]
    part = [*log["part"].iloc[first], "4_public_test"]
    # A header stands in line 1.
    own_fold = (_draws(OPTIONS.seed, "fold", np.array([2])) * OPTIONS.folds).astype(int)
    held_out = set(np.flatnonzero(folds_of(LINES) == own_fold))
    ctr, impressions = counted(lines.to_dict("list"), part, "ad", LINES, held_out, OPTIONS.prior_impressions)
    assert rows["impressions_ad"].tolist() == [impressions] * 3 and rows["ctr_ad"][0] == pytest.approx(ctr, rel=1e-5)


def test_the_real_files_layout(real_data, tmp_path):
    tiny = real_data / "kddcup2012_tiny"
    options = next(
        options
        for options in (Options(seed=seed, test=0.3, validation=0.4) for seed in range(100))
        if can_be_split(tiny, tmp_path / str(options.seed), options)
    )
    made = prepare(tiny, tmp_path / str(options.seed), options)
    assert made.lines == sum(made.split.values()) - made.split["4_public_test"] == 11
    assert sum(made.rejected.values()) == 0
    rows = read_log(made)
    assert rows["user"].tolist() == ["490234"] * 11 and rows["url"][0] == "4298118681424644510"
    assert made.without_partner["query"] >= 11  # the token files are cut at their first rows
    public = read_log(made, made.public_test)
    assert len(public) == made.impressions["4_public_test"] == 14


def can_be_split(folder: pathlib.Path, output: pathlib.Path, options: Options) -> bool:
    try:
        prepare(folder, output, options)
    except InputError:
        return False
    return True


# Tables --------------------------------------------------------------------------------------------------------------


def test_no_two_ids_share_a_key_and_pairs_are_ordered():
    ids = np.arange(100_000, dtype=np.uint64)
    assert len(np.unique(id_keys(ids))) == len(ids)
    assert len(np.unique(pair_keys(ids % np.uint64(300), ids // np.uint64(300)))) == len(ids)
    assert (pair_keys(ids, ids[::-1]) != pair_keys(ids[::-1], ids)).all()


def test_sums_by_key():
    keys = np.array([7, 3, 7, 7, 3], np.uint64)
    found = sums_by_key(keys, np.arange(5), np.ones(5, np.int64))
    assert [values.tolist() for values in found] == [[3, 7], [5, 5], [2, 3]]
    assert [len(values) for values in sums_by_key(keys[:0], np.arange(0))] == [0, 0]


@pytest.mark.parametrize("bits", [0, 1, 4])
def test_a_lookup_finds_what_is_there(tmp_path, bits):
    keys = id_keys(np.arange(1000, dtype=np.uint64))
    for number, part in enumerate(np.array_split(np.arange(1000), 3)):
        values = pa.array([f"v{index}" for index in part], pa.large_string())
        write_table(tmp_path / f"part{number}", sort_by_key(pa.table({"key": keys[part], "value": values})))
    for bucket in range(1 << bits):
        rows = bucket_of(sorted(tmp_path.glob("part*")), bucket, bits)
        write_table(tmp_path / f"{bucket:05d}.arrow", sort_by_key(rows))
    wanted = np.array([5, 1005, 999, 5, 0], np.uint64)
    present = np.array([True, True, True, True, False])
    lookup = Lookup(tmp_path, bits)
    assert lookup(id_keys(wanted), present)["value"].to_pylist() == ["v5", None, "v999", "v5", None]
    assert lookup(id_keys(wanted))["value"].to_pylist() == ["v5", None, "v999", "v5", "v0"]
    assert lookup(id_keys(wanted[:0]))["value"].to_pylist() == []


@pytest.mark.parametrize(("size", "bits"), [(1, 0), (100, 0), (101, 1), (200, 1), (3000, 5)])
def test_a_bucket_is_not_larger_than_asked(size, bits):
    assert bits_for(size, 100) == bits and size / 2**bits <= 100


def split_mix(number: int) -> int:
    """SplitMix64 in whole numbers of Python."""
    mask = (1 << 64) - 1
    state = (number + 0x9E3779B97F4A7C15) & mask
    state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ state >> 27) * 0x94D049BB133111EB) & mask
    return state ^ state >> 31


def test_a_line_draws_by_its_number_from_0_and_the_purpose():
    key = split_mix(4 ^ zlib.crc32(b"fold") << 32)
    expected = [(split_mix((split_mix(line - 1) + key) % 2**64) >> 11) / 2**53 for line in (1, 2, 1000)]
    assert _draws(4, "fold", np.array([1, 2, 1000])).tolist() == expected
