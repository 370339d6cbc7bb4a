"""Renders HTML pages that work offline, in the common style of `style.html.jinja`."""

import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import jinja2

from ctrpipe.common import palette


@functools.cache
def template(name: str, folder: pathlib.Path, **filters: Callable[[Any], str]) -> jinja2.Template:
    """Returns a Jinja template. It escapes values, and raises an error for an unknown name.

    Args:
        name: The file's name.
        folder: Its folder. The template may include the files of this folder and of this module's.
        **filters: Filters besides or in place of `number`, four digits, and `share`, a percentage.
    """
    loader = jinja2.FileSystemLoader([folder, pathlib.Path(__file__).parent])
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(number=_number, share=_share)
    environment.filters.update(filters)
    environment.globals["palette"] = palette.css()
    return environment.get_template(name)


def _number(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _share(value: float) -> str:
    return f"{value:.2%}"
