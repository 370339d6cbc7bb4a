"""The steps of sweeps and studies on Kubeflow: each training run in its own pod, in a folder that all pods share.

The training runs of a sweep are independent. A study chooses each point after earlier trials, so it runs in rounds. One
step records the results of a round and chooses as many points as there are pods; each pod then trains one trial. A pod
prunes its trial with a copy of the study as of the start of the round, because SQLite on a network volume supports only
one writer. With one pod per round, the trials are the same as in `ctrpipe tune`.
"""

import contextlib
import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path, write_json, write_text
from ctrpipe.common.output_folder import check_output
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.kubeflow.shared_folder import BEGIN, WORK, SharedFolder, shared_folder
from ctrpipe.pipeline.kubeflow.task import (
    CONFIRM_STUDY,
    PLAN_STUDY,
    PLAN_SWEEP,
    PROPOSE_TRIALS,
    SUMMARISE_SWEEP,
    TRAIN_POINT,
    TRAIN_TRIAL,
    Task,
)
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.pipeline.run.run import transform
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.sweep import run as sweep_run
from ctrpipe.pipeline.sweep.plan import SweepPlan
from ctrpipe.pipeline.sweep.plan import make_plan as make_sweep
from ctrpipe.pipeline.sweep.summary import print_sweep, show, summarise_sweep, write_sweep
from ctrpipe.pipeline.tune.confirm import FOLDER as CONFIRMED
from ctrpipe.pipeline.tune.confirm import confirm
from ctrpipe.pipeline.tune.plan import Budget, TunePlan
from ctrpipe.pipeline.tune.plan import make_plan as make_tune
from ctrpipe.pipeline.tune.results import PAGE, print_summary, write_results
from ctrpipe.pipeline.tune.run import Session, identity
from ctrpipe.pipeline.tune.study import STUDY, Study
from ctrpipe.pipeline.tune.summary import summarise
from ctrpipe.pipeline.tune.trial import TrialResult, train_trial

TRIALS = "trials"  # folder of the copies of the study and the results of trials that are not yet recorded
RESULT = "result.json"
NOTHING = ""  # the one item of a loop with nothing to do: Argo does not go on after an empty loop


@dataclasses.dataclass(frozen=True)
class _Shared:
    """The first step's results for later steps, in the output folder.

    Attributes:
        log: The transformed log.
        files: The log's files.
        identity: The inputs that determine a study's results; empty for a sweep.
    """

    log: TransformedLog
    files: list[str]
    identity: dict[str, str]

    def write(self, output: pathlib.Path) -> None:
        values = {"log": self.log.to_json(), "files": self.files, "identity": self.identity}
        write_json(output / BEGIN, values)

    @classmethod
    def read(cls, output: pathlib.Path) -> "_Shared":
        values = json.loads((output / BEGIN).read_text())
        return cls(TransformedLog.from_json(values["log"]), values["files"], values["identity"])

    @property
    def training_rows(self) -> list[pathlib.Path]:
        """The folders of the packed training rows."""
        return [pathlib.Path(files).parent for files in self.log.train]

    @property
    def places(self) -> list[pathlib.Path]:
        """The files and folders that a training run reads."""
        held_out = [pathlib.Path(files).parent for files in (*self.log.validation, *self.log.test)]
        return [
            *self.training_rows,
            *held_out,
            self.log.payload,
            self.log.graph,
            *(pathlib.Path(file).parent for file in self.files),
        ]


@contextlib.contextmanager
def _begin(task: Task) -> Iterator[tuple[dict[str, Any], SharedFolder]]:
    """Yields the arguments of all steps, made of the compiled plan and the pipeline's parameters, and the folder."""
    given = task.arguments
    plan = json.loads(given["plan"])
    settings = [*plan["settings"], *given["settings"]]
    arguments = {**plan, "settings": settings, "output": given["output"]}
    task.parameters["arguments"] = json.dumps(arguments)
    with shared_folder(given["output"]) as folder:
        yield arguments, folder


@contextlib.contextmanager
def _continued(task: Task) -> Iterator[tuple[dict[str, Any], SharedFolder, _Shared]]:
    arguments = json.loads(task.arguments["arguments"])
    with shared_folder(arguments["output"]) as folder:
        folder.fetch_below([folder.path / BEGIN])
        yield arguments, folder, _Shared.read(folder.path)


def _show(task: Task, metrics: dict[str, Any], name: str, page: str) -> None:
    """Writes the metrics and the page of the last step, for Kubeflow's pages."""
    scalars = {key: float(value) for key, value in metrics.items() if value is not None}
    task.metadata |= {"metrics": scalars, name: {}}
    for path in task.outputs().values():
        path.parent.mkdir(parents=True, exist_ok=True)
    write_json(task.outputs()["metrics"], scalars)
    write_text(task.outputs()[name], page)


# Sweep ---------------------------------------------------------------------------------------------------------------


