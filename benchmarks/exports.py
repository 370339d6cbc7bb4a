"""Exports a servable of any model, trained on a generated log: `python -m benchmarks.exports dcn_v2 FOLDER`.

The command is no `Benchmark`: it measures nothing and writes no report.
"""

import pathlib
import time

import click

from benchmarks.harness.command import command
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.run.sample_export import ROWS, SEED, make_export


@command("benchmarks.exports")
@click.argument("model")
@click.argument("folder", type=click.Path(path_type=pathlib.Path, file_okay=False))
@click.option("--rows", type=click.IntRange(1000), default=ROWS, help="Rows of the log.")
@click.option("--seed", type=click.IntRange(0), default=SEED, help="Seed of the log and the weights.")
def main(model: str, folder: pathlib.Path, rows: int, seed: int) -> None:
    """Write FOLDER/<MODEL>/1, servable with --model_base_path FOLDER/<MODEL>, and a matching FOLDER/log.tsv.

    MODEL is one of `ctrpipe models`. It is trained for a few steps only, with embedding width 16 and an MLP 400-400 if
    the model has them. Models in the same folder share the log and its transform. Prints the version's folder on the
    last line.
    """
    started = time.perf_counter()
    load_tensorflow()
    version = make_export(model, folder, rows, seed)
    click.echo(f"{model}: {rows:,} rows in {folder / 'log.tsv'}, {time.perf_counter() - started:.0f} s", err=True)
    click.echo(str(version))


if __name__ == "__main__":
    main()
