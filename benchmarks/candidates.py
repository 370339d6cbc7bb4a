"""Measures requests with many candidates for one user with a long history: user sent once, or with each candidate.

    python -m benchmarks.candidates [--models din,two_tower] [--events 200] [--candidates 500] [--repeats 20]
    python -m benchmarks.candidates --models one_trans --candidates 1000

Models with random weights are exported as in a run, for a generated log of a user, an item, its category and the
aligned history of both. TF Serving's loader calls them in this process, alternating between the compared signatures.
`serving_candidates` receives the user once; `serving_raw` and `serving_default` receive the same data as one row per
candidate.
"""

import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
import pyarrow as pa
from rich.table import Table

from benchmarks.harness.benchmark import Benchmark, Report
from benchmarks.harness.exported import Analysed, analysed
from benchmarks.harness.result_table import Cell, if_any, met, result_table
from benchmarks.harness.turns import in_turn, milliseconds, ratio
from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.progress import announce
from ctrpipe.models.base.registry import model_class
from ctrpipe.pipeline.config import Model
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.spec import LogSpec

COLUMNS = ("click", "user", "item", "category", "item_history", "category_history")
LOG_ROWS, USERS, ITEMS, CATEGORIES, SEED = 2000, 500, 3000, 50, 1
SHARED, ROWS = "serving_candidates", ("serving_raw", "serving_default")
EVENTS, CANDIDATES = 200, 500
# By model, for EVENTS: candidates, and the maximum ratio of the time of `serving_candidates` to that of `serving_raw`.
TARGETS = {"din": (500, 0.5), "two_tower": (500, 0.1), "one_trans": (1000, 0.15)}
MODELS = tuple(name for name, (of, _) in TARGETS.items() if of == CANDIDATES)
SAME = 1e-5
# Large embeddings make the predictions depend on the user and the history.
WEIGHTS = {"embedding_dim": 16, "embedding_stddev": 0.5}


def log_spec(events: int) -> LogSpec:
    """Returns the description of the generated log, with histories of at most `events` items."""
    history = {"kind": "sequence", "columns": list(COLUMNS[4:]), "shared_with": list(COLUMNS[2:4])}
    return LogSpec.model_validate(
        {
            "data": {"columns": list(COLUMNS), "labels": {"ctr": "click"}},
            "features": [{"kind": "categorical", "columns": list(COLUMNS[1:4])}, {**history, "max_length": events}],
        }
    )


def write_log(path: pathlib.Path, rows: int, events: int) -> None:
    """Writes a random TSV log; the history of the first row has the full length."""
    random = np.random.default_rng(SEED)
    lengths = np.append(events, random.integers(0, events + 1, rows - 1))
    with path.open("w") as log:
        for length in lengths:
            click_, user = random.integers(0, 2), random.integers(0, USERS)
            item, *history = (int(value) for value in random.integers(0, ITEMS, 1 + length))
            lists = ("|".join(f"i{one}" for one in history), "|".join(f"c{one % CATEGORIES}" for one in history))
            log.write("\t".join((str(click_), f"u{user}", f"i{item}", f"c{item % CATEGORIES}", *lists)) + "\n")


def requests_of(rows: pa.RecordBatch, candidates: int, spec: LogSpec) -> dict[str, dict[str, np.ndarray]]:
    """Returns, by signature, the inputs that score `candidates` items for the user of the first row."""
    from ctrpipe.serving.export.export import candidates_of  # TensorFlow: see `analysed`

    place = {name: np.zeros(candidates, np.int64) for name in spec.context_columns}
    of_item = np.arange(candidates) % rows.num_rows
    columns = [rows[name].take(pa.array(place.get(name, of_item))) for name in spec.feature_columns]
    full = pa.RecordBatch.from_arrays(columns, names=spec.feature_columns)
    raw = raw_arrays(full, spec)
    return {
        SHARED: candidates_of(raw, {}, spec)[SHARED],
        "serving_raw": raw,
        "serving_default": {"examples": np.array(to_examples(full), object)},
    }


