"""Policies of retraining, day by day: which days each reads and is scored on, and what is kept for the next time."""

import json
import pathlib
import resource
import sys
import time
import types

import numpy as np
import pytest
import scipy.stats
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import start_command
from ctrpipe.pipeline.config import check_config
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows
from ctrpipe.pipeline.replay import run as replay
from ctrpipe.pipeline.replay.days import Day, find_days, readable_days
from ctrpipe.pipeline.replay.run import POLICIES, ReplayPlan, run_replay
from ctrpipe.pipeline.replay.show import differences, mean_interval, print_replay, summaries, write_replay
from tests.small_config import SMALL

NAMES = [f"day=2026-01-0{number}" for number in range(1, 6)]


@pytest.fixture
def days(tmp_path):
    for name in NAMES:
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "log.tsv").write_text(name)
        (tmp_path / "logs" / name / "_truth.parquet").touch()
    return tuple(find_days([str(tmp_path / "logs" / "day=*")]))


@pytest.fixture
def calls(monkeypatch):
    """The arguments of the commands that a replay would have run, instead of them; each training costs 10 s."""
    made = []

    def call(arguments, folder):
        folder.mkdir(parents=True, exist_ok=True)
        made.append(arguments)
        return {"cpu_seconds": 10.0, "seconds": 5.0}

    def scored(folder, config):
        random = np.random.default_rng(len(str(folder)))
        labels = {"ctr": random.integers(0, 2, 50).astype(float)}
        return ScoredRows(str(folder), labels, {"ctr": random.random(50)})

    monkeypatch.setattr(replay, "_call", call)
    monkeypatch.setattr(replay, "read_scoring", scored)
    monkeypatch.setattr(replay, "find_model", lambda run: type("Found", (), {"version": run / "version"}))
    return made


def plan_of(days, **changes) -> ReplayPlan:
    start = {"parent": "runs/today", "max_age": 3}
    config = check_config({**SMALL, "training": {"warm_start": start}}, (), "small.yaml")
    return ReplayPlan(**{"config": config, "days": days, "window": 3, "policies": POLICIES, **changes})


def read_days(arguments) -> list[str]:
    """The days whose files are given to a command."""
    return [argument.split("/")[-2] for argument in arguments if argument.endswith("log.tsv")]


def test_each_policy_reads_its_days_and_is_scored_on_the_next_one(days, calls, tmp_path):
    out = tmp_path / "out"
    results = run_replay(plan_of(days, warm_settings=("training.epochs=1",)), out)
    out = out / "seed=1"
    trained = [(call[call.index("--output") + 1], read_days(call)) for call in calls if call[0] == "run"]
    assert trained == [
        (str(out / "runs" / "first" / NAMES[2]), NAMES[:3]),
        (str(out / "runs" / "retrain" / NAMES[3]), NAMES[1:4]),
        (str(out / "runs" / "warm" / NAMES[3]), [NAMES[3]]),
    ]
    [warm] = [call for call in calls if "--warm-start" in call]
    assert warm[warm.index("--warm-start") + 1] == str(out / "runs" / "first" / NAMES[2])
    assert warm[warm.index("--set") + 1] == "training.epochs=1"
    settings = yaml.safe_load((out / "config.yaml").read_text())["training"]["warm_start"]
    assert settings["max_age"] == 3 and settings["parent"] == "latest"
    scorings = [call for call in calls if call[0] == "score"]
    scored = [(call[call.index("--model") + 1].split("/")[-3:-1], read_days(call)) for call in scorings]
    assert (["first", NAMES[2]], [NAMES[4]]) in scored  # frozen
    assert (["warm", NAMES[3]], [NAMES[4]]) in scored
    assert [(each["policy"], each["day"], each["cpu_seconds"]) for each in results] == [
        *((policy, NAMES[3], 10.0) for policy in POLICIES),
        *(("retrain", NAMES[4], 10.0), ("warm", NAMES[4], 10.0), ("frozen", NAMES[4], 0.0)),
    ]


def test_what_is_there_is_not_done_again_and_another_policy_may_come_later(days, calls, tmp_path):
    first = run_replay(plan_of(days, policies=("frozen",)), tmp_path / "out")
    done = len(calls)
    assert run_replay(plan_of(days, policies=("frozen",)), tmp_path / "out") == first and len(calls) == done
    both = run_replay(plan_of(days, policies=("retrain", "frozen")), tmp_path / "out")
    assert [each for each in both if each["policy"] == "frozen"] == first
    assert len([call for call in calls if call[0] == "run"]) == 2  # the first one is shared
    with pytest.raises(InputError, match="holds another replay, of another configuration, window or log"):
        run_replay(plan_of(days, window=2), tmp_path / "out")


