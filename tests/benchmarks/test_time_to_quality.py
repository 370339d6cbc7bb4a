"""The time to a model of a given quality: the target and who reaches it, LightGBM from a raw log, what is left out."""

import json
import pathlib
from typing import Any

import click.testing
import numpy as np
import pytest
import sklearn.metrics

from benchmarks import time_to_quality
from benchmarks.harness import lightgbm_log
from benchmarks.harness.measured import Usage
from benchmarks.harness.preprocess_logs import raw_log
from benchmarks.harness.served_answer import first_row
from benchmarks.time_to_quality import Measured, summary


def took(auc: float, seconds: float, peak: int = 2**20) -> dict[str, Any]:
    times = {"seconds": seconds, "cpu_seconds": 2 * seconds, "peak_bytes": peak, "processes": 1}
    return {"auc": auc, "log_loss": 0.4, **times, "parts": {"all": seconds}}


def test_the_target_is_below_fuxictrs_mean_and_the_times_are_over_ours():
    runs = {"ctrpipe": [took(0.800, 10), took(0.798, 20)], "fuxictr": [took(0.802, 60), took(0.800, 60)]}
    found = summary({**runs, "lightgbm": [took(0.79, 3, 5), took(0.79, 3, 9)]}, 0.002, None)
    assert found["target"] == pytest.approx(0.799)
    ours, theirs, trees = found["sides"]
    assert ours["auc"] == pytest.approx(0.799) and (theirs["reached"], trees["reached"]) == (True, False)
    assert (ours["over_ours"], theirs["over_ours"], trees["over_ours"]) == (None, 4.0, 0.2)
    assert (ours["seconds"], ours["cpu_seconds"], trees["peak_bytes"]) == (15, 30, 9)
    assert summary({"ctrpipe": runs["ctrpipe"]}, 0.002, None)["target"] == pytest.approx(0.797)
    assert summary(runs, 0.002, 0.81)["sides"][1]["reached"] is False


def test_the_first_row_has_numbers_and_texts(tmp_path):
    log = raw_log(tmp_path, 1000)
    values = log.read_text().splitlines()[0].split("\t")
    found = first_row(log)
    assert len(found) == 39 and "label" not in found
    assert found["C1"] == values[14]
    numbers = [found[f"I{place}"] for place in range(1, 14)]
    np.testing.assert_array_equal(numbers, [float(text or "nan") for text in values[1:14]])


def test_lightgbm_trains_from_the_raw_log_and_predicts_its_last_rows(tmp_path):
    pytest.importorskip("lightgbm", exc_type=OSError)  # where there is no libgomp.so.1
    log = raw_log(tmp_path, 3000)
    out = tmp_path / "out.npy"
    answer = lightgbm_log.main({"log": str(log), "validation": 0.1, "test": 0.1, "seed": 1, "out": str(out)})
    labels = [int(line[:1]) for line in log.read_text().splitlines()][-300:]
    assert answer["trees"] >= 1 and np.load(out).shape == (300,)
    assert sklearn.metrics.roc_auc_score(labels, np.load(out)) > 0.52  # a constant has 0.5
    frame = lightgbm_log.read(str(log))
    encoded = lightgbm_log.encoded(frame, 2400)
    assert encoded["I1"].equals(frame["I1"])
    text, code = frame["C1"], encoded["C1"]
    known = set(text[:2400].dropna())
    assert code[~text.isin(known)].isna().all() and code[text.isin(known)].notna().all()
    assert frame.assign(code=code).groupby("C1").code.nunique().max() == 1


def test_the_command_keeps_each_side_and_leaves_out_a_peer_that_is_not_there(tmp_path, monkeypatch):
    started: list[tuple[str, int]] = []

    def trees(log: pathlib.Path, seed: int, folder: pathlib.Path) -> Measured:
        started.append(("lightgbm", seed))
        assert not list(folder.iterdir())  # nothing of an interrupted run
        (folder / "left").touch()
        return Measured(Usage(2.0, 3.0, 2**20, 1), np.linspace(0, 1, 100), {"all": 2.0})

    monkeypatch.setattr(time_to_quality, "_lightgbm", trees)
    monkeypatch.setattr(time_to_quality, "ENVIRONMENTS", tmp_path / "none")
    options = ["--rows", "1000", "--sides", "lightgbm,fuxictr", "--folder", str(tmp_path)]
    options += ["--output", str(tmp_path / "times.json")]
    (tmp_path / "1000" / "lightgbm-dcn_v2-1").mkdir(parents=True)
    (tmp_path / "1000" / "lightgbm-dcn_v2-1" / "half").touch()
    for seeds, expected in ((1, 1), (2, 2), (2, 2)):
        done = click.testing.CliRunner().invoke(time_to_quality.main, [*options, "--seeds", str(seeds)])
        assert done.exit_code == 0, done.output
        assert len(started) == expected  # what was measured is kept
    assert "fuxictr: left out, its environment is missing; run `make peers`" in done.output
    report = json.loads((tmp_path / "times.json").read_text())
    labels = [int(line[:1]) for line in raw_log(tmp_path, 1000).read_text().splitlines()][-100:]
    [side] = report["sides"]
    assert side["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(labels, np.linspace(0, 1, 100)))
    assert 0.5 < report["best_possible"] < 1
    alone = click.testing.CliRunner().invoke(time_to_quality.main, [*options, "--sides", "fuxictr"])
    assert alone.exit_code == 2 and "none is left" in alone.output
