"""The command `ctrpipe retrieve`."""

import contextlib
import pathlib

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.store_folders import written_file
from ctrpipe.pipeline.commands.options import MODEL, PATH_OR_URL
from ctrpipe.serving.stored import versions_at


@click.command()
@click.option("--model", type=MODEL, required=True, help="A run, DIR/models/<name>, or one version in it.")
@click.option("--items", multiple=True, help="Item log: a file or quoted glob; repeatable. Default: the training rows.")
@click.option(
    "--item",
    help="Item column. Default: the one that shares its vocabulary with a history, or the first with role: item.",
)
@click.option("--top", type=click.IntRange(1), default=100, show_default=True, help="Items to retrieve per query.")
@click.option(
    "--index",
    type=click.Choice(["exact", "approximate"]),
    default="exact",
    show_default=True,
    help="The index that answers --queries. approximate is built in addition to exact, and scores only some items.",
)
@click.option(
    "--recall",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.95,
    show_default=True,
    help="Target recall of the approximate index, relative to the exact one.",
)
@click.option("--cells", type=click.IntRange(1), help="Cells of the approximate index. Default: 4 sqrt(items).")
@click.option("--output", type=PATH_OR_URL, help="Folder or URL of versions, for the version with the index.")
@click.option("--queries", multiple=True, help="User log: a file or quoted glob; repeatable.")
@click.option("--answers", type=PATH_OR_URL, help="Parquet file or URL for the items of each row of --queries.")
def retrieve(
    model: pathlib.Path,
    items: tuple[str, ...],
    item: str | None,
    top: int,
    index: str,
    recall: float,
    cells: int | None,
    output: pathlib.Path | str | None,
    queries: tuple[str, ...],
    answers: pathlib.Path | str | None,
) -> None:
    """Retrieve the best items of users (two-tower models).

    Works with the models two_tower and starspace.

    \b
      ctrpipe retrieve --model runs/mine --items films.csv --output indexed/ctr
      ctrpipe retrieve --model indexed/ctr --queries users.csv \\
          --answers best.parquet

    The first command exports a version with an item index and the signature `serving_retrieve`. The second retrieves
    items from it. One command can do both. With `--index approximate`, the version also has the signature
    `serving_retrieve_approximate`.
    """
    load_tensorflow()
    # Lazy: TensorFlow, numpy and pyarrow take 4 s to import.
    from ctrpipe.pipeline.retrieval.retrieve import Approximate
    from ctrpipe.pipeline.retrieval.retrieve import retrieve as retrieve_items

    asked = Approximate(recall, cells)
    with contextlib.ExitStack() as written:
        versions = written.enter_context(versions_at(output)) if output is not None else None
        beside = written.enter_context(written_file(answers)) if answers is not None else None
        file = beside.folder / pathlib.Path(answers or "").name if beside else None
        done = retrieve_items(
            model, items, versions.folder if versions else None, queries, file, item, top, index, asked
        )
    if indexed := done.indexed:
        catalogue = indexed.found
        say(f"{catalogue.rows:,} rows, {catalogue.unnamed:,} of them without an item")
        say(f"{catalogue.unknown:,} items are not in the model's vocabulary and left out")
        if indexed.cells is not None and indexed.recall is not None:
            say(
                f"Approximate: {indexed.cells.probes:,} of {len(indexed.cells.centers):,} cells are read; recall@"
                f"{indexed.recall.top} {indexed.recall.share:.4f}, by {indexed.recall.users:,} users"
            )
        what = "Written" if indexed.is_new else "Unchanged"
        version = versions.shown(done.version) if versions else done.version
        say(f"{what}: {version}, with {len(catalogue.names):,} items of {catalogue.vectors.shape[1]} numbers")
    if of := done.answered:
        say(f"{of.rows:,} rows answered in {of.seconds:.2f} s; {of.malformed:,} malformed lines left out")
        say(f"Written: {answers}")
