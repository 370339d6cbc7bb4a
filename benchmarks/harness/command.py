"""Shared by the benchmark commands: options, one-line errors, core limits, machine information and reports."""

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table

from benchmarks.harness.devices import DEVICES
from benchmarks.peers.line_process import ProcessError
from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import INTERRUPTED, MISTAKE
from ctrpipe.common.files import write_json
from ctrpipe.common.interrupt import interrupts_delivered
from ctrpipe.common.processes import cores
from ctrpipe.common.terminal import console, print_table
from ctrpipe.serving.latency.machine import busy, busy_caption, machine

__all__ = [
    "Command",
    "busy",
    "busy_caption",
    "chosen_names",
    "command",
    "cores",
    "device_option",
    "finish",
    "machine",
    "folder_option",
    "on_cores",
    "named_values",
    "output_option",
    "positive_numbers",
    "shape_options",
    "write",
    "zoo_option",
]
TABLE_WIDTH = 120


class Command(click.Command):
    """A command that reports errors (exit code 2) and Ctrl-C in one line."""

    def invoke(self, context: click.Context) -> Any:
        try:
            with interrupts_delivered():
                return super().invoke(context)
        except (InputError, ProcessError) as error:
            click.echo(f"{context.info_name}: {error}", err=True)
            context.exit(MISTAKE)
        except KeyboardInterrupt:
            click.echo(f"{context.info_name}: interrupted", err=True)
            context.exit(INTERRUPTED)


def command(module: str) -> Callable[[Callable[..., None]], click.Command]:
    """Returns the decorator of the main function of `python -m <module>`."""
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 120, "show_default": True}
    return click.command(module.rpartition(".")[2], cls=Command, context_settings=settings)


def output_option(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns the decorator of the option --output, by default runs/benchmarks/<name>.json."""
    path = click.Path(path_type=pathlib.Path)
    return click.option("--output", type=path, default=f"runs/benchmarks/{name}.json", help="JSON file for the report.")


def folder_option(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns the decorator of the option --folder, by default runs/benchmarks/<name>.

    The path is absolute because peers run in another working directory.
    """
    path = click.Path(path_type=pathlib.Path, resolve_path=True)
    text = "Logs and what the sides write; kept for the next time."
    return click.option("--folder", type=path, default=f"runs/benchmarks/{name}", help=text)


def shape_options(main: Callable[..., None]) -> Callable[..., None]:
    """Adds the options --fields, --dim and --threads."""
    options = (
        click.option("--fields", type=click.IntRange(2), default=39, help="Categorical fields."),
        click.option("--dim", type=click.IntRange(1), default=16, help="Width of an embedding."),
        click.option("--threads", type=click.IntRange(1), help="Cores and threads per side. Default: all cores."),
    )
    for option in reversed(options):
        main = option(main)
    return main


def zoo_option(main: Callable[..., None]) -> Callable[..., None]:
    """Adds the option --fuxictr."""
    text = "A checkout of FuxiCTR, whose model zoo is compared with."
    kind = click.Path(path_type=pathlib.Path)
    return click.option("--fuxictr", type=kind, callback=_with_zoo, help=text)(main)


def _with_zoo(context: click.Context, option: click.Parameter, folder: pathlib.Path | None) -> pathlib.Path | None:
    if folder and not (folder / "model_zoo").is_dir():
        raise InputError(f"--fuxictr {folder}: has no model_zoo; give a checkout of FuxiCTR's repository")
    return folder


def device_option(main: Callable[..., None]) -> Callable[..., None]:
    """Adds the option --device."""
    return click.option("--device", type=click.Choice(DEVICES), default="cpu", help="Device to compute on.")(main)


@contextlib.contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Pins the processes that are started inside the block to the same `count` cores.

    Thread limits alone would be uneven: some libraries limit all their threads, others only one pool.

    Raises:
        InputError: The machine has fewer cores.
    """
    before = os.sched_getaffinity(0)
    if not 1 <= count <= len(before):
        raise InputError(
            f"--threads should be between 1 and {len(before)}, the cores of this machine. Received: {count}"
        )
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def positive_numbers(option: str, text: str) -> tuple[int, ...]:
    """Returns the numbers in an option's text, such as 200,200,100.

    Raises:
        InputError: The text is not a comma-separated list of positive whole numbers.
    """
    if not all(part.strip().isdecimal() and int(part) > 0 for part in text.split(",")):
        raise InputError(f"{option}: expected positive numbers as in 200,200,200. Received: {text!r}")
    return tuple(int(part) for part in text.split(","))


def chosen_names(option: str, text: str, known: Collection[str]) -> tuple[str, ...]:
    """Returns the names in an option's text, such as fm,lr, without duplicates.

    Raises:
        InputError: A name is not in `known`.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"{option}: unknown {', '.join(map(repr, unknown))}; give some of {','.join(known)}")
    return names


def named_values(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Returns the values of an option that is given as NAME=VALUE, by name.

    Raises:
        InputError: A value has no name.
    """
    if wrong := [value for value in values if "=" not in value]:
        raise InputError(f"{option.opts[0]} {wrong[0]}: expected NAME={option.opts[0].strip('-').upper()}")
    return dict(value.split("=", 1) for value in values)


def write(report: dict[str, Any], output: pathlib.Path) -> None:
    """Writes the report as JSON with an atomic rename.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_json(output, report)
    except OSError as error:
        raise InputError(f"--output {output}: cannot write: {error.strerror}") from error


def print_tables(terminal: Console, tables: RenderableType) -> None:
    """Prints tables, and the lines between them, without breaking numbers on a narrow terminal."""
    for part in tables.renderables if isinstance(tables, Group) else [tables]:
        if isinstance(part, Table):
            print_table(terminal, part)
        elif isinstance(part, Group):
            print_tables(terminal, part)
        else:
            terminal.print(part)


def finish(report: dict[str, Any], output: pathlib.Path, table: RenderableType) -> None:
    """Writes the report; prints the table, the report's path, and the report as JSON on the last line of stdout."""
    write(report, output)
    print_tables(console(TABLE_WIDTH), table)
    click.echo(f"Written to {output}")
    click.echo(json.dumps(report))
