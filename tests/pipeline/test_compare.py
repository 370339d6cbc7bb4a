"""Models on the same rows: t over shards, slices, sources, the command."""

import dataclasses
import html
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.stats
import sklearn.metrics
import yaml

from ctrpipe.common import metrics
from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.compare.models import compare
from ctrpipe.pipeline.compare.shards import by_shard, paired_t, shards
from ctrpipe.pipeline.compare.show import comparison_page, judged
from ctrpipe.pipeline.compare.sides import BETTER, UNDECIDED, WORSE
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, read_scored, write_scored
from tests.e2e.small_run import ROOT, call, one_line


def answers(rows: int, noise: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities that know the true ones but for some noise; many of them are equal."""
    random = np.random.default_rng(0)
    truth = random.random(rows) * 0.6
    labels = (random.random(rows) < truth).astype(np.float32)
    blurred = truth + noise * np.random.default_rng(seed).normal(size=rows)
    return labels, np.clip(blurred, 0.01, 0.99).round(2).astype(np.float32)


def scored(count: int = 4000, noise: float = 0.1, seed: int = 1, **changes) -> ScoredRows:
    labels, probabilities = answers(count, noise, seed)
    sites = pa.chunked_array([pa.array(["a" if number % 3 else "b" for number in range(count)])])
    tail = np.arange(count) % 4 == 0
    whole = ScoredRows("log", {"ctr": labels}, {"ctr": probabilities}, {"site": sites}, tail, {"max_count": 2})
    return dataclasses.replace(whole, **changes)


# Significance -----------------------------------------------------------------------------------------------------


def test_shards_are_of_about_equal_size_and_mix_neighbours():
    found = shards(20_000, 20)
    sizes = np.bincount(found, minlength=20)
    assert len(sizes) == 20 and abs(sizes - 1000).max() < 150  # five standard deviations of a binomial
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.03
    np.testing.assert_array_equal(shards(100, 20), found[:100])


def test_a_metric_by_shard_is_that_of_its_rows():
    labels, probabilities = answers(2000, 0.1)
    shard = shards(2000, 20)
    found = by_shard(metrics.auc, labels, probabilities, shard, 20)
    expected = [
        sklearn.metrics.roc_auc_score(labels[shard == part], probabilities[shard == part]) for part in range(20)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    empty = by_shard(metrics.auc, labels[:3], probabilities[:3], np.array([0, 0, 2]), 4)
    assert np.isnan(empty[[1, 3]]).all()


def test_a_comparison_weighs_rows_and_refuses_other_weights():
    weights = np.random.default_rng(2).integers(0, 3, 4000).astype(np.float32)
    sides = {"a": [scored(weights=weights)], "b": [scored(noise=0.3, seed=2, weights=weights)]}
    found = compare(sides)
    for part, rows in ((found["slices"][0], np.ones(4000, bool)), (found["slices"][1], np.arange(4000) % 4 == 0)):
        for name, [one] in sides.items():
            labels, probabilities = one.labels["ctr"][rows], one.probabilities["ctr"][rows]
            assert part["metrics"][name] == metrics.summarise(labels, probabilities, weights[rows])
        expected = part["metrics"]["b"]["auc"] - part["metrics"]["a"]["auc"]
        assert part["differences"]["b"]["auc"]["difference"] == pytest.approx(expected)
    for other in (weights + 1, None):
        with pytest.raises(InputError, match=r"b: not the same test rows as a \(other weights\)"):
            compare({"a": sides["a"], "b": [scored(weights=other)]})


def test_t_is_the_mean_difference_in_its_standard_errors():
    first, second = np.array([0.7, 0.72, 0.69, 0.75]), np.array([0.71, 0.74, 0.69, 0.78])
    assert paired_t(first, second) == pytest.approx(scipy.stats.ttest_rel(second, first).statistic)
    assert paired_t(first, first) is None and paired_t(first, np.array([0.7, np.nan, 0.7, 0.7])) is None


# Comparison -------------------------------------------------------------------------------------------------------


def test_a_better_model_is_better_on_every_slice_by_more_than_chance():
    found = compare({"blurred": [scored(noise=0.4)], "sharp": [scored(noise=0.05, seed=2)]})
    assert [part["slice"] for part in found["slices"]] == ["ALL", "Tail", "site = a", "site = b"]
    for part in found["slices"]:
        for metric in ("auc", "rig"):
            difference = part["differences"]["sharp"][metric]
            values = part["metrics"]
            assert difference["difference"] == pytest.approx(values["sharp"][metric] - values["blurred"][metric])
            assert difference["t_over_shards"] > 3 and difference["p"] < 0.01 and difference["verdict"] == "better"
            low, high = difference["interval"]
            assert 0 < low < difference["difference"] < high
    labels, probabilities = answers(4000, 0.05, seed=2)
    rows = np.arange(4000) % 4 == 0
    tail = found["slices"][1]
    assert tail["rows"] == 1000 and tail["metrics"]["sharp"] == metrics.summarise(labels[rows], probabilities[rows])


def test_equally_good_models_differ_by_chance():
    found = [
        compare({"a": [scored(noise=0.2)], "b": [scored(noise=0.2, seed=seed)]})["slices"][0]["differences"]["b"]["auc"]
        for seed in range(2, 12)
    ]
    ts = [difference["t_over_shards"] for difference in found]
    assert sum(abs(t) > 3 for t in ts) <= 1 and min(ts) < max(ts)
    assert sum(difference["verdict"] == "no difference shown" for difference in found) >= 9


def test_of_twenty_slices_none_differs_by_chance():
    """Alone, one of twenty differences is below 5%; the list of slices of equal models has none in 19 of 20 pairs."""
    random, alone, corrected = np.random.default_rng(0), 0, 0
    labels = (random.random(4000) < 0.3).astype(np.float32)
    sites = pa.chunked_array([pa.array((np.arange(4000) % 20).astype(str))])
    for _ in range(6):
        sides = {}
        for name in ("a", "b"):
            values = np.clip(0.3 + 0.1 * labels + 0.2 * random.normal(size=4000), 0.01, 0.99).astype(np.float32)
            sides[name] = [ScoredRows("log", {"ctr": labels}, {"ctr": values}, {"site": sites})]
        found = [part["differences"]["b"]["auc"] for part in compare(sides)["slices"][1:]]
        assert {one["corrected_for"] for one in found} == {20}
        plain = [2 * scipy.stats.norm.sf(abs(one["t"])) for one in found]
        alone += min(plain) < 0.05
        corrected += any(one["verdict"] != "no difference shown" for one in found)
        assert min(one["p"] for one in found) == pytest.approx(min(1, 20 * min(plain)))
        low, high = found[0]["interval"]
        assert (high - low) / 2 == pytest.approx(scipy.stats.norm.ppf(1 - 0.025 / 20) * found[0]["standard_error"])
    assert alone >= 2 and corrected <= scipy.stats.binom.ppf(0.999, 6, 0.05)


def test_a_model_and_itself_do_not_differ():
    part = compare({"a": [scored()], "b": [scored()]})["slices"][0]
    auc = part["differences"]["b"]["auc"]
    assert (auc["difference"], auc["t_over_shards"], auc["interval"], auc["p"]) == (0.0, None, (0.0, 0.0), None)
    assert auc["verdict"] == "no difference shown"
    page = comparison_page(compare({"a": [scored()], "b": [scored()]}))
    assert '<p class="verdict open">b: AUC does not differ significantly' in page and "verdict good" not in page


def test_metrics_are_means_over_the_trainings_with_their_deviation():
    trainings = [scored(noise=0.2, seed=seed) for seed in (1, 2, 3)]
    part = compare({"a": trainings, "b": [scored(noise=0.1)]})["slices"][0]
    aucs = [sklearn.metrics.roc_auc_score(each.labels["ctr"], each.probabilities["ctr"]) for each in trainings]
    assert part["metrics"]["a"]["auc"] == pytest.approx(np.mean(aucs))
    assert part["deviations"]["a"]["auc"] == pytest.approx(np.std(aucs, ddof=1))
    assert part["deviations"]["b"]["auc"] is None
    assert part["differences"]["b"]["auc"]["seeds"] == (3, 1)


def test_rows_of_one_class_define_no_difference():
    clicks = scored(labels={"ctr": np.ones(4000, np.float32)})
    part = compare({"a": [clicks], "b": [clicks]})["slices"][0]
    assert part["differences"]["b"]["auc"]["difference"] is None and part["differences"]["b"]["rig"]["verdict"] is None


def test_a_slice_that_not_all_models_have_is_left_out():
    other = scored(seed=2, slices={}, tail_of={"max_count": 5})
    assert [part["slice"] for part in compare({"a": [scored()], "b": [other]})["slices"]] == ["ALL"]


def other_labels() -> dict[str, np.ndarray]:
    labels = answers(4000, 0.1)[0]
    labels[7] = 1 - labels[7]
    return {"ctr": labels}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rows": "another"}, "other files, or another split"),
        ({"labels": other_labels()}, "row 7 has another label"),
    ],
)
def test_other_rows_cannot_be_compared(changes, reason):
    with pytest.raises(InputError, match=f"^b: not the same test rows as a \\({reason}"):
        compare({"a": [scored()], "b": [scored(), scored(**changes)]})


def test_fewer_rows_and_another_task_cannot_be_compared():
    with pytest.raises(InputError, match="3,000 test rows, not 4,000"):
        compare({"a": [scored()], "b": [scored(3000)]})
    with pytest.raises(InputError, match="a: there is no task cvr; it has ctr"):
        compare({"a": [scored()], "b": [scored()]}, task="cvr")


def numbers(noise: float, seed: int = 1, **changes) -> ScoredRows:
    """Watch times, which a tenth of the rows lack, and predictions of them, beside clicks."""
    random = np.random.default_rng(0)
    seconds = random.gamma(2, 10, 4000)
    labels = np.where(random.random(4000) < 0.1, np.nan, seconds).astype(np.float32)
    predicted = (seconds + noise * np.random.default_rng(seed).normal(size=4000)).astype(np.float32)
    whole = scored(numbers=("seconds",))
    by_task = {"labels": {**whole.labels, "seconds": labels}}
    by_task["probabilities"] = {**whole.probabilities, "seconds": predicted}
    return dataclasses.replace(whole, **by_task, **changes)


def test_models_of_a_number_are_compared_by_its_errors_of_which_the_lower_is_better():
    sides = {"rough": [numbers(9)], "close": [numbers(8, seed=2)]}
    found = compare(sides, "seconds")
    assert [part["slice"] for part in found["slices"]] == ["ALL", "Tail", "site = a", "site = b"]
    whole = found["slices"][0]
    known = ~np.isnan(sides["rough"][0].labels["seconds"])
    y = sides["rough"][0].labels["seconds"][known].astype(float)
    apart = {name: one.probabilities["seconds"][known] - y for name, [one] in sides.items()}
    for name, errors in apart.items():
        measured = whole["metrics"][name]
        assert measured["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
        assert measured["mae"] == pytest.approx(np.abs(errors).mean()) and measured["examples"] == known.sum()
        assert measured["r2"] == pytest.approx(sklearn.metrics.r2_score(y, y + errors))
    by_metric = whole["differences"]["close"]
    assert set(by_metric) == {"rmse", "mae"}
    paired = scipy.stats.ttest_rel(np.abs(apart["close"]), np.abs(apart["rough"]))
    assert by_metric["mae"]["t"] == pytest.approx(paired.statistic)
    assert by_metric["mae"]["p"] == pytest.approx(2 * scipy.stats.norm.sf(abs(paired.statistic)))
    assert by_metric["rmse"]["difference"] < 0 and by_metric["rmse"]["interval"][1] < 0
    assert {one["verdict"] for one in by_metric.values()} == {"better"}
    other_way = compare(dict(reversed(sides.items())), "seconds")["slices"][0]["differences"]["rough"]
    assert {one["verdict"] for one in other_way.values()} == {"worse"}
    groups = np.arange(4000) % 50
    grouped = {name: [dataclasses.replace(one, groups=groups)] for name, [one] in sides.items()}
    assert compare(grouped, "seconds")["slices"] == found["slices"] and "gauc" in str(compare(grouped))


def with_orders(whole: ScoredRows, noise: float) -> ScoredRows:
    labels, probabilities = answers(4000, noise, 3)
    labels[::5] = np.nan
    by_task = {"labels": {**whole.labels, "order": labels}}
    return dataclasses.replace(whole, probabilities={**whole.probabilities, "order": probabilities}, **by_task)


def test_further_tasks_are_compared_beside_the_first_and_corrected_together():
    sides = {"rough": [with_orders(numbers(9), 0.3)], "close": [with_orders(numbers(8, seed=2), 0.1)]}
    found = compare(sides)
    alone = compare(sides, "ctr")
    assert alone["further_tasks"] == [] and found == {**alone, "further_tasks": found["further_tasks"]}
    assert [(one["task"], len(one["slices"])) for one in found["further_tasks"]] == [("seconds", 1), ("order", 1)]
    for one in found["further_tasks"]:
        [whole], by_itself = one["slices"], compare(sides, one["task"])["slices"][0]
        assert whole["metrics"] == by_itself["metrics"]
        for metric, compared in whole["differences"]["close"].items():
            raw = by_itself["differences"]["close"][metric]
            assert compared["difference"] == raw["difference"] and (
                compared["corrected_for"],
                raw["corrected_for"],
            ) == (2, 1)
            low, high = compared["interval"]
            assert low < raw["interval"][0] and high > raw["interval"][1] and compared["p"] >= raw["p"]
    other = dataclasses.replace(sides["close"][0], numbers=())  # what is a number of one model alone is left out
    assert [one["task"] for one in compare({**sides, "close": [other]})["further_tasks"]] == ["order"]


@pytest.mark.parametrize(("of_rig", "told"), [(WORSE, ["auc", "rig"]), (BETTER, ["auc", "rig"]), (UNDECIDED, ["auc"])])
def test_rig_has_a_verdict_where_its_difference_is_no_chance(of_rig, told):
    assert judged({"auc": {"verdict": UNDECIDED}, "rig": {"verdict": of_rig}}) == told


def test_a_model_of_the_same_order_and_a_worse_log_loss_is_said_to_be_worse():
    good = sides_of_one_order()
    found = compare(good)
    differences = found["slices"][0]["differences"]["skewed"]
    assert differences["auc"]["verdict"] == UNDECIDED and differences["rig"]["verdict"] == WORSE
    assert "skewed: RIG worse than that of right" in html.unescape(comparison_page(found))


def sides_of_one_order() -> dict[str, list[ScoredRows]]:
    random = np.random.default_rng(4)
    probabilities = random.uniform(0.05, 0.6, 4000).astype(np.float32)
    labels = (random.random(4000) < probabilities).astype(np.float32)
    both = {"right": probabilities, "skewed": np.sqrt(probabilities)}
    return {name: [ScoredRows("log", {"ctr": labels}, {"ctr": made})] for name, made in both.items()}


def test_a_number_of_one_model_and_a_click_of_another_cannot_be_compared():
    with pytest.raises(InputError, match="^b: seconds is a number that a predicts, and a click of b; compare models"):
        compare({"a": [numbers(9)], "b": [numbers(9, numbers=())]}, "seconds")


# Files and the command --------------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path):
    two = scored(labels={"ctr": np.ones(4000, np.float32), "cvr": answers(4000, 0.1)[0]})
    two = dataclasses.replace(two, probabilities={name: answers(4000, 0.3)[1] for name in two.labels})
    write_scored(tmp_path / "a.parquet", two, {"baseline_probability": np.zeros(4000, np.float32)})
    found = read_scored(tmp_path / "a.parquet")
    assert (found.rows, list(found.labels), found.tail_of) == ("log", ["ctr", "cvr"], {"max_count": 2})
    np.testing.assert_array_equal(found.labels["cvr"], two.labels["cvr"])
    np.testing.assert_array_equal(found.probabilities["ctr"], two.probabilities["ctr"])
    np.testing.assert_array_equal(found.tail, two.tail)
    assert found.slices["site"].to_pylist() == two.slices["site"].to_pylist()


@pytest.fixture
def runs(tmp_path):
    """Two folders as runs leave them."""
    for name, noise in (("a", 0.4), ("b", 0.05)):
        (tmp_path / name / "report_data").mkdir(parents=True)
        write_scored(tmp_path / name / "report_data" / "predictions.parquet", scored(noise=noise))
    return tmp_path


def test_the_command_prints_a_table_and_writes_json_and_a_picture(runs):
    output = runs / "out" / "comparison.json"
    code, printed = call("compare", runs / "a", runs / "b", "--output", output)
    assert code == 0, printed
    found = json.loads(output.read_text())
    assert found["models"] == ["a", "b"] and found["rows"] == 4000 and found["tail"] == {"max_count": 2}
    assert f"{found['slices'][0]['metrics']['b']['auc']:.4f}" in printed and "Tail" in printed
    assert (runs / "out" / "comparison.svg").read_text().startswith("<svg")
    page = (runs / "out" / "comparison.html").read_text()
    assert printed.rstrip().endswith("comparison.html") and "<h1>b against a</h1>" in page
    verdict = next(line for line in printed.splitlines() if line.startswith("b: AUC"))
    assert "better than that of a (+" in verdict and "one seed on each side" in verdict
    assert f'<p class="verdict good">{verdict}.</p>' in html.unescape(page)
    assert "<0.0001" in printed and ">&lt;0.0001<" in page
    for part in found["slices"]:
        compared = part["differences"]["b"]["auc"]
        assert f">{compared['difference']:+.4f}<small>" in page and f"{part['metrics']['a']['rig']:.4f}" in page
        low, high = compared["interval"]
        tip = f"b, {part['slice']}: {compared['difference']:+.5f}, 95% {low:+.5f} to {high:+.5f}"
        assert f"<title>{tip}</title>" in html.unescape(page)
    assert "significant" not in printed
    one_slice = {**found, "slices": found["slices"][:1]}
    for of_metric in one_slice["slices"][0]["differences"]["b"].values():
        of_metric["corrected_for"] = 3  # as of four models
    page = comparison_page(one_slice)
    assert "of the models are corrected for 3 differences" in page and "of the slices" not in page


def test_the_command_compares_a_task_that_predicts_a_number(tmp_path):
    for name, noise in (("a", 9), ("b", 8)):
        (tmp_path / name / "report_data").mkdir(parents=True)
        write_scored(tmp_path / name / "report_data" / "predictions.parquet", numbers(noise))
    output = tmp_path / "found.json"
    code, printed = call("compare", tmp_path / "a", tmp_path / "b", "--task", "seconds", "--output", output)
    assert code == 0, printed
    found = json.loads(output.read_text())["slices"][0]
    compared = found["differences"]["b"]["rmse"]
    verdicts = [line for line in printed.splitlines() if line.startswith("b: ")]
    assert verdicts[0].startswith(f"b: RMSE better than that of a ({compared['difference']:+.5g}, 95% ")
    assert verdicts[1].startswith("b: MAE better") and len(verdicts) == 2
    assert f"{found['metrics']['a']['r2']:.5g}" in printed and "AUC" not in printed
    page = html.unescape((tmp_path / "found.html").read_text())
    assert f'<p class="verdict good">{verdicts[0]}.</p>' in page and "lower is better" in page
    assert f">{compared['difference']:+.5g}<small>" in page and "AUC" not in page


def test_the_command_shows_the_further_tasks(tmp_path):
    for name, noise in (("a", 9), ("b", 8)):
        (tmp_path / name / "report_data").mkdir(parents=True)
        write_scored(tmp_path / name / "report_data" / "predictions.parquet", numbers(noise))
    code, printed = call("compare", tmp_path / "a", tmp_path / "b", "--output", tmp_path / "found.json")
    assert code == 0, printed
    [further] = json.loads((tmp_path / "found.json").read_text())["further_tasks"]
    compared = further["slices"][0]["differences"]["b"]["mae"]
    line = f"b: MAE of seconds better than that of a ({compared['difference']:+.5g}, 95% "
    assert any(each.startswith(line) for each in printed.splitlines())
    assert "b: AUC does not differ significantly" in printed
    page = html.unescape((tmp_path / "found.html").read_text())
    assert "<h2>Further tasks</h2>" in page and line in page and f">{compared['difference']:+.5g}</td>" in page


def seeds_of(folder, noise, count):
    """Folders as runs with different seeds leave them."""
    for seed in range(count):
        (folder / f"seed{seed}" / "report_data").mkdir(parents=True)
        write_scored(folder / f"seed{seed}" / "report_data" / "predictions.parquet", scored(noise=noise, seed=seed))
    return sorted(folder.iterdir())


def test_the_runs_of_a_model_are_compared_with_those_of_another(tmp_path):
    old, new = (seeds_of(tmp_path / name, noise, 3) for name, noise in (("old", 0.4), ("new", 0.05)))
    output = tmp_path / "found.json"
    code, printed = call("compare", *new, "--against", *old, "--task", "ctr", "--output", output)
    assert code == 0, printed
    found = json.loads(output.read_text())
    assert found["models"] == ["old", "new"] and found["trainings"] == {"old": 3, "new": 3}
    verdict = next(line for line in printed.splitlines() if line.startswith("new: AUC"))
    assert "better than that of old (+" in verdict and "over rows and seeds (3 and 3)" in verdict
    assert " ± " in printed
    code, printed = call("compare", new[0], "--against", *old)
    assert code == 0 and "one seed on a side" in next(line for line in printed.splitlines() if "AUC better" in line)


def test_models_of_one_name_are_told_apart_and_against_wants_a_path(tmp_path):
    old, new = (seeds_of(tmp_path / side / "seeds", noise, 2) for side, noise in (("old", 0.4), ("new", 0.05)))
    output = tmp_path / "found.json"
    for against in (["--against", *old], [f"--against={old[0]}", old[1]]):
        code, printed = call("compare", *new, *against, "--output", output)
        assert code == 0, printed
        assert json.loads(output.read_text())["models"] == ["seeds", f"{new[0]}: seeds"]
    code, printed = call("compare", *new, "--against")
    assert code == 2 and "'--against' requires an argument" in printed


@pytest.mark.parametrize("text", ["{", "{}", '{"points": [{"name": "lr", "runs": [{"predictions": null}]}]}'])
def test_a_sweep_without_predictions_is_one_line(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    one_line(*call("compare", tmp_path), "sweep.json: has no predictions that can be compared")


def test_a_sweeps_folder_stands_for_its_points(tmp_path):
    points = []
    for name, noise in (("lr", 0.4), ("mlp", 0.05)):
        runs = []
        for seed in range(2):
            file = tmp_path / "results" / f"{name}-{seed}.parquet"
            file.parent.mkdir(exist_ok=True)
            write_scored(file, scored(noise=noise, seed=seed))
            runs.append({"predictions": f"elsewhere/results/{file.name}"})  # the folder was moved since
        points.append({"name": name, "runs": runs})
    (tmp_path / "sweep.json").write_text(json.dumps({"points": points}))
    code, printed = call("compare", tmp_path)
    assert code == 0, printed
    assert "mlp: AUC better than that of lr" in printed and "over rows and seeds (2 and 2)" in printed


def test_a_mistake_is_one_line(runs, tmp_path):
    one_line(*call("compare", runs / "a"), "give two models or more")
    one_line(*call("compare", runs / "a", runs / "a"), "named twice")
    one_line(*call("compare", runs / "a", tmp_path / "absent"), "no finished run and no scoring here")
    (tmp_path / "old.parquet").write_bytes(b"")
    one_line(*call("compare", runs / "a", tmp_path / "old.parquet"), "no predictions that can be compared")
    written = call("compare", runs / "a", runs / "b", "--output", runs)
    one_line(*written, "cannot be written (Is a directory)")
    write_scored(tmp_path / "other.parquet", dataclasses.replace(scored(), rows="another"))
    one_line(*call("compare", runs / "a", tmp_path / "other.parquet"), "other: not the same test rows as a")


def test_a_comparison_does_not_wait_for_tensorflow():
    names = ("models", "sources", "show")
    code = f"import sys; {'; '.join(f'import ctrpipe.pipeline.compare.{name}' for name in names)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "ctrpipe.pipeline.compare.sources" in loaded.split() and "tensorflow" not in loaded.split()


LOG = {
    "name": "log",
    "data": {"columns": ["click", "site"], "labels": {"ctr": "click"}},
    "features": [{"kind": "categorical", "columns": ["site"]}],
    "model": {"name": "lr"},
    "evaluation": {"slices": ["site"]},
}


@pytest.fixture
def scorings(tmp_path):
    """A log of 200 rows, whose third row is malformed, in two scorings, and its configuration."""
    labels, probabilities = answers(200, 0.3)
    lines = [f"{label:.0f}\t{'a' if row % 3 else ''}" for row, label in enumerate(labels)]
    lines[2] = "broken"
    log = tmp_path / "log.tsv"
    log.write_text("\n".join(lines) + "\n")
    (tmp_path / "log.yaml").write_text(yaml.safe_dump({**LOG, "data": {**LOG["data"], "max_bad_row_rate": 1.0}}))
    for name, scores in (("first", probabilities), ("second", labels * 0.5 + probabilities / 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "_summary.json").write_text("{}")
        values = pa.array(scores.astype(np.float32), mask=np.arange(200) == 2)
        rows = {"file": [str(log)] * 200, "line": 1 + np.arange(200), "ctr": values}
        for part, start in enumerate((0, 120)):
            table = pa.table(rows).slice(start, 120 - 40 * part)
            pa.parquet.write_table(table, folder / f"part-{part:05d}.parquet")
    return tmp_path


def test_scorings_are_compared_by_the_labels_of_the_log(scorings):
    both = [scorings / "first", scorings / "second"]
    output = scorings / "found.json"
    end = ["--config", scorings / "log.yaml", "--output", output]
    code, printed = call("compare", *both, *end)
    assert code == 0, printed
    found = json.loads(output.read_text())
    kept = np.arange(200) != 2
    labels, probabilities = (values[kept] for values in answers(200, 0.3))
    assert found["rows"] == 199
    assert found["slices"][0]["metrics"]["first"]["auc"] == pytest.approx(
        sklearn.metrics.roc_auc_score(labels, probabilities)
    )
    assert {part["slice"]: part["rows"] for part in found["slices"]} == {
        "ALL": 199,
        "site = a": int((np.arange(200) % 3 > 0).sum()) - 1,
        "site = (missing)": int((np.arange(200) % 3 == 0).sum()),
    }
    one_line(*call("compare", *both), "a scoring has no labels; give --config")
    (scorings / "log.tsv").write_text("0\ta\n" * 150)
    one_line(*call("compare", *both, *end), "rows that were scored are no longer there")


def test_scorings_of_a_number_are_compared_too(tmp_path):
    seconds = np.random.default_rng(0).gamma(2, 10, 200).round(3)
    labels = [f"{value:.3f}" if row % 10 else "" for row, value in enumerate(seconds)]
    log = tmp_path / "log.tsv"
    log.write_text("".join(f"{row % 2}\t{label}\ta\n" for row, label in enumerate(labels)))
    data = {**LOG["data"], "columns": ["click", "watched", "site"], "labels": {"ctr": "click"}}
    data["labels"] |= {"seconds": {"column": "watched", "predicts": "count"}}
    (tmp_path / "log.yaml").write_text(yaml.safe_dump({**LOG, "data": data, "model": {"name": "mmoe"}}))
    for name, factor in (("first", 1.5), ("second", 1.1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_summary.json").write_text("{}")
        rows = {"file": [str(log)] * 200, "line": 1 + np.arange(200), "ctr": np.full(200, 0.5, np.float32)}
        table = pa.table(rows | {"seconds": (factor * seconds).astype(np.float32)})
        pa.parquet.write_table(table, tmp_path / name / "part-00000.parquet")
    end = ["--config", tmp_path / "log.yaml", "--task", "seconds", "--output", tmp_path / "found.json"]
    code, printed = call("compare", tmp_path / "first", tmp_path / "second", *end)
    assert code == 0, printed
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"] == 180
    known = seconds[np.arange(200) % 10 > 0]
    for name, off in (("first", 0.5), ("second", 0.1)):
        assert found["slices"][0]["metrics"][name]["rmse"] == pytest.approx(off * np.sqrt((known**2).mean()), rel=1e-5)


def test_rows_without_the_label_take_no_part():
    known = np.arange(4000) % 3 > 0
    models = {"first": scored(noise=0.3), "second": scored(noise=0.1, seed=2)}
    some, kept = {}, {}
    for name, each in models.items():
        labels = {"ctr": np.where(known, each.labels["ctr"], np.nan)}
        some[name] = [dataclasses.replace(each, labels=labels)]
        kept[name] = [some[name][0].labelled("ctr")]
        np.testing.assert_array_equal(kept[name][0].probabilities["ctr"], each.probabilities["ctr"][known])
    found = compare(some)
    assert found == compare(kept) and found["rows"] == known.sum()
    [other] = [{"ctr": np.where(np.arange(4000) == 7, np.nan, some["first"][0].labels["ctr"])}]
    with pytest.raises(InputError, match="row 7 has another label"):
        compare({**some, "second": [dataclasses.replace(some["second"][0], labels=other)]})
