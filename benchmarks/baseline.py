"""Compares a run's baseline with scikit-learn's logistic regression, and with the model that `ctrpipe init` drafts.

    python -m benchmarks.baseline [--log NAME=PATH ...] [--folder FOLDER] [--output FILE]

For each log `ctrpipe init` drafts a configuration. All sides get the same ids of the same rows: scikit-learn's one-hot
logistic regression with its default strength, the same with the strength that the validation rows choose among
STRENGTHS, the baseline that a run trains beside its model, and the drafted model with the drafted settings. Besides
the named logs there are three that this command writes: `bank` is like the bank marketing data, `numbers` has numbers
alone, and in `rare` one row of a thousand is a click.
"""

import pathlib
from typing import Any

import click
from rich.table import Table

from benchmarks.harness.command import chosen_names, command, finish, folder_option, machine, output_option
from benchmarks.harness.quality_sides import Baseline, Drafted, OneHot, Rows, Settings, Side
from benchmarks.harness.small_logs import LOGS
from benchmarks.quality import make_rows
from ctrpipe.common.errors import InputError
from ctrpipe.common.metrics import summarise
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.draft.page import draft

STRENGTHS = (0.03, 0.1, 0.3, 1.0)  # of scikit-learn's C
NUMBERS = ("auc", "log_loss", "rig", "calibration")
NEAR, CALIBRATED = 0.002, (0.97, 1.03)  # bars: AUC behind scikit-learn's, and the calibration


def compare(path: pathlib.Path, folder: pathlib.Path) -> list[dict[str, Any]]:
    """Returns each side's metrics on the test rows of a log."""
    folder.mkdir(parents=True, exist_ok=True)
    drafted = folder / "draft.yaml"
    drafted.write_text(draft([str(path)], name="log")[0])
    config = load_config(drafted)
    rows = make_rows(config, str(path), folder / "run")
    one_hot, found = OneHot(), []
    chosen = min(STRENGTHS, key=lambda strength: _trained(one_hot, "lr", {"C": strength}, rows, folder)[1])
    sides: list[tuple[str, Side, str, Settings]] = [
        ("scikit-learn, C=1", one_hot, "lr", {"C": 1.0}),
        (f"scikit-learn, C={chosen:g}", one_hot, "lr", {"C": chosen}),
        ("baseline lr", Baseline(), "lr", {}),
        (f"drafted {config.model.name}", Drafted(config), config.model.name, {}),
    ]
    for name, side, model, settings in sides:
        numbers, _, seconds = _trained(side, model, settings, rows, folder)
        found.append({"side": name, **{key: numbers[key] for key in NUMBERS}, "seconds": seconds})
        announce(f"{path.name}, {name}: AUC {numbers['auc']:.4f}, calibration {numbers['calibration']:.4f}")
    return found


def _trained(
    side: Side, model: str, settings: Settings, rows: Rows, folder: pathlib.Path
) -> tuple[dict[str, Any], float, float]:
    """Returns a training's metrics on the test rows, its log loss on the validation rows, and its seconds."""
    trained = side.train(model, settings, 1, rows, folder / "work")
    return summarise(rows.split("test")[1], trained.probabilities), trained.log_loss, trained.seconds


def table(logs: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """Returns the header of the table, and a row for each log's side."""
    lines = [["log", "side", "AUC", "log loss", "RIG", "calibration", "seconds"]]
    for name, sides in logs.items():
        for side in sides:
            lines.append([name, side["side"], *(f"{side[key]:.4f}" for key in NUMBERS), f"{side['seconds']:.1f}"])
    return lines


def bars(logs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns the bars of each log: the baseline's AUC beside scikit-learn's, and its calibration."""
    lines = []
    for name, (_, theirs, ours, _) in logs.items():
        ahead = ours["auc"] - theirs["auc"]
        lines.append({"bar": f"{name}: AUC ahead of {theirs['side']}", "value": ahead, "met": ahead >= -NEAR})
        met = CALIBRATED[0] <= ours["calibration"] <= CALIBRATED[1]
        lines.append({"bar": f"{name}: calibration", "value": ours["calibration"], "met": met})
    return lines


def _named(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, pathlib.Path]:
    if wrong := [value for value in values if "=" not in value]:
        raise InputError(f"--log {wrong[0]}: expected NAME=PATH")
    return {name: pathlib.Path(path) for name, path in (value.split("=", 1) for value in values)}


@command("benchmarks.baseline")
@click.option("--log", "logs", multiple=True, callback=_named, help="NAME=PATH of a log; repeat for more.")
@click.option("--written", default=",".join(LOGS), help="Logs that this command writes, separated by commas; or none.")
@folder_option("baseline")
@output_option("baseline")
def main(logs: dict[str, pathlib.Path], written: str, folder: pathlib.Path, output: pathlib.Path) -> None:
    """Compare a run's baseline with scikit-learn's logistic regression, on small logs."""
    paths = dict(logs)
    for name in [] if written == "none" else chosen_names("--written", written, LOGS):
        paths[name] = folder / f"{name}.csv"
        if not paths[name].exists():
            folder.mkdir(parents=True, exist_ok=True)
            LOGS[name](paths[name])
    found = {name: compare(path, folder / name) for name, path in paths.items()}
    report = {"benchmark": "baseline", "machine": machine(), "logs": found, "bars": bars(found)}
    for line in report["bars"]:
        announce(f"{'met' if line['met'] else 'MISSED'}: {line['bar']}, {line['value']:+.4f}")
    head, *lines = table(found)
    printed = Table(*head)
    for cells in lines:
        printed.add_row(*cells)
    finish(report, output, printed)


if __name__ == "__main__":
    main()
