"""Option types and files on the command line, shared by several commands."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import in_pattern_order
from ctrpipe.common.store_folders import fetch_file
from ctrpipe.common.stores import check_scheme, is_url, local_path
from ctrpipe.serving.stored import fetch_model


class _Local(click.Path):
    """A local path, which may be written as `file://`."""

    def __init__(self) -> None:
        super().__init__(path_type=pathlib.Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str):
            if is_url(value):
                named = param.get_error_hint(ctx) if param is not None and ctx is not None else "this option"
                raise InputError(f"{value}: {named} takes a local path; copy it here, or write it here first")
            value = str(local_path(check_scheme(value)))
        return super().convert(value, param, ctx)


class _Model(_Local):
    """The folder of a model or a run. A URL is fetched, and the value is the local copy."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_url(value):
            return fetch_model(check_scheme(value))
        return super().convert(value, param, ctx)


class _Config(_Local):
    """A configuration. A URL is always fetched again, and the value is the local copy."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_url(value):
            return fetch_file(check_scheme(value))
        return super().convert(value, param, ctx)


class _Stored(_Local):
    """A local path, or a store's URL as a string."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_url(value):
            return check_scheme(value)
        return super().convert(value, param, ctx)


PATH = _Local()
MODEL = _Model()
CONFIG = _Config()
PATH_OR_URL = _Stored()
FILES = ("data", "inputs", "against", "items", "queries")  # options that take files and can be repeated


def repeat_for_files(command: click.Command, words: Sequence[str]) -> list[str]:
    """Repeats an option before each further file that follows its value.

    The shell expands `--data day_*.csv` to `--data day_1.csv day_10.csv day_2.csv`. This becomes `--data day_1.csv
    --data day_2.csv --data day_10.csv`, in the order of the quoted pattern. Further files must have the suffix of the
    first, so a following configuration is not included.
    """
    options = {name for option in command.params if option.name in FILES for name in option.opts}
    return list(_repeated(options, list(words)))


def _repeated(options: set[str], words: list[str]) -> Iterator[str]:
    place = 0
    while place < len(words):
        option, _, value = words[place].partition("=")
        if option not in options:
            yield words[place]
            place += 1
            continue
        first = place if value else place + 1
        files = [value or word for word in words[first : first + 1]]
        files += _files_like(files, words[first + 1 :])
        for file in in_pattern_order(files):
            yield from (option, file)
        if not files:
            yield option
        place = first + max(len(files), 1)


def _files_like(first: list[str], words: list[str]) -> list[str]:
    """Returns the words up to the first that is not an existing file with the suffix of `first`."""
    suffixes = {pathlib.Path(file).suffix for file in first}
    count = 0
    while count < len(words) and pathlib.Path(words[count]).suffix in suffixes and pathlib.Path(words[count]).is_file():
        count += 1
    return words[:count]


def pattern_order(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Sorts the files that the shell lists for a pattern by the numbers in their names; a click callback."""
    return tuple(in_pattern_order(names))
