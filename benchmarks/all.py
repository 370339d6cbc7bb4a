"""Runs the benchmarks of speed, memory and parity at small sizes and writes one page with their ratios.

    python -m benchmarks.all [--minutes 60] [--only preprocess ...] [--against FILE] [--folder FOLDER] [--keep]

Each benchmark runs in its own process, one after the other. A benchmark is skipped with a reason if its peers are not
installed or the time does not suffice. Each ratio is shown with its target and the ratio of an earlier run, by default
the committed one (benchmarks/last_run.json). A ratio more than a quarter worse is a slow-down, provided that both
machines were quiet.

The command is no `Benchmark`: it writes three files into a folder, and reads other benchmarks' reports.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.harness import measured
from benchmarks.harness.command import busy, busy_caption, command, finish, machine
from benchmarks.harness.printed_sections import markdown_table, write_section
from benchmarks.harness.result_table import result_table
from benchmarks.harness.steps import STEPS, Ratio, Step
from benchmarks.peers.client import ENVIRONMENTS
from benchmarks.peers.line_process import ProcessError
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.pages import template
from ctrpipe.common.progress import announce

FOLDER = pathlib.Path(__file__).parent
LAST_RUN = FOLDER / "last_run.json"
SLACK = 1.25  # how much worse a ratio may be than before; equal code varies this much on a quiet machine


@dataclasses.dataclass(frozen=True)
class Done:
    """The result of a benchmark.

    Attributes:
        name: Name of the step.
        seconds: Duration; 0 if it was not run.
        busy: Share of the machine's cores that other programs used before the benchmark.
        ratios: The measured ratios.
        reason: Why nothing was measured; None on success.
    """

    name: str
    seconds: float = 0.0
    busy: float = 0.0
    ratios: tuple[Ratio, ...] = ()
    reason: str | None = None


def run_step(step: Step, minutes: float, folder: pathlib.Path) -> Done:
    """Runs a benchmark if its peers are installed and the time suffices.

    Args:
        step: The benchmark.
        minutes: Minutes left.
        folder: Folder for its report.
    """
    missing = [peer for peer in step.peers if not (ENVIRONMENTS / peer / "bin" / "python").exists()]
    if missing:
        return Done(step.name, reason=f"no {', '.join(missing)} here; make peers")
    if minutes < step.minutes:
        return Done(step.name, reason=f"it takes about {step.minutes:g} minutes, and {max(minutes, 0):.0f} are left")
    share = busy()
    announce(f"{step.name}: about {step.minutes:g} minutes")
    output = folder / step.name if step.name == "latency" else folder / step.name / "report.json"
    started = time.monotonic()
    try:
        report, _ = measured.run(step.name, [*step.command, "--output", output])
        ratios = tuple(step.ratios(report))
    except (ProcessError, LookupError, TypeError, ValueError) as error:
        return Done(step.name, time.monotonic() - started, share, reason=f"failed: {one_line(error, 300)}")
    return Done(step.name, time.monotonic() - started, share, ratios)


def compared(done: Sequence[Done], before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns each ratio with its target, its earlier value, and whether it is a slow-down.

    Args:
        done: The results.
        before: An earlier report; empty without one.
    """
    earlier = {one["name"]: one for one in before.get("ratios", [])}
    lines = []
    for result in done:
        for ratio in result.ratios:
            former = earlier.get(ratio.name, {}).get("value")
            worse = None if not former or not ratio.value else ratio.value / former
            if worse is not None and not ratio.at_most:
                worse = 1 / worse
            lines.append(
                {
                    "benchmark": result.name,
                    "busy": result.busy,
                    **dataclasses.asdict(ratio),
                    "met": ratio.met,
                    "before": former,
                    "slower": None if worse is None else worse > SLACK,
                }
            )
    return lines