def test_a_log_of_other_rows_and_the_same_size_is_another_replay(days, calls, tmp_path):
    run_replay(plan_of(days, policies=("frozen",)), tmp_path / "out")
    log = tmp_path / "logs" / NAMES[1] / "log.tsv"
    log.touch()
    run_replay(plan_of(days, policies=("frozen",)), tmp_path / "out")
    log.write_text(log.read_text()[::-1])
    with pytest.raises(InputError, match="holds another replay, of another configuration, window or log"):
        run_replay(plan_of(days, policies=("frozen",)), tmp_path / "out")


def test_a_training_that_was_interrupted_costs_what_a_whole_one_does(days, calls, tmp_path, monkeypatch):
    """The rest of a training is cheaper: it would pass for the cost of retraining on that day."""
    run = tmp_path / "out" / "seed=1" / "runs" / "first" / NAMES[2]

    def killed(arguments, folder):
        folder.mkdir(parents=True)
        (folder / "checkpoint").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replay, "_call", killed)
        with pytest.raises(KeyboardInterrupt):
            run_replay(plan_of(days, policies=("frozen",)), tmp_path / "out")
    assert (run / "checkpoint").exists()
    [first, *_] = run_replay(plan_of(days, policies=("frozen",)), tmp_path / "out")
    assert first["cpu_seconds"] == 10 and not (run / "checkpoint").exists()
    (run / "model").touch()
    run_replay(plan_of(days, policies=("retrain", "frozen")), tmp_path / "out")
    assert (run / "model").exists()  # the training is finished, and shared


def test_more_seeds_come_later_and_each_trains_all_of_its_own(days, calls, tmp_path):
    out = tmp_path / "out"
    first = run_replay(plan_of(days, policies=("warm",)), out)
    done = len(calls)
    both = run_replay(plan_of(days, policies=("warm",), seeds=2), out)
    assert both[:2] == first and [each["seed"] for each in both] == [1, 1, 2, 2]
    assert calls[:done] == [[word.replace("seed=2", "seed=1") for word in call] for call in calls[done:]]
    assert [yaml.safe_load((out / f"seed={seed}" / "config.yaml").read_text())["seed"] for seed in (1, 2)] == [1, 2]


def test_too_few_days_are_one_line(days):
    with pytest.raises(InputError, match="--window 5: 5 days leave none to score"):
        plan_of(days, window=5)


def test_a_log_that_a_run_makes_first_is_one_line(days):
    parts = {"format": "parquet", "labels": {"ctr": "label"}}
    late = {**SMALL, "data": {**parts, "label_delay": {"time": "at", "delay": "3d"}}}
    with pytest.raises(InputError, match="^data.label_delay: .* with `ctrpipe prepare labels`, and leave"):
        plan_of(days, config=check_config(late, (), "small.yaml"))
    parts["split"] = {"by": "time", "column": "part", "validation_from": "1", "test_from": "2"}
    features = [{"kind": "categorical", "columns": ["user", "item"]}]
    events = {
        **SMALL,
        "data": parts,
        "features": features,
        "events": {"columns": ["user", "item", "time"], "negatives": 4},
    }
    with pytest.raises(InputError, match="^events: .* with `ctrpipe prepare history`, and leave events out"):
        plan_of(days, config=check_config(events, (), "small.yaml"))


def test_days_are_folders_or_files_in_order_and_one_that_lacks_is_said(days, tmp_path):
    assert [day.name for day in days] == NAMES and all(day.files[0].endswith("log.tsv") for day in days)
    assert all(len(day.files) == 1 for day in days)
    for name in ("b.tsv", "a.tsv"):
        (tmp_path / name).touch()
    assert find_days([str(tmp_path / "*.tsv")]) == [Day(name, (str(tmp_path / name),)) for name in ("a.tsv", "b.tsv")]
    for pattern, message in (
        ("absent*", "no day matches"),
        ("logs/day=2026-01-0[135]", "after day=2026-01-01 comes day=2026-01-03; give every day"),
    ):
        with pytest.raises(InputError, match=message):
            find_days([str(tmp_path / pattern)])
    with pytest.raises(InputError, match="day=2026-01-01 appears twice"):
        find_days([str(tmp_path / "logs" / NAMES[0])] * 2)
    (tmp_path / "logs" / "day=2026-01-06").mkdir()
    with pytest.raises(InputError, match="the folder of day=2026-01-06 holds no file"):
        find_days([str(tmp_path / "logs" / "day=*")])


