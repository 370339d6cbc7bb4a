"""Drift between two logs: distances and their significance, `ctrpipe drift`, and the gate of a run."""

import json
import pathlib
import re

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import yaml
from tfx.types.standard_artifacts import Examples, ExamplesDiff, ExampleStatistics, InfraBlessing

from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.processes import Workers
from ctrpipe.common.significance import cumulated_differ, shares_differ
from ctrpipe.pipeline.components.drift_check import DriftCheck, DriftGate, DriftSettings
from ctrpipe.pipeline.components.log_statistics_gen import LogStatisticsGen
from ctrpipe.pipeline.config import Monitoring
from ctrpipe.pipeline.monitoring.drift import compare_logs
from ctrpipe.pipeline.report.drift import print_attributions, write_drift
from ctrpipe.transforms.log.described_files import describe_file, states_of, write_states
from ctrpipe.transforms.log.files import FileState
from ctrpipe.transforms.log.payload import PayloadWriter, payload_schema
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS
from tests.e2e.small_run import call, one_line

ROWS = 4000
COLUMNS = ["click", "price", "site", "tags", "hour"]
CONFIG = {
    "name": "small",
    "data": {"columns": COLUMNS, "labels": {"ctr": "click"}},
    "features": [
        {"kind": "numeric", "columns": ["price"]},
        {"kind": "categorical", "columns": ["site"]},
        {"kind": "multivalent", "columns": ["tags"], "max_length": 3},
        {"kind": "time", "columns": ["hour"]},
    ],
    "model": {"name": "lr"},
}
SPEC = LogSpec.model_validate({key: CONFIG[key] for key in ("data", "features")})
ONE = Workers(processes=1)


def log(path: pathlib.Path, seed: int, labels: bool = True, **changes) -> str:
    """A log of five columns: prices of a long tail, four sites that are not all ASCII. `changes` replace columns."""
    random = np.random.default_rng(seed)
    columns = {
        "click": (random.random(ROWS) < 0.25).astype(int),
        "price": np.floor(random.lognormal(3, 2, ROWS)).astype(int),
        "site": random.choice(["sité", "сайт", "網站", "b"], ROWS, p=[0.5, 0.3, 0.15, 0.05]),
        "tags": random.choice(["a|b", "a", "c|d|e"], ROWS),
        "hour": [f"141021{hour:02d}" for hour in random.integers(0, 24, ROWS)],
    }
    frame = pd.DataFrame({**columns, **changes})[COLUMNS if labels else COLUMNS[1:]]
    frame.to_csv(path, sep="\t", header=False, index=False)
    return str(path)


def compare(
    tmp_path, kind: str = "drift", limits: Monitoring | None = None, labels: bool = True, max_rows=10_000, **new
):
    """The comparison of a log that has `new` columns with one that has not, by column."""
    files = [[log(tmp_path / "new.tsv", 1, **new)], [log(tmp_path / "old.tsv", 2, labels)]]
    found = compare_logs(SPEC, *files, kind, limits or Monitoring(), max_rows, 0, ONE)
    (comparison,) = found["comparisons"]
    assert found["breached"] == comparison["breached"]
    return comparison, {column["column"]: column for column in comparison["columns"]}


def test_logs_whose_equal_values_would_be_others_are_not_compared(tmp_path):
    data = {"format": "csv", "header": True, "labels": {"ctr": "y"}}
    spec = LogSpec.model_validate({"data": data, "features": [{"kind": "categorical", "columns": ["zip"]}]})
    (tmp_path / "a.csv").write_text("y,zip\n0,00009\n1,00010\n")
    pd.DataFrame({"y": [0, 1], "zip": [9, 10]}).to_parquet(tmp_path / "b.parquet")
    files = [[str(tmp_path / name)] for name in ("a.csv", "b.parquet")]
    for kind in ("drift", "skew"):
        with pytest.raises(InputError, match="column zip is text, and of type int64 .*'00009' is another category"):
            compare_logs(spec, *files, kind, Monitoring(), 10_000, 0, ONE)


