"""`ctrpipe retrieve`."""

import pathlib

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.option("--model", type=PATH, required=True, help="A run, DIR/models/<name>, or one version in it.")
@click.option("--items", multiple=True, help="A log of the items or quoted glob; repeatable. Default: the run's rows.")
@click.option("--item", help="The column of the items' names. Default: the one that a history shares its items with.")
@click.option("--top", type=click.IntRange(1), default=100, show_default=True, help="Items in an answer.")
@click.option(
    "--index",
    type=click.Choice(["exact", "approximate"]),
    default="exact",
    show_default=True,
    help="approximate: one that reads a part of the items, beside the exact one; --queries are answered by it.",
)
@click.option(
    "--recall",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.95,
    show_default=True,
    help="The share of the exact index's answers that the approximate one finds.",
)
@click.option("--cells", type=click.IntRange(1), help="Into which the items are divided. Default: 4 times their root.")
@click.option("--output", type=PATH, help="Folder of versions, where one with the index is written.")
@click.option("--queries", multiple=True, help="A log of the users or quoted glob; repeatable.")
@click.option("--answers", type=PATH, help="Parquet file for the items of each row of --queries.")
def retrieve(
    model: pathlib.Path,
    items: tuple[str, ...],
    item: str | None,
    top: int,
    index: str,
    recall: float,
    cells: int | None,
    output: pathlib.Path | None,
    queries: tuple[str, ...],
    answers: pathlib.Path | None,
) -> None:
    """Find each user's best items by a model with towers (two_tower, starspace).

    \b
      ctrpipe retrieve --model runs/mine --items films.csv --output indexed/ctr
      ctrpipe retrieve --model indexed/ctr --queries users.csv --answers best.parquet
    The first writes the model as a version that also answers `serving_retrieve`; the second asks such a version.
    Both may be one command. With `--index approximate` the version answers `serving_retrieve_approximate` too.
    """
    load_tensorflow()
    # TensorFlow, numpy and pyarrow: 4 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.retrieval.retrieve import Approximate
    from ctrpipe.pipeline.retrieval.retrieve import retrieve as retrieve_items

    asked = Approximate(recall, cells)
    done = retrieve_items(model, items, output, queries, answers, item, top, index, asked)
    if indexed := done.indexed:
        found = indexed.found
        click.echo(f"{found.rows:,} rows, {found.unnamed:,} of them without an item")
        click.echo(f"{found.unknown:,} items are not in the model's vocabulary and left out")
        if indexed.cells is not None and indexed.recall is not None:
            click.echo(
                f"Approximate: {indexed.cells.probes:,} of {len(indexed.cells.centers):,} cells are read; recall@"
                f"{indexed.recall.top} {indexed.recall.share:.4f}, by {indexed.recall.users:,} users"
            )
        click.echo(f"Written: {done.version}, with {len(found.names):,} items of {found.vectors.shape[1]} numbers")
    if of := done.answered:
        click.echo(f"{of.rows:,} rows answered in {of.seconds:.2f} s; {of.malformed:,} malformed lines left out")
        click.echo(f"Written: {answers}")
