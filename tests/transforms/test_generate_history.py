"""`ctrpipe generate --format history`: what the clicks depend on, and what they do not."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from sklearn.metrics import roc_auc_score

from common.errors import InputError
from pipeline.cli import main
from transforms.generate import HistoryClickModel, generate_history
from transforms.generate.blocks import BLOCK_ROWS
from transforms.generate.history import CATEGORIES, ITEMS, LENGTH, draw_histories

ROWS = 6000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The rows of a log, its true probabilities and what was said of it."""
    path = tmp_path_factory.mktemp("history") / "log.csv"
    result = generate_history(ROWS, 3, path)
    rows = list(csv.DictReader(path.open()))
    return rows, pa.parquet.read_table(result.truth_path)["probability"].to_numpy(), result


def likings(row) -> list[tuple[str, int]]:
    """The category of each item of a row's history, and whether the item is liked, 1 or -1."""
    if not row["item_history"]:
        return []
    items, categories = row["item_history"].split("|"), row["category_history"].split("|")
    return [(category, 1 if int(item[1:]) % 2 == 0 else -1) for item, category in zip(items, categories, strict=True)]


def test_the_logit_is_the_mean_liking_of_the_candidates_category(log):
    rows, probabilities, _ = log
    logits = np.log(probabilities / (1 - probabilities))
    means = []
    for row in rows:
        own = [liking for category, liking in likings(row) if category == row["category"]]
        means.append(np.mean(own) if own else 0.0)
    bias = logits[np.flatnonzero(np.array(means) == 0)[0]]
    np.testing.assert_allclose(logits, bias + 4.0 * np.array(means), atol=1e-9)
    assert {round(mean, 3) for mean in means} >= {-1, -0.333, 0, 0.333, 1}


def test_counts_of_liked_items_say_nothing(log):
    rows, probabilities, result = log
    clicks = [int(row["click"]) for row in rows]
    totals = [sum(liking for _, liking in likings(row)) for row in rows]
    others = [sum(liking for category, liking in likings(row) if category != row["category"]) for row in rows]
    assert roc_auc_score(clicks, totals) == pytest.approx(0.5, abs=0.025)
    assert roc_auc_score(clicks, others) < 0.45  # it is the opposite that makes the total say nothing
    assert result.best_auc == pytest.approx(roc_auc_score(clicks, probabilities)) and result.best_auc > 0.9
    assert np.mean(clicks) == pytest.approx(0.3, abs=0.02) and result.positives == sum(clicks)


def test_histories_have_all_lengths_and_items_of_their_categories(log):
    rows, _, _ = log
    lengths = np.bincount([len(likings(row)) for row in rows], minlength=LENGTH + 1)
    assert len(lengths) == LENGTH + 1 and lengths.min() > 100
    for row in rows[:200]:
        names = [row["item"], *filter(None, row["item_history"].split("|"))]
        categories = [row["category"], *filter(None, row["category_history"].split("|"))]
        assert [f"c{int(name[1:]) // (ITEMS // CATEGORIES)}" for name in names] == categories


def test_a_longer_log_begins_with_the_shorter_one(tmp_path):
    for rows in (50, 80):
        generate_history(rows, 1, tmp_path / f"{rows}.csv")
    short, long = ((tmp_path / f"{rows}.csv").read_text() for rows in (50, 80))
    assert long.startswith(short) and len(short.splitlines()) == 51
    other = draw_histories(2, 0)
    assert len(other.item) == BLOCK_ROWS and not np.array_equal(other.item, draw_histories(1, 0).item)


def test_the_command_writes_it_and_refuses_what_is_of_other_formats(tmp_path):
    output = str(tmp_path / "log.csv.gz")
    done = CliRunner().invoke(
        main, ["generate", "--format", "history", "--attention", "0", "--rows", "9", "--output", output]
    )
    assert done.exit_code == 0 and "9 rows" in done.output
    truth = pa.parquet.read_table(output + ".truth.parquet")["probability"].to_numpy()
    np.testing.assert_allclose(truth, 0.3, atol=1e-9)  # nothing to be known
    for options, message in (
        (["--format", "criteo", "--attention", "1"], "--attention is of --format history"),
        (["--format", "history", "--drift", "ids=0.1"], "--drift is of --format criteo and text"),
        (["--format", "history", "--interplay", "1"], "--interplay"),
    ):
        done = CliRunner().invoke(main, ["generate", *options, "--output", str(tmp_path / "x")])
        assert done.exit_code == 2 and message in done.output
    with pytest.raises(InputError, match="base_rate should lie"):
        HistoryClickModel(base_rate=1.0)
