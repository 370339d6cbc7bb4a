"""`ctrpipe sweep`."""

import pathlib

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("config", type=PATH)
@click.option("--data", multiple=True, help="A raw log file or quoted glob; repeat for more. Replaces data.paths.")
@click.option("--output", type=PATH, default=None, help="Result folder. Default: runs/<name of the sweep>.")
@click.option("--grid", multiple=True, metavar="KEY=VALUE,VALUE", help="Values of one key; repeat for a product.")
@click.option("--seeds", type=click.IntRange(1), default=None, help="Trainings per point. Default: 3, or the file's.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key of every point.")
@click.option("--name", default=None, help="The sweep's name. Default: the file's.")
@click.option("--latency", is_flag=True, help="Also measure predictions: 20 batches of 1024 rows, median.")
@click.option("--costs", is_flag=True, help="Also measure ms per row of training and predictions, 20 repeats.")
@click.option("--keep-models", is_flag=True, help="Keep every trained model, for ctrpipe.load: results/<key>/.")
@click.option("--config", "other", type=PATH, default=None, help="Another run's configuration for a sweep file.")
def sweep(
    config: pathlib.Path,
    data: tuple[str, ...],
    output: pathlib.Path | None,
    grid: tuple[str, ...],
    seeds: int | None,
    settings: tuple[str, ...],
    name: str | None,
    latency: bool,
    costs: bool,
    keep_models: bool,
    other: pathlib.Path | None,
) -> None:
    """Train many settings on the same data and compare them: mean and standard deviation over the seeds.

    \b
    CONFIG is a run's configuration, with one --grid or more:
      ctrpipe sweep configs/demo.yaml --data log.tsv --grid model.top_k=2,5,10 --grid model.layers=1,2
      ctrpipe sweep configs/demo.yaml --data log.tsv --grid model.name=lr,fm,deepfm --seeds 5
    or a sweep file, whose points need be no product:
      ctrpipe sweep configs/sweeps/attention_net_table1.yaml --data train.tsv
    Leaves in the result folder sweep.json (everything), sweep.csv (one line per training), sweep.png, and in results/
    what each model answered to the test rows, for `ctrpipe compare`.

    The log is read and transformed once. Running it again goes on where it was cut. The best point is the best on the
    validation rows; look at the test rows once.
    """
    load_tensorflow()
    # TensorFlow: 3 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.sweep.plan import make_plan
    from ctrpipe.pipeline.sweep.summary import print_sweep
    from ctrpipe.pipeline.sweep.sweep import sweep as run_sweep

    plan = make_plan(config, settings, grid, seeds, name, latency, costs, other)
    folder = output or pathlib.Path("runs") / plan.name
    print_sweep(run_sweep(plan, data, folder, keep_models))
    click.echo(f"Written: {folder}/sweep.json, sweep.csv, sweep.png")
