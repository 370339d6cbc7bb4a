import pathlib

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.generate import GenerateResult, TextClickModel, generate_kddcup2012
from ctrpipe.transforms.kddcup2012.layout import COLUMNS, TOKEN_TABLES

ROWS = 40_000
FILES = ["description.txt", "keyword.txt", "query.txt", "title.txt", "training.txt", "truth.parquet", "user.txt"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> GenerateResult:
    return generate_kddcup2012(ROWS, 3, tmp_path_factory.mktemp("kdd"))


@pytest.fixture(scope="module")
def lines(made) -> pd.DataFrame:
    return read(made)


def read(made: GenerateResult) -> pd.DataFrame:
    """The lines with their texts, users and true probabilities."""
    folder = made.path.parent
    lines = pd.read_csv(made.path, sep="\t", names=list(COLUMNS), dtype={"url": str})
    for name in TOKEN_TABLES:
        texts = pd.read_csv(folder / f"{name}.txt", sep="\t", names=[name, f"{name}_tokens"], dtype={1: str})
        lines = lines.merge(texts, how="left", on=name)
    users = pd.read_csv(folder / "user.txt", sep="\t", names=["user", "gender", "age"])
    lines = lines.merge(users, how="left", on="user")
    return lines.assign(probability=pyarrow.parquet.read_table(made.truth_path)["probability"].to_numpy())


@pytest.mark.slow
def test_the_layout_is_the_competitions(made, lines):
    assert sorted(path.name for path in made.path.parent.iterdir()) == FILES
    assert len(lines) == made.rows == ROWS
    assert (lines["click"] <= lines["impressions"]).all() and lines["impressions"].min() == 1
    assert 1.2 < lines["impressions"].mean() < 2 and lines["impressions"].max() > 20  # heavy-tailed
    assert (lines["position"] <= lines["depth"]).all() and set(lines["depth"]) == {1, 2, 3}
    assert lines["url"].str.len().max() == 20  # 64 bits
    for name, (least, most) in {"query": (1, 5), "title": (5, 12), "description": (12, 24), "keyword": (1, 3)}.items():
        lengths = lines[f"{name}_tokens"].str.split("|").str.len()
        assert (lengths.min(), lengths.max()) == (least, most), name
    assert set(lines["gender"].dropna()) == {0, 1, 2} and set(lines["age"].dropna()) == set(range(1, 7))
    unknown = lines["gender"].isna()
    assert (lines["user"][unknown] == 0).all() and unknown.mean() == pytest.approx(0.02, abs=0.004)
    counts = lines["query"].value_counts()
    assert counts.iloc[0] > 100 * counts.median()


def test_the_truth_is_calibrated_and_gives_the_returned_scores(made, lines):
    row = np.repeat(np.arange(ROWS), lines["impressions"])
    first = np.concatenate([[0], np.cumsum(lines["impressions"])])[:-1]
    labels = (np.arange(len(row)) - first[row] < lines["click"].to_numpy()[row]).astype(int)
    probability = lines["probability"].to_numpy()[row]
    assert made.positives == labels.sum() == lines["click"].sum()
    assert made.best_auc == pytest.approx(roc_auc_score(labels, probability), abs=1e-12)
    assert made.log_loss == pytest.approx(log_loss(labels, probability), rel=1e-9)
    assert lines["probability"].mean() == pytest.approx(0.035, abs=0.002)
    for part in np.array_split(np.argsort(probability), 5):
        rate = probability[part].mean()
        assert labels[part].mean() == pytest.approx(rate, abs=4 * (rate / len(part)) ** 0.5)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_the_same_world(tmp_path):
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        generate_kddcup2012(500, seed, tmp_path / name)
    for file in FILES:
        first, again, other = ((tmp_path / name / file).read_bytes() for name in "abc")
        assert first == again
        assert (first == other) == (file not in ("training.txt", "truth.parquet")), file


def spread(lines: pd.DataFrame, by: list[str]) -> float:
    """Standard deviation of the true logit's mean over the values of some columns, by rows."""
    logit = np.log(lines["probability"] / (1 - lines["probability"]))
    return float(logit.groupby([lines[name] for name in by]).transform("mean").std())


@pytest.mark.parametrize(
    ("model", "shows", "hides"),
    [
        (TextClickModel(features=0, position=0), ["query", "title"], ["position"]),
        (TextClickModel(text=0, position=0), ["ad"], ["position"]),
        (TextClickModel(text=0, features=0), ["position"], ["ad"]),
    ],
)
def test_each_part_of_the_click_model_acts_by_itself(tmp_path, model, shows, hides):
    lines = read(generate_kddcup2012(5000, 1, tmp_path, click_model=model))
    assert spread(lines, shows) > 0.3
    assert spread(lines, hides) < 0.08
    nothing = read(generate_kddcup2012(5000, 1, tmp_path, click_model=TextClickModel(0, 0, 0)))
    np.testing.assert_allclose(nothing["probability"], 0.035)


def test_interplay_is_seen_by_titles_and_ages_together_alone(tmp_path):
    model = TextClickModel(text=0, features=0, position=0, interplay=1, base_rate=0.3)
    lines = read(generate_kddcup2012(5000, 1, tmp_path, click_model=model))
    known = lines[lines["user"] > 0]
    assert spread(known, ["title", "age"]) > 0.7
    assert spread(known, ["title"]) < 0.3 and spread(known, ["age"]) < 0.3
    unknown = lines.loc[lines["user"] == 0, "probability"]
    assert len(unknown) > 20 and unknown.nunique() == 1
    assert len(set(np.round(known.groupby(["title", "age"])["probability"].std().dropna(), 9))) == 1  # nothing else


def test_a_query_whose_words_are_in_the_title_is_clicked_more(tmp_path):
    model = TextClickModel(features=0, position=0)
    lines = read(generate_kddcup2012(20_000, 1, tmp_path, click_model=model))
    queries, titles = (lines[name].str.split("|").map(set) for name in ("query_tokens", "title_tokens"))
    shared = np.array([len(query & title) > 0 for query, title in zip(queries, titles, strict=True)])
    assert 0.03 < shared.mean() < 0.5
    assert lines["probability"][shared].mean() > 1.3 * lines["probability"][~shared].mean()


def test_progress_and_bad_arguments(tmp_path):
    done: list[int] = []
    generate_kddcup2012(1, 0, tmp_path / "one", done.append)
    assert done == [1]
    (tmp_path / "file").touch()
    for rows, seed, output, message in (
        (0, 1, "log", "rows should be a whole number of at least 1. Received: 0"),
        (10, -1, "log", "seed should be a whole number of at least 0. Received: -1"),
        (10, 1, "file", "not a folder"),
    ):
        with pytest.raises(InputError, match=message):
            generate_kddcup2012(rows, seed, tmp_path / output)
    assert not (tmp_path / "log").exists()
    for bad in ({"base_rate": 0.0}, {"text": float("nan")}):
        with pytest.raises(InputError, match="Received"):
            TextClickModel(**bad)


def test_an_interrupted_run_leaves_no_lines(tmp_path: pathlib.Path):
    def interrupt(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_kddcup2012(10, 0, tmp_path, interrupt)
    assert not (tmp_path / "training.txt").exists() and not (tmp_path / "truth.parquet").exists()
