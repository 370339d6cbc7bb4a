"""`ctrpipe generate --format funnel`: conversions follow clicks, at known rates."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from sklearn.metrics import roc_auc_score

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.cli import main
from ctrpipe.transforms.generate import FunnelModel, generate_funnel
from ctrpipe.transforms.generate.blocks import BLOCK_ROWS

ROWS = BLOCK_ROWS + 5000


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The rows of a log, its truth and what was said of it."""
    path = tmp_path_factory.mktemp("funnel") / "log.csv"
    result = generate_funnel(ROWS, 3, path)
    return list(csv.DictReader(path.open())), pa.parquet.read_table(result.truth_path), result


def test_a_conversion_follows_a_click_at_the_rates_of_the_truth(log):
    rows, truth, result = log
    click, conversion = (np.array([int(row[name]) for row in rows]) for name in ("click", "conversion"))
    assert not (conversion > click).any() and result.positives == click.sum()
    assert truth["line"].to_pylist() == list(range(2, ROWS + 2))
    p, after = (truth[name].to_numpy() for name in ("probability", "after_click"))
    assert result.best_auc == pytest.approx(roc_auc_score(click, p))
    assert p.mean() == pytest.approx(0.1, abs=0.005) and after[click == 1].mean() == pytest.approx(0.1, abs=0.01)
    for labels, expected in ((click, p), (conversion[click == 1], after[click == 1]), (conversion, p * after)):
        spread = np.sqrt((expected * (1 - expected)).sum())
        assert abs(labels.sum() - expected.sum()) < 4 * spread
    assert after.mean() < 0.07  # what is clicked is what converts: the clicks are not like all impressions


@pytest.mark.slow
def test_a_logit_is_a_sum_over_the_values_and_the_pair(log):
    rows, truth = log[0][:6000], log[1][:6000]
    for name in ("probability", "after_click"):
        p = truth[name].to_numpy()
        logits = np.log(p / (1 - p))
        columns, seen = [], {}
        for row in rows:
            user, item, place = (int(row[column][1:]) for column in ("user", "item", "place"))
            same = 1 if user % 2 == item % 2 else -1
            keys = (("user", user), ("item", item), ("place", place))
            columns.append(([seen.setdefault(key, len(seen)) for key in keys], same))
        design = np.zeros((len(rows), len(seen)))
        for number, (values, _) in enumerate(columns):
            design[number, values] = 1
        pair = np.array([same for _, same in columns])
        found, *_ = np.linalg.lstsq(design[:4000], (logits - 0.7 * pair)[:4000], rcond=None)
        known = design[:4000].any(axis=0)
        inside = ~design[:, ~known].any(axis=1)
        np.testing.assert_allclose((design @ found)[inside], (logits - 0.7 * pair)[inside], atol=1e-6)
        assert inside.mean() > 0.99


def test_a_longer_log_begins_with_the_shorter_one(tmp_path):
    for rows in (50, 80):
        generate_funnel(rows, 1, tmp_path / f"{rows}.csv")
    short, long = ((tmp_path / f"{rows}.csv").read_text() for rows in (50, 80))
    assert long.startswith(short) and len(short.splitlines()) == 51


def test_the_command_writes_it_and_refuses_what_is_of_other_formats(tmp_path):
    output = str(tmp_path / "log.csv.gz")
    rates = ["--click-rate", "0.5", "--conversion-rate", "0.25"]
    done = CliRunner().invoke(main, ["generate", "--format", "funnel", *rates, "--rows", "9", "--output", output])
    assert done.exit_code == 0 and "9 rows" in done.output
    assert pa.parquet.read_table(output + ".truth.parquet").column_names == ["line", "probability", "after_click"]
    for options, message in (
        (["--conversion-rate", "0.1"], "--conversion-rate applies to --format funnel, not of criteo"),
        (["--click-rate", "0.1"], "--click-rate applies to --format kddcup2012, history and funnel, not of criteo"),
        (["--format", "funnel", "--drift", "ids=0.1"], "--drift applies to --format criteo and text, not of funnel"),
    ):
        done = CliRunner().invoke(main, ["generate", *options, "--output", str(tmp_path / "x")])
        assert done.exit_code == 2 and message in done.output
    with pytest.raises(InputError, match="conversion_rate should lie"):
        FunnelModel(conversion_rate=1.0)
    with pytest.raises(InputError, match="likeness should lie between -1 and 1"):
        FunnelModel(likeness=2.0)
