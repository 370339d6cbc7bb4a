"""Preprocesses a log with this project, with TFX's own components, and with FuxiCTR, each in a separate process."""

import dataclasses
import json
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import Any

from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2

from benchmarks.harness import measured
from benchmarks.harness.ours import ROOT
from benchmarks.harness.preprocess_logs import COLUMNS, LABEL, NUMBERS, TEST, VALIDATION, VALUES, split_logs
from benchmarks.peers.client import ENVIRONMENTS, FOLDER
from benchmarks.peers.line_process import ProcessError

NAME = "preprocess"


@dataclasses.dataclass(frozen=True)
class Rule:
    """The transforms of the columns.

    Args:
        name: Its name in tables.
        numbers: Transform of the numeric columns, as in a run's configuration.
        vocabulary: Limit of the vocabularies, as in a run's configuration.
    """

    name: str
    numbers: str
    vocabulary: dict[str, int]


TOP = Rule("5,000 most frequent", "log_bucketize", {"top_k": 5000})
OFTEN = Rule("10 times or more", "bars_bucketize", {"min_count": 10})


@dataclasses.dataclass(frozen=True)
class Run:
    """A side's preprocessing of a log.

    Args:
        side: ours, stock or fuxictr.
        rule: Name of the rule.
        rows: Lines of the log.
        usage: Its time and memory.
        stages: Seconds of each stage; `start` is the time outside the stages, such as imports and ML Metadata.
        answer: The JSON object that the process printed.
    """

    side: str
    rule: str
    rows: int
    usage: measured.Usage
    stages: dict[str, float]
    answer: dict[str, Any]

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.usage.seconds

    def as_json(self) -> dict[str, Any]:
        values = {"side": self.side, "rule": self.rule, "rows": self.rows, **dataclasses.asdict(self.usage)}
        return values | {"rows_per_s": self.rows_per_s, "stages": self.stages}


def config(rule: Rule, workers: int | None) -> dict[str, Any]:
    """Returns a run's configuration that accepts any share of malformed rows and counts them."""
    split = {"by": "order", "validation": VALIDATION, "test": TEST}
    return {
        "name": NAME,
        "data": {"columns": COLUMNS, "labels": {"ctr": LABEL}, "split": split, "max_bad_row_rate": 1.0},
        "features": [
            {"kind": "numeric", "columns": NUMBERS, "transform": rule.numbers},
            {"kind": "categorical", "columns": VALUES, **rule.vocabulary},
        ],
        "model": {"name": "lr"},
        "workers": workers,
    }


def ours(log: pathlib.Path, rows: int, rule: Rule, folder: pathlib.Path, workers: int | None = None) -> Run:
    """Runs this project's pipeline, from the raw log to packed files.

    Args:
        log: The log file.
        rows: Number of its lines.
        rule: The transforms of the columns.
        folder: The output folder; its content is deleted first.
        workers: Number of worker processes; None: the pipeline chooses.
    """
    request = {"config": config(rule, workers), "file": str(log.resolve()), "folder": str(_empty(folder))}
    command = [sys.executable, "-m", "benchmarks.harness.ours_preprocess", json.dumps(request)]
    answer, usage = measured.run("ours", command, PYTHONPATH=str(ROOT))
    return Run("ours", rule.name, rows, usage, stages(folder / "tfx" / "metadata.sqlite", usage.seconds), answer)


def stock(logs: pathlib.Path, rows: int, folder: pathlib.Path) -> Run:
    """Runs TFX's components with the rule TOP.

    Args:
        logs: The folder of the generated logs.
        rows: Number of the log's lines.
        folder: The output folder; its content is deleted first.
    """
    files = split_logs(logs, rows, ",").resolve()
    request = {"files": str(files), "folder": str(_empty(folder)), **TOP.vocabulary}
    command = [sys.executable, "-m", "benchmarks.harness.stock_preprocess", json.dumps(request)]
    answer, usage = measured.run("stock TFX", command, PYTHONPATH=str(ROOT), TF_USE_LEGACY_KERAS="0")
    return Run("stock", TOP.name, rows, usage, stages(folder / "metadata.sqlite", usage.seconds), answer)


def fuxictr(logs: pathlib.Path, rows: int, folder: pathlib.Path) -> Run:
    """Runs FuxiCTR with the rule OFTEN, the rule of its published results. It takes the arguments of `stock`.

    Raises:
        ProcessError: FuxiCTR's environment is missing, or FuxiCTR failed.
    """
    python = ENVIRONMENTS / "fuxictr" / "bin" / "python"
    if not python.exists():
        raise ProcessError(f"The environment of fuxictr is missing: {python}. Run `make peers`.")
    split = split_logs(logs, rows, "\t").resolve()
    files = {path.parent.name: str(path) for path in split.glob("*/log.csv")}
    request = {"files": files, "folder": str(_empty(folder)), **OFTEN.vocabulary}
    answer, usage = measured.run("fuxictr", [python, FOLDER / "fuxictr_preprocess.py", json.dumps(request)])
    return Run("fuxictr", OFTEN.name, rows, usage, {}, answer)


PEERS: dict[str, tuple[Rule, Callable[[pathlib.Path, int, pathlib.Path], Run]]] = {
    "stock": (TOP, stock),
    "fuxictr": (OFTEN, fuxictr),
}


def _empty(folder: pathlib.Path) -> pathlib.Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def stages(database: pathlib.Path, seconds: float) -> dict[str, float]:
    """Returns the seconds of each component of a TFX pipeline in order of their starts; `start` is the rest."""
    connection = metadata_store_pb2.ConnectionConfig()
    connection.sqlite.filename_uri = str(database)
    store = metadata_store.MetadataStore(connection)
    names = {kind.id: kind.name.rpartition(".")[2] for kind in store.get_execution_types()}
    executions = sorted(store.get_executions(), key=lambda execution: execution.create_time_since_epoch)
    by_stage = {
        names[execution.type_id]: (execution.last_update_time_since_epoch - execution.create_time_since_epoch) / 1000
        for execution in executions
    }
    return {"start": seconds - sum(by_stage.values())} | by_stage
