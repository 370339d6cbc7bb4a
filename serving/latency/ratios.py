"""Ratios of a benchmark's cells: the cost of a server over that of the model that it serves."""

import statistics
from collections.abc import Sequence
from typing import Any

# Targets: the largest p50 over that of a call in this process, by ratio and rows; of gRPC p50 over REST's, from so many
# rows on; the smallest rows/s over those of calls in this process; the largest p99 over p50 at so much of the rate that
# a closed loop reached.
OVER_CALL = {
    "rest_packed_over_call": ("REST packed", {1: 1.3, 100: 1.2}),
    "rest_row_over_call": ("REST row JSON", {100: 2.0}),
    "grpc_packed_over_call": ("gRPC packed", {1: 3.0}),
}
GRPC_FROM_ROWS, GRPC_OVER_REST = 270, 1.0
THROUGHPUT_CLIENTS, THROUGHPUT_ROWS, THROUGHPUT_SHARE = 8, 100, 0.85
OPEN_LOAD, TAIL = 0.8, 5.0
PROTOCOLS = {"rest": "rest_columnar", "grpc": "grpc_packed"}
# The share of the generators' own rate, and their delay as a share of p99, above which they may be what is measured.
NEAR_CEILING, LATE = 0.7, 0.5

Cells = Sequence[dict[str, Any]]


def ratios(cells: Cells) -> dict[str, Any]:
    """Returns ratios of a model's cells, each the median over the rounds; those not measured are absent.

    Returns:
        `rest_packed_over_call`, `rest_packed_over_loader`, `rest_row_over_call`, `grpc_packed_over_call` and
        `grpc_packed_over_rest` (p50, one client, by rows; a call is one by `Session.make_callable`, the loader's own is
        faster), `rest_fixed_ms` and `grpc_fixed_ms` (p50 above that of the call, with the fewest rows),
        `rest_share_of_calls` and `grpc_share_of_calls` (rows/s, 8 clients of 100 rows over 8 threads that call),
        `rest_p99_over_p50` and `grpc_p99_over_p50` (by rows, of the open loop at OPEN_LOAD).
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
    # An interrupted round may have one of the two only.
    pairs = zip(_rounds(cells, place, kind, what), _rounds(cells, place, base, what), strict=False)
    values = [value / unit for value, unit in pairs if value is not None and unit]
    return statistics.median(values) if values else None


def _difference(cells: Cells, rows: int, kind: str) -> float | None:
    asked, called = (_rounds(cells, (rows, 1), name, "p50_ms") for name in (kind, "call_packed"))
    pairs = zip(asked, called, strict=False)
    values = [value - unit for value, unit in pairs if value is not None and unit is not None]
    return statistics.median(values) if values else None


def targets(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns each target: its `name`, measured `value`, `target`, whether it is `at_most`, and whether it is `met`."""
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
    """Returns the cells whose limit may be the generators: a closed loop near their own rate, an open one sent late."""
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
