"""`ctrpipe replay`."""

import pathlib

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("config", type=PATH)
@click.option("--data", multiple=True, required=True, help="Quoted glob of days, folders or files: 'logs/day=*'.")
@click.option("--output", type=PATH, default=None, help="Result folder. Default: runs/<name>-replay.")
@click.option("--window", type=click.IntRange(1), default=7, show_default=True, help="Days that a retraining reads.")
@click.option("--policy", default="retrain,warm,frozen", show_default=True, help="Policies, separated by commas.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Trainings of each model.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key of every training.")
@click.option("--warm-set", "warm_settings", multiple=True, metavar="KEY=VALUE", help="One key of warm starts alone.")
def replay(
    config: pathlib.Path,
    data: tuple[str, ...],
    output: pathlib.Path | None,
    window: int,
    policy: str,
    seeds: int,
    settings: tuple[str, ...],
    warm_settings: tuple[str, ...],
) -> None:
    """Replay a log of several days: train up to each day, score the next one, and say what each policy costs.

    \b
    retrain  every day, from nothing, on the last --window days
    warm     every day, on that day alone, from the model of the day before
    frozen   never after the first training
    Leaves in the result folder replay.json (everything), replay.png, and in seed=N/runs/ each training. Running it
    again goes on where it was cut, also with another policy or more seeds.
    """
    load_tensorflow()
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.replay.days import find_days
    from ctrpipe.pipeline.replay.run import Plan, policies_of, run_replay
    from ctrpipe.pipeline.replay.show import print_replay, write_replay

    policies = policies_of(policy.split(","))
    loaded = load_config(config, settings)
    folder = output or pathlib.Path("runs") / f"{loaded.name}-replay"
    results = run_replay(Plan(loaded, tuple(find_days(data)), window, policies, warm_settings, seeds), folder)
    write_replay(results, folder)
    print_replay(results)
    click.echo(f"Written: {folder}/replay.json, replay.png")
