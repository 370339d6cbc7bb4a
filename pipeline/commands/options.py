"""What several commands share."""

import pathlib

import click

PATH = click.Path(path_type=pathlib.Path)
INTERRUPTED = 130  # what a shell reports for Ctrl-C
BLOCKED = 1  # the exit code where a gate or a comparison says no