def _sweep_plan(arguments: dict[str, Any]) -> SweepPlan:
    settings, seeds = tuple(arguments["settings"]), arguments["seeds"]
    return make_sweep(arguments["sweep"], settings, seeds=seeds, config=arguments["config"])


def plan_sweep(task: Task) -> None:
    """Transforms the log, and lists the training runs to do."""
    with _begin(task) as (arguments, folder):
        plan, output = _sweep_plan(arguments), folder.path
        folder.fetch(lambda name: not name.startswith(f"{sweep_run.RESULTS}/") or name.endswith(".json"))
        files = joined(task.arguments["data"] or plan.base.data.paths, plan.base, output)
        sweep_run.check_sweep(plan, files, output)
        with folder.one_at_a_time():
            log = transform(plan.base, files, output)
            _Shared(log, files, {}).write(output)
        runs = sweep_run.trainings(plan, log)
        todo = sweep_run.missing(runs, output)
        announce(f"Sweep {plan.name}: {len(plan.points)} points, {len(todo)} training runs to do")
        task.parameters["items"] = [run.key for run in todo] or [NOTHING]


def train_point(task: Task) -> None:
    """Trains and measures one point with one seed."""
    key = task.arguments["item"]
    with _continued(task) as (arguments, folder, shared):
        plan, output = _sweep_plan(arguments), folder.path
        folder.fetch(lambda name: bool(key) and name.startswith(f"{sweep_run.RESULTS}/{key}."))
        runs = [run for run in sweep_run.trainings(plan, shared.log) if run.key == key]
        if not sweep_run.missing(runs, output):
            announce("This training run is done already" if key else "All training runs are done already")
            return
        # Of its own: only one process may train a first stage.
        work = output / WORK / key
        check_output(work)
        with folder.one_at_a_time(f"{WORK}/{key}"):
            folder.fetch_below(shared.places)
            test = sweep_run.describe_test(plan.base, shared.log)
            numbers = sweep_run.train_one(plan, runs[0], shared.log, test, shared.files, output, work)
        shutil.rmtree(work, ignore_errors=True)
        announce(f"{runs[0].point.name}, seed {runs[0].config.seed}: {numbers}")


def summarise_points(task: Task) -> None:
    """Writes the sweep's results, and the table of its points for Kubeflow's page."""
    with _continued(task) as (arguments, folder, shared):
        plan, output = _sweep_plan(arguments), folder.path
        folder.fetch_below([output / sweep_run.RESULTS, *(shared.places if plan.costs else ())])
        runs = sweep_run.trainings(plan, shared.log)
        if todo := sweep_run.missing(runs, output):
            raise InputError(
                f"{arguments['output']}: {len(todo)} training runs have no result; submit again to do them"
            )
        with folder.one_at_a_time():
            summary = summarise_sweep(plan, sweep_run.results(plan, runs, shared.log, output))
            write_sweep(summary, output)
            shutil.rmtree(output / WORK, ignore_errors=True)
        print_sweep(summary)
        best = next((point for point in summary["points"] if point["name"] == summary["best"]), None)
        metrics = {name: spread["mean"] for name, spread in best["metrics"].items()} if best else {}
        _show(task, {"points": len(plan.points), "trainings": len(runs), **metrics}, "table", _table(summary))


