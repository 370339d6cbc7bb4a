"""Finds the thread and batching settings with the highest throughput of a model on this machine."""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.processes import cores, run_in_new_process
from ctrpipe.serving.assets import is_click_model
from ctrpipe.serving.server.batching_parameters import BatchingParameters, write_parameters
from ctrpipe.serving.tuning.tune_process import ClientLoad, Setting, TrialResult, measure

FLAGS, ENVIRONMENT, BATCHING, SESSION, REPORT = (
    "flags",
    "environment",
    "batching.config",
    "session.config",
    "tune.json",
)
AUTOMATIC, CALLERS_THREAD = 0, -1
BATCH_ROWS = 128  # rows of a batch in the trials; larger requests are split


@dataclasses.dataclass
class Trial:
    """A setting and its results, by round and by load."""

    setting: Setting
    rounds: list[list[TrialResult]] = dataclasses.field(default_factory=list)

    def median(self, load: int, field: str) -> float:
        return float(statistics.median(getattr(results[load], field) for results in self.rounds))


def thread_settings(version: pathlib.Path) -> list[Setting]:
    """Returns the thread settings to try: the default of `ctrpipe serve` first, then TensorFlow's, then others.

    The default takes all processors for a version that is no click model, so this number is not tried again.
    """
    count = cores()
    numbers = {1, 2, count} if is_click_model(version) else {1, 2} - {count}
    settings = [Setting(AUTOMATIC, CALLERS_THREAD, onednn) for onednn in (False, True)]
    settings += [Setting(count, count, onednn) for onednn in (True, False)]
    for threads in sorted(numbers):
        settings += [Setting(threads, CALLERS_THREAD, onednn) for onednn in (False, True)]
    return settings


