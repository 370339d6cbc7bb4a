"""Renders HTML pages that work offline. All pages extend `base.html.jinja`, with its style and its script."""

import base64
import datetime
import functools
import hashlib
import math
import pathlib
from collections.abc import Callable
from typing import Any

import jinja2

from ctrpipe.common import palette

FOLDER = pathlib.Path(__file__).parent
SCRIPT = FOLDER / "page.js"


@functools.cache
def template(name: str, folder: pathlib.Path, **filters: Callable[[Any], str]) -> jinja2.Template:
    """Returns a Jinja template. It escapes values, and raises an error for an unknown name.

    Args:
        name: The file's name.
        folder: Its folder. The template may include the files of this folder and of this module's.
        **filters: Filters besides or in place of `number`, four digits, `share`, a percentage, and `moment`, a time.
    """
    loader = jinja2.FileSystemLoader([folder, FOLDER])
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(number=_number, share=_share, moment=_moment)
    environment.filters.update(filters)
    script = SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(palette=palette.css(), script=script, script_hash=f"sha256-{digest}")
    return environment.get_template(name)


def _number(value: object) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _share(value: float) -> str:
    return f"{value:.2%}"


def _moment(value: str) -> str:
    """Formats an ISO 8601 time for readers, such as 27 November 2026, 20:24 UTC; other texts are unchanged."""
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        return value
    clock = f", {moment:%H:%M} {moment.tzname() or ''}".rstrip() if "T" in value else ""
    return f"{moment.day} {moment:%B %Y}{clock}"
