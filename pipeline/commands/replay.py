"""The command `ctrpipe replay`."""

import pathlib

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.store_folders import written_output
from ctrpipe.pipeline.commands.options import CONFIG, PATH_OR_URL


@click.command()
@click.argument("config", type=CONFIG)
@click.option("--data", multiple=True, required=True, help="Quoted glob with a folder or file per day: 'logs/day=*'.")
@click.option("--output", type=PATH_OR_URL, default=None, help="Result folder or URL. Default: runs/<name>-replay.")
@click.option("--window", type=click.IntRange(1), default=7, show_default=True, help="Days of data for `retrain`.")
@click.option("--policy", default="retrain,warm,frozen", show_default=True, help="Policies, separated by commas.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Training runs per model.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key in every training run.")
@click.option("--warm-set", "warm_settings", multiple=True, metavar="KEY=VALUE", help="Override a key in warm starts.")
def replay(
    config: pathlib.Path,
    data: tuple[str, ...],
    output: pathlib.Path | str | None,
    window: int,
    policy: str,
    seeds: int,
    settings: tuple[str, ...],
    warm_settings: tuple[str, ...],
) -> None:
    """Compare retraining policies on a log of several days.

    Trains up to each day, evaluates on the next day, and measures the costs of each policy.

    \b
    retrain  trains every day from scratch on the last --window days
    warm     trains every day on that day alone, from the model of the day before
    frozen   keeps the model of the first training run

    Writes replay.json (all results), replay.svg, and every training run in seed=N/runs/. Repeat the command to continue
    an interrupted replay, or to add policies and seeds.
    """
    load_tensorflow()
    # Lazy: numpy, pyarrow and pydantic take 0.7 s.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.replay.days import readable_days
    from ctrpipe.pipeline.replay.run import RUNS, ReplayPlan, policies_of, run_replay
    from ctrpipe.pipeline.replay.show import print_replay, write_replay

    policies = policies_of(policy.split(","))
    loaded = load_config(config, settings)
    plan = ReplayPlan(loaded, readable_days(loaded, data), window, policies, warm_settings, seeds)
    with written_output(output or pathlib.Path("runs") / f"{loaded.name}-replay", leave_out=[RUNS]) as place:
        results = run_replay(plan, place.folder)
        write_replay(results, place.folder)
        print_replay(results)
    say(f"Written: {place.name}/replay.json, replay.svg")
