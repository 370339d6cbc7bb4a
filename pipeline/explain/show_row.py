"""Prints a row's explanation as bars. Names and values of a log are printed literally, never as markup."""

import math

from ctrpipe.common.printable import printable
from ctrpipe.common.terminal import add_row, console, print_table, titled
from ctrpipe.pipeline.explain.explained_row import RowExplained

BAR = 24  # characters of the longest bar
NOTED_JUMPS = 1e-3  # minimum that is printed, in the logit
NOTED_CALIBRATION = 1e-4  # minimum that is printed, in the probability


def print_row(row: RowExplained, line: str) -> None:
    """Prints the explanation of a row's probability, with one bar for each column."""
    table = titled()
    has_errors = row.method == "shapley"
    for name in ("column", "value", "logit", *(["±"] if has_errors else []), ""):
        table.add_column(name, justify="right" if name in ("logit", "±") else "left")
    largest = max((abs(one.logit) for one in row.columns), default=0) or 1
    for one in row.columns:
        value = " | ".join("(missing)" if part is None else part for part in one.value)
        error = ["-" if one.error is None else f"{one.error:.4f}"] if has_errors else []
        add_row(table, one.name, value, f"{one.logit:+.4f}", *error, _bar(one.logit, largest))
    logits = f"logit {row.logit:+.4f}, that of the baseline {row.baseline:+.4f}"
    name = "Shapley values" if has_errors else "integrated gradients"
    before = 1 / (1 + math.exp(-row.logit))
    calibrated = f", {before:.4f} before its calibration" if abs(before - row.probability) > NOTED_CALIBRATION else ""
    print(printable(f"{line}: probability {row.probability:.4f}{calibrated}; {logits}; {name}"))
    terminal = console()
    print_table(terminal, table)
    if row.jumps is not None and abs(row.jumps) > NOTED_JUMPS:
        print(
            f"{row.jumps:+.4f} of it are jumps of the logit, because the model selects; they are "
            "attributed to the columns that change there"
        )
    if row.tokens:
        tokens = titled("Tokens of the text")
        for name in ("token", "logit", ""):
            tokens.add_column(name, justify="right" if name == "logit" else "left")
        largest = max(abs(token.logit) for token in row.tokens) or 1
        for token in row.tokens:
            add_row(tokens, token.token, f"{token.logit:+.4f}", _bar(token.logit, largest))
        print_table(terminal, tokens)


def _bar(value: float, largest: float) -> str:
    return ("+" if value > 0 else "-") * round(BAR * abs(value) / largest)
