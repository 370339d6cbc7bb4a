"""Trains many models with several seeds on one data set, and tests which of them differ from the best.

    python -m benchmarks.leaderboard --set criteo_x4_001 --data FOLDER [--models lr,dcn_v2] [--seeds 5] [--trials 20]
    python -m benchmarks.leaderboard --set criteo_60k --data FOLDER [--rows 20000] [--with training.epochs=5]
    python -m benchmarks.leaderboard --set mine.yaml --data FOLDER

A set names its files, the configurations of its models, and their published figures (benchmarks/sets; the settings of
BARS are in configs/bars). Checksums identify the files of a public set, and numbers of rows its splits. With --rows or
--sample the rows differ, and the page says so.

Each training runs in its own process, and its result is kept in --folder: the same command resumes after an interrupt,
and trains only what is missing if --models or --seeds grow. A round trains all models with one seed. Each round writes
the JSON to --output and the page next to it. With --trials each model is trained with the settings that `ctrpipe tune`
finds in that many trials, an equal budget for all, instead of the configuration's settings.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.command import chosen_names, folder_option
from benchmarks.harness.leaderboard_results import Trained, best_possible, cells, leaderboard, load_caption, notes, page
from benchmarks.harness.leaderboard_sets import (
    Contender,
    LeaderboardSet,
    Part,
    check_files,
    contenders,
    find_files,
    find_tables,
    first_rows,
    known_sets,
    read_set,
    truth_of,
)
from benchmarks.harness.leaderboard_training import Job, key_of
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_text
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.evaluation.scored_rows import read_scored

LAST_LINE = 300  # characters of a process's last line


class Trainings:
    """The training runs of a leaderboard, kept in a folder.

    Args:
        chosen: The set.
        folder: The folder.
        checks: Whether the rows have to be the published ones.
    """

    def __init__(self, chosen: LeaderboardSet, folder: pathlib.Path, checks: bool) -> None:
        self.chosen, self.folder, self.checks = chosen, folder, checks
        self.failed: dict[str, str] = {}
        (folder / "results").mkdir(parents=True, exist_ok=True)

    def get(self, contender: Contender, seed: int) -> dict[str, Any] | None:
        """Returns a training run's result; trains first if there is none. None if the process fails: see `failed`.

        Raises:
            InputError: the configuration has a mistake, or the rows are not the published ones.
        """
        result = self.folder / "results" / f"{contender.name}-{key_of(contender.config(), seed)}.json"
        if not result.exists():
            job = result.with_suffix(".job")
            Job(str(contender.path), list(contender.settings), seed, str(self.folder), str(result)).write(job)
            last = _run("benchmarks.harness.leaderboard_training", str(job))
            job.unlink()
            if last is not None:
                self.failed[contender.name] = last
                announce(f"{contender.name}, seed {seed}: not trained: {last}")
                return None
        trained: dict[str, Any] = json.loads(result.read_text())
        self._check(contender.name, trained)
        return trained

    def tuned(self, contender: Contender, trials: int) -> Contender:
        """Searches a model's settings on the validation rows, and returns the model with the best ones.

        Raises:
            InputError: the search fails.
        """
        output = self.folder / "searches" / contender.name
        settings = [part for setting in contender.settings for part in ("--set", setting)]
        number = ("--trials", str(trials), "--seeds", "0")
        last = _run("ctrpipe", "tune", str(contender.path), *settings, *number, "--output", str(output))
        if last is not None:
            raise InputError(f"{contender.name}: the search for its settings ended: {last}")
        return Contender(contender.name, output / "best.yaml", contender.settings)

    def _check(self, name: str, result: Mapping[str, Any]) -> None:
        if not self.checks:
            return
        counts = {**result["rows"], "test clicks": round(result["test"]["examples"] * _base_rate(result))}
        wanted: dict[str, int | None] = {**self.chosen.rows, "test clicks": self.chosen.test_clicks}
        for part, count in wanted.items():
            if count is not None and counts[part] != count:
                what = part if part == "test clicks" else f"{part} rows"
                raise InputError(
                    f"{name}: {counts[part]:,} {what}, not {count:,} as published for {self.chosen.name}; give the "
                    "published files, or --sample to train on other rows"
                )


def _base_rate(result: Mapping[str, Any]) -> float:
    """Returns the share of clicks of the test rows."""
    return float(next(iter(read_scored(pathlib.Path(result["predictions"])).labels.values())).mean())


def _run(*arguments: str) -> str | None:
    """Runs a module in a process; returns None if it succeeds, and otherwise the last line that it printed."""
    process = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True)
    if process.returncode == 0:
        return None
    lines = (process.stdout + "\n" + process.stderr).strip().splitlines() or [f"ended with {process.returncode}"]
    return lines[-1][:LAST_LINE]


def rounds(trainings: Trainings, models: Sequence[Contender], seeds: int, report: Report, truth: pathlib.Path) -> None:
    """Trains all models with one seed after the other, and writes report and page after each round.

    Raises:
        InputError: no model could be trained.
    """
    runs: dict[str, list[dict[str, Any]]] = {one.name: [] for one in models}
    for seed in range(1, seeds + 1):
        for one in models:
            if one.name not in trainings.failed and (result := trainings.get(one, seed)) is not None:
                runs[one.name].append(result)
                auc, loss = result["test"]["auc"], result["test"]["log_loss"]
                announce(f"{one.name}, seed {seed} of {seeds}: test AUC {auc:.4f}, log loss {loss:.4f}")
        trained = [Trained(name, of) for name, of in runs.items() if of and name not in trainings.failed]
        if not trained:
            raise InputError(f"--models: none could be trained; {next(iter(trainings.failed.values()))}")
        first = trained[0].runs[0]
        report |= {"rows": first["rows"], "failed": trainings.failed}
        report |= {"models": leaderboard(trained, trainings.chosen)}
        report |= {"best_possible": best_possible(truth, read_scored(pathlib.Path(first["predictions"])))}
        report.write()
        write_text(report.output.with_suffix(".md"), page(report))


def tables(report: Mapping[str, Any]) -> RenderableType:
    head, *lines = cells(report)
    table = Table(title=f"{report['set']}, {report['rows']['test']:,} test rows")
    for name in head:
        table.add_column(name, justify="left" if name == "model" else "right")
    for line in lines:
        table.add_row(*line)
    return Group(table, *notes(report))


def failures(report: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {reason}" for name, reason in report["failed"].items()]


@Benchmark("benchmarks.leaderboard", tables, failures, load_caption)
@click.option("--set", "name", required=True, help=f"{', '.join(known_sets())}, or the file of a set of your own.")
@click.option("--data", type=click.Path(path_type=pathlib.Path), help="Folder with the set's files.")
@click.option("--models", help="Models to train, separated by commas. Default: all of the set.")
@click.option("--seeds", type=click.IntRange(1), default=5, help="Trainings of a model, with the seeds 1, 2, ...")
@click.option("--rows", type=click.IntRange(1), help="Take only the first rows of each file.")
@click.option("--sample", is_flag=True, help="Take other rows than the published ones: nothing is checked.")
@click.option("--trials", type=click.IntRange(1), help="Search each model's settings in so many trials first.")
@click.option("--with", "keys", multiple=True, metavar="KEY=VALUE", help="A key of all configurations. Repeatable.")
@folder_option("leaderboard")
def main(
    report: Report,
    name: str,
    data: pathlib.Path | None,
    models: str | None,
    seeds: int,
    rows: int | None,
    sample: bool,
    trials: int | None,
    keys: tuple[str, ...],
    folder: pathlib.Path,
) -> None:
    """Train a set's models with several seeds, and say which can be told from the best.

    Prints a table, and writes JSON and a page after every round of training runs. Resumes after an interrupt.
    """
    chosen, beside = read_set(name)
    report.add_load()
    folder = folder / chosen.name
    folder.mkdir(parents=True, exist_ok=True)
    checks = not (rows or sample)
    if chosen.generate and rows:  # a shorter log is the beginning of a longer one, and has its true probabilities
        chosen = chosen.model_copy(update={"generate": chosen.generate.model_copy(update={"rows": rows})})
    files: dict[Part, list[pathlib.Path]] = find_files(chosen, data, folder)
    if checks:
        check_files(chosen, files, folder / "checksums.json")
    tables_of = find_tables(chosen, data, folder)
    every = contenders(chosen, beside, files, keys, tables_of)
    names = chosen_names("--models", models, every) if models else tuple(every)
    truth = truth_of(files["log"][0]) if chosen.generate else folder / "none"
    if rows and not chosen.generate:
        files = first_rows(files, rows, next(iter(every.values())).config().data.header, folder)
        every = contenders(chosen, beside, files, keys, tables_of)
    trainings = Trainings(chosen, folder, checks)
    picked = [every[one] if trials is None else trainings.tuned(every[one], trials) for one in names]
    report |= {"set": chosen.name, "source": chosen.source, "published_source": chosen.published_source}
    report |= {"seeds": seeds, "rows_of_each_file": rows, "trials": trials, "with": list(keys)}
    report |= {
        "named": pathlib.Path(name).name,
        "is_published_split": checks,
        "is_generated": chosen.generate is not None,
        "chooses_by_test": chosen.chooses_by_test,
        "models_of_set": list(every),
    }
    rounds(trainings, picked, seeds, report, truth)


if __name__ == "__main__":
    main()
