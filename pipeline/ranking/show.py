"""Shows a ranking: as tables in the terminal, as a page with two plots, and as JSON."""

import pathlib
from typing import Any

from ctrpipe.common.charts import Chart, Line, chart_svg
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json, write_text
from ctrpipe.common.pages import template
from ctrpipe.common.terminal import add_row, console, print_table, titled


def print_ranking(ranking: dict[str, Any]) -> None:
    """Prints the metrics of the model's ranking and of the ranking by popularity."""
    table = titled(f"{ranking['lists']:,} lists of {ranking['rows']:,} candidates")
    names = ["", "GAUC", "MRR"]
    for k in ranking["depths"]:
        names += [f"HR@{k}", f"NDCG@{k}", f"ECS@{k}", f"take-rate@{k}"]
    for name in names:
        table.add_column(name)
    for name, side in ranking["sides"].items():
        cells = ["-" if side["gauc"] is None else f"{side['gauc']:.4f}", f"{side['mrr']:.4f}"]
        for k in ranking["depths"]:
            at = side["at"][str(k)]
            cells += [f"{at['hit_rate']:.4f}", f"{at['ndcg']:.4f}", f"{at['ecs']:.1f}", f"{at['take_rate']:.4f}"]
        add_row(table, name, *cells)
    print_table(console(), table)
    strata = titled(f"By popularity, in the {ranking['popularity_of']}: about a third of the events each")
    for name in ("item", "lists", *(f"{metric}@{k}, {side}" for k, metric, side in _columns(ranking))):
        strata.add_column(name)
    last = str(ranking["depths"][-1])
    for name, model in ranking["sides"]["model"]["strata"][last].items():
        cells = [f"{ranking['sides'][side]['strata'][str(k)][name][_KEYS[m]]:.4f}" for k, m, side in _columns(ranking)]
        add_row(strata, name, f"{model['lists']:,}", *cells)
    print_table(console(), strata)
    if ranking["left_out"]:
        print(f"{ranking['left_out']:,} lists are left out: all of their candidates have the same label")


_KEYS = {"HR": "hit_rate", "NDCG": "ndcg"}


def _columns(ranking: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(ranking["depths"][-1], metric, side) for metric in _KEYS for side in ranking["sides"]]


def charts(ranking: dict[str, Any]) -> dict[str, Chart]:
    """Returns the two charts of a ranking by title."""
    curves = ranking["curves"]
    sizes = [
        Line("by popularity: of what the k most popular items take", curves["items"], curves["ecs_by_popularity"]),
        Line("by the model: of what the first k places show", curves["places"], curves["ecs_by_rank"]),
    ]
    rates = [
        Line("by popularity", curves["places"], curves["take_rate_by_popularity"]),
        Line("by the model", curves["places"], curves["take_rate_by_rank"]),
    ]
    return {
        "Effective catalogue size": Chart("Effective catalogue size by k", sizes, ("k", "items")),
        "Take-rate": Chart("Take-rate of the first k places", rates, ("k", "taken / shown")),
    }


def write_ranking(ranking: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes ranking.json and ranking.html, and returns their paths.

    Raises:
        InputError: the folder cannot be written.
    """
    data, page = folder / "ranking.json", folder / "ranking.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(data, ranking)
        plots = {title: chart_svg(chart) for title, chart in charts(ranking).items()}
        write_text(
            page,
            template("ranking_page.html.jinja", pathlib.Path(__file__).parent).render(ranking=ranking, plots=plots),
        )
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); choose another --output") from error
    return [data, page]
