"""The folder that a benchmark works in is absolute: its peers run in separate folders."""

import pathlib

import click
import pytest
from click.testing import CliRunner

from benchmarks.harness.command import folder_option


@click.command()
@folder_option("example")
def show(folder: pathlib.Path) -> None:
    click.echo(folder)


@pytest.mark.parametrize(("given", "expected"), [([], "runs/benchmarks/example"), (["--folder", "here"], "here")])
def test_a_relative_folder_is_that_of_the_command(given, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(show, given)
    assert done.exit_code == 0 and pathlib.Path(done.output.strip()) == tmp_path.resolve() / expected
