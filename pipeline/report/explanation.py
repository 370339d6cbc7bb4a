"""The charts of an explanation (`ctrpipe explain RUN`): importance, pairs, attention and stored rows; and its page."""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

from ctrpipe.common.charts import Bar, BarChart, Chart, HeatMap, Line, chart_svg
from ctrpipe.common.pages import template
from ctrpipe.common.significance import ALPHA

MOST_BARS = 60  # columns, the most important first
# A cell of a heat map takes 200 bytes. The limits keep a page below 2 MB, small enough to send.
MOST_MAPPED = 26  # columns of a heat map of pairs
MOST_CELLS = 2500  # of all attention maps together
LEAST_TOKENS = 6  # tokens of an attention map, however many maps there are
MOST_TOKENS = 60
CURVE = "Picked, by complementarity"  # Attention-Net, Figure 2
ADDED = "added to the logit"
MOST_WORDS = 10  # words of a query in a layer, the most attended first
NAMED = 3  # columns in the sentence at the head of the page
ROW_BARS = 12  # columns of a row, the largest contributions first


def explanation_page(explanation: dict[str, Any]) -> str:
    """Returns an explanation as an HTML page, with the same contents as the pages in a run's report.

    Args:
        explanation: The contents of explanation.json.
    """
    return template("explanation_page.html.jinja", pathlib.Path(__file__).parent).render(
        explanation=explanation, charts=explanation_charts(explanation), verdict=explanation_verdict(explanation)
    )


def explanation_verdict(explanation: dict[str, Any]) -> str:
    """Returns one sentence: how many columns the model visibly uses, and which of them lower the log loss most."""
    columns = explanation["columns"]
    used = [one for one in columns if one["log_loss"]["interval"][0] > 0]
    if not used:
        return f"None of {len(columns)} columns visibly lowers the log loss on these rows."
    named = ", ".join(f"{one['name']} ({one['log_loss']['value']:+.4f})" for one in used[:NAMED])
    count = f"The model uses {len(used)} of {len(columns)} columns visibly"
    return f"{count}; the log loss rises most without {named}."


def explanation_charts(explanation: dict[str, Any]) -> dict[str, Any]:
    """Returns the charts of an explanation for the report's pages.

    Args:
        explanation: The contents of explanation.json.

    Returns:
        `importance`: charts by title. `pairs`: heat maps by title. `attention`: for each layer, charts by title.
        `rows`: for each stored row, its title, its attribution method with the logits, and its chart. `together`: how
        many pairs of columns act together beyond chance; None if there is no pair, or if that is not known.
        `most_bars` and `most_words`: how many columns and words the page shows.
    """
    tokens = tokens_of_maps(sum(len(layer["heads"]) + 1 for layer in explanation["attention"]))
    return {
        "importance": {chart.title: chart_svg(chart) for chart in importance_bars(explanation["columns"])},
        "pairs": _pairs(explanation),
        "attention": [_attention(layer, tokens) for layer in explanation["attention"]],
        "rows": [_row(row) for row in explanation.get("stored_rows", ())],
        "together": _together(explanation["pairs"]),
        "most_bars": MOST_BARS,
        "most_words": MOST_WORDS,
    }


def importance_bars(columns: Sequence[dict[str, Any]]) -> list[BarChart]:
    """Returns bar charts of the change in log loss and in AUC without each column.

    Args:
        columns: The columns of explanation.json.
    """
    charts = []
    for title, key in (("Log loss without the column", "log_loss"), ("AUC without the column", "auc")):
        bars = [Bar(one["name"], one[key]["value"], tuple(one[key]["interval"])) for one in columns[:MOST_BARS]]
        word = "rises" if key == "log_loss" else "falls"
        charts.append(BarChart(title, bars, f"by how much it {word}, with 95% intervals"))
    return charts


def _together(pairs: Sequence[dict[str, Any]]) -> int | None:
    tested = [pair["interplay"]["p_value"] for pair in pairs if "interplay" in pair]  # not by versions before 0.3.0
    return sum(value < ALPHA for value in tested) if tested and len(tested) == len(pairs) else None