def breaches(columns: dict) -> set[str]:
    return {name for name, column in columns.items() if column["breached"]}


def test_a_log_is_like_itself(tmp_path):
    path = [log(tmp_path / "log.tsv", 1)]
    (found,) = compare_logs(SPEC, path, path, "drift", Monitoring(), 10_000, 0, ONE)["comparisons"]
    assert {column["column"] for column in found["columns"]} == {"click", "price", "site", "tags"}
    assert not found["breached"] and max(column["distance"] for column in found["columns"]) < 0.001
    assert not any(column["moved"] or column["text"] for column in found["columns"])


def test_two_samples_of_one_log_are_near_also_where_the_tail_is_long(tmp_path):
    comparison, columns = compare(tmp_path)
    assert not comparison["breached"] and max(column["distance"] for column in columns.values()) < 0.07
    assert comparison["log"] == {"name": "new", "rows": ROWS, "rejected": 0, "rate": 1.0}


def test_a_small_log_is_not_far_by_chance_and_a_moved_column_is_found_in_it(tmp_path):
    """Eleven columns of 52 rows. Of two samples drawn alike, several distances are above the limit."""
    random, names = np.random.default_rng(5), [f"c{number}" for number in range(8)]
    spec = LogSpec.model_validate(
        {
            "data": {"columns": ["click", "n1", "n2", *names], "labels": {"ctr": "click"}},
            "features": [
                {"kind": "numeric", "columns": ["n1", "n2"]},
                {"kind": "categorical", "columns": names},
            ],
        }
    )

    def draw(name: str, moved: bool = False) -> list[str]:
        columns = {"click": random.integers(2, size=52), "n1": random.normal(size=52), "n2": random.lognormal(size=52)}
        columns |= {each: random.choice(list("abcd"), 52) for each in names}
        if moved:
            columns |= {"n1": random.normal(3, size=52), "c3": random.choice(list("xyz"), 52)}
        pd.DataFrame(columns).to_csv(tmp_path / name, sep="\t", header=False, index=False)
        return [str(tmp_path / name)]

    found = compare_logs(spec, draw("new"), old := draw("old"), "drift", Monitoring(), 10_000, 0, ONE)
    columns = found["comparisons"][0]["columns"]
    assert not found["breached"] and sum(column["distance"] > column["threshold"] for column in columns) >= 3
    for column in columns:
        assert bool(column["chance"]) == (column["distance"] > column["threshold"]) and not column["text"]
    found = compare_logs(spec, draw("moved", moved=True), old, "drift", Monitoring(), 10_000, 0, ONE)
    assert breaches({column["column"]: column for column in found["comparisons"][0]["columns"]}) == {"n1", "c3"}


def test_the_chances_are_fishers_and_smirnovs():
    for share, other, rows in ((0.25, 0.5, (52, 52)), (0.0, 0.1, (40, 400)), (1.0, 1.0, (10, 20))):
        table = [[round(share * rows[0]), round((1 - share) * rows[0])], [round(other * rows[1]), 0]]
        table[1][1] = rows[1] - table[1][0]
        tails = [scipy.stats.fisher_exact(table, side).pvalue for side in ("less", "greater")]
        assert shares_differ(share, other, rows) == pytest.approx(min(1, 2 * min(tails)))
    assert shares_differ(0.0, 0.0, (0, 10)) == 1.0
    first, second = (np.sort(np.random.default_rng(seed).normal(seed / 3, size=300)) for seed in (0, 1))
    steps = [(each, np.arange(1, 301) / 300) for each in (first, second)]
    expected = scipy.stats.ks_2samp(first, second)
    apart = np.sqrt(150) * expected.statistic
    found = cumulated_differ(*steps, (300, 300))
    assert found == pytest.approx(scipy.stats.kstwobign.sf(apart), rel=0.3)
    assert found == pytest.approx(expected.pvalue, rel=0.5) and cumulated_differ(*steps, (0, 300)) == 1.0


