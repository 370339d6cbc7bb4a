"""Option types shared by several commands."""

import pathlib
from typing import Any

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.stores import check_scheme, is_url, local_path


class _Local(click.Path):
    """A path of this machine, which may be written as `file://`."""

    def __init__(self) -> None:
        super().__init__(path_type=pathlib.Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str):
            if is_url(value):
                named = param.get_error_hint(ctx) if param is not None and ctx is not None else "this option"
                raise InputError(f"{value}: {named} takes a path of this machine; copy it here, or write it here first")
            value = str(local_path(check_scheme(value)))
        return super().convert(value, param, ctx)


class _Model(_Local):
    """The folder of a model or a run. What a URL names is fetched, and its copy on this machine is the value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_url(value):
            from ctrpipe.serving.stored import fetch_model  # lazy: pyarrow takes 0.2 s, and a path does not need it

            return fetch_model(check_scheme(value))
        return super().convert(value, param, ctx)


class _Stored(_Local):
    """A path of this machine, or as a string the URL of a store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_url(value):
            return check_scheme(value)
        return super().convert(value, param, ctx)


PATH = _Local()
MODEL = _Model()
PATH_OR_URL = _Stored()