def _pairs(explanation: dict[str, Any]) -> dict[str, str]:
    singles = [one["name"] for one in explanation["columns"] if len(one["columns"]) == 1]
    paired = {name for pair in explanation["pairs"] for name in (pair["first"], pair["second"])}
    names = [name for name in singles if name in paired][:MOST_MAPPED]
    charts = {}
    if len(names) > 1:
        measures = {
            "Complementarity": ("bits", lambda pair: pair["complementarity"]),
            "Picked by attention": ("share of rows and heads", lambda pair: pair["picked"]),
            "Learned strength": ("in the model's own measure", lambda pair: pair["strength"]),
            "Need each other": (
                "log loss",
                lambda pair: pair["interaction"] and pair["interaction"]["log_loss"]["value"],
            ),
        }
        for title, (unit, value_of) in measures.items():
            values = {frozenset((pair["first"], pair["second"])): value_of(pair) for pair in explanation["pairs"]}
            known = {name for pair, value in values.items() if value is not None for name in pair}
            if shown := [name for name in names if name in known]:
                table = [[None if a == b else values.get(frozenset((a, b))) for b in shown] for a in shown]
                charts[title] = chart_svg(HeatMap(title, shown, shown, table, unit))
    if curve := explanation["picked_by_complementarity"]:
        line = Line("pairs of values", [one["rows"] for one in curve], [one["picked"] for one in curve], dots=True)
        labels = ("share of the data, the most complementary first", "share that attention picks")
        charts[CURVE] = chart_svg(Chart(CURVE, [line], labels, x=(0.0, 1.0)))
    return charts


def tokens_of_maps(maps: int) -> int:
    """Returns the number of tokens per attention map that keeps a page at about MOST_CELLS cells or fewer."""
    return min(max(math.isqrt(MOST_CELLS // max(maps, 1)), LEAST_TOKENS), MOST_TOKENS)


def _attention(layer: dict[str, Any], most: int) -> dict[str, str]:
    """Returns the maps of a layer's heads, with the `most` tokens that are picked most often."""
    picked, tokens = layer["picked"], layer["tokens"]
    order = sorted(range(len(tokens)), key=lambda token: -sum(row[token] for row in picked))
    kept = sorted(order[:most])
    known = {tokens[place] for place in kept}
    queries = [place for place, name in enumerate(layer["queries"]) if name in known]
    charts = {}
    maps = {f"Head {number}": (head, "attention") for number, head in enumerate(layer["heads"], 1)}
    for title, (table, unit) in {**maps, "Picked": (picked, "share of rows and heads")}.items():
        values = [[table[query][token] for token in kept] for query in queries]
        names = [layer["queries"][query] for query in queries]
        charts[title] = chart_svg(HeatMap(title, names, [tokens[token] for token in kept], values, unit))
    return charts


def _row(row: dict[str, Any]) -> dict[str, Any]:
    clicked = "clicked" if row["label"] > 0.5 else "not clicked"
    title = f"{row['why']}: probability {row['probability']:.4f}, {clicked}"
    method = "integrated gradients" if row["method"] == "gradients" else "Shapley values"
    sums = f"{method}: logit {row['logit']:+.4f}, of the baseline {row['baseline']:+.4f}"
    return {"title": title, "sums": sums, "chart": chart_svg(BarChart(title, row_bars(row["columns"]), ADDED))}


def row_bars(columns: Sequence[dict[str, Any]]) -> list[Bar]:
    """Returns bars for the ROW_BARS largest contributions to a row's logit, and one bar for all others.

    Args:
        columns: The columns of a row's explanation, the largest contribution first.
    """
    shown = columns if len(columns) <= ROW_BARS + 1 else columns[:ROW_BARS]
    rest = columns[len(shown) :]
    bars = [Bar(one["name"], one["logit"], _spread(one), " | ".join(map(_value, one["value"]))) for one in shown]
    if rest:
        bars.append(Bar(f"{len(rest)} others", sum(one["logit"] for one in rest)))
    return bars


def _spread(column: dict[str, Any]) -> tuple[float, float] | None:
    error = column["error"]
    return None if error is None else (column["logit"] - error, column["logit"] + error)


def _value(value: str | None) -> str:
    return "(missing)" if value is None else value