@pytest.mark.slow
def test_days_are_counted_by_the_numbers_in_their_names(tmp_path):
    for number in (10, 2, 9, 11):
        (tmp_path / f"day_{number}.csv").write_text("1\n")
        (tmp_path / "days" / f"day={number}").mkdir(parents=True)
        for part in (10, 9):
            (tmp_path / "days" / f"day={number}" / f"part-{part}.csv").write_text("1\n")
    assert [day.name for day in find_days([f"{tmp_path}/day_*"])] == [f"day_{number}.csv" for number in (2, 9, 10, 11)]
    days = find_days([f"{tmp_path}/days/*"])
    assert [day.name for day in days] == [f"day={number}" for number in (2, 9, 10, 11)]
    assert [pathlib.Path(file).name for file in days[0].files] == ["part-9.csv", "part-10.csv"]


def test_a_mistake_of_a_training_is_passed_on_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^ctrpipe run in .*runs: .*absent.yaml: cannot read the configuration"):
        replay._call(["run", str(tmp_path / "absent.yaml")], tmp_path / "runs")
    assert "absent.yaml" in (tmp_path / "runs" / "output.txt").read_text()


@pytest.mark.slow
def test_a_command_ends_with_a_replay_that_is_killed(tmp_path):
    arguments = ["generate", "--rows", "100000000", "--output", str(tmp_path / "log.tsv")]  # hours of work
    call = f"run._call({arguments}, pathlib.Path({str(tmp_path)!r}))"
    code = f"import pathlib; from ctrpipe.pipeline.replay import run; {call}"
    process = start_command([sys.executable, "-c", code])
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    await_that(children.read_text)
    [child] = map(int, children.read_text().split())
    process.kill()
    process.wait()
    await_that(lambda: not pathlib.Path(f"/proc/{child}").exists())


def await_that(is_true) -> None:
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


RESULTS = [
    {"seed": 1, "policy": policy, "day": day, "auc": auc, "log_loss": 0.5, "calibration": 1.0, "cpu_seconds": cost}
    for policy, cost, values in (("retrain", 10.0, [0.7, 0.7, 0.72, None]), ("warm", 1.5, [0.7, 0.69, 0.725, 0.7]))
    for day, auc in zip("abcd", values, strict=True)
]


def test_policies_are_summed_up_and_compared_on_the_same_days(tmp_path, capsys):
    every = summaries(RESULTS)
    assert every["retrain"] == {
        "auc": pytest.approx(2.12 / 3),
        "log_loss": 0.5,
        "calibration": 1.0,
        "cpu_seconds": 40.0,
    }
    assert every["warm"]["cpu_seconds"] == 6.0
    [found] = differences(RESULTS)
    each = np.array([0.69 - 0.7, 0.725 - 0.72])  # the first day has one model, the last one class only for the other
    expected = scipy.stats.t.interval(0.95, 1, each.mean(), scipy.stats.sem(each))
    assert found["auc"] == pytest.approx(each.mean()) and found["days"] == 2
    assert (found["low"], found["high"], found["cpu_share"]) == pytest.approx((*expected, 0.15))
    write_replay(RESULTS, tmp_path)
    assert json.loads((tmp_path / "replay.json").read_text())["results"] == RESULTS
    assert (tmp_path / "replay.svg").read_text().startswith("<svg")
    print_replay(RESULTS)
    said = capsys.readouterr().out
    assert "warm: AUC -0.0025 against retrain (" in said and "for 15% of its CPU seconds" in said and "0.7250" in said


