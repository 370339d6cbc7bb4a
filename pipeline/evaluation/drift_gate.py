"""Reads the verdict on columns from drift.json, without the libraries that compare logs."""

from typing import Any


def drift_gate(drift: dict[str, Any]) -> dict[str, Any]:
    """Returns the row of the gate table for the contents of a drift.json."""
    far = far_columns(drift)
    reason = f"further away than they may be: {', '.join(far)}" if far else "no column is above its limit"
    bound = "of no column above its limit"
    return {"metric": "drift", "kind": "drift", "bound": bound, "value": None, "passed": not far, "reason": reason}


def far_columns(drift: dict[str, Any]) -> list[str]:
    """Returns the columns whose limit is exceeded in any comparison, each once."""
    columns = (column for comparison in drift["comparisons"] for column in comparison["columns"])
    return list(dict.fromkeys(column["column"] for column in columns if column["breached"]))
