"""Trains and measures every point of a sweep with every seed. Each result is a file, so a sweep can be resumed.

Importing Keras takes 3 s. Modules that need it are imported inside functions: run_sweep first loads TensorFlow with its
log messages off, and if nothing is left to train, Keras is not needed.
"""

import dataclasses
import json
import pathlib
import shutil
import time
from typing import Any

from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import NotFiniteError
from ctrpipe.common.files import write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows, write_scored
from ctrpipe.pipeline.evaluation.tail import tail_rows
from ctrpipe.pipeline.run.run import placing_the_number, transform
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.sweep.plan import Point, SweepPlan
from ctrpipe.pipeline.sweep.summary import show
from ctrpipe.transforms.log.outliers import naming_the_number
from ctrpipe.transforms.log.payload import payload_files

RESULTS = "results"  # folder of the trainings' results


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run of a sweep: a point with a seed.

    Attributes:
        point: The point.
        config: Its configuration with the seed.
        key: Name of the result's files. Equal for two training runs that would give the same model.
    """

    point: Point
    config: RunConfig
    key: str


def run_sweep(
    plan: SweepPlan, files: list[str], output: pathlib.Path, keep_models: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Trains and measures all points and seeds without a result.

    Args:
        plan: The sweep.
        files: The log's files.
        output: The sweep's folder.
        keep_models: Whether to save every trained model in a folder next to its result. Models that were not saved are
            trained again.

    Returns:
        The results of every point by name, in the order of the seeds.

    Raises:
        InputError: the data, a point or the output folder cannot be used. Nothing is trained then.
    """
    check_sweep(plan, files, output)
    with one_run_at_a_time(output):
        log = transform(plan.base, files, output)
        runs = trainings(plan, log)
        _train_missing(plan, runs, log, files, output, keep_models)
        return results(plan, runs, log, output)


def check_sweep(plan: SweepPlan, files: list[str], output: pathlib.Path) -> None:
    """Checks the data, the points and the output folder before anything is trained. Creates the folder.

    Raises:
        InputError: one of them cannot be used.
    """
    plan.base.placed(files)
    load_tensorflow()
    from ctrpipe.pipeline.sweep.check import check_models  # lazy, see the module's docstring

    check_models(plan)
    check_output(output)


def trainings(plan: SweepPlan, log: TransformedLog) -> list[Run]:
    """Returns all training runs, every point with the first seed first."""
    return [_run(plan, point, seed, log) for seed in range(plan.seeds) for point in plan.points]


def results(
    plan: SweepPlan, runs: list[Run], log: TransformedLog, output: pathlib.Path
) -> dict[str, list[dict[str, Any]]]:
    """Returns the results of finished training runs as `run_sweep` does, and measures the time per row if asked for."""
    costs = _row_costs(plan, log, output)
    of_points: dict[str, list[dict[str, Any]]] = {point.name: [] for point in plan.points}
    for run in runs:
        result = json.loads(_file(output, run).read_text())
        kept = _file(output, run).with_suffix(".parquet")
        files_of_run = {
            "predictions": str(kept) if kept.exists() else None,
            "kept_model": str(_model(output, run)) if _model(output, run).is_dir() else None,
        }
        of_points[run.point.name].append({**result, "costs": costs.get(run.point.name), **files_of_run})
    return of_points


def _run(plan: SweepPlan, point: Point, index: int, log: TransformedLog) -> Run:
    config = point.config.model_copy(update={"seed": plan.base.seed + index})
    training = log.inputs.training_fingerprint(config, config.model)
    measured = plan.latency, config.evaluation.tail, config.evaluation.group_weight
    key = fingerprint(training, *measured, stage_version("ctrpipe.pipeline.sweep.measure"))
    return Run(point, config, f"{config.model.name}-{key}")


def _file(output: pathlib.Path, run: Run) -> pathlib.Path:
    return output / RESULTS / f"{run.key}.json"


def _model(output: pathlib.Path, run: Run) -> pathlib.Path:
    return output / RESULTS / run.key


def missing(runs: list[Run], output: pathlib.Path, keep_models: bool = False) -> list[Run]:
    """Returns the training runs without a result. Runs of points with the same settings are returned once."""
    every = {run.key: run for run in runs}
    return [
        run
        for run in every.values()
        if not _file(output, run).exists() or (keep_models and not _model(output, run).is_dir())
    ]