def measure(
    servable: Any, requests: Mapping[str, Mapping[str, np.ndarray]], repeats: int, target: float | None
) -> dict[str, Any]:
    """Returns the times of each signature and the ratios of the shared signature to the others.

    Raises:
        InputError: The predictions differ.
    """
    calls = {
        signature: lambda signature=signature, inputs=inputs: servable.run(signature, inputs)
        for signature, inputs in requests.items()
    }
    answers = {signature: call()["ctr"] for signature, call in calls.items()}
    difference = max(float(np.abs(answers[SHARED] - answers[one]).max()) for one in ROWS)
    if not difference <= SAME:
        raise InputError(f"the answers differ by {difference:.1e}; this is a defect")
    times_of = in_turn(calls, repeats)
    over = {one: ratio(times_of[SHARED], times_of[one], "seconds") for one in ROWS}
    return {
        "calls": {signature: milliseconds(times) for signature, times in times_of.items()},
        "over": over,
        "cpu_over": {one: ratio(times_of[SHARED], times_of[one]) for one in ROWS},
        "difference": difference,
        "target": target,
        "met": None if target is None else over["serving_raw"] <= target,
    }


def target_of(name: str, events: int, candidates: int) -> float | None:
    """Returns a model's maximum ratio; None if it has none for these sizes."""
    if name not in TARGETS:
        return None
    of_candidates, most = TARGETS[name]
    return most if (events, candidates) == (EVENTS, of_candidates) else None


def export_model(name: str, log: Analysed, spec: LogSpec, version: pathlib.Path) -> None:
    """Writes a version of a model with random weights.

    Raises:
        InputError: The model does not support such a log.
    """
    from ctrpipe.pipeline.training.network import build_network  # TensorFlow: see `analysed`
    from ctrpipe.serving.export.export import export

    network = build_network(Model(name=name, **WEIGHTS), log.fields, SEED)
    export(network, log.transform, spec, log.fields, log.rows.slice(0, 3), version, {})


def table(report: Mapping[str, Any]) -> Table:
    def times(name: str) -> str:
        return f"{{calls[{name}][ms]:.1f}} ({{calls[{name}][cpu_ms]:.1f}})"

    def over(name: str) -> str:
        return f"{{over[{name}]:.3f}} ({{cpu_over[{name}]:.3f}})"

    raw, examples = ROWS
    columns: dict[str, Cell] = {
        "model": "{model}",
        "user once": times(SHARED),
        "raw rows": times(raw),
        "examples": times(examples),
        "/ raw (CPU)": over(raw),
        "/ examples (CPU)": over(examples),
        "target": if_any("target", "{target:g}"),
        "": met,
        "difference": "{difference:.0e}",
    }
    title = f"{report['candidates']:,} candidates for a user of {report['events']:,} events: ms of a request (CPU ms)"
    return result_table(title, columns, report["models"])


def _models(text: str) -> Sequence[str]:
    """Returns the model names of the option. Raises InputError if a name is unknown."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        try:
            model_class(name)
        except ValueError as error:
            raise InputError(f"--models: {error}") from error
    return names


@Benchmark("benchmarks.candidates", table)
@click.option("--models", default=",".join(MODELS), help="Registry names.")
@click.option("--events", type=click.IntRange(1), default=EVENTS, help="Events in the user's history.")
@click.option("--candidates", type=click.IntRange(1), default=CANDIDATES, help="Candidates per request.")
@click.option("--threads", type=click.IntRange(0), default=0, help="Threads of TensorFlow; 0: one per core.")
@click.option("--repeats", type=click.IntRange(1), default=20)
def main(report: Report, models: str, events: int, candidates: int, threads: int, repeats: int) -> None:
    """Time requests with many candidates for one user: the user sent once, or in a row with each candidate.

    Prints a table of milliseconds and ratios, and writes the report as JSON.
    """
    load_tensorflow()
    names = _models(models)
    report.add_load()
    from ctrpipe.serving.loader import Servable  # TensorFlow: see `analysed`

    report |= {"events": events, "candidates": candidates, "threads": threads, "repeats": repeats, "models": []}
    with tempfile.TemporaryDirectory() as made:
        folder, spec = pathlib.Path(made), log_spec(events)
        write_log(folder / "log.tsv", LOG_ROWS, events)
        log = analysed(spec, folder / "log.tsv", SEED, folder)
        requests = requests_of(log.rows, candidates, spec)
        for name in names:
            export_model(name, log, spec, folder / name / "1")
            servable = Servable(folder / name / "1", threads)
            measured = measure(servable, requests, repeats, target_of(name, events, candidates))
            servable.close()
            report["models"].append({"model": name, **measured})
            report.write()
            announce(f"{name}: {measured['over']['serving_raw']:.3f} of the time of rows")


if __name__ == "__main__":
    main()