def test_a_shifted_number_is_a_breach_and_says_where_it_went(tmp_path):
    price = np.random.default_rng(3).integers(10_000, 20_000, ROWS)
    comparison, columns = compare(tmp_path, price=price)
    assert breaches(columns) == {"price"} and comparison["columns"][0]["column"] == "price"
    assert columns["price"]["measure"] == "jensen_shannon_divergence" and columns["price"]["distance"] > 0.9
    assert columns["price"]["text"] == "the distance is above 0.1"
    most = columns["price"]["moved"][0]
    assert most["value"].startswith("above ") and most["share"] > 0.99 and abs(most["other"] - 0.1) < 0.03


def test_the_distance_of_a_categorical_column_is_the_largest_change_of_a_share(tmp_path):
    site = np.random.default_rng(3).choice(["sité", "сайт", "網站", "b"], ROWS, p=[0.2, 0.3, 0.15, 0.35])
    _, columns = compare(tmp_path, site=site)
    old = np.random.default_rng(2)
    old.random(ROWS), old.lognormal(3, 2, ROWS)
    before = old.choice(["sité", "сайт", "網站", "b"], ROWS, p=[0.5, 0.3, 0.15, 0.05])
    expected = {name: ((site == name).mean(), (before == name).mean()) for name in ("sité", "b")}
    largest = max(abs(new - old) for new, old in expected.values())
    assert breaches(columns) == {"site"} and np.isclose(columns["site"]["distance"], largest, atol=1e-3)
    moved = {move["value"]: (move["share"], move["other"]) for move in columns["site"]["moved"]}
    assert all(np.allclose(moved[name], shares) for name, shares in expected.items())


