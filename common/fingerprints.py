"""Hash of any values, for cache keys."""

import hashlib
import json
from typing import Any

import pydantic


def fingerprint(*values: Any) -> str:
    """Returns a hash of 16 hexadecimal digits of JSON-serializable values and pydantic models."""
    plain = [value.model_dump(mode="json") if isinstance(value, pydantic.BaseModel) else value for value in values]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
