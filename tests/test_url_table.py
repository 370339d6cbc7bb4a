"""The page of stores lists every path of the command line: those that may be URLs, and those that are local."""

import pathlib
import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.commands.options import CONFIG, FILES, MODEL, PATH, PATH_OR_URL

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "how-to" / "object-stores.md"
LOG, RUN, CONFIGURATION = "a log", "a model or run", "a configuration"
LOGS = {*FILES, "log", "labels", "tables", "data", "file"}  # parameters, however they are typed


def parameters(command: click.Command = main, name: str = "") -> Iterator[tuple[str, click.Parameter]]:
    """Yields the name of each command, such as `prepare join`, with each parameter."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from parameters(below, f"{name} {each}".strip())
    else:
        yield from ((name, parameter) for parameter in command.params)


def is_log(parameter: click.Parameter) -> bool:
    return parameter.name in LOGS and parameter.type in (PATH_OR_URL, click.STRING)


def section() -> str:
    return PAGE.read_text().partition("## Where a URL is accepted")[2].partition("\n## ")[0]


def rows() -> dict[str, set[str]]:
    """The code of the second cells, by the text of the first cell; rows that continue one have its text."""
    found: dict[str, set[str]] = {}
    first = ""
    for line in section().splitlines():
        if line.startswith("| ") and not line.startswith("| | by"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            first = cells[0] or first
            found.setdefault(first, set()).update(re.findall("`([^`]+)`", cells[1]))
    return found


def commands(spans: set[str]) -> set[str]:
    """The commands in code, without options and without keys of a configuration, which contain a dot."""
    return {span.partition(" --")[0] for span in spans if "." not in span}


def test_the_page_lists_every_path_that_may_be_a_url():
    table = rows()
    every = list(parameters())
    assert commands(table.pop(LOG)) == {name for name, each in every if is_log(each)}
    assert commands(table.pop(RUN)) == {name for name, each in every if each.type is MODEL} | {"run"}
    assert commands(table.pop(CONFIGURATION)) == {name for name, each in every if each.type is CONFIG}
    written = {name for name, each in every if each.type is PATH_OR_URL and not is_log(each)}
    assert commands(set().union(*table.values())) == {
        "prepare" if name.startswith("prepare ") else name for name in written
    } | {"serve"}


def local_paths() -> list[tuple[str, click.Parameter]]:
    return [(name, each) for name, each in parameters() if each.type is PATH]


def test_the_page_lists_every_path_that_is_local():
    shown = {
        f"{name} {each.opts[0] if isinstance(each, click.Option) else str(each.name).upper()}"
        for name, each in local_paths()
    }
    listed = set(re.findall("`([^`]+)`", section().partition("Every other path is local")[2]))
    assert listed == shown | {"init --dataset", "extends", "serve"}


@pytest.mark.parametrize(("name", "parameter"), local_paths(), ids=lambda part: getattr(part, "name", part))
def test_a_url_in_place_of_a_local_path_is_one_line(name, parameter):
    given = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
    done = CliRunner().invoke(main, [*name.split(), *given, "s3://bucket/mine"])
    assert done.exit_code == 2
    assert re.search("^ctrpipe: s3://bucket/mine: '.*' takes a local path; ", done.output), done.output