def test_values_that_were_never_seen_are_a_breach(tmp_path):
    _, columns = compare(tmp_path, site=np.repeat(["新しい", "новый"], ROWS // 2))
    assert breaches(columns) == {"site"}
    assert {"value": "新しい", "share": 0.5, "other": 0.0} in columns["site"]["moved"]


def test_many_values_that_are_exchanged_for_others_are_a_breach_though_none_moves_far(tmp_path):
    def ids(prefix: str, seed: int) -> list[str]:
        return [f"{prefix}{number}" for number in np.random.default_rng(seed).integers(0, 40, ROWS)]

    old, same, others = (
        [log(tmp_path / f"{name}.tsv", seed, site=ids(prefix, seed))]
        for name, prefix, seed in (("old", "a", 1), ("same", "a", 2), ("others", "b", 2))
    )
    assert not compare_logs(SPEC, same, old, "drift", Monitoring(), 10_000, 0, ONE)["breached"]
    (comparison,) = compare_logs(SPEC, others, old, "drift", Monitoring(), 10_000, 0, ONE)["comparisons"]
    worst = comparison["columns"][0]
    assert worst["column"] == "site" and worst["breached"] and worst["distance"] < 0.1
    assert worst["text"] == "the frequent values of the previous log, 100.0% of it, are 0.0% of the new log"


def test_the_distance_of_ids_is_that_of_all_rows_also_where_the_frequent_ones_alone_are_counted(tmp_path):
    random = np.random.default_rng(5)
    ids = [f"u{number}" for number in np.arange(ROWS) % 1500]  # 1,000 of them are counted
    hot = ["hot" if draw < 0.06 else one for draw, one in zip(random.random(ROWS), ids, strict=True)]
    shares = {"hot": (hot.count("hot") / ROWS, 0.0)}
    logs = [[log(tmp_path / f"{name}.tsv", 1, site=site)] for name, site in (("new", hot), ("old", ids))]
    (comparison,) = compare_logs(SPEC, *logs, "drift", Monitoring(), 10_000, 0, ONE)["comparisons"]
    column = next(one for one in comparison["columns"] if one["column"] == "site")
    least = 3 / ROWS  # rows of the last value that is counted
    assert shares["hot"][0] - least - 1e-6 <= column["distance"] <= shares["hot"][0] and not column["breached"]
    assert column["moved"][0]["value"] == "hot" and column["moved"][0]["most"] == "other"
    assert 0 < column["moved"][0]["other"] <= least + 1e-6


def test_ids_of_which_none_is_frequent_say_nothing(tmp_path):
    logs = [[log(tmp_path / f"{first}.tsv", 1, site=np.arange(first, first + ROWS))] for first in (0, ROWS)]
    assert not compare_logs(SPEC, *logs, "drift", Monitoring(), 10_000, 0, ONE)["breached"]


@pytest.mark.parametrize("column", ["price", "site"])
def test_a_column_without_a_value_in_one_log_is_a_breach_of_its_own(tmp_path, column):
    _, columns = compare(tmp_path, **{column: [""] * ROWS})
    assert breaches(columns) == {column} and columns[column]["text"] == "no value in the new log"
    assert columns[column]["distance"] is None and columns[column]["missing"] == 1 and not columns[column]["moved"]


def test_constants_are_as_far_as_can_be_or_the_same(tmp_path):
    logs = [[log(tmp_path / f"{price}.tsv", 1, price=[price] * ROWS)] for price in (7, 8)]
    found = compare_logs(SPEC, *logs, "drift", Monitoring(), 10_000, 0, ONE)["comparisons"][0]["columns"][0]
    assert (found["column"], found["distance"]) == ("price", 1.0)
    expected = [{"value": "7", "share": 1.0, "other": 0.0}, {"value": "8", "share": 0.0, "other": 1.0}]
    assert found["moved"] == expected
    assert not compare_logs(SPEC, logs[0], logs[0], "drift", Monitoring(), 10_000, 0, ONE)["breached"]


def test_a_column_that_is_always_missing_is_alike(tmp_path):
    logs = [[log(tmp_path / f"{seed}.tsv", seed, site=[""] * ROWS)] for seed in (1, 2)]
    (comparison,) = compare_logs(SPEC, *logs, "drift", Monitoring(), 10_000, 0, ONE)["comparisons"]
    (column,) = (column for column in comparison["columns"] if column["column"] == "site")
    assert not comparison["breached"] and column["distance"] is None and column["text"] == ""


def test_values_that_are_missing_more_often_are_a_breach(tmp_path):
    price = np.floor(np.random.default_rng(3).lognormal(3, 2, ROWS)).astype(int).astype(str)
    price[::4] = ""
    _, columns = compare(tmp_path, price=price)
    assert breaches(columns) == {"price"} and columns["price"]["distance"] < 0.05
    assert columns["price"]["text"] == "missing in 25.0% of the rows, in 0.0% of the previous log"


def test_a_changed_click_rate_is_drift(tmp_path):
    _, columns = compare(tmp_path, click=np.repeat([0, 1], ROWS // 2), limits=Monitoring(columns={"click": 0.03}))
    assert breaches(columns) == {"click"}


def test_two_numbers_are_named_as_values_and_others_as_ranges(tmp_path):
    _, columns = compare(tmp_path, click=[1, 0, 0, 0] * (ROWS // 4), price=[3, -1] * (ROWS // 2))
    moved = {move["value"]: move["share"] for move in columns["click"]["moved"]}
    assert moved == {"0": pytest.approx(0.75), "1": pytest.approx(0.25)}
    assert any(" to " in move["value"] for move in columns["price"]["moved"])
    far = [99_999_999]  # beside which all other numbers seem to be one
    price, other = ([*range(low, low + 50)] * (ROWS // 50) for low in (1, 51))
    logs = [[log(tmp_path / f"{prices[0]}.tsv", 1, price=prices[:-1] + far)] for prices in (price, other)]
    found = compare_logs(SPEC, *logs, "drift", Monitoring(), 10_000, 0, ONE)["comparisons"][0]["columns"][0]
    assert found["column"] == "price" and abs(found["moved"][0]["share"] - found["moved"][0]["other"]) > 0.1


def test_a_column_of_times_is_compared_only_where_it_is_named(tmp_path):
    hour = ["14102200"] * ROWS
    assert "hour" not in compare(tmp_path, hour=hour)[1]
    assert breaches(compare(tmp_path, hour=hour, limits=Monitoring(columns={"hour": 0.2}))[1]) == {"hour"}


def test_limits_are_by_kind_and_by_column(tmp_path):
    changes = {"price": np.arange(ROWS), "site": ["b"] * ROWS}
    wide = {"categorical": 1.0, "numeric": 1.0}
    _, columns = compare(tmp_path, limits=Monitoring(max_distance=wide), **changes)
    assert not breaches(columns) and columns["site"]["threshold"] == 1.0
    _, columns = compare(tmp_path, limits=Monitoring(max_distance={**wide, "numeric": 0.1}), **changes)
    assert breaches(columns) == {"price"}
    _, columns = compare(tmp_path, limits=Monitoring(max_distance=wide, columns={"site": 0.5}), **changes)
    assert breaches(columns) == {"site"}


@pytest.mark.parametrize("labels", [True, False])
def test_the_log_of_what_was_served_needs_no_labels(tmp_path, labels):
    comparison, columns = compare(tmp_path, "skew", labels=labels)
    assert not comparison["breached"] and set(columns) == {"price", "site", "tags"}
    assert [comparison[side]["name"] for side in ("log", "other")] == ["training", "serving"]


def test_long_logs_are_sampled_alike(tmp_path):
    comparison, _ = compare(tmp_path, max_rows=1000)
    assert not comparison["breached"] and comparison["log"]["rate"] == comparison["other"]["rate"] == 0.25


def test_many_files_are_one_log(tmp_path):
    files = [log(tmp_path / f"{seed}.tsv", seed) for seed in (1, 2)]
    found = compare_logs(SPEC, [str(tmp_path / "*.tsv")], files[::-1], "drift", Monitoring(), 10_000, 0, ONE)
    (comparison,) = found["comparisons"]
    assert comparison["log"]["rows"] == 2 * ROWS and not found["breached"]


# The command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path) -> pathlib.Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def test_the_command_says_with_its_exit_code_whether_there_is_a_breach(tmp_path, config):
    new, old = log(tmp_path / "new.tsv", 1), log(tmp_path / "old.tsv", 2)
    code, output = call("drift", config, "--data", new, "--against", old)
    assert code == 0 and "0 of 4 columns exceed their limit" in output and "BREACH" not in output
    other = log(tmp_path / "other.tsv", 1, site=["[b]new[/b]"] * ROWS)
    arguments = ("drift", config, "--data", other, "--against", old, "--output", tmp_path / "out")
    code, output = call(*arguments)
    assert code == BLOCKED and "BREACH" in output and "1 of 4 columns exceed their limit" in output
    written = json.loads((tmp_path / "out" / "drift.json").read_text())
    assert written["breached"] and written["comparisons"][0]["columns"][0]["column"] == "site"
    page = (tmp_path / "out" / "drift.html").read_text(encoding="utf-8")
    assert "[b]new[/b]</bdi> (100.00%, 0.00%)" in page and "breach" in page and page.count("<script") == 1
    assert "1 of 4 columns exceed their limit, beyond chance: site." in page
    assert 'aria-label="Distance between the logs"' in page and "explains, at 95% and corrected for 4" in page
    code, output = call(*arguments, "--set", "monitoring.columns.site=1.0")
    assert code == 0


def test_wrong_input_is_one_line(tmp_path, config):
    good = log(tmp_path / "good.tsv", 1)
    unlabelled = log(tmp_path / "unlabelled.tsv", 2, labels=False)
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "drift.json").mkdir(parents=True)
    for arguments, message in (
        (("--data", good, "--against", tmp_path / "absent"), "no such file"),
        (("--data", good, "--against", unlabelled), "line 1: expected 5 columns, found 4; 4000 of 4000 rows are malf"),
        (("--data", "absent", "--against", good, "--output", tmp_path / "file"), "file: a file is in the way"),
        (("--data", good, "--against", good, "--output", tmp_path / "taken"), "taken: cannot be written"),
        (
            ("--data", good, "--against", good, "--set", "monitoring.columns.x=1"),
            "x is neither a feature column nor a label",
        ),
    ):
        one_line(*call("drift", config, *arguments), message)


# In a run ------------------------------------------------------------------------------------------------------------


def component(kind, **arguments):
    """Runs a component's function."""
    kind.EXECUTOR_SPEC.executor_class._FUNCTION(**arguments)


@pytest.fixture
def checked(tmp_path):
    """A function that compares a run's training rows with other logs: the artifact, and what is in it."""
    artifacts = {"examples": Examples(), "statistics": ExampleStatistics(), "drift": ExamplesDiff()}
    for name, artifact in artifacts.items():
        artifact.uri = str(tmp_path / name)
    artifacts["examples"].split_names = json.dumps(SPLITS)
    for split in SPLITS:
        folder = tmp_path / "examples" / f"Split-{split}"
        folder.mkdir(parents=True)
        with PayloadWriter(folder, "part", payload_schema(SPEC)) as writer:
            for batch in LogReader(SPEC).read(log(tmp_path / "training.tsv", 1)):
                writer.write(batch.rows)
    common = {"workers": ONE.to_json(), "code_version": ""}
    given = {name: artifacts[name] for name in ("examples", "statistics")}
    component(LogStatisticsGen, **given, max_rows=1000, seed=0, spec=SPEC.model_dump_json(), **common)

    def check(**monitoring) -> tuple[ExamplesDiff, dict]:
        settings = DriftSettings(
            spec=SPEC,
            monitoring=Monitoring(**monitoring),
            logs_fingerprint="",
            states=tmp_path / "states.json",
            max_rows=1000,
            seed=0,
        )
        component(DriftCheck, **artifacts, settings=settings.model_dump_json(), **common)
        return artifacts["drift"], json.loads((tmp_path / "drift" / "drift.json").read_text())

    return check


def test_a_run_compares_its_training_rows_with_the_logs_that_it_is_given(tmp_path, checked):
    previous, serving = log(tmp_path / "previous.tsv", 2), log(tmp_path / "serving.tsv", 3, labels=False)
    states = states_of([describe_file(path) for path in (previous, serving)])
    write_states(tmp_path / "states.json", states)
    drift, found = checked(previous=[previous], serving=[serving])
    assert [comparison["kind"] for comparison in found["comparisons"]] == ["drift", "skew"]
    assert not found["breached"] and drift.get_int_custom_property("breached") == 0
    assert [found["comparisons"][0][side]["rate"] for side in ("log", "other")] == [0.25, 0.25]
    skewed = log(tmp_path / "skewed.tsv", 3, labels=False, site=["b"] * ROWS)
    drift, found = checked(previous=[previous], serving=[skewed])
    assert [comparison["breached"] for comparison in found["comparisons"]] == [False, True]
    assert found["breached"] and drift.get_int_custom_property("breached") == 1
    with pytest.raises(InputError, match="previous.tsv: the file changed while it was read"):
        write_states(tmp_path / "states.json", {previous: FileState(1000, "7")})
        checked(previous=[previous])


@pytest.mark.parametrize(("breached", "serves", "blessed"), [(0, 1, 1), (1, 1, 0), (0, 0, 0)])
def test_the_gate_lets_a_model_pass_that_serves_and_whose_rows_are_alike(tmp_path, breached, serves, blessed):
    drift, before, after = ExamplesDiff(), InfraBlessing(), InfraBlessing()
    after.uri = str(tmp_path)
    drift.set_int_custom_property("breached", breached)
    before.set_int_custom_property("blessed", serves)
    component(DriftGate, drift=drift, infra_blessing=before, blessing=after)
    assert after.get_int_custom_property("blessed") == blessed


# Sequences -----------------------------------------------------------------------------------------------------------

SEQUENCE_SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "item", "seen"], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "categorical", "columns": ["item"]},
            {"kind": "sequence", "columns": ["seen"], "shared_with": "item", "max_length": 50},
        ],
    }
)
POPULARITY = np.array([0.4, 0.3, 0.2, 0.1])


def sequences(
    path: pathlib.Path, seed: int, popularity=POPULARITY, mean_length: float = 6.0
) -> tuple[str, list[list[str]]]:
    """A log whose histories have four items, about `mean_length` of them a row, and the histories."""
    random = np.random.default_rng(seed)
    lengths = random.poisson(mean_length, ROWS)
    seen = [random.choice(["a", "b", "c", "d"], length, p=popularity).tolist() for length in lengths]
    lines = [f"{random.integers(2)}\ta\t{'|'.join(items)}\n" for items in seen]
    path.write_text("".join(lines))
    return str(path), seen


def compared_sequences(tmp_path, **changes):
    """The compared columns by name, and the histories of both logs."""
    new, seen = sequences(tmp_path / "new.tsv", 1, **changes)
    old, others = sequences(tmp_path / "old.tsv", 2)
    result = compare_logs(SEQUENCE_SPEC, [new], [old], "drift", Monitoring(), 10_000, 0, ONE)
    return {column["column"]: column for column in result["comparisons"][0]["columns"]}, (seen, others)


def item_shares(histories: list[list[str]]) -> np.ndarray:
    items = [item for history in histories for item in history]
    return np.array([items.count(name) for name in "abcd"]) / len(items)


def test_histories_are_compared_item_by_item(tmp_path):
    changed = np.array([0.1, 0.3, 0.2, 0.4])
    columns, (seen, others) = compared_sequences(tmp_path, popularity=changed)
    distance = np.abs(item_shares(seen) - item_shares(others)).max()
    assert columns["seen"]["breached"] and not columns["seen (length)"]["breached"]
    assert columns["seen"]["distance"] == pytest.approx(distance, abs=1e-6)
    moved = {move["value"]: move["share"] for move in columns["seen"]["moved"]}
    assert moved["a"] == pytest.approx(item_shares(seen)[0], abs=1e-6)
    empty = np.mean([not history for history in seen])
    assert columns["seen"]["missing"] == pytest.approx(empty) and empty > 0


def test_histories_that_became_shorter_are_found_though_their_items_are_the_same(tmp_path):
    columns, _ = compared_sequences(tmp_path, mean_length=2.0)
    assert columns["seen (length)"]["breached"] and columns["seen (length)"]["measure"] == "jensen_shannon_divergence"
    alike, _ = compared_sequences(tmp_path)
    assert not any(column["breached"] for column in alike.values())


def test_limits_of_shares_have_the_unit_of_the_shares(tmp_path, capsys):
    column = {"column": "site", "share": 0.25, "other": 0.2, "threshold": 0.02, "breached": True}
    sides = {"log": {"name": "new", "rows": 200}, "other": {"name": "previous", "rows": 100}}
    found = {**sides, "model": "runs/mine", "columns": [column], "breached": True}
    print_attributions(found)
    assert re.search(r"25\.00% +│ 20\.00% +│ 2\.00% +│ BREACH", capsys.readouterr().out)
    columns = {"kind": "drift", "columns": [], "breached": False}
    logs = {side: {"name": side, "rows": 9, "rate": 1, "rejected": 0} for side in ("log", "other")}
    drift = {"breached": True, "comparisons": [{**columns, **logs}], "attributions": found}
    _, page = write_drift(drift, tmp_path)
    cells = [f'<td class="n">{share}</td>' for share in ("25.00%", "20.00%", "2.00%")]
    assert "".join(cells) in page.read_text(encoding="utf-8")
