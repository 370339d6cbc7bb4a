"""A benchmark as a command: its options, its report as JSON, and its tables."""

import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType

from benchmarks.harness.command import command, finish, output_option, write
from ctrpipe.serving.latency.machine import busy, busy_caption, machine


class Report(dict[str, Any]):
    """What a benchmark has measured so far; begins with the benchmark's name and the machine.

    Args:
        name: The benchmark's name.
        output: The JSON file to write.
    """

    def __init__(self, name: str, output: pathlib.Path):
        super().__init__(benchmark=name, machine=machine())
        self.output = output

    def add_load(self) -> None:
        """Adds `busy`, the share of the cores that other programs use. Call it before the benchmark computes."""
        self["busy"] = busy()

    def write(self) -> None:
        """Writes the report with an atomic rename.

        Raises:
            InputError: The file cannot be written.
        """
        write(self, self.output)


def _nothing_failed(_: Mapping[str, Any]) -> Sequence[str]:
    return ()


class Benchmark:
    """Decorates the function that measures, and makes it the command `python -m <module>`.

    The function gets a Report to fill, and the command's options, declared by click's decorators below this one.
    --output is added. The tables are made from the finished report alone. A caption warns if other programs
    used the machine.

    Args:
        module: The module's name; its last part names the report, and by default its file.
        tables: Makes the printed tables from the finished report.
        failures: Returns a line for each bar that the report misses and that makes the command exit with 1.
        caption: Returns a remark on the share of the machine that other programs used, or None.
    """

    def __init__(
        self,
        module: str,
        tables: Callable[[Mapping[str, Any]], RenderableType],
        failures: Callable[[Mapping[str, Any]], Sequence[str]] = _nothing_failed,
        caption: Callable[[float], str | None] = busy_caption,
    ):
        self.module, self.tables, self.failures, self.caption = module, tables, failures, caption

    def __call__(self, measure: Callable[..., None]) -> click.Command:
        name = self.module.rpartition(".")[2]

        @functools.wraps(measure)
        def main(output: pathlib.Path, **options: Any) -> None:
            report = Report(name, output)
            measure(report, **options)
            tables, caption = self.tables(report), self.caption(report.get("busy", 0.0))
            finish(report, output, Group(tables, caption) if caption else tables)
            if missed := self.failures(report):
                click.echo("\n".join(missed), err=True)
                click.get_current_context().exit(1)

        own = getattr(measure, "__click_params__", [])
        main.__click_params__ = []  # type: ignore[attr-defined]  # click shows the last one of this list first
        main = output_option(name)(main)
        main.__click_params__ += own  # type: ignore[attr-defined]
        return command(self.module)(main)
