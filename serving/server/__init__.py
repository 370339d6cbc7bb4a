"""A local replacement for tensorflow_model_server.

docs/contract.md lists the behaviour shared with TF Serving. A code in a comment, such as (P16), names an item of that
list.

Submodules are imported on first use. This keeps the parsing of flags fast.
"""

import importlib
from typing import Any

_HOME = {
    "Addresses": "ctrpipe.serving.server.run",
    "ServerOptions": "ctrpipe.serving.server.options",
    "parse_flags": "ctrpipe.serving.server.options",
    "running_server": "ctrpipe.serving.server.run",
    "serve": "ctrpipe.serving.server.run",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ctrpipe.serving.server' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