def _train_missing(
    plan: SweepPlan, runs: list[Run], log: TransformedLog, files: list[str], output: pathlib.Path, keep_models: bool
) -> None:
    todo = missing(runs, output, keep_models)
    there = len({run.key for run in runs}) - len(todo)
    continued = f"; {there} are already done" if there else ""
    announce(f"Sweep {plan.name}: {len(plan.points)} points, {len(todo)} training runs to do{continued}")
    if not todo:
        return
    test = describe_test(plan.base, log)
    started = time.monotonic()
    for done, run in enumerate(todo, 1):
        numbers = train_one(plan, run, log, test, files, output, output / "work", keep_models)
        left = (time.monotonic() - started) / done * (len(todo) - done)
        text = f"{run.point.name}, seed {run.config.seed}: {numbers}, {_left(left)}"
        announce(f"[{done}/{len(todo)}] {text}", steps=(done, len(todo)))
    shutil.rmtree(output / "work", ignore_errors=True)


def train_one(
    plan: SweepPlan,
    run: Run,
    log: TransformedLog,
    test: ScoredRows,
    files: list[str],
    output: pathlib.Path,
    work: pathlib.Path,
    keep_model: bool = False,
) -> str:
    """Trains and measures one run, and writes its result.

    Args:
        plan: The sweep.
        run: What to train.
        log: The transformed log.
        test: The result of `describe_test`.
        files: The log's files.
        output: The sweep's folder.
        work: The folder of unfinished training runs and of first stages, which one process at a time may use. Training
            resumes from a checkpoint in it.
        keep_model: Whether to save the model.

    Returns:
        Its validation metrics and duration, as text.
    """
    from ctrpipe.pipeline.sweep.measure import train_and_measure  # lazy, see the module's docstring

    (output / RESULTS).mkdir(exist_ok=True)
    keep = _model(output, run) if keep_model else None
    try:
        with placing_the_number(plan.base, files), naming_the_number(plan.base.log_spec, log.payload):
            result, scored = train_and_measure(run.config, log, plan.latency, test, work, run.key, keep)
    except NotFiniteError as error:
        raise error.with_(what=f"{run.point.name}, seed {run.config.seed}: {error.what}") from error
    write_scored(_file(output, run).with_suffix(".parquet"), scored)
    write_json(_file(output, run), result)
    shutil.rmtree(work / run.key, ignore_errors=True)
    return _numbers(result)


def _row_costs(plan: SweepPlan, log: TransformedLog, output: pathlib.Path) -> dict[str, Any]:
    """Returns the time per row by point, if the plan measures it. Measured once and kept in a file."""
    if plan.costs is None:
        return {}
    from ctrpipe.pipeline.sweep.costs import row_costs  # lazy, see the module's docstring

    points = {point.name: point.config for point in plan.points}
    keys = {name: log.inputs.training_fingerprint(config, config.model) for name, config in points.items()}
    code = stage_version("ctrpipe.pipeline.sweep.costs")
    file = output / RESULTS / f"costs-{fingerprint(keys, plan.costs, code)}.json"
    if not file.exists():
        write_json(file, row_costs(points, log, plan.costs))
    measured: dict[str, Any] = json.loads(file.read_text())
    return measured


def describe_test(config: RunConfig, log: TransformedLog) -> ScoredRows:
    """Returns the test rows without labels and predictions: their hash, and the rows of the Tail slice."""
    scored = ScoredRows(log.inputs.test_rows(config), {}, {}, group_weight=config.evaluation.group_weight)
    rare = config.evaluation.tail
    if rare is None:
        return scored
    test, train = (payload_files(log.payload / f"Split-{split}") for split in ("test", "train"))
    tail = tail_rows(test, train, rare.columns, rare.max_count, config.workers_for(log.payload.parent))
    announce(f"Tail: {tail.sum():,} of {len(tail):,} test rows, {' x '.join(rare.columns)}")
    return dataclasses.replace(scored, tail=tail, tail_of=rare.model_dump())


def _numbers(result: dict[str, Any]) -> str:
    values = result["validation"]
    return f"validation AUC {show(values['auc'])}, log loss {show(values['log_loss'])}, {result['seconds']:.0f} s"


def _left(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min left" if hours else f"{minutes} min {seconds:02d} s left"
