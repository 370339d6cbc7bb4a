"""Prints explanations as tables and bars. Names and values of a log are printed as text, never as markup."""

from typing import Any

import rich.console
import rich.table
import rich.text

from pipeline.explain.rows import RowExplained

TABLE_WIDTH = 140  # where the output is no terminal
SHOWN_PAIRS = 10
BAR = 24  # characters of the longest bar
NOTED_JUMPS = 1e-3  # in the logit


def print_explanation(explanation: dict[str, Any]) -> None:
    """Prints what the model uses and what the log holds."""
    where = f", {explanation['slice']}" if explanation["slice"] else ""
    title = f"{explanation['task']}: AUC {explanation['auc']:.4f}, log loss {explanation['log_loss']:.4f}"
    columns = _table(f"{title} on {explanation['rows']:,} rows{where}; lost without the column")
    for name in ("column", "log loss", "95%", "AUC", "95%"):
        columns.add_column(name, justify="left" if name == "column" else "right")
    for one in explanation["columns"]:
        _add(columns, one["name"], *_loss(one["log_loss"]), *_loss(one["auc"]))
    console = _console()
    console.print(columns)
    pairs = _table(f"Pairs of columns by complementarity, on {explanation['counted_rows']:,} rows")
    for name in ("pair", "bits", "by chance, 95%", "z", "need each other, log loss", "95%", "picked"):
        pairs.add_column(name, justify="left" if name == "pair" else "right")
    for one in _shown_pairs(explanation["pairs"]):
        asked = ("-", "-") if one["interaction"] is None else _small(one["interaction"]["log_loss"])
        low, high = one["chance"]
        chance = f"{low:+.5f} .. {high:+.5f}"
        _add(
            pairs,
            f"{one['first']} x {one['second']}",
            f"{one['complementarity']:+.5f}",
            chance,
            f"{one['z']:+.1f}",
            *asked,
            "-" if one["picked"] is None else f"{one['picked']:.1%}",
        )
    console.print(pairs)
    if explanation["rank_correlation"] is not None:
        print(f"Rank correlation of complementarity and permuted pairs: {explanation['rank_correlation']:+.2f}")
    if explanation["rank_correlation_of_attention"] is not None:
        found = explanation["rank_correlation_of_attention"]
        print(f"Rank correlation of complementarity and the pairs that attention picks: {found:+.2f}")
    for number, layer in enumerate(explanation["attention"], 1):
        if layer["ranks"]:
            held = ", ".join(f"{low} and {high}" for low, high in layer["ranks"])
            print(f"Layer {number}: singular values of V that hold 90% and 99% of their squares, by head: {held}")
    values = _table("Pairs of values by complementarity, and click-through rates")
    for name in ("values", "rows", "bits", "of the first", "of the second", "of both"):
        values.add_column(name, justify="left" if name == "values" else "right")
    for one in explanation["values"][:SHOWN_PAIRS]:
        name = f"{one['first']} {one['first_value']} x {one['second']} {one['second_value']}"
        rates = [f"{one[key]:.4f}" for key in ("rate_of_first", "rate_of_second", "rate_of_both")]
        _add(values, name, f"{one['rows']:,}", f"{one['complementarity']:.6f}", *rates)
    if explanation["values"]:
        console.print(values)


def print_row(row: RowExplained, line: str) -> None:
    """Prints why a row has its probability, a bar a column."""
    table = _table()
    has_errors = row.method == "shapley"
    for name in ("column", "value", "logit", *(["±"] if has_errors else []), ""):
        table.add_column(name, justify="right" if name in ("logit", "±") else "left")
    largest = max((abs(one.logit) for one in row.columns), default=0) or 1
    for one in row.columns:
        value = " | ".join("(missing)" if part is None else part for part in one.value)
        error = ["-" if one.error is None else f"{one.error:.4f}"] if has_errors else []
        _add(table, one.name, value, f"{one.logit:+.4f}", *error, _bar(one.logit, largest))
    logits = f"logit {row.logit:+.4f}, that of the baseline {row.baseline:+.4f}"
    name = "Shapley values" if has_errors else "integrated gradients"
    print(_printable(f"{line}: probability {row.probability:.4f}; {logits}; {name}"))
    console = _console()
    console.print(table)
    if row.jumps is not None and abs(row.jumps) > NOTED_JUMPS:
        print(f"{row.jumps:+.4f} of it jumps, where the model picks; that is dealt to the columns that move there")
    if row.tokens:
        tokens = _table("Tokens of the text")
        for name in ("token", "logit", ""):
            tokens.add_column(name, justify="right" if name == "logit" else "left")
        largest = max(abs(token.logit) for token in row.tokens) or 1
        for token in row.tokens:
            _add(tokens, token.token, f"{token.logit:+.4f}", _bar(token.logit, largest))
        console.print(tokens)


def _bar(value: float, largest: float) -> str:
    return ("+" if value > 0 else "-") * round(BAR * abs(value) / largest)


def _shown_pairs(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the first pairs, and those after them that were permuted."""
    return [one for place, one in enumerate(pairs) if place < SHOWN_PAIRS or one["interaction"]]


def _loss(loss: dict[str, Any]) -> tuple[str, str]:
    low, high = loss["interval"]
    return f"{loss['value']:+.5f}", f"{low:+.5f} .. {high:+.5f}"


def _small(loss: dict[str, Any]) -> tuple[str, str]:
    low, high = loss["interval"]
    return f"{loss['value']:+.2g}", f"{low:+.2g} .. {high:+.2g}"


def _table(title: str = "") -> rich.table.Table:
    return rich.table.Table(title=rich.text.Text(_printable(title)) if title else None)


def _add(table: rich.table.Table, *cells: str) -> None:
    table.add_row(*(rich.text.Text(_printable(cell), overflow="fold") for cell in cells))


def _printable(text: str) -> str:
    """Returns the text without control characters, which a terminal would obey."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _console() -> rich.console.Console:
    console = rich.console.Console(highlight=False)
    return console if console.is_terminal else rich.console.Console(width=TABLE_WIDTH, highlight=False)
