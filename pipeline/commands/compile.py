"""The command `ctrpipe compile`."""

import pathlib
from typing import get_args

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import importing, load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.monitors import Monitor
from ctrpipe.pipeline.commands.options import CONFIG, PATH_OR_URL


@click.command()
@click.argument("config", type=CONFIG)
@click.option("--output", type=PATH_OR_URL, required=True, help="File to write, or its URL.")
@click.option(
    "--format",
    "target",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="yaml for Kubeflow Pipelines, json for Vertex AI. Default: yaml.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. training.epochs=2.")
@click.option("--sweep", "is_sweep", is_flag=True, help="Compile `ctrpipe sweep`, with one pod per training run.")
@click.option(
    "--grid", multiple=True, metavar="KEY=VALUE,VALUE", help="With --sweep: as in `ctrpipe sweep`; repeatable."
)
@click.option(
    "--tune", "trials", type=click.IntRange(1), metavar="TRIALS", help="Compile `ctrpipe tune` with so many trials."
)
@click.option("--hosts", type=click.IntRange(2), help="Compile a TrainJob that trains on so many hosts.")
@click.option("--objective", type=click.Choice(get_args(Monitor)), help="With --tune: as in `ctrpipe tune`.")
@click.option(
    "--seeds", type=click.IntRange(0), default=None, help="With --sweep or --tune: as in these commands. Default: 3."
)
@click.option(
    "--parallel",
    type=click.IntRange(1),
    default=None,
    help="With --sweep or --tune: training runs in parallel. Default: 4.",
)
def compile(
    config: pathlib.Path,
    output: pathlib.Path | str,
    target: str,
    settings: tuple[str, ...],
    is_sweep: bool,
    grid: tuple[str, ...],
    trials: int | None,
    hosts: int | None,
    objective: Monitor | None,
    seeds: int | None,
    parallel: int | None,
) -> None:
    """Compile a pipeline for Kubeflow Pipelines v2.

    Compiles the pipeline that CONFIG describes, with one container per step: `yaml` for Kubeflow Pipelines, `json` as a
    PipelineJob for Vertex AI. The section `kubeflow` of CONFIG defines the image, the volumes and the resources of each
    step. A run has these parameters: data (paths), output, model, training and gates (sections of CONFIG, as YAML),
    seed, and settings (a list of KEY=VALUE).

    \b
    Compile a sweep or a study, with one training run per pod:
      ctrpipe compile configs/demo.yaml --output sweep.yaml --sweep \\
          --grid model.top_k=2,5,10
      ctrpipe compile mine.yaml --output study.yaml --tune 50 --parallel 5

    Their parameters are data, output and settings. A run with the same output folder resumes. With --parallel 1, a
    study has the same trials as `ctrpipe tune`; otherwise, the trials of a round are chosen together.

    \b
    Compile `ctrpipe run` on four hosts as a TrainJob of Kubeflow Trainer, for
    `kubectl apply -f job.yaml`:
      ctrpipe compile mine.yaml --output job.yaml --hosts 4
    """
    if len([one for one in (is_sweep, trials, hosts) if one]) > 1:
        raise InputError("give only one of --sweep, --tune and --hosts")
    _check_options(
        is_sweep, trials, {"--grid": grid, "--objective": objective, "--seeds": seeds, "--parallel": parallel}
    )
    if (is_sweep or trials) and target == "json":
        raise InputError("--format json: a sweep or study needs a volume that its pods share; give --format yaml")
    if hosts and target == "json":
        raise InputError("--format json: a TrainJob is for a cluster of your own; give --format yaml")
    from ctrpipe.pipeline.config import load_config  # lazy: 0.2 s

    loaded = None if is_sweep else load_config(config, settings)
    load_tensorflow()
    with importing():
        # Lazy: TFX and the Kubeflow compiler take 6 s to import. An invalid configuration fails before it.
        from ctrpipe.pipeline.kubeflow.compile import compile_pipeline
        from ctrpipe.pipeline.kubeflow.compile_search import PARALLEL, compile_study, compile_sweep
        from ctrpipe.pipeline.kubeflow.train_job import compile_train_job

    if is_sweep:
        steps = compile_sweep(config, settings, grid, output, seeds or None, parallel or PARALLEL)
    elif trials:
        of_study = {} if seeds is None else {"seeds": seeds}
        steps = compile_study(config, settings, trials, output, objective, parallel=parallel or PARALLEL, **of_study)
    else:
        assert loaded is not None  # it is no sweep
        if hosts:
            steps = compile_train_job(loaded, hosts, output)
        else:
            steps = compile_pipeline(loaded, output, vertex=target == "json")
    say(f"{'Manifests' if hosts else 'Steps'}: {', '.join(steps)}")
    say(f"Written: {output}")


def _check_options(is_sweep: bool, trials: int | None, options: dict[str, object]) -> None:
    """Raises InputError for an option that does not apply to the compiled target."""
    allowed = {"--sweep": ("--grid", "--seeds", "--parallel"), "--tune": ("--objective", "--seeds", "--parallel")}
    kind = "--sweep" if is_sweep else "--tune" if trials else ""
    for name, value in options.items():
        if value not in (None, ()) and name not in allowed.get(kind, ()):
            needs = " or ".join(each for each, names in allowed.items() if name in names)
            raise InputError(f"{name}: only with {needs}; leave it out, or give {needs}")