def batching_settings(best: Setting, loads: list[ClientLoad]) -> list[Setting]:
    """Returns the batching settings to try, for the best number of intra-op threads and for one thread.

    Requests in a batch share no rows. In place of the automatic number, all processors are tried.
    """
    rows, clients = max(load.rows for load in loads), max(load.clients for load in loads)
    settings = []
    for intra_op in sorted({1, best.intra_op or cores()}):
        for threads in sorted({max(1, cores() // 2), cores()}):
            batching = {
                "max_batch_size": max(rows, BATCH_ROWS),
                "max_execution_batch_size": BATCH_ROWS,
                "enable_large_batch_splitting": True,
                "num_batch_threads": threads,
                "max_enqueued_batches": max(100, clients * math.ceil(rows / BATCH_ROWS)),
            }
            settings.append(Setting(intra_op, CALLERS_THREAD, best.onednn, tuple(batching.items())))
    return settings


def tune(
    version: pathlib.Path,
    signature: str,
    loads: list[ClientLoad],
    seconds: float,
    rounds: int,
    progress: Callable[[str], None],
) -> list[Trial]:
    """Measures all settings, each in new processes, and returns the trials, best first.

    Args:
        version: The version's folder.
        signature: The signature to call, with its recorded warm-up requests.
        loads: The loads to measure.
        seconds: Seconds of each load in each round.
        rounds: The number of measurements of each setting.
        progress: Called with a line of text after each measurement.

    Raises:
        InputError: a load has less than one row or one client, or the version has no recorded request of the
            signature.
    """
    if not 1 <= min(min(load.rows, load.clients) for load in loads):
        raise InputError("--rows and --clients should be above 0")
    trials = [Trial(setting) for setting in thread_settings(version)]
    _measure(trials, version, signature, loads, seconds, rounds, progress)
    more = [Trial(setting) for setting in batching_settings(ranked(trials, loads)[0].setting, loads)]
    _measure(more, version, signature, loads, seconds, rounds, progress)
    return ranked(trials + more, loads)


def _measure(
    trials: list[Trial],
    version: pathlib.Path,
    signature: str,
    loads: list[ClientLoad],
    seconds: float,
    rounds: int,
    progress: Callable[[str], None],
) -> None:
    for number in range(rounds):
        for trial in (
            trials if number % 2 == 0 else trials[::-1]
        ):  # alternate the order: a machine that slows down affects all settings alike
            trial.rounds.append(run_in_new_process(measure, trial.setting, str(version), signature, loads, seconds))
            progress(f"{describe(trial.setting)}: round {number + 1} of {rounds}")


def ranked(trials: list[Trial], loads: list[ClientLoad]) -> list[Trial]:
    """Returns the trials by descending score. In a closed loop, throughput also measures latency."""
    return sorted(trials, key=lambda trial: -score(trial, loads))


def score(trial: Trial, loads: list[ClientLoad]) -> float:
    """Returns a trial's score: the geometric mean over the loads of its median rows/s."""
    return statistics.geometric_mean(trial.median(index, "rows_per_s") for index in range(len(loads)))


def describe(setting: Setting) -> str:
    inter = "the caller's thread" if setting.inter_op == CALLERS_THREAD else f"{setting.inter_op} between"
    threads = f"{setting.intra_op} threads within operations, {inter}"
    if setting.intra_op == AUTOMATIC:
        threads = "the default of ctrpipe serve"
    text = f"{threads}, {'oneDNN' if setting.onednn else 'Eigen'}"
    batching = dict(setting.batching)
    if batching:
        text += f", batches of {batching['max_execution_batch_size']} on {batching['num_batch_threads']} threads"
    return text


def flags(setting: Setting, folder: pathlib.Path) -> list[str]:
    """Returns the flags of a setting, for `ctrpipe serve` and tensorflow_model_server alike."""
    arguments = [
        f"--tensorflow_intra_op_parallelism={setting.intra_op}",
        f"--tensorflow_inter_op_parallelism={setting.inter_op}",
    ]
    if setting.batching:
        arguments += ["--enable_batching", f"--batching_parameters_file={(folder / BATCHING).resolve()}"]
    return arguments


def write(
    trials: list[Trial], loads: list[ClientLoad], version: pathlib.Path, signature: str, folder: pathlib.Path
) -> None:
    """Writes the flags, environment and files of the best setting, and all results, to the folder."""
    best = trials[0].setting
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / FLAGS, "\n".join(flags(best, folder)) + "\n")
    write_text(folder / ENVIRONMENT, "".join(f"{name}={value}\n" for name, value in best.environment.items()))
    threads = f"intra_op_parallelism_threads: {best.intra_op}\ninter_op_parallelism_threads: {best.inter_op}\n"
    write_text(folder / SESSION, threads)
    (folder / BATCHING).unlink(missing_ok=True)
    if best.batching:
        parameters = BatchingParameters(**dict(best.batching))  # type: ignore[arg-type]
        write_text(folder / BATCHING, write_parameters(parameters))
    report: dict[str, Any] = {"version": str(version), "signature": signature, "cores": cores()}
    report |= {"loads": [dataclasses.asdict(load) for load in loads], "trials": [_as_json(trial) for trial in trials]}
    write_json(folder / REPORT, report)


def _as_json(trial: Trial) -> dict[str, Any]:
    rounds = [[dataclasses.asdict(measured) for measured in results] for results in trial.rounds]
    return dataclasses.asdict(trial.setting) | {"batching": dict(trial.setting.batching), "rounds": rounds}


def rows_of_table(trials: list[Trial], loads: list[ClientLoad]) -> Iterator[list[str]]:
    """Yields a row per setting: its name, rows/s (p50 / p99 in ms) by load, and relative score."""
    best = score(trials[0], loads)
    for trial in trials:
        cells = []
        for index in range(len(loads)):
            rate, p50, p99 = (trial.median(index, field) for field in ("rows_per_s", "p50_ms", "p99_ms"))
            cells.append(f"{rate:,.0f} ({p50:.2f} / {p99:.2f})")
        yield [describe(trial.setting), *cells, f"{score(trial, loads) / best:.2f}"]