def test_the_metrics_of_numbers_beside_clicks_are_scored_and_shown(days, calls, tmp_path, monkeypatch, capsys):
    def scored(folder, config):
        labels = {"ctr": np.array([0.0, 1.0]), "watch": np.array([3.0, np.nan])}
        return ScoredRows(
            str(folder), labels, {"ctr": np.array([0.2, 0.9]), "watch": np.array([5.0, 7])}, numbers=("watch",)
        )

    monkeypatch.setattr(replay, "read_scoring", scored)
    results = run_replay(plan_of(days, policies=("frozen",)), tmp_path / "replay")
    assert {(each["auc"], each["watch_rmse"], each["watch_mae"]) for each in results} == {(1.0, 2.0, 2.0)}
    assert "watch_auc" not in results[0]
    monkeypatch.setenv("COLUMNS", "200")
    written = write_replay(results, tmp_path)
    assert written["policies"]["frozen"]["watch_rmse"] == 2.0 and "watch RMSE" in (tmp_path / "replay.svg").read_text()
    print_replay(results)
    said = capsys.readouterr().out
    assert "watch RMSE" in said and said.index("watch MAE") < said.index("CPU s") and "2.0000" in said


def test_one_day_that_tells_has_no_interval(capsys):
    print_replay([result for result in RESULTS if result["day"] in "ab"])
    assert "warm: AUC -0.0100 against retrain, for 15% of its CPU" in capsys.readouterr().out.replace("\n", " ")


def test_seeds_are_paired_and_shown_by_their_mean(capsys):
    other = [
        {**result, "seed": 2, "auc": result["auc"] and result["auc"] + 0.01 * (result["policy"] == "warm")}
        for result in RESULTS
    ]
    [found] = differences([*RESULTS, *other])
    assert (found["days"], found["seeds"]) == (2, 2) and found["auc"] == pytest.approx(0.0025)
    assert (found["low"], found["high"]) == pytest.approx(mean_interval(np.array([[-0.01, 0], [0.005, 0.015]])))
    print_replay([*RESULTS, *other])
    said = capsys.readouterr().out
    assert "means over 2 seeds" in said and "0.7300" in said  # warm on the third day


def test_the_interval_of_one_seed_is_students():
    values = np.array([0.1, 0.4, 0.3, 0.5])
    expected = scipy.stats.t.interval(0.95, 3, values.mean(), scipy.stats.sem(values))
    for shape in ((4, 1), (1, 4)):
        assert mean_interval(values.reshape(shape)) == pytest.approx(expected)
    assert mean_interval(values[:1, None]) is None
    assert mean_interval(np.full((3, 2), 0.2)) == pytest.approx((0.2, 0.2))


@pytest.mark.parametrize("stddevs", [(1, 0.3, 0.3), (0.3, 1, 0.3), (0.3, 0.3, 1), (1, 1, 1)])
def test_the_interval_holds_the_mean_where_days_and_seeds_are_of_chance(stddevs):
    random, held = np.random.default_rng(5), []
    for _ in range(1000):
        sides = zip(stddevs, ((6, 1), (1, 4), (6, 4)), strict=True)
        low, high = mean_interval(sum(random.normal(scale=stddev, size=shape) for stddev, shape in sides))
        held.append(low <= 0 <= high)
    assert 0.91 < np.mean(held) < 0.985  # four seeds that matter most are few for the approximation


def test_the_first_scored_day_alone_compares_nothing(capsys):
    print_replay([result for result in RESULTS if result["day"] == "a"])
    assert "beside" not in capsys.readouterr().out


def test_a_day_without_a_column_is_found_before_the_first_training(tmp_path):
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.tsv").write_text("click\tdevice\tquery\tad\n1\ta\tb\tc\n")
    config = check_config(SMALL, (), "small.yaml")
    found = readable_days(config, [f"{tmp_path}/day=*"])
    assert [day.name for day in found] == NAMES
    (tmp_path / NAMES[3] / "log.tsv").write_text("click\tdevice\tad\n1\ta\tc\n")
    with pytest.raises(InputError, match=f"{NAMES[3]}/log.tsv: the header lacks query"):
        readable_days(config, [f"{tmp_path}/day=*"])
    (tmp_path / NAMES[3] / "log.tsv").write_text("")
    with pytest.raises(InputError, match=f"{NAMES[3]}/log.tsv: the file has no rows"):
        readable_days(config, [f"{tmp_path}/day=*"])


def test_the_cost_of_a_day_is_the_cpu_time_of_its_processes_in_the_program_and_in_the_system(monkeypatch):
    times = {resource.RUSAGE_CHILDREN: types.SimpleNamespace(ru_utime=3.0, ru_stime=1.5)}
    monkeypatch.setattr(resource, "getrusage", times.__getitem__)
    assert replay._cpu_seconds() == 4.5
