"""Writes a study's results: tune.json (all trials), best.yaml (for `ctrpipe run`) and tune.html. Prints a table."""

import pathlib
from typing import Any

import rich.table

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.lines import say
from ctrpipe.common.terminal import console, print_table
from ctrpipe.pipeline.compare.show import print_comparison
from ctrpipe.pipeline.sweep.summary import show
from ctrpipe.pipeline.tune.summary import Summary, best_first, setting_text

BEST, PROPOSED, TRIALS, PAGE = "best.yaml", "proposed.yaml", "tune.json", "tune.html"
SHOWN = 10  # trials in the table


def write_results(summary: Summary, output: pathlib.Path) -> None:
    """Writes best.yaml, tune.json and tune.html."""
    from ctrpipe.pipeline.tune.page import page  # lazy: matplotlib takes 0.4 s

    write_text(output / BEST, summary.best)
    if summary.proposed:
        write_text(output / PROPOSED, summary.proposed)
    else:
        (output / PROPOSED).unlink(missing_ok=True)
    write_json(output / TRIALS, summary.report)
    write_text(output / PAGE, page(summary))


def print_summary(summary: Summary, output: pathlib.Path) -> None:
    """Prints the best trials and the names of the files."""
    report = summary.report
    trials = best_first(report)[:SHOWN]
    keys = list(report["space"])
    of = report["objective"].replace("_", " ")
    table = rich.table.Table(title=f"{report['name']}: the best of {len(report['trials'])} trials by {of}")
    table.add_column("trial", justify="right")
    for key in keys:
        table.add_column(key.partition(".")[2].replace("_", " "), justify="right")
    latency = report["p99_limit_ms"] is not None
    for title in ("AUC", "log loss", *report["further"].values(), *(["p99 ms"] if latency else []), "steps"):
        table.add_column(title, justify="right")
    for trial in trials:
        cells = [str(trial["number"]), *(setting_text(trial["settings"][key]) for key in keys)]
        cells += [show(trial["auc"]), show(trial["log_loss"])]
        cells += [show(trial["further"].get(name)) for name in report["further"]]
        cells += [*([show(trial["p99_ms"], 2)] if latency else [])]
        table.add_row(*cells, f"{trial['steps']:,}", style="bold" if trial is trials[0] else None)
    terminal = console()
    print_table(terminal, table)
    states = [trial["state"] for trial in report["trials"]]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("complete", "stopped", "refused"))
    terminal.print(f"{counts}; {report['steps']:,} training steps, {report['seconds']:,.0f} s")
    if report["exhausted"]:
        terminal.print("Every point of the search space was tried")
    if confirmation := report["confirmation"]:
        _print_confirmation(confirmation)
    files = [BEST, *([PROPOSED] if summary.proposed else []), TRIALS, PAGE]
    say(f"Written: {output}/{', '.join(files)}")
    chosen = str(output / (PROPOSED if summary.proposed else BEST))
    say(next_steps([command_name(), "run", chosen]))


def _print_confirmation(confirmation: dict[str, Any]) -> None:
    if confirmation["comparison"]:
        print_comparison(confirmation["comparison"])
    say(confirmation["text"])
    if proposed := confirmation["proposed"]:
        say(f"Proposed: the {proposed} configuration ({PROPOSED})")
