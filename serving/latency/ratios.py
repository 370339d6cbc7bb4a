"""Ratios of a benchmark's cells: the cost of a server relative to the model that it serves."""

import statistics
from collections.abc import Sequence
from typing import Any

# Targets. OVER_CALL: the largest p50 relative to a call in this process, by ratio and rows. GRPC_OVER_REST: the largest
# gRPC p50 relative to REST, from GRPC_FROM_ROWS rows on. THROUGHPUT_SHARE: the smallest rows/s relative to calls in
# this process. TAIL: the largest p99 relative to p50, at OPEN_LOAD times the highest rate of a closed loop.
OVER_CALL = {
    "rest_packed_over_call": ("REST packed", {1: 1.3, 100: 1.2}),
    "rest_row_over_call": ("REST row JSON", {100: 2.0}),
    "grpc_packed_over_call": ("gRPC packed", {1: 3.0}),
}
GRPC_FROM_ROWS, GRPC_OVER_REST = 270, 1.0
THROUGHPUT_CLIENTS, THROUGHPUT_ROWS, THROUGHPUT_SHARE = 8, 100, 0.85
OPEN_LOAD, TAIL = 0.8, 5.0
PROTOCOLS = {"rest": "rest_columnar", "grpc": "grpc_packed"}
# The generators may be the limit above this share of their own highest rate, or of p99 as their delay.
NEAR_CEILING, LATE = 0.7, 0.5

Cells = Sequence[dict[str, Any]]


def ratios(cells: Cells) -> dict[str, Any]:
    """Returns ratios of a model's cells. Ratios that were not measured are absent.

    Ratios of a closed loop are medians over the rounds.

    Returns:
        - `rest_packed_over_call`, `rest_packed_over_loader`, `rest_row_over_call`, `grpc_packed_over_call` and
          `grpc_packed_over_rest`: ratios of p50 with one client, by rows. A call uses `Session.make_callable`; the
          loader's own call is faster.
        - `rest_fixed_ms` and `grpc_fixed_ms`: p50 minus the p50 of the call, for the fewest rows.
        - `rest_share_of_calls` and `grpc_share_of_calls`: rows/s of 8 clients with 100 rows, relative to 8 threads of
          calls.
        - `rest_p99_over_p50` and `grpc_p99_over_p50`: by rows, in the open loop at OPEN_LOAD.
    """
    rows = sorted({cell["rows"] for cell in cells})
    measured: dict[str, Any] = {
        "rest_packed_over_call": _by_rows(cells, rows, "rest_columnar", "call_packed"),
        "rest_packed_over_loader": _by_rows(cells, rows, "rest_columnar", "loader_packed"),
        "rest_row_over_call": _by_rows(cells, rows, "rest_row", "call_packed"),
        "grpc_packed_over_call": _by_rows(cells, rows, "grpc_packed", "call_packed"),
        "grpc_packed_over_rest": _by_rows(cells, rows, "grpc_packed", "rest_columnar"),
    }
    for name, kind in PROTOCOLS.items():
        measured[f"{name}_p99_over_p50"] = _tail(cells, kind)
        if rows:
            measured[f"{name}_fixed_ms"] = _difference(cells, rows[0], kind)
        place = (THROUGHPUT_ROWS, THROUGHPUT_CLIENTS)
        measured[f"{name}_share_of_calls"] = _ratio(cells, place, kind, "call_packed", "rows_per_s")
    return {name: value for name, value in measured.items() if value not in (None, {})}


def _by_rows(cells: Cells, rows: Sequence[int], kind: str, base: str) -> dict[str, float]:
    values = {str(count): _ratio(cells, (count, 1), kind, base, "p50_ms") for count in rows}
    return {count: value for count, value in values.items() if value is not None}


def _tail(cells: Cells, kind: str) -> dict[str, float]:
    opened = [cell for cell in cells if (cell["kind"], cell["loop"], cell.get("load")) == (kind, "open", OPEN_LOAD)]
    return {str(cell["rows"]): cell["p99_ms"] / cell["p50_ms"] for cell in opened if cell["p99_ms"] and cell["p50_ms"]}


def _rounds(cells: Cells, place: tuple[int, int], kind: str, what: str) -> list[float | None]:
    for cell in cells:
        if (cell["kind"], cell["rows"], cell["concurrency"], cell["loop"]) == (kind, *place, "closed"):
            return [one[what] for one in cell["rounds"]]
    return []


def _ratio(cells: Cells, place: tuple[int, int], kind: str, base: str, what: str) -> float | None:
    # An interrupted round may have only one of the two.
    pairs = zip(_rounds(cells, place, kind, what), _rounds(cells, place, base, what), strict=False)
    values = [value / unit for value, unit in pairs if value is not None and unit]
    return statistics.median(values) if values else None


def _difference(cells: Cells, rows: int, kind: str) -> float | None:
    asked, called = (_rounds(cells, (rows, 1), name, "p50_ms") for name in (kind, "call_packed"))
    pairs = zip(asked, called, strict=False)
    values = [value - unit for value, unit in pairs if value is not None and unit is not None]
    return statistics.median(values) if values else None


def targets(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the `name`, measured `value`, `target`, `at_most` and `met` of each measured target."""
    checks: list[tuple[str, float | None, float, bool]] = []
    for key, (kind, limits) in OVER_CALL.items():
        for rows, limit in limits.items():
            checks.append((f"{kind} p50 / call, rows: {rows}", measured.get(key, {}).get(str(rows)), limit, True))
    for rows, value in measured.get("grpc_packed_over_rest", {}).items():
        if int(rows) >= GRPC_FROM_ROWS:
            checks.append((f"gRPC packed p50 / REST, rows: {rows}", value, GRPC_OVER_REST, True))
    name = f"REST rows/s / calls, {THROUGHPUT_CLIENTS} x {THROUGHPUT_ROWS} rows"
    checks.append((name, measured.get("rest_share_of_calls"), THROUGHPUT_SHARE, False))
    for protocol, kind in (("rest", "REST"), ("grpc", "gRPC")):
        for rows, value in measured.get(f"{protocol}_p99_over_p50", {}).items():
            checks.append((f"{kind} packed p99 / p50 at {OPEN_LOAD:.0%}, rows: {rows}", value, TAIL, True))
    return [
        {
            "name": name,
            "value": value,
            "target": limit,
            "at_most": at_most,
            "met": value <= limit if at_most else value >= limit,
        }
        for name, value, limit, at_most in checks
        if value is not None
    ]


def near_ceiling(cells: Cells, ceiling: Cells) -> list[str]:
    """Returns the cells that the generators may limit: near their own rate, or sent late."""
    limits = {(one["kind"], one["rows"], one["concurrency"]): one["requests_per_s"] for one in ceiling}
    near_cells = []
    for cell in cells:
        kind = PROTOCOLS.get(cell["kind"].partition("_")[0])
        limit = limits.get((kind, cell["rows"], cell["concurrency"]))
        if cell["loop"] == "closed":
            near = limit is not None and cell["requests_per_s"] > NEAR_CEILING * limit
        else:
            near = (cell["generator_lag_p99_ms"] or 0.0) > (cell["p99_ms"] or cell["max_ms"] or 0.0) * LATE
        if near:
            near_cells.append(f"{cell['kind']} rows: {cell['rows']} clients: {cell['concurrency']} ({cell['loop']})")
    return near_cells
