"""Types of options that several commands have."""

import pathlib

import click

PATH = click.Path(path_type=pathlib.Path)
