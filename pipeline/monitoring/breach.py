"""What a comparison of logs, as drift.json has it, says of its columns; needs no library that compares."""

from typing import Any


def drift_gate(drift: dict[str, Any]) -> dict[str, Any]:
    """Returns drift.json as a row of the gate table."""
    far = far_columns(drift)
    reason = f"further away than they may be: {', '.join(far)}" if far else "no column is further away than it may be"
    bound = "of no column above its limit"
    return {"metric": "drift", "kind": "drift", "bound": bound, "value": None, "passed": not far, "reason": reason}


def far_columns(drift: dict[str, Any]) -> list[str]:
    """Returns the columns that are further away than they may be, each once."""
    columns = (column for comparison in drift["comparisons"] for column in comparison["columns"])
    return list(dict.fromkeys(column["column"] for column in columns if column["breached"]))
