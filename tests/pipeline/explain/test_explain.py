"""Permutation importance against scikit-learn, codes of a log, a row's attributions, what is printed."""

import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.explain import explain as explain_module
from ctrpipe.pipeline.explain.explain import Settings, check_groups
from ctrpipe.pipeline.explain.importance import Permuter, groups_of
from ctrpipe.pipeline.explain.rows import shapley_of_row
from ctrpipe.pipeline.explain.show_row import print_row
from ctrpipe.pipeline.explain.value_codes import LogCodes
from ctrpipe.pipeline.run.trained_model import TrainedModel, find_model
from ctrpipe.transforms.log.spec import LogSpec
from tests.e2e.small_run import call, one_line

ROWS = 4000
SEED = 5
SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["label", "n", "c", "d"], "labels": {"ctr": "label"}},
        "features": [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c", "d"]}],
    }
)


def table() -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table({name: random.choice([-1.0, 1.0], ROWS) for name in ("a", "b", "c", "unused")})


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def additive(rows: pa.Table) -> np.ndarray:
    return sigmoid(0.5 * rows["a"].to_numpy() + rows["b"].to_numpy())


def product(rows: pa.Table) -> np.ndarray:
    return sigmoid(2 * rows["a"].to_numpy() * rows["b"].to_numpy())


def labels(score) -> np.ndarray:
    """Clicks that are drawn by the model itself."""
    return (np.random.default_rng(2).random(ROWS) < score(table())).astype(np.float32)


def permuted(columns: list[str], repeat: int) -> pa.Table:
    rows, order = table(), np.random.default_rng([SEED, repeat]).permutation(ROWS)
    for name in columns:
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(rows[name].to_numpy()[order]))
    return rows


def test_importance_is_the_loss_that_scikit_learn_measures():
    clicks = labels(additive)
    permuter = Permuter(additive, table(), clicks, 2, SEED)
    found = permuter.importance("a", ["a"])
    assert permuter.scorings == 3
    answers = [additive(permuted(["a"], repeat)) for repeat in (0, 1)]
    whole = additive(table())
    auc = roc_auc_score(clicks, whole) - np.mean([roc_auc_score(clicks, answer) for answer in answers])
    loss = np.mean([log_loss(clicks, answer) for answer in answers]) - log_loss(clicks, whole)
    assert found.auc.value == pytest.approx(auc, abs=1e-12) and auc > 0.02
    assert found.log_loss.value == pytest.approx(loss, abs=1e-9) and loss > 0.02
    assert found.log_loss.interval[0] > 0 and sum(found.auc.interval) / 2 == pytest.approx(found.auc.value)


def test_an_interval_is_of_rows_and_of_repeats():
    clicks = labels(additive)
    found = Permuter(additive, table(), clicks, 2, SEED).importance("a", ["a"]).log_loss

    def losses(rows: pa.Table) -> np.ndarray:
        p = additive(rows)
        return -np.log(np.where(clicks > 0.5, p, 1 - p))

    apart = [losses(permuted(["a"], repeat)) - losses(table()) for repeat in (0, 1)]
    variance = np.mean(apart, axis=0).var(ddof=1) / ROWS + np.var([one.mean() for one in apart], ddof=1) / 2
    assert (found.interval[1] - found.interval[0]) / 2 == pytest.approx(1.959964 * np.sqrt(variance), rel=1e-4)


def test_a_column_that_the_model_does_not_use_is_worth_nothing():
    found = Permuter(additive, table(), labels(additive), 2, SEED).importance("unused", ["unused"])
    assert (found.auc.value, found.auc.interval, found.log_loss.value) == (0, (0, 0), 0)


def test_columns_that_the_model_multiplies_need_each_other_and_equal_ones_stand_in():
    permuter = Permuter(product, table(), labels(product), 1, SEED)
    pair = permuter.interaction(permuter.importance("a", ["a"]), permuter.importance("b", ["b"]))
    assert permuter.scorings == 4 and pair.log_loss.interval[0] > 0.1 and pair.auc.interval[0] > 0.1
    unused = permuter.interaction(permuter.importance("a", ["a"]), permuter.importance("c", ["c"]))
    assert unused.log_loss.value == pytest.approx(0, abs=1e-12)

    def twice(rows: pa.Table) -> np.ndarray:
        return sigmoid(2 * np.sign(rows["a"].to_numpy() + rows["b"].to_numpy()))

    same = table().set_column(1, "b", table()["a"])
    clicks = (np.random.default_rng(2).random(ROWS) < twice(same)).astype(np.float32)
    permuter = Permuter(twice, same, clicks, 1, SEED)
    pair = permuter.interaction(permuter.importance("a", ["a"]), permuter.importance("b", ["b"]))
    assert pair.log_loss.interval[1] < 0


def test_groups_are_permuted_together_and_the_text_is_one():
    groups = groups_of(["a", "b", "c", "q", "t"], ["q", "t"], {"pair": ["a", "c"]})
    assert groups == {"b": ["b"], "pair": ["a", "c"], "text": ["q", "t"]}


@pytest.mark.parametrize(
    "settings, message",
    [
        (Settings(groups={"g": ["n", "x"]}), "--group g: x is no column of the model; it has n, c, d"),
        (Settings(groups={"g": ["c"], "h": ["c"]}), "c is in two groups"),
        (Settings(slice=("n", "1")), "--slice n: no column of text of the model; it has c, d"),
    ],
)
def test_unknown_columns_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        check_groups(SPEC, settings)


