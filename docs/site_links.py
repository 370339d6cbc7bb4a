"""Rewrites links of the site that lead out of docs/, and the one script that the theme loads from the network."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]*)(?:#[^)]*)?\)")
_SHIM = "https://unpkg.com/iframe-worker/shim"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the page's text with `[name](../models/fm.py)` as `name`, where the target is not below docs/.

    Such a link leads somewhere in a checkout only.
    """
    depth = page.file.src_uri.count("/")

    def plain(link: re.Match[str]) -> str:
        return link[0] if link[2].count("../") <= depth else f"`{link[1].strip('`')}`"

    return _OUTSIDE.sub(plain, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Returns the page with a local copy of the search script, so the search works without a network."""
    return output.replace(_SHIM, "../" * page.file.dest_uri.count("/") + "javascripts/iframe-worker.js")


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    """Does the same for the page of a missing address."""
    return output_content.replace(_SHIM, "javascripts/iframe-worker.js")
