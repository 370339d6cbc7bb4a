"""Option types shared by several commands."""

import pathlib

import click

PATH = click.Path(path_type=pathlib.Path)