def test_codes_are_frequent_values_and_bins():
    values = [b"x"] * 3 + [b"y"] * 2 + [None]
    rows = pa.record_batch(
        {
            "n": pa.array([0.0, 0.0, 1.0, 2.0, None, 2.0], pa.float32()),
            "c": pa.array(values, pa.binary()),
            "d": pa.array([str(value).encode() for value in range(6)], pa.binary()),
        }
    )
    codes = LogCodes(pa.Table.from_batches([rows]), SPEC)
    assert codes.names[0] == [".. <= 0", "0 < .. <= 1", ".. > 1", "(missing)"]
    assert codes.names[1] == ["x", "y", "(other)", "(missing)"]
    assert codes.conditions[0] == ["n <= 0", "0 < n <= 1", "n > 1", "n is missing"]
    assert codes.conditions[1] == ["c = x", "c = y", "c is another value", "c is missing"]
    assert codes.codes(rows)[0].tolist() == [0, 0, 1, 2, 3, 2]
    later = rows.set_column(1, "c", pa.array([b"y", b"new", None, b"x", b"", b"y"], pa.binary()))
    assert codes.codes(later)[1].tolist() == [1, 2, 3, 0, 2, 1]


@pytest.mark.parametrize(
    ("numbers", "bins", "places"),
    [
        ([1234567, 1234568, 1234569], ["n <= 1234567", "1234567 < n <= 1234568", "n > 1234568"], [0, 1, 2]),
        ([0.1, 0.25, 3e10], ["n <= 0.1", "0.1 < n <= 0.25", "n > 0.25"], [0, 1, 2]),
        ([-5, -5, 2.5e-7], ["n <= -5", "n > -5"], [0, 0, 1]),
        ([2000000, 2500000, 7e20], ["n <= 2000000", "2000000 < n <= 2500000", "n > 2500000"], [0, 1, 2]),
        ([7, 7, None], ["n is any number"], [0, 0, 1]),
    ],
)
def test_a_bin_says_both_of_its_ends_and_no_two_bins_read_the_same(numbers, bins, places):
    columns = {"n": pa.array(numbers, pa.float32())} | {name: pa.nulls(3, pa.binary()) for name in "cd"}
    codes = LogCodes(pa.table(columns), SPEC)
    assert codes.conditions[0] == [*bins, "n is missing"]
    assert codes.codes(pa.record_batch(columns))[0].tolist() == places


def test_the_codes_of_a_sorted_log_know_its_last_rows(tmp_path, monkeypatch):
    log = tmp_path / "log.tsv"
    values = ["first"] * 600 + ["second"] * 600
    log.write_text("".join(f"{n % 2}\t{n}\t{value}\ty\n" for n, value in enumerate(values)))
    monkeypatch.setattr(explain_module, "CODED_ROWS", 400)
    rows, codes, counts = explain_module._read(TrainedModel(tmp_path, None), [str(log)], SPEC, Settings(rows=100))
    assert rows.num_rows == 100 and counts.rows == 1200
    assert set(codes.names[1][:2]) == {"first", "second"} and codes.names[1][2:] == ["(other)", "(missing)"]
    edges = [float(name.split()[-1]) for name in codes.names[0] if name != "(missing)"]
    assert min(edges) < 150 and max(edges) > 1050
    first = codes.names[1].index("first")
    assert counts.of(1, 2)[first].sum() == 600


def of_row(rows: pa.Table) -> np.ndarray:
    return sigmoid(rows["n"].fill_null(0).to_numpy() * 0.3 + (rows["c"].is_null().to_numpy() * -1.0))


ROW = pa.table({"n": pa.array([2.0], pa.float32()), "c": pa.array([b"[red]<b>\x1b[1m"], pa.binary())})


def test_a_row_is_explained_against_missing_values_and_printed_as_text(capsys):
    found = shapley_of_row(of_row, ROW, None, {"n": ["n"], "c": ["c"]}, 4, np.random.default_rng(0))
    assert {one.name: one.logit for one in found.columns} == pytest.approx({"c": 1.0, "n": 0.6}, abs=1e-6)
    assert found.columns[0].name == "c" and found.baseline == pytest.approx(-1, abs=1e-6)
    assert found.probability == pytest.approx(sigmoid(0.6), abs=1e-6)
    print_row(found, "[bold]log.tsv:1")
    printed = capsys.readouterr().out
    assert "[red]<b>\\x1b[1m" in printed and "[bold]log.tsv:1: probability 0.6457" in printed and "\x1b" not in printed


def test_a_row_is_explained_against_rows_of_the_log():
    background = pa.table({"n": pa.array([0.0, 4.0], pa.float32()), "c": pa.array([b"x", None], pa.binary())})
    found = shapley_of_row(of_row, ROW, background, {"n": ["n"], "c": ["c"]}, 400, np.random.default_rng(0))
    assert sum(one.logit for one in found.columns) == pytest.approx(found.logit - found.baseline, abs=1e-9)
    assert found.baseline == pytest.approx(0.1, abs=0.1)  # half of 0.3 x 4 - 1
    by_name = {one.name: one for one in found.columns}
    assert abs(by_name["c"].logit - 0.5) < 4 * by_name["c"].error


def test_a_run_whose_model_was_removed_is_refused(tmp_path):
    (tmp_path / "report_data").mkdir()
    (tmp_path / "metrics.json").write_text("{}")
    with pytest.raises(InputError, match="no finished run"):
        find_model(tmp_path)
    (tmp_path / "report_data" / "lineage.json").write_text(json.dumps({"model": str(tmp_path / "gone")}))
    with pytest.raises(InputError, match="its model is no longer at"):
        find_model(tmp_path)


def test_wrong_usage_is_one_line(tmp_path):
    one_line(*call("explain", tmp_path, "--slice", "C9"), "expected --slice COLUMN=VALUE")
    one_line(*call("explain", tmp_path, "--group", "a=b", "--group", "a=c"), "a name is given twice")
    one_line(*call("explain", tmp_path), "no model version here")
