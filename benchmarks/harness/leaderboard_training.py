"""Trains one model of the leaderboard with one seed. Its process's time and memory are measured.

    python -m benchmarks.harness.leaderboard_training JOB.json

The log is transformed once for all models with the same rows and features: the first process writes it, the others
find it.
"""

import dataclasses
import json
import pathlib
import sys

from benchmarks.harness.turns import core_seconds
from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import MISTAKE
from ctrpipe.common.files import write_json
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.models.base.registry import source_of
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.training.code import TRAINING
from ctrpipe.transforms.log.pretrained_table import pretrained_tables, table_fingerprint


@dataclasses.dataclass(frozen=True)
class Job:
    """A training run.

    Attributes:
        path: The configuration's file.
        settings: Keys that override the configuration's, KEY=VALUE.
        seed: The training's seed.
        folder: Folder for the transformed logs and predictions, which all training runs share.
        result: The JSON file to write.
    """

    path: str
    settings: list[str]
    seed: int
    folder: str
    result: str

    def write(self, path: pathlib.Path) -> None:
        """Writes the job for the process."""
        write_json(path, dataclasses.asdict(self))


def key_of(config: RunConfig, seed: int) -> str:
    """Returns the name of a training's result: equal for training runs that give the same model.

    Raises:
        InputError: a table of pretrained vectors cannot be read.
    """
    files = [pathlib.Path(path) for path in (*config.data.paths, *_held(config))]
    sizes = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    code = stage_version(*TRAINING, "ctrpipe.pipeline.sweep.measure"), source_of(config.model.name)
    tables = {column: table_fingerprint(table.path) for column, table in pretrained_tables(config.log_spec).items()}
    parts = config.log_spec, config.events, config.model, config.training, config.evaluation.group_weight, tables, *code
    return f"{config.model.name}-{seed}-{fingerprint(*parts, sizes, seed)}"


def _held(config: RunConfig) -> list[str]:
    files = config.data.split.files
    return [*files.validation, *files.test] if files else []


def train(job: Job) -> None:
    """Trains, and writes the result with the training's own seconds of a core."""
    from ctrpipe.common.libraries import load_tensorflow

    load_tensorflow()
    # Lazy: TensorFlow's messages are off now.
    from ctrpipe.pipeline.run.prepared import joined
    from ctrpipe.pipeline.run.run import transform
    from ctrpipe.pipeline.sweep.plan import Point, SweepPlan
    from ctrpipe.pipeline.sweep.run import run_sweep
    from ctrpipe.pipeline.training.data import count_rows

    config = load_config(pathlib.Path(job.path), tuple(job.settings)).model_copy(update={"seed": job.seed})
    output = pathlib.Path(job.folder) / f"log-{fingerprint(config.log_spec, config.events)}"
    check_output(output)
    files = joined(config.data.paths, config, output)
    with one_run_at_a_time(output):
        log = transform(config, files, output)
    rows = {name: count_rows(getattr(log, name)) for name in ("train", "validation", "test")}
    before = core_seconds()
    plan = SweepPlan(config.name, config, (Point(config.name, config.name, {}, {}, config),), 1, False, None)
    [[result]] = run_sweep(plan, files, output).values()
    write_json(pathlib.Path(job.result), {**result, "rows": rows, "core_seconds": core_seconds() - before})


def main() -> None:
    """Runs the job of the file that the command line names; a mistake is one line on stderr."""
    try:
        train(Job(**json.loads(pathlib.Path(sys.argv[1]).read_text())))
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(MISTAKE)


if __name__ == "__main__":
    main()