def _table(summary: dict[str, Any]) -> str:
    """Returns the points as a table in Markdown, the best one in bold. Names are code, to keep their underscores."""
    columns = {"validation AUC": "validation_auc", "validation log loss": "validation_log_loss"}
    columns |= {"test AUC": "auc", "test log loss": "log_loss", "test RIG": "rig"}
    lines = [
        f"# {summary['name']}",
        "",
        f"Mean of {summary['seeds']} seed(s); best by `{summary['monitor']}` in bold.",
        "",
    ]
    lines += [f"| point | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for point in summary["points"]:
        name = f"**`{point['name']}`**" if point["name"] == summary["best"] else f"`{point['name']}`"
        lines.append(f"| {name} | {' | '.join(show(point['metrics'][key]['mean']) for key in columns.values())} |")
    return "\n".join([*lines, ""])


# Study ---------------------------------------------------------------------------------------------------------------


def _tune_plan(arguments: dict[str, Any]) -> TunePlan:
    budget = Budget(trials=arguments["trials"])
    settings, seeds = tuple(arguments["settings"]), arguments["seeds"]
    return make_tune(arguments["config"], settings, budget, arguments["objective"], seeds=seeds)


def plan_study(task: Task) -> None:
    """Transforms the log, and opens the study."""
    with _begin(task) as (arguments, folder):
        plan, output = _tune_plan(arguments), folder.path
        folder.fetch(lambda name: not name.startswith(f"{TRIALS}/"))
        base = plan.space.base
        files = joined(task.arguments["data"] or base.data.paths, base, output)
        placed, paths = base.placed(files)
        check_output(output)
        with folder.one_at_a_time():
            of_study = identity(plan, placed, paths, output)
            Study(plan, output, of_study).close()  # another study in the folder is a mistake before any work
            _Shared(transform(base, files, output), files, of_study).write(output)


@contextlib.contextmanager
def _session(plan: TunePlan, shared: _Shared, folder: pathlib.Path, output: pathlib.Path) -> Iterator[Session]:
    """Opens the study in `folder`. Its trials are trained without the test rows."""
    study = Study(plan, folder, shared.identity)
    try:
        yield Session(plan, study, dataclasses.replace(shared.log, test=[]), output)
    finally:
        study.close()


def _record(session: Session, shared: _Shared, output: pathlib.Path) -> None:
    """Records the trials that pods have finished, in the order in which they were chosen."""
    for number in session.study.begun:
        folder = output / TRIALS / str(number)
        if not (folder / RESULT).is_file():
            continue
        result = TrialResult(**json.loads((folder / RESULT).read_text()))
        trial = session.study.resume(number)
        assert trial is not None  # it was begun
        with _session(session.plan, shared, folder, output) as own:
            session.study.adopt(trial, own.study.optuna_study.get_trials(deepcopy=False)[number])
        running = session.begin(trial)
        running.lags = result.stopped
        session.end(running, result)
        shutil.rmtree(folder, ignore_errors=True)


def propose_trials(task: Task) -> None:
    """Records the results of earlier trials, and chooses the next ones. Trials without a result are continued first."""
    with _continued(task) as (arguments, folder, shared):
        plan, output = _tune_plan(arguments), folder.path
        with folder.one_at_a_time():
            folder.fetch_below([output / STUDY, output / TRIALS, *shared.training_rows])
            with _session(plan, shared, output, output) as session:
                _record(session, shared, output)
                session.announce_start()
                chosen: list[str] = []
                while len(chosen) < arguments["parallel"] and (running := session.next()):
                    chosen.append(str(running.trial.number))
                    (output / TRIALS / chosen[-1]).mkdir(parents=True, exist_ok=True)
        for number in chosen:
            if not (output / TRIALS / number / STUDY).exists():
                with atomic_path(output / TRIALS / number / STUDY) as copy:
                    shutil.copyfile(output / STUDY, copy)
        task.parameters["items"] = chosen or [NOTHING]


def train_one_trial(task: Task) -> None:
    """Trains one trial. On a volume, a retried step resumes from its checkpoint."""
    number = task.arguments["item"]
    with _continued(task) as (arguments, shared_by_pods, shared):
        output = shared_by_pods.path
        folder = output / TRIALS / number
        shared_by_pods.fetch_below([folder] if number else [])
        if not number or (folder / RESULT).is_file():
            announce("This trial is done already" if number else "No trial is left to train")
            return
        plan = _tune_plan(arguments)
        shared_by_pods.fetch_below(shared.places)
        with shared_by_pods.one_at_a_time(f"{TRIALS}/{number}"), _session(plan, shared, folder, output) as session:
            trial = session.study.resume(int(number))
            if trial is None:
                raise InputError(f"{folder}: the study has no running trial {number}; submit again")
            running = session.begin(trial)

            def judge(numbers: dict[str, Any]) -> bool:
                return session.judge(running, numbers)

            # Only one process at a time may train a first stage, which trials one after another share.
            stages = (session.work if arguments["parallel"] == 1 else output / WORK / number) / "stages"
            result = train_trial(running.config, session.log, running.work, stages, judge)
            write_json(folder / RESULT, dataclasses.asdict(result))
        announce(f"Trial {number}: {'stopped' if result.stopped else 'trained'} after {result.steps:,} steps")


def confirm_study(task: Task) -> None:
    """Records the last trials, trains the best configuration against the default one, and writes the results."""
    with _continued(task) as (arguments, folder, shared):
        plan, output = _tune_plan(arguments), folder.path
        with folder.one_at_a_time():
            folder.fetch_below([output / STUDY, output / TRIALS, output / CONFIRMED, *shared.places])
            with _session(plan, shared, output, output) as session:
                _record(session, shared, output)
                if left := session.study.begun:
                    raise InputError(
                        f"{arguments['output']}: {len(left)} trials have no result; submit again to continue them"
                    )
                summary = summarise(plan, session.study, confirm(plan, session.study, shared.log, output))
            write_results(summary, output)
            for name in (TRIALS, WORK):
                shutil.rmtree(output / name, ignore_errors=True)
        print_summary(summary, output)
        best = summary.report["best"]
        metrics = {"trials": len(summary.report["trials"]), **{key: best[key] for key in ("value", "auc", "log_loss")}}
        _show(task, metrics, "page", (output / PAGE).read_text())


STEPS: dict[str, Callable[[Task], None]] = {
    PLAN_SWEEP: plan_sweep,
    TRAIN_POINT: train_point,
    SUMMARISE_SWEEP: summarise_points,
    PLAN_STUDY: plan_study,
    PROPOSE_TRIALS: propose_trials,
    TRAIN_TRIAL: train_one_trial,
    CONFIRM_STUDY: confirm_study,
}