def report_of(done: Sequence[Done], before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the report of the results so far, compared with an earlier report."""
    return {
        "benchmark": "all",
        "machine": machine(),
        "busy": max((one.busy for one in done), default=0.0),
        "date": time.strftime("%Y-%m-%d"),
        "ratios": compared(done, before),
        "steps": [{"name": one.name, "seconds": one.seconds, "reason": one.reason} for one in done],
        "before": {key: before[key] for key in ("machine", "busy", "date") if key in before},
    }


def markdown(report: Mapping[str, Any]) -> str:
    """Returns the report as a Markdown page."""
    lines = ["# Benchmarks", "", _described(report), ""]
    if report["before"]:
        lines += [f"Before: {_described(report['before'])}", ""]
    return "\n".join(lines + _markdown_table(report, ("benchmark", "ratio", "measured", "target", "before")))


def section(report: Mapping[str, Any]) -> str:
    """Returns the report as a section of docs/measured.md, without the earlier run."""
    lines = ["## All of it at small sizes: `python -m benchmarks.all --minutes 60`", "", _described(report), ""]
    return "\n".join(lines + _markdown_table(report, ("benchmark", "ratio", "measured", "target")))


def _markdown_table(report: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """Returns the lines of a table of the ratios, the benchmarks that were not run, and an empty line."""
    lines = markdown_table([columns, *(_cells(one)[: len(columns)] for one in report["ratios"])])
    left = [f"- `{one['name']}` was not run: {one['reason']}" for one in report["steps"] if one["reason"]]
    return lines + ([""] + left if left else []) + [""]


def page(report: Mapping[str, Any]) -> str:
    """Returns the report as an HTML page that works offline."""
    return template("all.html.jinja", FOLDER / "harness").render(
        described=_described(report),
        before=_described(report["before"]) if report["before"] else None,
        rows=[one | {"value": _value(one), "target": _target(one), "before": _before(one)} for one in report["ratios"]],
        steps=report["steps"],
    )


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    return one["benchmark"], one["name"], _value(one), _target(one), _before(one)


def _described(report: Mapping[str, Any]) -> str:
    where = f"{report['machine']['cpu']}, {report['machine']['cores']} cores"
    return f"{report['date']}, {where}; other work took up to {report['busy']:.0%} of them."


def _value(one: Mapping[str, Any]) -> str:
    return f"{one['value']:.3g}"


def _target(one: Mapping[str, Any]) -> str:
    if one["target"] is None:
        return ""
    return f"{'at most' if one['at_most'] else 'at least'} {one['target']:g}: {'met' if one['met'] else 'missed'}"


def _before(one: Mapping[str, Any]) -> str:
    if one["before"] is None:
        return ""
    return f"{one['before']:.3g}{': slower' if one['slower'] else ''}"


def _table(report: Mapping[str, Any]) -> Table:
    headings = ("benchmark", "ratio", "measured", "target", "before")
    left = [(one["name"], f"not run: {one['reason']}", "", "", "") for one in report["steps"] if one["reason"]]
    rows = [dict(zip(headings, cells, strict=True)) for cells in (*map(_cells, report["ratios"]), *left)]
    table = result_table(f"Ratios, {report['machine']['cpu']}", {name: f"{{{name}}}" for name in headings}, rows)
    table.caption = busy_caption(report["busy"])
    return table


def read_before(path: pathlib.Path | None) -> dict[str, Any]:
    """Returns an earlier report: the given file, or the committed one; {} without either.

    Raises:
        InputError: The file is not a report of this command.
    """
    if path is None and not LAST_RUN.exists():
        return {}
    try:
        before: dict[str, Any] = json.loads((path or LAST_RUN).read_text())
        if before["benchmark"] != "all":
            raise ValueError(f"it is one of benchmarks.{before['benchmark']}")
        for one in before["ratios"]:
            one["name"], one["value"]  # noqa: B018  # raises if the keys are missing
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"--against {path or LAST_RUN}: no report of this command ({one_line(error, 100)})") from error
    return before


def run_all(steps: Sequence[Step], minutes: float, folder: pathlib.Path, wrote: Callable[[list[Done]], None]) -> None:
    """Runs benchmarks one after the other within `minutes`, and calls `wrote` with the results so far after each."""
    started, done = time.monotonic(), []
    for step in steps:
        done.append(run_step(step, minutes - (time.monotonic() - started) / 60, folder))
        wrote(done)


@command("benchmarks.all")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    help="Time limit. A benchmark that would end later is not started.",
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([step.name for step in STEPS]),
    help="Benchmark to run. Repeatable. Default: all.",
)
@click.option(
    "--against",
    type=click.Path(path_type=pathlib.Path),
    help="Earlier report to compare with. Default: the committed one.",
)
@click.option(
    "--folder", type=click.Path(path_type=pathlib.Path), default="runs/benchmarks/all", help="Folder for all results."
)
@click.option("--keep", is_flag=True, help="Also write benchmarks/last_run.json and docs/measured.md.")
def main(minutes: float, only: Sequence[str], against: pathlib.Path | None, folder: pathlib.Path, keep: bool) -> None:
    """Run the benchmarks of speed, memory and parity at small sizes.

    Writes FOLDER/all.json, all.md and all.html after each benchmark. Prints a table, and the report as JSON on the
    last line.
    """
    before = read_before(against)
    report = report_of([], before)

    def wrote(done: list[Done]) -> None:
        nonlocal report
        report = report_of(done, before)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "all.md", markdown(report))
        write_text(folder / "all.html", page(report))
        write_json(folder / "all.json", report)

    run_all([step for step in STEPS if step.name in only or not only], minutes, folder, wrote)
    if keep:
        write_json(LAST_RUN, report)
        write_section("all", section(report))
    finish(report, folder / "all.json", _table(report))


if __name__ == "__main__":
    main()
