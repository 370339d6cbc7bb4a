"""The benchmark of what a calibration adds to an answer: its ways, its turns, its table."""

import time

from benchmarks.calibrated_latency import BAR, KINDS, NONE, SETTINGS, calibrations, measure, table
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.config.packaged_configs import configs_folder


def test_each_way_is_a_calibration_of_its_own_and_the_first_is_none() -> None:
    found = {}
    for name, value in calibrations("C1,C9").items():
        config = load_config(configs_folder() / "criteo/dcn_v2.yaml", (*SETTINGS, f"calibration={value}"))
        found[name] = config.calibration and (config.calibration.method, list(config.calibration.by))
    assert next(iter(found)) == NONE and found[NONE] is None
    assert found["isotonic"] == ("isotonic", []) and found["platt, by C1,C9"] == ("platt", ["C1", "C9"])
    assert len({str(each) for each in found.values()}) == len(found) == 7


def test_a_slower_answer_has_a_ratio_above_the_bar_and_the_same_answer_has_not() -> None:
    def after(seconds: float):
        return lambda: time.sleep(seconds) or b""

    calls = {kind: {NONE: after(0.002), "same": after(0.002), "slow": after(0.004)} for kind in KINDS}
    results = measure(calls, 40)
    over = {(each["kind"], each["calibration"]): each["over"] for each in results}
    assert [over[kind, NONE] for kind in KINDS] == [1, 1]
    assert all(over[kind, "slow"] > 1.4 > over[kind, "same"] for kind in KINDS) and BAR < 1.4
    shown = table({"results": results, "requests": 40, "met": False})
    assert [len(list(column.cells)) for column in shown.columns] == [3] * (1 + 2 * len(KINDS))
