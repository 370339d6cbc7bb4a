"""Prints explanations as tables. Names and values of a log are printed literally, never as markup."""

from typing import Any

from ctrpipe.common.printable import printable
from ctrpipe.common.significance import ALPHA
from ctrpipe.common.terminal import add_row, console, print_table, titled

SHOWN_PAIRS = 10
MODEL_COLUMNS = ("need each other, log loss", "95%", "picked", "strength")


def print_explanation(explanation: dict[str, Any]) -> None:
    """Prints the importance of the columns and the interactions in the log."""
    where = f", {explanation['slice']}" if explanation["slice"] else ""
    title = f"{explanation['task']}: AUC {explanation['auc']:.4f}, log loss {explanation['log_loss']:.4f}"
    columns = titled(f"{title} on {explanation['rows']:,} rows{where}; lost without the column")
    for name in ("column", "log loss", "95%", "AUC", "95%", "p"):
        columns.add_column(name, justify="left" if name == "column" else "right")
    for one in explanation["columns"]:
        add_row(columns, one["name"], *_loss(one["log_loss"]), *_loss(one["auc"]), _p(one["p_value"]))
    terminal = console()
    print_table(terminal, columns)
    if explanation["unused"]:
        print(
            printable(
                "Not used by the model, although they interact with others in the log: "
                f"{', '.join(explanation['unused'])}"
            )
        )
    together = sum(one["interplay"]["p_value"] < ALPHA for one in explanation["pairs"])
    counted = f"on {explanation['counted_rows']:,} rows"
    pairs = titled(
        f"Pairs of columns by what they do together, {counted}; {together} of {len(explanation['pairs'])} act"
    )
    for name in ("pair", "together, bits", "p", "complementarity", "by chance, 95%", "z", *MODEL_COLUMNS):
        pairs.add_column(name, justify="left" if name == "pair" else "right")
    for one in _shown_pairs(explanation["pairs"]):
        low, high = one["chance"]
        add_row(
            pairs,
            f"{one['first']} x {one['second']}",
            f"{one['interplay']['bits']:+.5f}",
            _p(one["interplay"]["p_value"]),
            f"{one['complementarity']:+.5f}",
            f"{low:+.5f} .. {high:+.5f}",
            f"{one['z']:+.1f}",
            *(("-", "-") if one["interaction"] is None else _small(one["interaction"]["log_loss"])),
            "-" if one["picked"] is None else f"{one['picked']:.1%}",
            "-" if one["strength"] is None else f"{one['strength']:.3g}",
        )
    print_table(terminal, pairs)
    for one in explanation["rank_correlations"]:
        print(f"Rank correlation of {one['first']} and {one['second']}, {one['pairs']} pairs: {one['spearman']:+.2f}")
    if explanation["pruned"]:
        _print_pruned(explanation["pruned"])
    for number, layer in enumerate(explanation["attention"], 1):
        if layer["ranks"]:
            held = ", ".join(f"{low} and {high}" for low, high in layer["ranks"])
            print(f"Layer {number}: singular values of V that hold 90% and 99% of their squares, by head: {held}")
    for query in explanation["words"]:
        shown = ", ".join(f"{one['word']} {one['attention']:.2f}" for one in query["words"][:SHOWN_PAIRS])
        print(printable(f"Layer {query['layer']}, {query['query']} look at: {shown}"))
    values = titled("Pairs of values by complementarity, and click-through rates")
    for name in ("rows where", "rows", "bits", "of the first", "of the second", "of both"):
        values.add_column(name, justify="left" if name == "rows where" else "right")
    for one in explanation["values"][:SHOWN_PAIRS]:
        rates = [f"{one[key]:.4f}" for key in ("rate_of_first", "rate_of_second", "rate_of_both")]
        add_row(values, one["where"], f"{one['rows']:,}", f"{one['complementarity']:.6f}", *rates)
    if explanation["values"]:
        print_table(terminal, values)


def _print_pruned(pruned: dict[str, Any]) -> None:
    value, interval = _loss(pruned["auc"])
    count = len(pruned["columns"])
    print(printable(f"Without {count} of {count + pruned['left']} columns: {', '.join(pruned['columns'])}"))
    print(f"Permuted together they cost {value} AUC, 95% {interval}; the sum of each alone is {pruned['alone']:+.5f}")
    if pruned["auc"]["interval"][1] >= pruned["limit"]:
        print(f"The interval reaches {pruned['limit']:g}: more --rows say more")
    if pruned["needed"]:
        print(printable(f"The configuration needs {', '.join(pruned['needed'])}, which cost less too"))


def _shown_pairs(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the first pairs, and all later pairs that were permuted."""
    return [one for place, one in enumerate(pairs) if place < SHOWN_PAIRS or one["interaction"]]


def _loss(loss: dict[str, Any]) -> tuple[str, str]:
    low, high = loss["interval"]
    return f"{loss['value']:+.5f}", f"{low:+.5f} .. {high:+.5f}"


def _small(loss: dict[str, Any]) -> tuple[str, str]:
    low, high = loss["interval"]
    return f"{loss['value']:+.2g}", f"{low:+.2g} .. {high:+.2g}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
