"""A configuration with little more than the required keys, and its combination with a part of another one."""

from typing import Any

SMALL = {
    "name": "small",
    "data": {"header": True, "labels": {"ctr": "click"}},
    "features": [{"kind": "categorical", "columns": ["device", "query", "ad"]}],
    "model": {"name": "lr"},
}


def joined(base: Any, changes: Any) -> Any:
    """Returns the base with the changes in it, key by key."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return {**base, **{key: joined(base.get(key), value) for key, value in changes.items()}}
