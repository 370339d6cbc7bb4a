"""Makes links to files outside docs/ plain text in the site: they lead somewhere in a checkout only."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]*)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the page's text with `[name](../models/fm.py)` as `name`, where the target is not below docs/."""
    depth = page.file.src_uri.count("/")

    def plain(link: re.Match[str]) -> str:
        return link[0] if link[2].count("../") <= depth else f"`{link[1].strip('`')}`"

    return _OUTSIDE.sub(plain, markdown)
