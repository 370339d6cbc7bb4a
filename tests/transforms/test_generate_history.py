"""`ctrpipe generate --format history`: what the clicks depend on, and what they do not."""

import collections
import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from sklearn.metrics import roc_auc_score

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.cli import main
from ctrpipe.transforms.generate import HistoryClickModel, generate_history
from ctrpipe.transforms.generate.blocks import BLOCK_ROWS
from ctrpipe.transforms.generate.history import ITEMS, draw_histories

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


def test_the_logit_is_the_liking_of_the_one_item_of_the_candidates_category(log):
    rows, probabilities, _ = log
    logits = np.log(probabilities / (1 - probabilities))
    own = [[liking for category, liking in likings(row) if category == row["category"]] for row in rows]
    assert {len(found) for found in own} == {1}
    liked = np.array(own)[:, 0]
    assert liked.mean() == pytest.approx(0, abs=0.05)
    np.testing.assert_allclose(logits - 4.0 * liked, (logits - 4.0 * liked)[0], atol=1e-9)


def test_the_candidate_is_not_in_its_history_and_does_not_tell_what_is(log):
    rows, _, _ = log
    assert not [row for row in rows if row["item"] in row["item_history"].split("|")]
    for parity in (0, 1):
        of_parity = [row for row in rows if int(row["item"][1:]) % 2 == parity]
        liked = [sum(liking for category, liking in likings(row) if category == row["category"]) for row in of_parity]
        assert np.mean(liked) == pytest.approx(0, abs=0.06)


def test_counts_of_liked_items_say_nothing(log):
    rows, probabilities, result = log
    clicks = [int(row["click"]) for row in rows]
    totals = [sum(liking for _, liking in likings(row)) for row in rows]
    others = [sum(liking for category, liking in likings(row) if category != row["category"]) for row in rows]
    assert roc_auc_score(clicks, totals) == pytest.approx(0.5, abs=0.025)
    assert roc_auc_score(clicks, others) < 0.45  # it is the opposite that makes the total say nothing
    assert result.best_auc == pytest.approx(roc_auc_score(clicks, probabilities)) and result.best_auc > 0.8
    assert np.mean(clicks) == pytest.approx(0.3, abs=0.02) and result.positives == sum(clicks)


def test_histories_have_all_lengths_from_half_and_items_of_their_categories(log):
    rows, _, _ = log
    lengths = np.bincount([len(likings(row)) for row in rows], minlength=25)
    assert len(lengths) == 25 and lengths[:12].sum() == 0 and lengths[12:].min() > 300
    for row in rows[:200]:
        names = [row["item"], *filter(None, row["item_history"].split("|"))]
        categories = [row["category"], *filter(None, row["category_history"].split("|"))]
        assert [f"c{int(name[1:]) // ITEMS}" for name in names] == categories


def test_a_longer_log_begins_with_the_shorter_one(tmp_path):
    for rows in (50, 80):
        generate_history(rows, 1, tmp_path / f"{rows}.csv")
    short, long = ((tmp_path / f"{rows}.csv").read_text() for rows in (50, 80))
    assert long.startswith(short) and len(short.splitlines()) == 51
    first, second = (list(draw_histories(seed, BLOCK_ROWS + 5, HistoryClickModel())) for seed in (1, 2))
    assert [len(rows.item) for rows in first] == [BLOCK_ROWS, 5]
    assert not np.array_equal(first[0].item, second[0].item) and not np.array_equal(first[0].item[:5], first[1].item)


def test_length_and_categories_are_those_asked_for(tmp_path):
    output = tmp_path / "log.csv"
    options = ["--history-length", "60", "--categories", "5", "--rows", "3000", "--output", str(output)]
    done = CliRunner().invoke(main, ["generate", "--format", "history", *options])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(output.open()))
    assert {len(likings(row)) for row in rows} == set(range(30, 61))
    assert {row["category"] for row in rows} == {f"c{number}" for number in range(5)}
    assert {row["item"] for row in rows} == {f"i{number}" for number in range(5 * ITEMS)}


def test_repeats_are_of_the_items_that_say_nothing(tmp_path):
    output = tmp_path / "log.csv"
    options = ["--repeats", "5", "--history-length", "32", "--categories", "300", "--rows", "3000"]
    done = CliRunner().invoke(main, ["generate", "--format", "history", *options, "--output", str(output)])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(output.open()))
    assert {len(likings(row)) for row in rows} == set(range(16, 33))
    checked = 0
    for row in rows:
        items = row["item_history"].split("|")
        assert [category for category, _ in likings(row)].count(row["category"]) == 1
        counts = collections.Counter(items)
        others, rest = divmod(len(items) - 2, 5)
        if len(counts) < 2 + others + (rest > 0):  # the same item was drawn twice
            continue
        assert sorted(counts.values()) == sorted([1, 1] + [rest] * (rest > 0) + [5] * others)
        singles = [item for item, count in counts.items() if count == 1]
        assert len(singles) > 2 or sum(1 - 2 * (int(item[1:]) % 2) for item in singles) == 0
        checked += 1
    assert checked > 2500
    first_two_are_one = [len(set(row["item_history"].split("|")[:2])) == 1 for row in rows]
    assert np.mean(first_two_are_one) < 0.25  # they are shuffled


def test_the_command_writes_it_and_refuses_what_is_of_other_formats(tmp_path):
    output = str(tmp_path / "log.csv.gz")
    done = CliRunner().invoke(
        main, ["generate", "--format", "history", "--attention", "0", "--rows", "9", "--output", output]
    )
    assert done.exit_code == 0 and "9 rows" in done.output
    truth = pa.parquet.read_table(output + ".truth.parquet")["probability"].to_numpy()
    np.testing.assert_allclose(truth, 0.3, atol=1e-9)  # nothing to be known
    for options, message in (
        (["--format", "criteo", "--attention", "1"], "--attention applies to --format history"),
        (["--format", "criteo", "--history-length", "9"], "--history-length applies to --format history"),
        (["--format", "avazu", "--categories", "9"], "--categories applies to --format history"),
        (["--format", "criteo", "--repeats", "2"], "--repeats applies to --format history"),
        (["--format", "history", "--drift", "ids=0.1"], "--drift applies to --format criteo and text"),
        (["--format", "history", "--interplay", "1"], "--interplay"),
    ):
        done = CliRunner().invoke(main, ["generate", *options, "--output", str(tmp_path / "x")])
        assert done.exit_code == 2 and message in done.output
    with pytest.raises(InputError, match="base_rate should lie"):
        HistoryClickModel(base_rate=1.0)
