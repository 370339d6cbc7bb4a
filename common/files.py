"""Files that appear whole or not at all."""

import json
import pathlib
from typing import Any

import numpy as np


def write_json(path: pathlib.Path, value: Any) -> None:
    def plain(item: Any) -> Any:
        return item.item() if isinstance(item, np.generic) else str(item)

    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(value, indent=1, default=plain))
    fresh.replace(path)
