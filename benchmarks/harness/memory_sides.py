"""Runs one measured command of `python -m benchmarks.memory`; prints a JSON object as the last line."""

import json
import pathlib
import subprocess
import sys

import click

from ctrpipe.transforms.features.packed_files import PackedReader

BATCH = 8192
PATH = click.Path(path_type=pathlib.Path)


@click.group()
def main() -> None:
    """Run one side of benchmarks.memory. Called by that benchmark."""


@main.command()
@click.argument("count", type=int)
@click.argument("file", type=PATH)
def readers(count: int, file: pathlib.Path) -> None:
    """Read a packed file with several processes at once."""
    command = [sys.executable, "-m", "benchmarks.harness.memory_sides", "reader"]
    pipe = subprocess.PIPE
    started = [subprocess.Popen([*command, str(seed), file], stdout=pipe, text=True) for seed in range(count)]
    answers = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise click.ClickException("a reader failed")
    click.echo(json.dumps({"rows": sum(json.loads(answer)["rows"] for answer in answers)}))


@main.command()
@click.argument("seed", type=int)
@click.argument("file", type=PATH)
def reader(seed: int, file: pathlib.Path) -> None:
    """Read a packed file in shuffled batches."""
    rows = sum(len(label) for _, label in PackedReader([file], BATCH, shuffle_seed=seed))
    click.echo(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
