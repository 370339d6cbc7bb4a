"""The command `ctrpipe sweep`."""

import pathlib

import click

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.store_folders import written_output
from ctrpipe.pipeline.commands.options import CONFIG, PATH_OR_URL


@click.command()
@click.argument("config", type=CONFIG)
@click.option("--data", multiple=True, help="Raw log: a file or quoted glob; repeatable. Replaces data.paths.")
@click.option("--output", type=PATH_OR_URL, default=None, help="Result folder or URL. Default: runs/<name of sweep>.")
@click.option("--grid", multiple=True, metavar="KEY=VALUE,VALUE", help="Values of a key; repeat for all combinations.")
@click.option(
    "--seeds", type=click.IntRange(1), default=None, help="Training runs per point. Default: 3, or the file's."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key in every point.")
@click.option("--name", default=None, help="Name of the sweep. Default: the name in the file.")
@click.option("--latency", is_flag=True, help="Also measure prediction latency: median of 20 batches of 1024 rows.")
@click.option("--costs", is_flag=True, help="Also measure ms per row of training and prediction, 20 repeats.")
@click.option("--keep-models", is_flag=True, help="Keep every trained model in results/<key>/, for ctrpipe.load.")
@click.option("--config", "other", type=CONFIG, default=None, help="Replaces the run configuration of a sweep file.")
def sweep(
    config: pathlib.Path,
    data: tuple[str, ...],
    output: pathlib.Path | str | None,
    grid: tuple[str, ...],
    seeds: int | None,
    settings: tuple[str, ...],
    name: str | None,
    latency: bool,
    costs: bool,
    keep_models: bool,
    other: pathlib.Path | None,
) -> None:
    """Train and compare many settings on the same data.

    \b
    CONFIG is a run configuration, with at least one --grid:
      ctrpipe sweep configs/demo.yaml --data log.tsv \\
          --grid model.top_k=2,5,10 --grid model.layers=1,2
      ctrpipe sweep configs/demo.yaml --data log.tsv \\
          --grid model.name=lr,fm,deepfm --seeds 5
    or a sweep file, which can list points that do not form a grid:
      ctrpipe sweep configs/sweeps/attention_net_table1.yaml --data train.tsv

    Prints mean and standard deviation over the seeds. Writes sweep.json (all results), sweep.csv (one line per training
    run), sweep.html, sweep.svg, and in results/ the predictions of each model on the test rows, for `ctrpipe compare`.

    The log is read and transformed once. Repeat the command to continue an interrupted sweep. The best point is the
    best on the validation rows; look at the test rows only once.
    """
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s to import.
    from ctrpipe.pipeline.run.prepared import MADE_OF_LOG
    from ctrpipe.pipeline.sweep.plan import make_plan
    from ctrpipe.pipeline.sweep.summary import print_sweep
    from ctrpipe.pipeline.sweep.sweep import sweep as run_sweep

    plan = make_plan(config, settings, grid, seeds, name, latency, costs, other)
    with written_output(output or pathlib.Path("runs") / plan.name, leave_out=MADE_OF_LOG) as place:
        print_sweep(run_sweep(plan, data, place.folder, keep_models))
    say(f"Written: {place.name}/sweep.json, sweep.csv, sweep.html, sweep.svg")
    click.echo(next_steps([command_name(), "compare", place.name]))
